"""Answers whether a transaction counts: from the record, else from the chain. Nothing is stored.

Like a submission, a call to the chain uses part of the client's share of the request lane.
"""

from collections.abc import Sequence

from tocsin.bindings import JSON, Database, Row
from tocsin.chain_model import ContractCall, MinedAt, Transaction, canonical_txid
from tocsin.competition import swap_store, trades
from tocsin.competition.codes import MEANINGS, Code
from tocsin.competition.eligibility import tier_of
from tocsin.competition.explain import explain, explain_check, explain_refusal, explain_stored_swap
from tocsin.competition.rules import Check, Rules, still_refused
from tocsin.competition.submission_lane import NOT_FOUND_S, SubmissionLane
from tocsin.competition.submit import client_of, txid_text
from tocsin.competition.verify import moves_if_needed
from tocsin.errors import NoAnswer, ShareUsed, UsageError
from tocsin.scheduler.work_context import WorkContext
from tocsin.shapes.agents import KnownFrom, TradeVerdict, VerdictAnswer
from tocsin.shapes.competition import Explanation
from tocsin.upstream.answer import Limited
from tocsin.upstream.hiro import HiroClient

QUEUED = "it is queued, and will be verified by the next run that can afford it"
STEP_OF = {
    Code.TX_FAILED: "status",
    Code.MALFORMED_TX: "kind",
}  # the other codes are derived again, or concern the tokens


async def verdict(context: WorkContext, rules: Rules, argument: JSON, lane: SubmissionLane) -> VerdictAnswer:
    """Return the verdict on `{"txid": …, "client": […]}`; a call to the chain counts against the client."""
    try:
        txid = canonical_txid(txid_text(argument))
    except UsageError as error:
        return VerdictAnswer(None, str(Code.MALFORMED_TXID), str(error))
    known = await known_verdict(context.db, txid, rules)
    if known is not None:
        return VerdictAnswer(known)
    now = context.clock.now()
    try:
        return await _asked(context, txid, rules, lane, client_of(argument))
    except NoAnswer as error:
        until = error.answer.until if isinstance(error.answer, Limited) else None
        return VerdictAnswer(None, str(Code.TX_FETCH_FAILED), f"Hiro: {error.answer.kind}", until)
    except ShareUsed as error:
        return VerdictAnswer(None, str(Code.TOO_MANY_REQUESTS), str(error), now + error.wait_s * 1000)


async def known_verdict(db: Database, txid: str, rules: Rules) -> TradeVerdict | None:
    """Return the verdict without asking the chain; None if only the chain has the answer."""
    swap = await trades.find_swap(db, txid)
    if swap is not None:
        tier = await tier_of(db, swap["sender"])
        return _verdict(txid, explain_stored_swap(_transaction(swap), swap, tier, rules), "record", swap)
    refusal = await trades.find_refusal(db, txid)
    if refusal is not None:
        tier = await tier_of(db, refusal["sender"])
        if still_refused(refusal, tier, rules):
            check = Check(
                STEP_OF.get(Code(refusal["code"]), "tokens"), refusal["reason"], Code(refusal["code"])
            )
            return _verdict(txid, explain_refusal(_transaction(refusal), check, tier, rules), "refusal")
    if refusal is not None or await swap_store.queued(db, [txid]):
        return _verdict(txid, explain_check(Check("queue", QUEUED, Code.PENDING)), "queue")
    return None


async def _asked(
    context: WorkContext, txid: str, rules: Rules, lane: SubmissionLane, client: Sequence[str]
) -> VerdictAnswer:
    not_found = lane.not_found_s(context, txid)
    if not_found <= 0:
        lookup = await lane.find(context, txid, client)
        if not lookup.readable:
            return VerdictAnswer(None, str(Code.TX_FETCH_FAILED), "Hiro's answer about it cannot be read")
        found = lookup.found
        if found is not None:
            transaction = found.transaction
            tier = await tier_of(context.db, transaction.sender)
            hiro = context.upstream("hiro", HiroClient)
            moves = await moves_if_needed(hiro, context.session, found, tier, rules)
            lane.charge(context, client, context.session.calls)
            return VerdictAnswer(_verdict(txid, explain(transaction, moves, tier, rules), "chain"))
        not_found = NOT_FOUND_S
    retry_at = context.clock.now() + int(not_found * 1000)
    return VerdictAnswer(None, str(Code.TX_NOT_FOUND), "Hiro does not know it", retry_at)


def _transaction(row: Row) -> Transaction:
    """Rebuild the transaction of a row of swaps or refusals, as far as it is stored."""
    call = None
    if row["contract_id"] is not None:
        call = ContractCall(row["contract_id"], row["function_name"])
    return Transaction(
        tx_id=row["txid"],
        sender=row["sender"],
        sponsored=False,
        fee=0,
        status="success",
        type="contract_call" if call is not None else "transaction of another kind",
        contract_call=call,
        mined=MinedAt(row["block_height"], row["block_hash"], 0, row["burn_block_time"]),
        canonical=True,
        event_count=None,
    )


def _verdict(
    txid: str, explanation: Explanation, known_from: KnownFrom, swap: Row | None = None
) -> TradeVerdict:
    status = explanation.status
    assert status != "unknown"  # only a saved file can have that status
    return TradeVerdict(
        txid=txid,
        status=status,
        known_from=known_from,
        reason=explanation.reason,
        steps=explanation.steps,
        code=explanation.code,
        sentence=None if explanation.code is None else MEANINGS[Code(explanation.code)].sentence,
        swap=explanation.swap,
        legs=explanation.legs,
        trade=None if swap is None else trades.trade_of(swap),
    )
