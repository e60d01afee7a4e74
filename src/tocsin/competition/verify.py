"""Settles transactions: a swap, a refusal, or not yet. One way for every source.

A transaction that is known to be mined costs its share of one `balance-changes` call for up to twenty of its
sender. What is not (any more) on the canonical chain stays a candidate and is asked for again. The sweep's
walks would find it too once it is mined, so after a day it is let go.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tocsin.bindings import Statement
from tocsin.competition import ledger
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.desk import Desk
from tocsin.competition.eligibility import Tier
from tocsin.competition.ledger import Candidate, NewSwap, Refusal, Source
from tocsin.competition.rules import Check, Rules, judge
from tocsin.competition.swap import Net, NoSwap, net_of_changes, net_of_events, provider_of, swap_of
from tocsin.model import Transaction
from tocsin.upstream.answer import fact
from tocsin.upstream.hiro import BALANCE_TXIDS_MAX

RETRY_MS = 60_000  # after a call that failed: the next run
PENDING_MS = 300_000  # doubled with every look at a transaction that is still not mined
PENDING_MAX_MS = 6 * 3_600_000
LET_GO_MS = 24 * 3_600_000

Item = tuple[Transaction, Source]


@dataclass(slots=True)
class Tally:
    """What became of transactions."""

    inserted: int = 0
    already_known: int = 0
    pending: int = 0
    withdrawn: int = 0
    failed: int = 0
    reasons: Counter[Code] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.inserted += other.inserted
        self.already_known += other.already_known
        self.pending += other.pending
        self.withdrawn += other.withdrawn
        self.failed += other.failed
        self.reasons += other.reasons

    @property
    def rejected(self) -> int:
        return self.reasons.total()


@dataclass(slots=True)
class _Findings:
    """One unit's results before they are written, all at once."""

    swaps: list[NewSwap] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)


