"""Handles trades that agents submit, and the other request jobs of the competition.

They run inside the object, which owns the budget and is the only writer, while the caller waits. Cheap answers come
first: a recorded swap or a final refusal needs no call. A pending trade that would count is queued, and the sweep
verifies it later. A verdict explains whether a transaction counts, from the record, else from the chain; it stores
nothing.

Calls to Hiro are made in the request lane of the budget and are shared fairly:

- In about a day, a client may use a twentieth of the calls that the lane has left; a whole IPv6 /48 may use a tenth.
  The more clients are greedy, the less is left and the less each of them gets, so some calls always remain for a client
  that has used none. Past use decays exponentially: after a day about a third of it still counts. The cost of a
  submission that is a swap is given back, so an agent that only trades is never held up.
- Up to twenty transactions take one call. The first is requested at once. Those that arrive within a second of it are
  requested together, so there is about one call a second, however many submit. Each waiter gets its own answer and pays
  an equal part of the cost.
- An id that Hiro does not know is remembered for a minute: asking for it again costs nothing.

This state lives as long as the process; after a restart every client begins with a full share.

Emits `queue.filled`, `trade.submit_failed`, and `queue.verify_failed` when Hiro has no answer or the hook has used its
share; the next sweep verifies the queue.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Literal, TypeAlias

from holdfast.errors import ObjectReset, StoreError, UsageError
from holdfast.types import JSON, Row
from tocsin.errors import ShareUsed
from tocsin.scheduler.task import RequestJob, WorkContext
from tocsin.shape import Shape
from tocsin.stacks import Transaction, TransactionWithEvents, canonical_txid
from tocsin.swaps import chainhook, trades
from tocsin.swaps import store as swap_store
from tocsin.swaps.explain import explain, known_verdict
from tocsin.swaps.rules import MEANINGS, Code, Rules, Tier, checks, judge, still_refused, tier_of
from tocsin.swaps.store import SUBMITTED, Candidate
from tocsin.swaps.swap import recorded_legs
from tocsin.swaps.types import SubmitAnswer, VerdictAnswer
from tocsin.swaps.verify import Verifier, is_final, moves_if_needed
from tocsin.upstream.answer import Limited, NoAnswer, value_or_raise
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX, HiroClient
from tocsin.upstream.limiter import request_session
from tocsin.upstream.shares import ClientShares
from tocsin.upstream.windows import Lane

SUBMIT, RECHECK, RECEIVE, VERIFY_QUEUED = "submit", "recheck", "receive", "verify_queued"  # the jobs
VERDICT = "verdict"

GATHER_S = 1.0
NOT_FOUND_S = 60.0
NOT_FOUND_MAX = 10_000  # remembered at once
HOOK = ("chainhook",)  # as a client of the request lane

Queued: TypeAlias = Literal["new", "again", "full"]

QUEUE_FULL = "the queue of submitted trades is full; once mined, this trade is found without a submission"


class NoFact(Exception):
    """Nothing is known about a transaction: why, and when to ask again (unix ms)."""

    def __init__(self, code: Code, reason: str, retry_at: int | None = None) -> None:
        super().__init__(reason)
        self.code, self.reason, self.retry_at = code, reason, retry_at


@dataclass(slots=True, eq=False)
class _Group:
    """Up to twenty transactions that are asked for together, how many jobs wait for them, and the calls it took."""

    txids: set[str] = field(default_factory=set)
    waiting: int = 0
    calls: int = 0

    @property
    def cost(self) -> float:
        """The part of the calls of one job."""
        return self.calls / max(1, self.waiting)


class SubmissionLane:
    """Handles all submissions of one object. A client is given by its networks; an operator has none and no share."""

    def __init__(self) -> None:
        self._shares = ClientShares()
        self._not_found: OrderedDict[str, float] = OrderedDict()  # until when
        self._group: _Group | None = None  # the one that others may join
        self._asking: dict[_Group, asyncio.Task[Mapping[str, TransactionWithEvents | None]]] = {}
        self._asked_at_s = -GATHER_S

    def check(self, context: WorkContext, client: Sequence[str]) -> None:
        """Refuse a client that has used up its share. Raises `ShareUsed`."""
        calls_left = context.upstream("hiro", HiroClient).client.limiter.calls_left(Lane.REQUEST)
        wait_s = self._shares.wait_s(client, calls_left, context.clock.monotonic())
        if wait_s > 0:
            raise ShareUsed(ceil(wait_s))

    def charge(self, context: WorkContext, client: Sequence[str], calls: float) -> None:
        """Count calls for a client; a negative number gives some back."""
        self._shares.charge(client, calls, context.clock.monotonic())

    async def find(
        self, context: WorkContext, txid: str, client: Sequence[str], *, again: bool = False
    ) -> tuple[TransactionWithEvents, float]:
        """Ask Hiro, together with others. Return the transaction and its part of the calls.

        Raises `ShareUsed`, `NoAnswer` or `NoFact`. An id that Hiro does not know is not asked for `again` soon.
        """
        now_s = context.clock.monotonic()
        remembered_s = 0.0 if again else self._not_found.get(txid, 0.0) - now_s
        if remembered_s <= 0:
            self.check(context, client)
            self.charge(context, client, 1)  # until the real cost is known: many may ask at once
            group = self._join(context, txid)
            try:
                answer = await self._answer_of(group)
            finally:
                self.charge(context, client, group.cost - 1)
            if txid not in answer:
                raise NoFact(Code.TX_FETCH_FAILED, "Hiro's answer about it cannot be read")
            found = answer[txid]
            if found is not None:
                return found, group.cost
            remembered_s = NOT_FOUND_S
            self._not_found[txid] = context.clock.monotonic() + NOT_FOUND_S
            while len(self._not_found) > NOT_FOUND_MAX:
                self._not_found.popitem(last=False)
        raise NoFact(Code.TX_NOT_FOUND, "Hiro does not know it", context.clock.now() + ceil(remembered_s) * 1000)

    def _join(self, context: WorkContext, txid: str) -> _Group:
        group = self._group
        if group is None or len(group.txids | {txid}) > EVENTS_TXIDS_MAX:
            group = self._group = _Group()
            self._asking[group] = asyncio.create_task(self._ask(context, group))
        group.txids.add(txid)
        group.waiting += 1
        return group

    async def _answer_of(self, group: _Group) -> Mapping[str, TransactionWithEvents | None]:
        task = self._asking[group]
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ObjectReset("the object was reset before Hiro answered") from None
            if group is self._group:
                group.waiting -= 1
            raise

    async def _ask(self, context: WorkContext, group: _Group) -> Mapping[str, TransactionWithEvents | None]:
        """Wait until a second after the last call, then ask for everything that has arrived since."""
        session = request_session(context.logger)
        try:
            wait_s = self._asked_at_s + GATHER_S - context.clock.monotonic()
            if 0 < wait_s <= GATHER_S:
                await context.clock.sleep(wait_s)
            self._close(group)
            self._asked_at_s = context.clock.monotonic()
            if not group.waiting:
                return {}
            hiro = context.upstream("hiro", HiroClient)
            return value_or_raise(await hiro.transactions_with_events(sorted(group.txids), session)) or {}
        finally:
            group.calls = session.calls
            self._close(group)
            del self._asking[group]

    def _close(self, group: _Group) -> None:
        if self._group is group:
            self._group = None


async def submit(
    context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane, *, again: bool = False
) -> SubmitAnswer:
    """Verify the trade `{"txid": …, "client": […]}`. The cost counts against the client: see `SubmissionLane`.

    `again`: even if it is recorded or refused, for an operator who doubts the verdict.
    """
    answer = await _answered(context, rules, argument, lane, again=again)
    if again or answer.code is None:
        context.wake("board")
    return answer


async def _answered(
    context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane, *, again: bool
) -> SubmitAnswer:
    client = () if again else client_of(argument)
    try:
        txid = txid_of(argument)
        try:
            with _only_facts(context):
                known = None if again else await _known(context, txid, rules)
                return known or await _verify(context, txid, rules, lane, client, again=again)
        except StoreError as error:
            context.logger.exception("trade.submit_failed", txid=txid, reason=str(error))
            return refused(Code.DB_UNAVAILABLE, "the database refused")
    except NoFact as error:
        answer = refused(error.code, error.reason, retry_at=error.retry_at)
        if error.code is not Code.TOO_MANY_REQUESTS or error.retry_at is None:
            return answer
        wait_s = ceil((error.retry_at - context.clock.now()) / 1000)
        return replace(answer, sentence=f"{answer.sentence} To submit again, wait {wait_s} s.")


@contextmanager
def _only_facts(context: WorkContext) -> Iterator[None]:
    """Raise `NoFact` when a call has no answer or the client has used its share."""
    try:
        yield
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        raise NoFact(Code.TX_FETCH_FAILED, f"Hiro: {error.answer.kind}", until) from None
    except ShareUsed as error:
        raise NoFact(Code.TOO_MANY_REQUESTS, str(error), context.clock.now() + error.wait_s * 1000) from None


def recorded(row: Row, *, new: bool) -> SubmitAnswer:
    """Return the answer for a trade that counts: recorded now or before."""
    if new:
        return SubmitAnswer(200, None, "", "recorded", trade=trades.trade_of(row), legs=recorded_legs(row))
    answer = refused(Code.TXID_ALREADY_VERIFIED, "already recorded")
    return replace(answer, trade=trades.trade_of(row), legs=recorded_legs(row))


def refused(code: Code, reason: str, *, retry_at: int | None = None, obstacle: str | None = None) -> SubmitAnswer:
    """Return the answer for a trade that does not count, or not yet."""
    meaning = MEANINGS[code]
    return SubmitAnswer(
        http_status=meaning.status,
        code=str(code),
        sentence=meaning.sentence,
        reason=reason,
        retryable=meaning.retryable,
        obstacle=obstacle,
        retry_at=retry_at,
    )


async def _known(context: WorkContext, txid: str, rules: Rules) -> SubmitAnswer | None:
    """Return an answer without a call if the transaction is already recorded or refused."""
    swap = await trades.find_swap(context.db, txid)
    if swap is not None:
        return recorded(swap, new=False)
    refusal = await trades.find_refusal(context.db, txid)
    if refusal is not None and still_refused(refusal, await tier_of(context.db, refusal["sender"]), rules):
        return refused(Code(refusal["code"]), refusal["reason"])
    return None


async def _verify(
    context: WorkContext, txid: str, rules: Rules, lane: SubmissionLane, client: Sequence[str], *, again: bool
) -> SubmitAnswer:
    """Ask the chain. A trade that is a swap, or will be one, costs its client nothing."""
    found, cost = await lane.find(context, txid, client, again=again)
    answer, useful = await _judged(context, found, rules)
    lane.charge(context, client, -cost if useful else context.session.calls)
    return answer


async def _judged(context: WorkContext, found: TransactionWithEvents, rules: Rules) -> tuple[SubmitAnswer, bool]:
    """Return the answer, and whether there is something new: a swap or a candidate for one."""
    transaction = found.transaction
    txid = transaction.tx_id
    tier = await tier_of(context.db, transaction.sender)
    check = judge(transaction, tier, rules)
    if check is not None and check.code is not None and not is_final(transaction, check):
        obstacle = _obstacle(transaction, tier, rules)
        if check.code is not Code.PENDING or obstacle is not None:
            return refused(check.code, check.detail, obstacle=obstacle), False
        return await _pending(context, txid, check.detail)
    tally = await Verifier(context, rules).conclude([(found, Candidate(txid, "agent"))], {transaction.sender: tier})
    if tally.unanswered is not None:
        raise tally.unanswered
    swap = await trades.find_swap(context.db, txid)
    if swap is not None:
        return recorded(swap, new=bool(tally.inserted)), bool(tally.inserted)
    refusal = await trades.find_refusal(context.db, txid)
    if refusal is not None:
        return refused(Code(refusal["code"]), refusal["reason"]), False
    return await _pending(context, txid, "Hiro does not show its tokens yet")


async def _pending(context: WorkContext, txid: str, reason: str) -> tuple[SubmitAnswer, bool]:
    queued = await _queue(context, txid)
    return refused(Code.PENDING, reason, obstacle=QUEUE_FULL if queued == "full" else None), queued == "new"


async def _queue(context: WorkContext, txid: str) -> Queued:
    """Queue the trade for the sweep, if the queue of submitted trades has room."""
    db = context.db
    again = bool(await swap_store.queued(db, [txid]))
    if not again and not await swap_store.room(db, SUBMITTED):
        context.logger.warning("queue.filled", source="agent", count=1)
        return "full"
    candidates = [Candidate(txid, "agent", rank=SUBMITTED)]
    await db.batch(swap_store.enqueue(db, candidates, context.clock.now()))
    return "again" if again else "new"


def _obstacle(transaction: Transaction, tier: Tier, rules: Rules) -> str | None:
    """Return why a trade would not count even once mined; such a trade is not queued."""
    failed = (check for check in checks(transaction, tier, rules) if check.code is not None)
    return next((check.detail for check in failed if check.name != "status"), None)


def txid_of(argument: JSON) -> str:
    """Return the requested transaction; raises `NoFact` if none is named."""
    txid = argument.get("txid") if isinstance(argument, dict) else None
    if not isinstance(txid, str):
        raise NoFact(Code.MALFORMED_TXID, "The body must be an object with the field txid, a text.")
    try:
        return canonical_txid(txid)
    except UsageError as error:
        raise NoFact(Code.MALFORMED_TXID, str(error)) from None


def client_of(argument: JSON) -> tuple[str, ...]:
    """Return the client as the networks that share its limits."""
    client = argument.get("client") if isinstance(argument, dict) else None
    return tuple(str(network) for network in client) if isinstance(client, list) else ()


async def verdict(context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane) -> VerdictAnswer:
    """Return the verdict on `{"txid": …, "client": […]}`; a call to the chain counts against the client."""
    client = client_of(argument)
    try:
        txid = txid_of(argument)
        known = await known_verdict(context.db, txid, rules)
        if known is not None:
            return VerdictAnswer(known)
        with _only_facts(context):
            found, _ = await lane.find(context, txid, client)
            tier = await tier_of(context.db, found.transaction.sender)
            moves = await moves_if_needed(context.upstream("hiro", HiroClient), context.session, found, tier, rules)
    except NoFact as error:
        return VerdictAnswer(None, str(error.code), error.reason, error.retry_at)
    lane.charge(context, client, context.session.calls)
    return VerdictAnswer(explain(found.transaction, moves, tier, rules))


def competition_jobs(rules: Rules) -> Mapping[str, RequestJob]:
    """Return the jobs by name; `verify_queued` verifies the queue without waiting for the next sweep."""
    lane = SubmissionLane()

    def job(answer: Callable[[WorkContext, Rules, JSON, SubmissionLane], Awaitable[Shape]]) -> RequestJob:
        async def answered(context: WorkContext, argument: JSON) -> JSON:
            return (await answer(context, rules, argument, lane)).to_json()

        return answered

    async def receive(context: WorkContext, argument: JSON) -> JSON:
        return (await chainhook.receive(context, rules, argument)).to_json()

    async def verify_queued(context: WorkContext, _argument: JSON) -> JSON:
        return await _verify_queued(context, rules, lane)

    jobs = {SUBMIT: job(submit), RECHECK: job(partial(submit, again=True)), VERDICT: job(verdict)}
    return {**jobs, RECEIVE: receive, VERIFY_QUEUED: verify_queued}


async def _verify_queued(context: WorkContext, rules: Rules, lane: SubmissionLane) -> JSON:
    """Verify as much of the queue as one call covers, from the hook's own share. The next sweep does the rest."""
    candidates = await swap_store.due(context.db, context.clock.now(), EVENTS_TXIDS_MAX)
    if not candidates:
        return {"verified": 0}
    try:
        lane.check(context, HOOK)
        tally = await Verifier(context, rules).verify(candidates)
    except (NoAnswer, ShareUsed) as error:
        context.logger.warning("queue.verify_failed", count=len(candidates), reason=str(error))
        return {"verified": 0}
    if not tally.inserted:
        lane.charge(context, HOOK, context.session.calls)
    verified = len(candidates) - tally.pending
    if verified:
        context.wake("board")
    return {"verified": verified}
