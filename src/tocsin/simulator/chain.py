"""One seeded, deterministic model of a chain, driven by the time passed in.

Blocks come every five seconds, Bitcoin blocks every ten minutes. A broadcast transaction waits in the
mempool, then it is mined, or dropped; a reorg takes the newest blocks away again. Empty blocks are only
heights, so a month passes as quickly as what happens in it. The same seed, commands and times give the
same chain to the last byte, in however many steps it is advanced.

Nothing here reads a clock: `advance(to_ms)` moves time, every command happens at `now_ms`.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Literal, TypeAlias

from tocsin.errors import UsageError
from tocsin.simulator.addresses import address_of, digest
from tocsin.simulator.call_drafts import draw_trade
from tocsin.simulator.call_kinds import CALL_KINDS
from tocsin.simulator.chain_records import (
    AssetEvent,
    Block,
    ChainEvent,
    ChainTransaction,
    IntendedSwap,
    PrincipalIndex,
    SimulatedCall,
    TokenTransfer,
)
from tocsin.simulator.contracts import LISTED_CALLS
from tocsin.simulator.simulated_tokens import TOKENS_BY_ID, SimulatedToken
from tocsin.simulator.truth import Campaign, TrueSwap, true_swaps
from tocsin.simulator.wallets import Wallet, registered_wallets, strangers

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

# What becomes of a transaction whose block is abandoned: mined again at once, back to the mempool,
# dropped, left on the fork only (v1 shows `canonical: false`), or unknown to every node.
Fate: TypeAlias = Literal["remined", "pending", "dropped", "forked", "vanished", "mixed"]
FATES: tuple[Fate, ...] = ("remined", "remined", "pending", "dropped", "forked", "vanished")


class Chain:
    """The model. Commands return the transactions they make; `truth()` tells what a sweep must hold."""

    def __init__(
        self,
        *,
        seed: int,
        start_ms: int,
        wallets: int = 3,
        campaign: Campaign | None = None,
        allowlist: Mapping[str, Collection[str]] = LISTED_CALLS,
    ) -> None:
        self.seed = seed
        self.start_ms = start_ms
        self.now_ms = start_ms
        self.campaign = campaign or Campaign()
        self.allowlist = allowlist
        self.wallets = registered_wallets(seed, wallets)
        self.strangers = strangers(seed, STRANGER_COUNT)
        self.transactions: dict[str, ChainTransaction] = {}
        self.blocks: list[Block] = []
        self.index = PrincipalIndex()
        self._rng = Random(f"{seed}:commands")  # noqa: S311 - a repeatable model, not a secret
        self._nonces: dict[str, int] = {}
        self._extra_blocks = 0
        self._forks: list[int] = []  # the first height of every fork so far
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._due: dict[int, list[ChainTransaction]] = {}

    # Time

    def advance(self, to_ms: int) -> None:
        """Let everything happen that is due up to then; a time already past changes nothing."""
        while self._agenda and self._agenda[0][0] <= to_ms:
            at_ms, _, happen = heapq.heappop(self._agenda)
            self.now_ms = max(self.now_ms, at_ms)
            happen()
        self.now_ms = max(self.now_ms, to_ms)

    def schedule(self, at_ms: int, happen: Callable[[], None]) -> None:
        """Have something happen at a time to come; at equal times, in the order of these calls."""
        self._scheduled += 1
        heapq.heappush(self._agenda, (max(at_ms, self.now_ms), self._scheduled, happen))

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
        """Broadcast a call of that shape; what is not given is drawn. See `call_kinds.CALL_KINDS`."""
        if kind not in CALL_KINDS:
            raise UsageError(f"no call is shaped {kind!r}; there are {', '.join(CALL_KINDS)}")
        rng = rng or self._rng
        sender = self._address(wallet or rng.choice(self.wallets))
        fee = rng.randrange(1_000, 9_000)
        trade = draw_trade(
            rng,
            sender,
            fee,
            self.now_ms,
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

    def dust(self, wallet: Wallet | str, count: int, *, wait_ms: int | None = 0) -> list[ChainTransaction]:
        """Strangers send a wallet so many tiny transfers: they bury its own in every list."""
        senders = self.strangers
        return [self.transfer(senders[n % len(senders)], wallet, 1, wait_ms=wait_ms) for n in range(count)]

    def burst(self, wallet: Wallet | str, count: int, kind: str = "simple") -> list[ChainTransaction]:
        """So many calls of one wallet between two moments."""
        return [self.swap(wallet, kind) for _ in range(count)]

    def broadcast(
        self,
        sender: str,
        payload: SimulatedCall | TokenTransfer,
        events: Iterable[ChainEvent],
        *,
        fee: int,
        outcome: str = "success",
        swap: IntendedSwap | None = None,
        sponsor: str | None = None,
        wait_ms: int | None = 0,
    ) -> ChainTransaction:
        """Put a transaction into the mempool; the first block after `wait_ms` takes it (None: never)."""
        tx = ChainTransaction(
            tx_id=digest(f"{self.seed}:tx:{len(self.transactions)}"),
            sender=sender,
            nonce=self._next_nonce(sender),
            fee=fee,
            payload=payload,
            events=tuple(events),
            outcome=outcome,
            received_ms=self.now_ms,
            received_height=self.tip_height,
            swap=swap,
            sponsor=sponsor,
            sponsor_nonce=self._next_nonce(sponsor) if sponsor else 0,
        )
        self.transactions[tx.tx_id] = tx
        if wait_ms is not None:
            self._mine_later(tx, wait_ms)
        return tx

    def rebroadcast(self, tx: ChainTransaction, *, wait_ms: int | None = 0) -> None:
        """Put a transaction that left into the mempool again, under the same id."""
        if tx.state == "mined":
            raise UsageError(f"{tx.tx_id} is mined; only a transaction that left the chain comes back")
        tx.set_state("mempool", "pending")
        if wait_ms is not None:
            self._mine_later(tx, wait_ms)

    def drop(
        self, tx: ChainTransaction, status: str = DROP_STATUSES[0], replaced_by: str | None = None
    ) -> None:
        """Take a waiting transaction out of the mempool."""
        if tx.state != "mempool":
            raise UsageError(f"{tx.tx_id} is {tx.state}; only a waiting transaction can be dropped")
        if status not in DROP_STATUSES:
            raise UsageError(f"no transaction is {status!r}; the words are {', '.join(DROP_STATUSES)}")
        if status == DROP_STATUSES[0]:
            tx.replaced_by = replaced_by or digest(f"{tx.tx_id}:replacement")
        tx.set_state("dropped", status)

    def mine(self, *chosen: ChainTransaction) -> Block:
        """A block right now, besides the regular ones, with these transactions or with all that wait."""
        if mined := [tx.tx_id for tx in chosen if tx.state == "mined"]:
            raise UsageError(f"already mined: {', '.join(mined)}")
        waiting = chosen or tuple(tx for tx in self.transactions.values() if tx.state == "mempool")
        self._extra_blocks += 1
        return self._mine(waiting)

    def reorg(self, depth: int, fate: Fate = "pending", rng: Random | None = None) -> list[ChainTransaction]:
        """Abandon the newest blocks; answers the transactions that were in them."""
        if depth < 1:
            raise UsageError(f"a reorg abandons at least one block, not {depth}")
        first = self.tip_height - depth + 1
        orphans: list[ChainTransaction] = []
        while self.blocks and self.blocks[-1].height >= first:
            orphans[:0] = self.blocks.pop().transactions
        self.index.remove(orphans)
        self._forks.append(first)
        again = []
        for tx in orphans:
            own = (rng or self._rng).choice(FATES) if fate == "mixed" else fate
            if own == "remined":
                again.append(tx)
            self._orphan(tx, own)
        if again:
            self._mine(again)
        return orphans

    # The truth

    def truth(
        self,
        *,
        senders: Collection[str] | None = None,
        allowlist: Mapping[str, Collection[str]] | None = None,
        campaign: Campaign | None = None,
    ) -> list[TrueSwap]:
        """What a perfect sweep would hold now; by default for the eligible wallets of this chain."""
        eligible = {wallet.address for wallet in self.wallets if wallet.tier == "eligible"}
        return true_swaps(
            self.transactions.values(),
            eligible if senders is None else senders,
            self.allowlist if allowlist is None else allowlist,
            campaign or self.campaign,
        )

    # Inside

    def block_hash(self, height: int) -> str:
        """Also empty blocks have one; it changes when a fork replaces them."""
        forks = sum(1 for first in self._forks if first <= height)
        return digest(f"{self.seed}:block:{forks}:{height}")

    def _mine_later(self, tx: ChainTransaction, wait_ms: int) -> None:
        blocks_passed = (self.now_ms + wait_ms - self.start_ms) // BLOCK_MS
        at_ms = self.start_ms + (blocks_passed + 1) * BLOCK_MS
        if at_ms not in self._due:
            self._due[at_ms] = []
            self.schedule(at_ms, lambda: self._mine_due(at_ms))
        self._due[at_ms].append(tx)

    def _mine_due(self, at_ms: int) -> None:
        # One that was dropped and sent again may stand here twice.
        waiting = [tx for tx in dict.fromkeys(self._due.pop(at_ms)) if tx.state == "mempool"]
        if waiting:
            self._mine(waiting)

    def _mine(self, chosen: Iterable[ChainTransaction]) -> Block:
        if self.blocks and self.blocks[-1].height >= self.tip_height:  # two at the same instant
            self._extra_blocks += 1
        height, time_s = self.tip_height, self.now_ms // 1000
        block = Block(
            height=height,
            hash=self.block_hash(height),
            parent_hash=self.block_hash(height - 1),
            index_hash=digest("index" + self.block_hash(height)),
            parent_index_hash=digest("index" + self.block_hash(height - 1)),
            time_s=time_s,
            burn_height=FIRST_BURN_HEIGHT + time_s // BURN_BLOCK_S - self.start_ms // 1000 // BURN_BLOCK_S,
            burn_time_s=time_s // BURN_BLOCK_S * BURN_BLOCK_S,
        )
        for tx in chosen:
            tx.block, tx.index = block, len(block.transactions)
            tx.set_state("mined", tx.outcome)
            block.transactions.append(tx)
            self.index.add(tx)
        self.blocks.append(block)
        return block

    def _orphan(self, tx: ChainTransaction, fate: Fate) -> None:
        if fate == "pending":
            tx.set_state("mempool", "pending")
            self._mine_later(tx, 0)
        elif fate == "dropped":
            tx.set_state("dropped", "dropped_replace_across_fork")
        elif fate == "forked":
            tx.set_state("forked", tx.outcome)
        elif fate == "vanished":
            tx.set_state("vanished", "")

    def _next_nonce(self, address: str) -> int:
        nonce = self._nonces.get(address, 0)
        self._nonces[address] = nonce + 1
        return nonce

    @staticmethod
    def _address(who: Wallet | str) -> str:
        return who if isinstance(who, str) else who.address


def _token(token_id: str | None) -> SimulatedToken | None:
    if token_id is None:
        return None
    if token_id not in TOKENS_BY_ID:
        raise UsageError(f"no token is called {token_id!r}; there are {', '.join(TOKENS_BY_ID)}")
    return TOKENS_BY_ID[token_id]