class Verifier:
    """Settles transactions with one errand's calls. Raises `Unanswered` when a fact is not to be had."""

    def __init__(self, desk: Desk, rules: Rules) -> None:
        self._desk = desk
        self._rules = rules

    async def settle(self, sender: str, items: Sequence[Item], tier: Tier) -> Tally:
        """Settle up to twenty mined transactions of one sender, in one batch."""
        findings = _Findings()
        open_items = []
        for transaction, source in items:
            check = judge(transaction, tier, self._rules)
            if check is None:
                open_items.append((transaction, source))
            elif is_final(transaction, check):
                assert check.code is not None
                findings.refusals.append(Refusal(transaction, check.code, check.said, source))
            else:
                findings.unsettled.append(transaction.tx_id)
        if open_items:
            await self._look_at_tokens(sender, open_items, findings)
        return await self._write(findings)

    async def look_up(self, candidates: Sequence[Candidate]) -> tuple[list[Candidate], Tally]:
        """Ask for up to fifty candidates: those that are mined come back, the others are put off."""
        answer = fact(
            await self._desk.hiro.transactions(
                [candidate.txid for candidate in candidates], self._desk.errand
            )
        )
        found = answer or {}
        mined, gone, waiting = [], [], []
        for candidate in candidates:
            transaction = found.get(candidate.txid)
            if transaction is not None and transaction.mined is not None and transaction.canonical:
                mined.append(Candidate(candidate.txid, candidate.source, transaction))
            elif self._desk.clock.now() - candidate.added_at >= LET_GO_MS:
                gone.append(candidate)
            else:
                waiting.append(candidate)
        withdrawn = await self._put_off(waiting, gone)
        return mined, Tally(pending=len(waiting), withdrawn=withdrawn)

    async def _look_at_tokens(self, sender: str, items: Sequence[Item], findings: _Findings) -> None:
        assert len(items) <= BALANCE_TXIDS_MAX
        txids = [transaction.tx_id for transaction, _ in items]
        changes = fact(await self._desk.hiro.balance_changes(sender, txids, self._desk.errand)) or ()
        providers = await self._providers([transaction for transaction, _ in items])
        for transaction, source in items:
            net = net_of_changes(transaction, changes)
            if net is None:
                net = await self._net_by_events(transaction)
            if net is None:
                findings.unsettled.append(transaction.tx_id)
                continue
            swap = swap_of(net)
            if isinstance(swap, NoSwap):
                findings.refusals.append(Refusal(transaction, Code(swap.code), swap.reason, source, swap.net))
            else:
                findings.swaps.append(NewSwap(transaction, swap, source, providers.get(transaction.tx_id)))

    async def _net_by_events(self, transaction: Transaction) -> Net | None:
        """Where balance changes say nothing: the events, if it still stands in the block it was seen in."""
        current = fact(await self._desk.hiro.transaction(transaction.tx_id, self._desk.errand))
        if current is None or not current.canonical or current.mined != transaction.mined:
            return None
        events = fact(await self._desk.hiro.transfer_events(transaction.tx_id, self._desk.errand))
        return None if events is None else net_of_events(transaction.sender, events)

    async def _providers(self, transactions: Sequence[Transaction]) -> Mapping[str, str | None]:
        """Who referred each trade, for the contracts that tell."""
        telling = [
            transaction.tx_id
            for transaction in transactions
            if transaction.contract_call is not None
            and transaction.contract_call.contract_id in self._rules.allowlist.attribution
        ]
        if not telling:
            return {}
        arguments = fact(await self._desk.hiro.call_argument(telling, "provider", self._desk.errand)) or {}
        return {txid: provider_of(argument) for txid, argument in arguments.items()}

    async def _write(self, findings: _Findings) -> Tally:
        now = self._desk.clock.now()
        recording = ledger.record(self._desk.db, findings.swaps, self._rules, now)
        statements = [
            *recording,
            *ledger.refuse(self._desk.db, findings.refusals, self._rules, now),
            *ledger.postpone(self._desk.db, findings.unsettled, now + RETRY_MS),
        ]
        tally = Tally(pending=len(findings.unsettled))
        tally.reasons.update(refusal.code for refusal in findings.refusals)
        if statements:
            results = await self._desk.db.batch(statements)
            if recording:
                tally.inserted = len(results[ledger.INSERT_AT].results)
                tally.already_known = len(findings.swaps) - tally.inserted
        for refusal in findings.refusals:
            self._desk.logger.debug(
                "swap.refused", txid=refusal.transaction.tx_id, code=refusal.code, reason=refusal.reason
            )
        return tally

    async def _put_off(self, waiting: Sequence[Candidate], gone: Sequence[Candidate]) -> int:
        """Not on chain now: no swap, but a candidate for a while. Answers how many swaps this took out."""
        txids = [candidate.txid for candidate in (*waiting, *gone)]
        known = await ledger.known(self._desk.db, txids)
        recorded = [txid for txid in txids if txid in known and known[txid].kind == "swap"]
        now = self._desk.clock.now()
        statements: list[Statement] = ledger.withdraw(self._desk.db, recorded)
        for candidate in waiting:
            due_at = now + min(PENDING_MAX_MS, PENDING_MS * 2 ** min(candidate.attempts, 20))
            statements += ledger.postpone(self._desk.db, [candidate.txid], due_at, attempts=1)
        statements += ledger.dismiss(self._desk.db, [candidate.txid for candidate in gone])
        if statements:
            await self._desk.db.batch(statements)
        for txid in recorded:
            self._desk.logger.warn(
                "swap.withdrawn", txid=txid, reason="it is not on the canonical chain any more"
            )
        for candidate in gone:
            self._desk.logger.info("candidate.dismissed", txid=candidate.txid, source=candidate.source)
        return len(recorded)


def is_final(transaction: Transaction, check: Check) -> bool:
    """Whether a failed check is worth keeping: a fact about a block, not about the mempool."""
    return check.code is not None and MEANINGS[check.code].final and transaction.canonical
