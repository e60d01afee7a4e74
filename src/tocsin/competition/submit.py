"""A trade that its agent reports: settled while the agent waits, out of the budget kept for requests.

Runs inside the object, so that there is one writer. Cheap answers come first: a recorded swap and a final
refusal need no call. A pending trade that would count is remembered and looked at again by the sweep.
"""

from typing import Any

from tocsin.bindings import JSON, Row
from tocsin.chain_model import Transaction, canonical_txid
from tocsin.competition import swap_store, trades
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.desk import Desk
from tocsin.competition.eligibility import Tier, tier_of
from tocsin.competition.rules import Rules, checks, judge, still_refused
from tocsin.competition.swap_store import Candidate
from tocsin.competition.verify import Verifier, is_final
from tocsin.errors import NoAnswer, StoreError, UsageError
from tocsin.upstream.answer import Limited, value_or_raise


async def submit(desk: Desk, rules: Rules, argument: JSON) -> JSON:
    """Settle `{"txid": …}`; see `answer` for what is told."""
    try:
        txid = canonical_txid(_text(argument))
    except UsageError as error:
        return answer(Code.MALFORMED_TXID, str(error))
    try:
        return await _settled(desk, txid, rules) or await _settle(desk, txid, rules)
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        return answer(Code.TX_FETCH_FAILED, f"Hiro: {error.answer.kind}", retry_at=until)
    except StoreError as error:
        desk.logger.error("trade.submit_failed", txid=txid, reason=str(error))  # noqa: TRY400 - our Logger has no `exception`
        return answer(Code.DB_UNAVAILABLE, "the database refused")


def answer(
    code: Code | None,
    reason: str,
    *,
    row: Row | None = None,
    retry_at: int | None = None,
    obstacle: str | None = None,
) -> JSON:
    """What a submission is told: `status` verified, pending or rejected, the code, and the HTTP status."""
    if code is None:
        assert row is not None
        return {"status": "verified", "inserted": True, "httpStatus": 200, "row": trades.swap_json(row)}
    meaning = MEANINGS[code]
    told: dict[str, Any] = {
        "status": "pending" if code is Code.PENDING else "rejected",
        "code": str(code),
        "httpStatus": meaning.status,
        "error": meaning.sentence,
        "reason": reason,
        "retryable": meaning.retryable,
    }
    if code is Code.PENDING:
        told["obstacle"] = obstacle  # none: it is remembered
    if row is not None:
        told |= {"status": "verified", "inserted": False, "row": trades.swap_json(row)}
    if retry_at is not None:
        told["retryAt"] = retry_at
    return told


async def _settled(desk: Desk, txid: str, rules: Rules) -> JSON:
    """What is known already, if it is."""
    swap = await trades.find_swap(desk.db, txid)
    if swap is not None:
        return answer(Code.TXID_ALREADY_VERIFIED, "already recorded", row=swap)
    refusal = await trades.find_refusal(desk.db, txid)
    if refusal is None or not still_refused(refusal, await tier_of(desk.db, refusal["sender"]), rules):
        return None
    return answer(Code(refusal["code"]), refusal["reason"])


async def _settle(desk: Desk, txid: str, rules: Rules) -> JSON:
    found = (value_or_raise(await desk.hiro.transactions_with_events([txid], desk.session)) or {}).get(txid)
    if found is None:
        return answer(Code.TX_NOT_FOUND, "Hiro does not know it")
    transaction = found.transaction
    tier = await tier_of(desk.db, transaction.sender)
    check = judge(transaction, tier, rules)
    if check is not None and check.code is not None and not is_final(transaction, check):
        obstacle = _obstacle(transaction, tier, rules)
        if check.code is Code.PENDING and obstacle is None:
            await _remember(desk, txid)
        return answer(check.code, check.said, obstacle=obstacle)
    tally = await Verifier(desk, rules).conclude([(found, "agent")], {transaction.sender: tier})
    swap = await trades.find_swap(desk.db, txid)
    if swap is not None:
        return answer(None if tally.inserted else Code.TXID_ALREADY_VERIFIED, "already recorded", row=swap)
    refusal = await trades.find_refusal(desk.db, txid)
    if refusal is not None:
        return answer(Code(refusal["code"]), refusal["reason"])
    await _remember(desk, txid)
    return answer(Code.PENDING, "Hiro does not show its tokens yet")


async def _remember(desk: Desk, txid: str) -> None:
    await desk.db.batch(swap_store.enqueue(desk.db, [Candidate(txid, "agent")], desk.clock.now()))


def _obstacle(transaction: Transaction, tier: Tier, rules: Rules) -> str | None:
    """What beside its being unmined speaks against it; such ones are not worth a place in the queue."""
    failed = (check for check in checks(transaction, tier, rules) if check.code is not None)
    return next((check.said for check in failed if check.name != "status"), None)


def _text(argument: JSON) -> str:
    txid = argument.get("txid") if isinstance(argument, dict) else None
    if not isinstance(txid, str):
        raise UsageError("The body must be an object with the field txid, a text.")
    return txid
