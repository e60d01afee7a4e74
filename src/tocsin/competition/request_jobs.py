"""What the object does for requests: it has the budget, and it is the one writer."""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.competition import chainhook, swap_store
from tocsin.competition.eligibility import tiers
from tocsin.competition.rules import Rules
from tocsin.competition.submit import submit
from tocsin.competition.verify import Verifier
from tocsin.errors import NoAnswer
from tocsin.scheduler.task import RequestJob, TaskContext
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

SUBMIT, RECEIVE, SETTLE = "submit", "receive", "settle"


def competition_jobs(rules: Rules) -> Mapping[str, RequestJob]:
    """The jobs by name; `settle` takes a look at the queue without waiting for the next sweep."""

    async def submit_trade(context: TaskContext, argument: JSON) -> JSON:
        return await submit(context, rules, argument)

    async def receive_push(context: TaskContext, argument: JSON) -> JSON:
        return await chainhook.receive(context, rules, argument)

    async def settle_some(context: TaskContext, _argument: JSON) -> JSON:
        return await _settle_some(context, rules)

    return {SUBMIT: submit_trade, RECEIVE: receive_push, SETTLE: settle_some}


async def _settle_some(context: TaskContext, rules: Rules) -> JSON:
    """As much of the queue as one call tells about. What stays is the next sweep's."""
    candidates = await swap_store.due(context.db, context.clock.now(), EVENTS_TXIDS_MAX)
    if not candidates:
        return {"settled": 0}
    try:
        tally = await Verifier(context, rules).settle(candidates, await tiers(context.db))
    except NoAnswer as error:
        context.logger.warn("queue.unsettled", count=len(candidates), reason=str(error))
        return {"settled": 0}
    return {"settled": len(candidates) - tally.pending}
