"""One seeded, deterministic model of a chain, driven by the time passed in.

A block is mined every five seconds, a Bitcoin block every ten minutes or at irregular times. A broadcast transaction
waits in the mempool until it is mined or dropped. A reorg removes the newest blocks. An empty block is only a height,
so the cost of a month depends only on the transactions in it. The same seed, commands and times give the same chain to
the last byte, no matter in how many steps it is advanced.

Nothing here reads a clock: `advance(to_ms)` moves time, and every command happens at `now_ms`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Literal, TypeAlias

from holdfast.errors import UsageError
from stacks_simulator.addresses import address_of, digest
from stacks_simulator.calls import CALL_KINDS, LISTED_CALLS, draw_trade
from stacks_simulator.chain_records import (
    AssetEvent,
    Block,
    ChainEvent,
    ChainTransaction,
    IntendedSwap,
    PrincipalIndex,
    TokenTransfer,
    TxPayload,
)
from stacks_simulator.tokens import TOKENS_BY_ID, Market, SimulatedToken, price_usd
from stacks_simulator.truth import Campaign, TrueSwap, true_swaps
from stacks_simulator.wallets import Wallet, registered_wallets, strangers

BLOCK_MS = 5_000
BURN_BLOCK_S = 600
FIRST_HEIGHT = 7_900_000
FIRST_BURN_HEIGHT = 949_000
STRANGER_COUNT = 40
SPONSOR = address_of("sponsor")
DROP_STATUSES = (
    "dropped_replace_by_fee",
    "dropped_replace_across_fork",
    "dropped_too_expensive",
    "dropped_stale_garbage_collect",
    "dropped_problematic",
)

# What happens to a transaction whose block is abandoned: it is mined again at once, returns to the mempool,
# is dropped, stays on the fork only (v1 shows `canonical: false`), or is unknown to every node.
# "mixed" draws one of these per transaction.
Fate: TypeAlias = Literal["remined", "pending", "dropped", "forked", "vanished", "mixed"]
FATES: tuple[Fate, ...] = ("remined", "remined", "pending", "dropped", "forked", "vanished")


class AccountNonces:
    """The next nonce of every account: those of its mined transactions are 0, 1, 2 and so on, as sender or sponsor.

    On a real chain the nonce is part of the signed transaction. Here a transaction gets it when it is mined, so a
    dropped one leaves no gap. Until then it has the nonce that it would get if it were mined next.
    """

    def __init__(self) -> None:
        self._next: Counter[str] = Counter()

    def preview(self, tx: ChainTransaction) -> None:
        """Give a waiting transaction the nonces that it would get now, without using them up."""
        tx.nonce = self._next[tx.sender]
        if tx.sponsor:
            tx.sponsor_nonce = self._next[tx.sponsor]

    def use(self, tx: ChainTransaction) -> None:
        """Give a transaction its nonces when it is mined."""
        self.preview(tx)
        self._next.update(tx.signers)

    def take_back(self, orphans: Iterable[ChainTransaction]) -> None:
        """Free the nonces of the newest transactions again. The transactions still show them."""
        for tx in orphans:
            self._next.subtract(tx.signers)


class Chain:
    """The model. Commands return the transactions they create; `truth()` returns what a sweep must find."""

    def __init__(
        self,
        *,
        seed: int,
        start_ms: int,
        wallets: int = 3,
        campaign: Campaign | None = None,
        market: Market = price_usd,
        is_irregular: bool = False,
    ) -> None:
        self.seed = seed
        self.market = market
        self.is_irregular = is_irregular  # Bitcoin blocks come 1 to 19 minutes after each other, not every 10
        self.start_ms = start_ms
        self.now_ms = start_ms
        self.campaign = campaign or Campaign()
        self.wallets = registered_wallets(seed, wallets)
        self.strangers = strangers(seed, STRANGER_COUNT)
        self.transactions: dict[str, ChainTransaction] = {}
        self.blocks: list[Block] = []
        self.index = PrincipalIndex()
        self._rng = Random(f"{seed}:commands")  # noqa: S311 - a repeatable model, not a secret
        self._nonces = AccountNonces()
        self._extra_blocks = 0
        self._forks: list[int] = []  # the first height of every fork so far
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []  # a heap of time, order, action
        self._scheduled_count = 0
        self._due: dict[int, list[ChainTransaction]] = {}  # by the time of the block that mines them

    # Time

    def advance(self, to_ms: int) -> None:
        """Run everything that is due up to that time. A time in the past changes nothing."""
        while self._agenda and self._agenda[0][0] <= to_ms:
            at_ms, _, action = heapq.heappop(self._agenda)
            self.now_ms = max(self.now_ms, at_ms)
            action()
        self.now_ms = max(self.now_ms, to_ms)

    def schedule(self, at_ms: int, action: Callable[[], None]) -> None:
        """Run an action at a future time. Actions with equal times run in the order of these calls."""
        self._scheduled_count += 1
        heapq.heappush(self._agenda, (max(at_ms, self.now_ms), self._scheduled_count, action))

    @property
    def tip_height(self) -> int:
        return FIRST_HEIGHT + (self.now_ms - self.start_ms) // BLOCK_MS + self._extra_blocks

    # Commands

    def swap(
        self,
        wallet: Wallet | str | None = None,
        kind: str = "simple",
        *,
        wait_ms: int | None = 0,
        rng: Random | None = None,
        token_in: str | None = None,
        token_out: str | None = None,
        amount_in: int | None = None,
        amount_out: int | None = None,
    ) -> ChainTransaction:
        """Broadcast a call of that kind (see `CALL_KINDS`). Missing arguments are drawn."""
        if kind not in CALL_KINDS:
            raise UsageError(f"unknown kind of call {kind!r}; the kinds are {', '.join(CALL_KINDS)}")
        rng = rng or self._rng
        sender = self._address(wallet or rng.choice(self.wallets))
        fee = rng.randrange(1_000, 9_000)
        trade = draw_trade(
            rng,
            sender,
            fee,
            lambda token: self.market(token, self.now_ms),
            token_in=_token(token_in),
            token_out=_token(token_out),
            amount_in=amount_in,
            amount_out=amount_out,
        )
        draft = CALL_KINDS[kind](trade)
        return self.broadcast(
            sender,
            draft.call,
            draft.events,
            fee=fee,
            outcome=draft.outcome,
            swap=draft.swap,
            sponsor=SPONSOR if draft.sponsored else None,
            wait_ms=wait_ms,
        )

    def transfer(
        self, sender: Wallet | str, recipient: Wallet | str, amount: int, *, wait_ms: int | None = 0
    ) -> ChainTransaction:
        """Broadcast a plain STX transfer."""
        source, target = self._address(sender), self._address(recipient)
        event = AssetEvent("stx", "transfer", source, target, amount)
        return self.broadcast(source, TokenTransfer(target, amount), (event,), fee=180, wait_ms=wait_ms)

    def dust(self, wallet: Wallet | str, count: int) -> list[ChainTransaction]:
        """Have strangers send `count` tiny transfers to a wallet; they push its own transactions down in every list."""
        senders = self.strangers
        return [self.transfer(senders[n % len(senders)], wallet, 1) for n in range(count)]

    def burst(self, wallet: Wallet | str, count: int, kind: str = "simple") -> list[ChainTransaction]:
        """Broadcast `count` calls of one wallet at the same time."""
        return [self.swap(wallet, kind) for _ in range(count)]

    def broadcast(
        self,
        sender: str,
        payload: TxPayload,
        events: Iterable[ChainEvent],
        *,
        fee: int,
        outcome: str = "success",
        swap: IntendedSwap | None = None,
        sponsor: str | None = None,
        wait_ms: int | None = 0,
    ) -> ChainTransaction:
        """Put a transaction into the mempool. The first block after `wait_ms` mines it (None: no block)."""
        tx = ChainTransaction(
            tx_id=digest(f"{self.seed}:tx:{len(self.transactions)}"),
            sender=sender,
            fee=fee,
            payload=payload,
            events=tuple(events),
            outcome=outcome,
            received_ms=self.now_ms,
            swap=swap,
            sponsor=sponsor,
        )
        self._nonces.preview(tx)
        self.transactions[tx.tx_id] = tx
        if wait_ms is not None:
            self._mine_later(tx, wait_ms)
        return tx

    def rebroadcast(self, tx: ChainTransaction, *, wait_ms: int | None = 0) -> None:
        """Put a transaction that left the chain or the mempool into the mempool again, with the same id."""
        if tx.state == "mined":
            raise UsageError(f"{tx.tx_id} is mined; a mined transaction cannot be broadcast again")
        self._wait(tx)
        if wait_ms is not None:
            self._mine_later(tx, wait_ms)

    def drop(self, tx: ChainTransaction, status: str = DROP_STATUSES[0]) -> None:
        """Remove a waiting transaction from the mempool."""
        if tx.state != "mempool":
            raise UsageError(f"{tx.tx_id} is {tx.state}; only a waiting transaction can be dropped")
        if status not in DROP_STATUSES:
            raise UsageError(f"unknown drop status {status!r}; they are {', '.join(DROP_STATUSES)}")
        if status == DROP_STATUSES[0]:
            tx.replaced_by = digest(f"{tx.tx_id}:replacement")
        tx.set_state("dropped", status)

    def mine(self, *chosen: ChainTransaction) -> Block:
        """Mine an extra block now, with these transactions, or with all waiting ones if none is given."""
        if mined := [tx.tx_id for tx in chosen if tx.state == "mined"]:
            raise UsageError(f"already mined: {', '.join(mined)}")
        waiting = chosen or tuple(tx for tx in self.transactions.values() if tx.state == "mempool")
        self._extra_blocks += 1
        return self._mine(waiting)

    def reorg(self, depth: int, fate: Fate = "pending", rng: Random | None = None) -> list[ChainTransaction]:
        """Abandon the newest blocks and return the transactions that were in them."""
        if depth < 1:
            raise UsageError(f"depth must be 1 or more, not {depth}: a reorg abandons at least one block")
        first = self.tip_height - depth + 1
        orphans: list[ChainTransaction] = []
        while self.blocks and self.blocks[-1].height >= first:
            orphans[:0] = self.blocks.pop().transactions
        self.index.remove(orphans)
        self._nonces.take_back(orphans)
        self._forks.append(first)
        remined = []
        for tx in orphans:
            tx_fate = (rng or self._rng).choice(FATES) if fate == "mixed" else fate
            if tx_fate == "remined":
                remined.append(tx)
            self._orphan(tx, tx_fate)
        if remined:
            self._mine(remined)
        return orphans

    # The truth

    def truth(
        self,
        *,
        senders: Collection[str] | None = None,
        allowlist: Mapping[str, Collection[str]] = LISTED_CALLS,
        campaign: Campaign | None = None,
    ) -> list[TrueSwap]:
        """The swaps that a perfect sweep would have found by now, by default for the eligible wallets."""
        eligible = {wallet.address for wallet in self.wallets if wallet.tier == "eligible"}
        return true_swaps(
            self.transactions.values(), eligible if senders is None else senders, allowlist, campaign or self.campaign
        )

    # Blocks

    def block_hash(self, height: int) -> str:
        """The hash of the block at this height, empty or not. It changes when a fork replaces the block."""
        forks = sum(1 for first in self._forks if first <= height)
        return digest(f"{self.seed}:block:{forks}:{height}")

    def _burn_block(self, time_s: int) -> tuple[int, int]:
        """The number and the time of the newest Bitcoin block. On an irregular chain it may be 9 minutes late."""
        number = time_s // BURN_BLOCK_S
        begins = [each * BURN_BLOCK_S + self._lateness_s(each) for each in (number - 1, number)]
        return (number, begins[1]) if begins[1] <= time_s else (number - 1, begins[0])

    def _lateness_s(self, number: int) -> int:
        return int(digest(f"{self.seed}:burn:{number}")[-4:], 16) % 540 if self.is_irregular else 0

    def _mine_later(self, tx: ChainTransaction, wait_ms: int) -> None:
        blocks_passed = (self.now_ms + wait_ms - self.start_ms) // BLOCK_MS
        at_ms = self.start_ms + (blocks_passed + 1) * BLOCK_MS
        if at_ms not in self._due:
            self._due[at_ms] = []
            self.schedule(at_ms, lambda: self._mine_due(at_ms))
        self._due[at_ms].append(tx)

    def _mine_due(self, at_ms: int) -> None:
        # A transaction that was dropped and broadcast again may be in the list twice.
        waiting = [tx for tx in dict.fromkeys(self._due.pop(at_ms)) if tx.state == "mempool"]
        if waiting:
            self._mine(waiting)

    def _mine(self, chosen: Iterable[ChainTransaction]) -> Block:
        if self.blocks and self.blocks[-1].height >= self.tip_height:  # a second block at the same instant
            self._extra_blocks += 1
        height, time_s = self.tip_height, self.now_ms // 1000
        burn_number, burn_time_s = self._burn_block(time_s)
        block = Block(
            height=height,
            hash=self.block_hash(height),
            parent_hash=self.block_hash(height - 1),
            index_hash=digest("index" + self.block_hash(height)),
            time_s=time_s,
            burn_height=FIRST_BURN_HEIGHT + burn_number - self.start_ms // 1000 // BURN_BLOCK_S,
            burn_time_s=burn_time_s,
        )
        for tx in chosen:
            tx.block, tx.index = block, len(block.transactions)
            self._nonces.use(tx)
            tx.set_state("mined", tx.outcome)
            block.transactions.append(tx)
            self.index.add(tx)
        self.blocks.append(block)
        return block

    def _orphan(self, tx: ChainTransaction, fate: Fate) -> None:
        if fate == "pending":
            self._wait(tx)
            self._mine_later(tx, 0)
        elif fate == "dropped":
            tx.set_state("dropped", "dropped_replace_across_fork")
        elif fate == "forked":
            tx.set_state("forked", tx.outcome)
        elif fate == "vanished":
            tx.set_state("vanished", "")

    def _wait(self, tx: ChainTransaction) -> None:
        self._nonces.preview(tx)
        tx.set_state("mempool", "pending")

    @staticmethod
    def _address(wallet: Wallet | str) -> str:
        return wallet if isinstance(wallet, str) else wallet.address


def _token(token_id: str | None) -> SimulatedToken | None:
    if token_id is None:
        return None
    if token_id not in TOKENS_BY_ID:
        raise UsageError(f"unknown token {token_id!r}; the tokens are {', '.join(TOKENS_BY_ID)}")
    return TOKENS_BY_ID[token_id]
