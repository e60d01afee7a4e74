"""Watches our hook at Hiro, which interrupts a hook silently after failed deliveries.

Nothing is lost in the meantime: the sweep finds what no push reports, only later. A hook that is not streaming makes
the run incomplete. The status shows it at once, and the service is not ready if that lasts for two cadences.

Emits `chainhook.interrupted`, `chainhook.reenabled`.
"""

from tocsin.chain_model import HookStatus
from tocsin.scheduler.task import TaskResult
from tocsin.scheduler.work_context import TaskContext
from tocsin.shapes.base import FreeForm
from tocsin.upstream.answer import Failure, Limited, NotFound
from tocsin.upstream.hiro import HiroClient

EMPTY_RESULT: FreeForm = {
    "hook": None,
    "enabled": None,
    "lastBlock": None,
    "occurrences": None,
    "reenabled": False,
}


def problem_of(hook: HookStatus) -> str | None:
    """Return why no pushes arrive, with the fix; None if they do."""
    if hook.state == "interrupted":
        return "Hiro has interrupted the hook: enable it again, or set TOCSIN_CHAINHOOK_REENABLE=yes"
    if hook.state == "expired":
        return "the hook has expired: register it again, and set TOCSIN_CHAINHOOK_ID to the new one"
    if not hook.enabled:
        return "the hook is disabled: enable it at Hiro, or remove TOCSIN_CHAINHOOK_ID"
    return None


async def watch_hook(context: TaskContext, path: str, *, reenable: bool) -> TaskResult:
    """Ask Hiro for the status of the hook at this path; with `reenable`, enable it again if it was interrupted."""
    hiro = context.upstream("hiro", HiroClient)
    asked = await hiro.hook_status(path, context.session)
    if isinstance(asked, NotFound):
        reason = "Hiro has no such hook for our key: check TOCSIN_CHAINHOOK_ID and HIRO_API_KEY"
        return TaskResult(EMPTY_RESULT, error=reason, error_kind="NotFound")
    if isinstance(asked, Failure):
        return _without_answer(EMPTY_RESULT, asked)
    hook = asked.value
    counters = {
        **EMPTY_RESULT,
        "hook": hook.state,
        "enabled": hook.enabled,
        "lastBlock": hook.last_block,
        "occurrences": hook.occurrences,
    }
    problem = problem_of(hook)
    if hook.state == "interrupted":
        context.logger.warn("chainhook.interrupted", last_block=hook.last_block, reason=problem)
        if reenable:
            return await _reenabled(context, hiro, path, counters)
    return TaskResult(counters, incomplete=problem)


async def _reenabled(context: TaskContext, hiro: HiroClient, path: str, counters: FreeForm) -> TaskResult:
    changed = await hiro.enable_hook(path, context.session)
    if isinstance(changed, NotFound):
        reason = "Hiro has no hook to enable at this path: check TOCSIN_CHAINHOOK_ID"
        return TaskResult(counters, error=reason, error_kind="NotFound")
    if isinstance(changed, Failure):
        return _without_answer(counters, changed)
    context.logger.warn("chainhook.reenabled", last_block=counters["lastBlock"])
    return TaskResult({**counters, "reenabled": True})


def _without_answer(counters: FreeForm, failure: Failure) -> TaskResult:
    if isinstance(failure, Limited):
        return TaskResult(
            counters,
            limited_until=failure.until,
            incomplete=failure.reason,
            by_budget=failure.by_budget,
            progressed=False,
        )
    return TaskResult(counters, error=failure.reason, error_kind=type(failure).__name__)
