"""A trade that its agent submits: verified while the agent waits, in the request lane of the budget.

This runs inside the object, so there is one writer. Cheap answers come first: a recorded swap and a final refusal need
no call. A pending trade that would count is queued, and the sweep verifies it later.
"""

from tocsin.bindings import JSON, Row
from tocsin.chain_model import Transaction, canonical_txid
from tocsin.competition import swap_store, trades
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.eligibility import Tier, tier_of
from tocsin.competition.rules import Rules, checks, judge, still_refused
from tocsin.competition.swap_store import Candidate
from tocsin.competition.verify import Verifier, is_final
from tocsin.errors import NoAnswer, StoreError, UsageError
from tocsin.scheduler.work_context import WorkContext
from tocsin.shapes.competition import SubmitAnswer
from tocsin.upstream.answer import Limited, value_or_raise
from tocsin.upstream.hiro import HiroClient


async def submit(context: WorkContext, rules: Rules, argument: JSON) -> SubmitAnswer:
    """Verify the trade `{"txid": …}`."""
    return await _answered(context, rules, argument, again=False)


async def recheck(context: WorkContext, rules: Rules, argument: JSON) -> SubmitAnswer:
    """Verify the trade again, even if it is recorded or refused: for an operator who doubts the verdict."""
    return await _answered(context, rules, argument, again=True)


async def _answered(context: WorkContext, rules: Rules, argument: JSON, *, again: bool) -> SubmitAnswer:
    try:
        txid = canonical_txid(_text(argument))
    except UsageError as error:
        return refused(Code.MALFORMED_TXID, str(error))
    try:
        known = None if again else await _known(context, txid, rules)
        return known or await _verify(context, txid, rules)
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        return refused(Code.TX_FETCH_FAILED, f"Hiro: {error.answer.kind}", retry_at=until)
    except StoreError as error:
        context.logger.error("trade.submit_failed", txid=txid, reason=str(error))  # noqa: TRY400 - our Logger has no `exception`
        return refused(Code.DB_UNAVAILABLE, "the database refused")


def recorded(row: Row, *, new: bool) -> SubmitAnswer:
    """The trade counts: recorded now, or before."""
    if new:
        return SubmitAnswer(200, None, "", "recorded", trade=trades.trade_of(row))
    meaning = MEANINGS[Code.TXID_ALREADY_VERIFIED]
    return SubmitAnswer(
        http_status=meaning.status,
        code=str(Code.TXID_ALREADY_VERIFIED),
        sentence=meaning.sentence,
        reason="already recorded",
        retryable=meaning.retryable,
        trade=trades.trade_of(row),
    )


def refused(
    code: Code, reason: str, *, retry_at: int | None = None, obstacle: str | None = None
) -> SubmitAnswer:
    """The trade does not count, or not yet."""
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
    """The answer without a call, if the transaction is recorded or refused already."""
    swap = await trades.find_swap(context.db, txid)
    if swap is not None:
        return recorded(swap, new=False)
    refusal = await trades.find_refusal(context.db, txid)
    if refusal is None or not still_refused(refusal, await tier_of(context.db, refusal["sender"]), rules):
        return None
    return refused(Code(refusal["code"]), refusal["reason"])


async def _verify(context: WorkContext, txid: str, rules: Rules) -> SubmitAnswer:
    hiro = context.upstream("hiro", HiroClient)
    transactions = value_or_raise(await hiro.transactions_with_events([txid], context.session)) or {}
    found = transactions.get(txid)
    if found is None:
        return refused(Code.TX_NOT_FOUND, "Hiro does not know it")
    transaction = found.transaction
    tier = await tier_of(context.db, transaction.sender)
    check = judge(transaction, tier, rules)
    if check is not None and check.code is not None and not is_final(transaction, check):
        obstacle = _obstacle(transaction, tier, rules)
        if check.code is Code.PENDING and obstacle is None:
            await _queue(context, txid)
        return refused(check.code, check.detail, obstacle=obstacle)
    tally = await Verifier(context, rules).conclude(
        [(found, Candidate(txid, "agent"))], {transaction.sender: tier}
    )
    swap = await trades.find_swap(context.db, txid)
    if swap is not None:
        return recorded(swap, new=bool(tally.inserted))
    refusal = await trades.find_refusal(context.db, txid)
    if refusal is not None:
        return refused(Code(refusal["code"]), refusal["reason"])
    await _queue(context, txid)
    return refused(Code.PENDING, "Hiro does not show its tokens yet")


async def _queue(context: WorkContext, txid: str) -> None:
    candidates = [Candidate(txid, "agent")]
    await context.db.batch(swap_store.enqueue(context.db, candidates, context.clock.now()))


def _obstacle(transaction: Transaction, tier: Tier, rules: Rules) -> str | None:
    """Why a trade would not count even once it is mined; such a trade is not queued."""
    failed = (check for check in checks(transaction, tier, rules) if check.code is not None)
    return next((check.detail for check in failed if check.name != "status"), None)


def _text(argument: JSON) -> str:
    txid = argument.get("txid") if isinstance(argument, dict) else None
    if not isinstance(txid, str):
        raise UsageError("The body must be an object with the field txid, a text.")
    return txid
