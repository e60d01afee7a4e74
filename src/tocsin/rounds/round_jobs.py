"""The request jobs of rounds. They run in the object because it is the only writer."""

from collections.abc import Mapping

from tocsin.bindings import JSON
from tocsin.competition.rules import Rules
from tocsin.errors import RequestRefused, UsageError
from tocsin.rounds.advance import RoundWork
from tocsin.rounds.round_actions import RoundActions
from tocsin.scheduler.task import RequestJob
from tocsin.scheduler.work_context import WorkContext
from tocsin.shapes.round_views import RoundAction, RoundAnswer

ROUND = "round"


def round_jobs(rules: Rules, *, feed_runs: bool) -> Mapping[str, RequestJob]:
    """Return the job. It takes `{action, by, dry_run}` and answers with a `RoundAnswer`, even if it refuses."""

    async def act(context: WorkContext, argument: JSON) -> JSON:
        asked = argument if isinstance(argument, dict) else {}
        action = RoundAction.from_json(asked.get("action"))
        dry_run = asked.get("dry_run") is True
        work = RoundWork(context.db, context.clock, context.logger, rules, feed_runs)
        actions = RoundActions(work, str(asked.get("by")), dry_run=dry_run)
        try:
            return (await actions.act(action)).to_json()
        except RequestRefused as refusal:
            status, code, sentence = refusal.status, refusal.code, str(refusal)
        except UsageError as error:
            status, code, sentence = 400, "bad_request", str(error)
        refused = RoundAnswer(
            ok=False, action=action.action, dry_run=dry_run, detail=sentence, http_status=status, code=code
        )
        return refused.to_json()

    return {ROUND: act}
