"""Verifies transactions: a swap, a refusal, or still pending. All sources use this one path.

Twenty transactions of any senders take one call, which returns their state and their events in one snapshot. A
transaction that is not (or no longer) on the canonical chain stays a candidate and is verified again. The sweep would
also find it once it is mined, so it is dismissed after a week. A transaction that only a push names and Hiro does not
know is dismissed after a quarter of an hour.

Only routes of more than a hundred events need more calls: one for the balance changes of up to twenty of a sender. If
these may include a fee in a third token, all events are read: a call reads the next hundred of up to twenty routes.

Emits `swap.refused`, `swap.withdrawn`, `candidate.dismissed`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.types import JSON
from tocsin.scheduler.task import WorkContext
from tocsin.shape import FreeForm
from tocsin.stacks import Transaction, TransactionWithEvents
from tocsin.swaps import store as swap_store
from tocsin.swaps.rules import MEANINGS, Check, Code, Rules, Tier, judge, tiers_of
from tocsin.swaps.store import PUSHED, WAIT_MAX_MS, Candidate, NewSwap, Refusal
from tocsin.swaps.swap import Moves, NoSwap, may_have_fees, moves_of_events, net_of_changes, provider_of, swap_of
from tocsin.upstream.answer import NoAnswer, value_or_raise
from tocsin.upstream.hiro import EVENTS_MAX, HiroClient
from tocsin.upstream.limiter import CallSession

ALONE_AFTER = 4  # attempts after which a transaction is verified alone, so that it does not affect others
LOOKS_MIN = 4  # attempts over half an hour before a call that succeeded without any event is refused
PROVIDER = "provider"  # the argument that names who referred a trade
RETRY_MS = (60_000, 240_000, 1_500_000)  # when nothing is known: a minute, five, half an hour after the first attempt
PENDING_MS = 300_000  # doubled each time a transaction is still not mined
DISMISS_AFTER_MS = 7 * 24 * 3_600_000  # since it was last reported
PUSHED_LOOKS_MAX = 3  # attempts, over a quarter of an hour, at a transaction that only a push names


@dataclass(slots=True)
class Tally:
    """How many transactions ended in which way. `unanswered`: why a call that some needed had no answer."""

    inserted: int = 0
    already_known: int = 0
    pending: int = 0
    withdrawn: int = 0
    failed: int = 0
    reasons: Counter[Code] = field(default_factory=Counter)
    unanswered: NoAnswer | None = None

    def add(self, other: "Tally") -> None:
        self.inserted += other.inserted
        self.already_known += other.already_known
        self.pending += other.pending
        self.withdrawn += other.withdrawn
        self.failed += other.failed
        self.reasons += other.reasons
        self.unanswered = self.unanswered or other.unanswered

    @property
    def verified(self) -> int:
        """How many have an answer, whatever they turned out to be."""
        return self.inserted + self.pending + self.withdrawn + self.reasons.total()

    def counters(self, threw: int) -> FreeForm:
        """Return the counters of a run as `status()` shows them. `threw` is how often our own code failed."""
        reasons: dict[str, JSON] = {str(code): number for code, number in sorted(self.reasons.items())}
        if threw:
            reasons[str(Code.VERIFY_THREW)] = threw
        return {
            "inserted": self.inserted,
            "alreadyKnown": self.already_known,
            "pending": self.pending,
            "withdrawn": self.withdrawn,
            "rejected": self.reasons.total() + threw,
            "rejectionReasons": reasons,
            "failed": self.failed,
        }


class Verifier:
    """Verifies transactions with the calls of one session. Raises `NoAnswer` when a fact is unavailable."""

    def __init__(self, context: WorkContext, rules: Rules) -> None:
        self._context = context
        self._hiro = context.upstream("hiro", HiroClient)
        self._rules = rules

    async def verify(self, candidates: Sequence[Candidate]) -> Tally:
        """Verify up to twenty candidates."""
        txids = [candidate.txid for candidate in candidates]
        transactions = value_or_raise(await self._hiro.transactions_with_events(txids, self._context.session)) or {}
        mined: list[tuple[TransactionWithEvents, Candidate]] = []
        unmined: list[Candidate] = []
        unknown: set[str] = set()
        unreadable: list[Candidate] = []
        for candidate in candidates:
            if candidate.txid not in transactions:
                unreadable.append(candidate)
                continue
            found = transactions[candidate.txid]
            if found is not None and found.transaction.canonical:
                mined.append((found, candidate))
            else:
                unmined.append(candidate)
                if found is None:
                    unknown.add(candidate.txid)
        tally = await self._put_off(unmined, unknown)
        tally.add(await self._ask_again(unreadable))
        senders = {found.transaction.sender for found, _ in mined}
        tally.add(await self.conclude(mined, await tiers_of(self._context.db, senders)))
        return tally

    async def conclude(
        self, mined: Sequence[tuple[TransactionWithEvents, Candidate]], tiers: Mapping[str, Tier]
    ) -> Tally:
        """Judge transactions of the canonical chain and record the results, in one batch.

        Long routes need another call. If it gets no answer, they are left for later, and the others are recorded:
        otherwise, while one call a minute is available, the first call would be repeated again and again for nothing.
        """
        swaps: list[NewSwap] = []
        refusals: list[Refusal] = []
        undecided: list[Candidate] = []
        counting: list[tuple[TransactionWithEvents, Candidate]] = []
        for found, candidate in mined:
            transaction = found.transaction
            check = judge(transaction, tiers.get(transaction.sender, "not_registered"), self._rules)
            if check is None:
                counting.append((found, candidate))
            elif check.code is not None and is_final(transaction, check):
                refusals.append(Refusal(transaction, check.code, check.detail, candidate.source))
            else:
                undecided.append(candidate)
        moved, unanswered = await self._moves_of([found for found, _ in counting])
        for found, candidate in counting:
            transaction, moves = found.transaction, moved.get(found.transaction.tx_id)
            if moves is None or (shows_nothing(found) and candidate.attempts < LOOKS_MIN - 1):
                undecided.append(candidate)
                continue
            swap = swap_of(moves)
            if isinstance(swap, NoSwap):
                refusals.append(Refusal(transaction, Code(swap.code), swap.reason, candidate.source, swap.net))
            else:
                swaps.append(NewSwap(transaction, swap, candidate.source, self._provider(found)))
        tally = await self._write(swaps, refusals, undecided)
        tally.unanswered = unanswered
        return tally

    async def _moves_of(
        self, counting: Sequence[TransactionWithEvents]
    ) -> tuple[Mapping[str, Moves | None], NoAnswer | None]:
        """Return what each transaction moved, and why that of some is not known."""
        known = [found for found in counting if found.events is not None]
        moved = dict(await moves_of_each(self._hiro, self._context.session, known))
        try:
            unread = [found for found in counting if found.events is None]
            moved |= await moves_of_each(self._hiro, self._context.session, unread)
        except NoAnswer as error:
            return moved, error
        return moved, None

    def _provider(self, found: TransactionWithEvents) -> str | None:
        """Return who referred the trade, for contracts whose calls name it."""
        call = found.transaction.contract_call
        if call is None or call.contract_id not in self._rules.allowlist.attribution:
            return None
        return provider_of((found.arguments or {}).get(PROVIDER))

    async def _write(
        self, swaps: Sequence[NewSwap], refusals: Sequence[Refusal], undecided: Sequence[Candidate]
    ) -> Tally:
        db, now = self._context.db, self._context.clock.now()
        queued = [candidate for candidate in undecided if candidate.added_at]
        recording = swap_store.record(db, swaps, self._rules, now)
        statements = [
            *recording,
            *swap_store.refuse(db, refusals, self._rules, now),
            *swap_store.postpone(db, queued, now, retry_ms, attempts=1),
        ]
        tally = Tally(pending=len(undecided))
        tally.reasons.update(refusal.code for refusal in refusals)
        if statements:
            results = await db.batch(statements)
            if recording:
                tally.inserted = len(results[swap_store.INSERT_AT].results)
                tally.already_known = len(swaps) - tally.inserted
        for refusal in refusals:
            self._context.logger.debug(
                "swap.refused", txid=refusal.transaction.tx_id, code=str(refusal.code), reason=refusal.reason
            )
        return tally

    async def _put_off(self, unmined: Sequence[Candidate], unknown: Collection[str]) -> Tally:
        """Keep transactions that are not on chain now as candidates for a while."""
        if not unmined:
            return Tally()
        db, logger, now = self._context.db, self._context.logger, self._context.clock.now()
        known = await swap_store.known(db, [candidate.txid for candidate in unmined])
        recorded = [txid for txid, where in known.items() if where.kind == "swap"]
        gone = [
            candidate
            for candidate in unmined
            if now - candidate.added_at >= DISMISS_AFTER_MS or (candidate.txid in unknown and _is_invented(candidate))
        ]
        nowhere = [each.txid for each in unmined if _is_nowhere(each, unknown)]
        await db.batch(
            [
                swap_store.withdraw(db, recorded),
                *swap_store.postpone(db, unmined, now, _wait_ms, attempts=1),
                swap_store.not_mined(db, nowhere),
                swap_store.dismiss(db, [candidate.txid for candidate in gone]),
            ]
        )
        for txid in recorded:
            logger.warning("swap.withdrawn", txid=txid, reason="it is no longer on the canonical chain")
        for candidate in gone:
            logger.info("candidate.dismissed", txid=candidate.txid, source=candidate.source)
        return Tally(pending=len(unmined) - len(gone), withdrawn=len(recorded))

    async def _ask_again(self, unreadable: Sequence[Candidate]) -> Tally:
        """Ask again for transactions whose rows cannot be read: they are neither withdrawn nor dismissed."""
        if unreadable:
            db = self._context.db
            await db.batch(swap_store.postpone(db, unreadable, self._context.clock.now(), _wait_ms, attempts=1))
        return Tally(failed=len(unreadable))


async def moves_of_each(
    hiro: HiroClient, session: CallSession, counting: Sequence[TransactionWithEvents]
) -> Mapping[str, Moves | None]:
    """Return what each transaction did to its sender; None where Hiro has no answer now. Raises `NoAnswer`."""
    moved: dict[str, Moves | None] = {}
    long_routes: dict[str, list[TransactionWithEvents]] = {}  # by sender
    for each in counting:
        if each.events is None:
            long_routes.setdefault(each.transaction.sender, []).append(each)
        else:
            moved[each.transaction.tx_id] = moves_of_events(each.transaction.sender, each.events)
    unclear: list[TransactionWithEvents] = []
    for sender, own in long_routes.items():
        txids = [route.transaction.tx_id for route in own]
        changes = value_or_raise(await hiro.balance_changes(sender, txids, session)) or ()
        for route in own:
            net = net_of_changes(route.transaction, changes)
            moved[route.transaction.tx_id] = None if net is None else Moves(net)
            if net is None or (may_have_fees(net) and (route.transaction.event_count or 0) <= EVENTS_MAX):
                unclear.append(route)
    if unclear:
        events = value_or_raise(await hiro.all_events(unclear, session)) or {}
        for transaction in (route.transaction for route in unclear):
            whole = events.get(transaction.tx_id)  # None: unreadable, or the route was reorged in the meantime
            moved[transaction.tx_id] = None if whole is None else moves_of_events(transaction.sender, whole)
    return moved


async def moves_if_needed(
    hiro: HiroClient, session: CallSession, found: TransactionWithEvents, tier: Tier, rules: Rules
) -> Moves | None:
    """Return what it did to its sender, if that matters. Makes only the calls that a verification would make."""
    needed = found.events is not None or judge(found.transaction, tier, rules) is None
    if shows_nothing(found) or not needed:
        return None
    return (await moves_of_each(hiro, session, [found]))[found.transaction.tx_id]


def shows_nothing(found: TransactionWithEvents) -> bool:
    """Return whether a listed call succeeded but moved nothing at all: more likely a lagging index than a fact."""
    return found.events is not None and not found.events


def retry_ms(candidate: Candidate) -> int:
    """Return how long to wait when nothing is known: a short time at first, then longer."""
    return RETRY_MS[min(candidate.attempts, len(RETRY_MS) - 1)]


def _is_nowhere(candidate: Candidate, unknown: Collection[str]) -> bool:
    """Return whether Hiro reports it as not mined. One that it does not know may be new, but not for long."""
    return candidate.txid not in unknown or candidate.attempts >= LOOKS_MIN - 1


def _is_invented(candidate: Candidate) -> bool:
    """Return whether a pushed transaction is not real: pushes name mined ones, and Hiro still does not know it."""
    return candidate.rank == PUSHED and candidate.attempts >= PUSHED_LOOKS_MAX - 1


def _wait_ms(candidate: Candidate) -> int:
    """Return how long to wait for a candidate that is not on chain now, or whose row cannot be read."""
    return min(WAIT_MAX_MS, PENDING_MS << min(candidate.attempts, 20))


def is_final(transaction: Transaction, check: Check) -> bool:
    """Return whether a failed check is worth storing: a fact about a block, not about the mempool."""
    return check.code is not None and MEANINGS[check.code].final and transaction.canonical
