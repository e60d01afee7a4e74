"""The request jobs of the competition. They run in the object because it owns the budget and is the only writer.

Emits `queue.verify_failed` when Hiro has no answer or the hook has used its share; the next sweep verifies the queue.
"""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.competition import chainhook, swap_store
from tocsin.competition.rules import Rules
from tocsin.competition.submission_lane import SubmissionLane
from tocsin.competition.submit import recheck, submit
from tocsin.competition.verdicts import verdict
from tocsin.competition.verify import Verifier
from tocsin.errors import NoAnswer, ShareUsed
from tocsin.scheduler.task import RequestJob
from tocsin.scheduler.work_context import WorkContext
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX

SUBMIT, RECHECK, RECEIVE, VERIFY_QUEUED = "submit", "recheck", "receive", "verify_queued"
VERDICT = "verdict"


HOOK = ("chainhook",)  # as a client of the request lane


def competition_jobs(rules: Rules) -> Mapping[str, RequestJob]:
    """Return the jobs by name; `verify_queued` verifies the queue without waiting for the next sweep."""
    lane = SubmissionLane()

    async def submit_trade(context: WorkContext, argument: JSON) -> JSON:
        return (await submit(context, rules, argument, lane)).to_json()

    async def recheck_trade(context: WorkContext, argument: JSON) -> JSON:
        return (await recheck(context, rules, argument, lane)).to_json()

    async def receive_push(context: WorkContext, argument: JSON) -> JSON:
        return (await chainhook.receive(context, rules, argument)).to_json()

    async def verify_queued(context: WorkContext, _argument: JSON) -> JSON:
        return await _verify_queued(context, rules, lane)

    async def verdict_on_trade(context: WorkContext, argument: JSON) -> JSON:
        return (await verdict(context, rules, argument, lane)).to_json()

    return {
        SUBMIT: submit_trade,
        RECHECK: recheck_trade,
        RECEIVE: receive_push,
        VERIFY_QUEUED: verify_queued,
        VERDICT: verdict_on_trade,
    }


async def _verify_queued(context: WorkContext, rules: Rules, lane: SubmissionLane) -> JSON:
    """Verify as much of the queue as one call covers, from the hook's own share. The next sweep does the rest."""
    candidates = await swap_store.due(context.db, context.clock.now(), EVENTS_TXIDS_MAX)
    if not candidates:
        return {"verified": 0}
    try:
        lane.check(context, HOOK)
        tally = await Verifier(context, rules).verify(candidates)
    except (NoAnswer, ShareUsed) as error:
        context.logger.warn("queue.verify_failed", count=len(candidates), reason=str(error))
        return {"verified": 0}
    if not tally.inserted:
        lane.charge(context, HOOK, context.session.calls)
    return {"verified": len(candidates) - tally.pending}
