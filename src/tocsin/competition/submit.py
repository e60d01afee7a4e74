"""Verifies a trade that an agent submits, while the agent waits, in the request lane of the budget.

This runs inside the object, so there is one writer. Cheap answers come first: a recorded swap or a final refusal needs
no call. A pending trade that would count is queued, and the sweep verifies it later.

Emits `queue.full`, `trade.submit_failed`.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Literal, TypeAlias

from tocsin.bindings import JSON, Row
from tocsin.chain_model import Transaction, TransactionWithEvents, canonical_txid
from tocsin.competition import swap_store, trades
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.eligibility import Tier, tier_of
from tocsin.competition.legs import recorded_legs
from tocsin.competition.rules import Rules, checks, judge, still_refused
from tocsin.competition.submission_lane import NOT_FOUND_S, SubmissionLane
from tocsin.competition.swap_store import SUBMITTED, Candidate
from tocsin.competition.verify import Verifier, is_final
from tocsin.errors import NoAnswer, ShareUsed, StoreError, UsageError
from tocsin.scheduler.work_context import WorkContext
from tocsin.shapes.competition import SubmitAnswer
from tocsin.upstream.answer import Limited

QUEUE_FULL = "the queue of submitted trades is full; once mined, this trade is found without a submission"

Queued: TypeAlias = Literal["new", "again", "full"]


async def submit(context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane) -> SubmitAnswer:
    """Verify the trade `{"txid": …, "client": […]}`. The cost counts against the client: see `SubmissionLane`."""
    return await _answered(context, rules, argument, lane, again=False)


async def recheck(context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane) -> SubmitAnswer:
    """Verify the trade again, even if it is recorded or refused: for an operator who doubts the verdict."""
    return await _answered(context, rules, argument, lane, again=True)


async def _answered(
    context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane, *, again: bool
) -> SubmitAnswer:
    try:
        txid = canonical_txid(txid_text(argument))
    except UsageError as error:
        return refused(Code.MALFORMED_TXID, str(error))
    client = () if again else client_of(argument)
    now = context.clock.now()
    try:
        known = None if again else await _known(context, txid, rules, lane)
        return known or await _verify(context, txid, rules, lane, client)
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        return refused(Code.TX_FETCH_FAILED, f"Hiro: {error.answer.kind}", retry_at=until)
    except ShareUsed as error:
        answer = refused(Code.TOO_MANY_REQUESTS, str(error), retry_at=now + error.wait_s * 1000)
        return replace(answer, sentence=f"{answer.sentence} To submit again, wait {error.wait_s} s.")
    except StoreError as error:
        context.logger.error("trade.submit_failed", txid=txid, reason=str(error))  # noqa: TRY400 - our Logger has no `exception`
        return refused(Code.DB_UNAVAILABLE, "the database refused")


def recorded(row: Row, *, new: bool) -> SubmitAnswer:
    """Return the answer for a trade that counts: recorded now or before."""
    if new:
        return SubmitAnswer(200, None, "", "recorded", trade=trades.trade_of(row), legs=recorded_legs(row))
    meaning = MEANINGS[Code.TXID_ALREADY_VERIFIED]
    return SubmitAnswer(
        http_status=meaning.status,
        code=str(Code.TXID_ALREADY_VERIFIED),
        sentence=meaning.sentence,
        reason="already recorded",
        retryable=meaning.retryable,
        trade=trades.trade_of(row),
        legs=recorded_legs(row),
    )


def refused(
    code: Code, reason: str, *, retry_at: int | None = None, obstacle: str | None = None
) -> SubmitAnswer:
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


async def _known(context: WorkContext, txid: str, rules: Rules, lane: SubmissionLane) -> SubmitAnswer | None:
    """Return an answer without a call if the transaction is already recorded or refused, or was just asked for."""
    swap = await trades.find_swap(context.db, txid)
    if swap is not None:
        return recorded(swap, new=False)
    refusal = await trades.find_refusal(context.db, txid)
    if refusal is not None and still_refused(refusal, await tier_of(context.db, refusal["sender"]), rules):
        return refused(Code(refusal["code"]), refusal["reason"])
    remembered_s = lane.not_found_s(context, txid)
    return _not_found(context, remembered_s) if remembered_s > 0 else None


async def _verify(
    context: WorkContext, txid: str, rules: Rules, lane: SubmissionLane, client: Sequence[str]
) -> SubmitAnswer:
    """Ask the chain. A trade that is a swap, or will be one, costs its client nothing."""
    lookup = await lane.find(context, txid, client)
    if not lookup.readable:
        return refused(Code.TX_FETCH_FAILED, "Hiro's answer about it cannot be read")
    if lookup.found is None:
        return _not_found(context, NOT_FOUND_S)
    answer, useful = await _judged(context, lookup.found, rules)
    lane.charge(context, client, -lookup.cost if useful else context.session.calls)
    return answer


async def _judged(
    context: WorkContext, found: TransactionWithEvents, rules: Rules
) -> tuple[SubmitAnswer, bool]:
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
    tally = await Verifier(context, rules).conclude(
        [(found, Candidate(txid, "agent"))], {transaction.sender: tier}
    )
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


def _not_found(context: WorkContext, remembered_s: float) -> SubmitAnswer:
    retry_at = context.clock.now() + ceil(remembered_s) * 1000
    return refused(Code.TX_NOT_FOUND, "Hiro does not know it", retry_at=retry_at)


async def _queue(context: WorkContext, txid: str) -> Queued:
    """Queue the trade for the sweep, if the queue of submitted trades has room."""
    db = context.db
    again = bool(await swap_store.queued(db, [txid]))
    if not again and not await swap_store.room(db, SUBMITTED):
        context.logger.warn("queue.full", source="agent", count=1)
        return "full"
    candidates = [Candidate(txid, "agent", rank=SUBMITTED)]
    await db.batch(swap_store.enqueue(db, candidates, context.clock.now()))
    return "again" if again else "new"


def _obstacle(transaction: Transaction, tier: Tier, rules: Rules) -> str | None:
    """Return why a trade would not count even once mined; such a trade is not queued."""
    failed = (check for check in checks(transaction, tier, rules) if check.code is not None)
    return next((check.detail for check in failed if check.name != "status"), None)


def txid_text(argument: JSON) -> str:
    """Return the requested transaction; raises `UsageError` if none is named."""
    txid = argument.get("txid") if isinstance(argument, dict) else None
    if not isinstance(txid, str):
        raise UsageError("The body must be an object with the field txid, a text.")
    return txid


def client_of(argument: JSON) -> tuple[str, ...]:
    """Return the client as the networks that share its limits."""
    client = argument.get("client") if isinstance(argument, dict) else None
    return tuple(str(network) for network in client) if isinstance(client, list) else ()
