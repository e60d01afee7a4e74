"""The nonces of accounts, as on a real chain: those of an account's mined transactions are 0, 1, 2 and so on.

On a real chain the nonce is part of the signed transaction. Here a transaction gets it when it is mined, so a dropped
transaction leaves no gap. Until then it has the nonce that it would get if it were mined next.
"""

from collections import defaultdict
from collections.abc import Iterable

from tocsin.simulator.chain_records import ChainTransaction


class AccountNonces:
    """The next nonce of every account. A sponsored transaction uses a nonce of its sender and one of its sponsor."""

    def __init__(self) -> None:
        self._next: dict[str, int] = defaultdict(int)

    def preview(self, tx: ChainTransaction) -> None:
        """Give a waiting transaction the nonces that it would get now, without using them up."""
        tx.nonce = self._next.get(tx.sender, 0)
        if tx.sponsor:
            tx.sponsor_nonce = self._next.get(tx.sponsor, 0)

    def use(self, tx: ChainTransaction) -> None:
        """Give a transaction its nonces when it is mined."""
        tx.nonce = self._take(tx.sender)
        if tx.sponsor:
            tx.sponsor_nonce = self._take(tx.sponsor)

    def take_back(self, orphans: Iterable[ChainTransaction]) -> None:
        """Free the nonces of the newest transactions again. The transactions still show them."""
        for tx in orphans:
            self._next[tx.sender] -= 1
            if tx.sponsor:
                self._next[tx.sponsor] -= 1

    def _take(self, address: str) -> int:
        nonce = self._next[address]
        self._next[address] = nonce + 1
        return nonce
