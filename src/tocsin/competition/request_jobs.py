"""What the object does for requests: it has the budget, and it is the single writer.

Emits `queue.verify_failed` when Hiro has no answer; the next sweep verifies the queue.
"""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.competition import chainhook, swap_store
from tocsin.competition.rules import Rules
from tocsin.competition.submit import recheck, submit
from tocsin.competition.verify import Verifier
from tocsin.errors import NoAnswer
from tocsin.scheduler.task import RequestJob
from tocsin.scheduler.work_context import WorkContext
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

SUBMIT, RECHECK, RECEIVE, VERIFY_QUEUED = "submit", "recheck", "receive", "verify_queued"


def competition_jobs(rules: Rules) -> Mapping[str, RequestJob]:
    """The jobs by name; `verify_queued` looks at the queue without waiting for the next sweep."""

    async def submit_trade(context: WorkContext, argument: JSON) -> JSON:
        return (await submit(context, rules, argument)).to_json()

    async def recheck_trade(context: WorkContext, argument: JSON) -> JSON:
        return (await recheck(context, rules, argument)).to_json()

    async def receive_push(context: WorkContext, argument: JSON) -> JSON:
        return (await chainhook.receive(context, rules, argument)).to_json()

    async def verify_queued(context: WorkContext, _argument: JSON) -> JSON:
        return await _verify_queued(context, rules)

    return {SUBMIT: submit_trade, RECHECK: recheck_trade, RECEIVE: receive_push, VERIFY_QUEUED: verify_queued}


async def _verify_queued(context: WorkContext, rules: Rules) -> JSON:
    """As much of the queue as one call covers. The rest is left to the next sweep."""
    candidates = await swap_store.due(context.db, context.clock.now(), EVENTS_TXIDS_MAX)
    if not candidates:
        return {"verified": 0}
    try:
        tally = await Verifier(context, rules).verify(candidates)
    except NoAnswer as error:
        context.logger.warn("queue.verify_failed", count=len(candidates), reason=str(error))
        return {"verified": 0}
    return {"verified": len(candidates) - tally.pending}
