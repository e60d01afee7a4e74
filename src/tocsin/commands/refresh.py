"""`tocsin refresh`: requests the refresh in a thread, and meanwhile shows on a terminal how far each task is."""

import sys
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from contextlib import ExitStack
from threading import Thread

import typer
from rich.console import Console

from holdfast.errors import HoldfastError
from holdfast.types import JSON
from tocsin.commands.client import REFRESH_S, SCHEDULER, ServiceClient
from tocsin.scheduler.types import SchedulerOverview, Status
from tocsin.text import shown_until
from tocsin.upstream.budget import BudgetStatus

INTERRUPTED = 130  # as a shell reports Ctrl-C


def refresh_with_progress(client: ServiceClient, task: str, poll_s: float, why: Mapping[str, str]) -> JSON:
    """Refresh, and return the service's response. Progress goes to stderr, and only to a terminal."""
    answer: Future[JSON] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.post(SCHEDULER, {"action": "refresh", "task": task, **why}, timeout_s=REFRESH_S))
        except Exception as error:  # noqa: BLE001 - raised again where the answer is awaited
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()  # a daemon: Ctrl-C does not wait for the run's end
    try:
        with ExitStack() as stack:
            shown = Console(stderr=True, highlight=False).status("asking")
            if sys.stderr.isatty():
                stack.enter_context(shown)
            while not _is_over(answer, poll_s):
                shown.update(_progress(client, task))
    except KeyboardInterrupt:
        which = "" if task == "all" else f" --task {task}"
        typer.echo(f"The run continues in the service. `tocsin runs{which}` shows how it ends.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    return answer.result()


def _is_over(answer: "Future[JSON]", within_s: float) -> bool:
    try:
        answer.exception(timeout=within_s)
    except StillRunning:
        return False
    return True


def _progress(client: ServiceClient, wanted: str) -> str:
    try:
        overview = SchedulerOverview.from_json(client.get(SCHEDULER, keyed=True))
    except HoldfastError:
        return "the service sends no status"  # the refresh itself will report the error
    return progress_words(overview.status, wanted)


def progress_words(status: Status, wanted: str) -> str:
    """How far the running tasks are, and what they wait for."""
    words = []
    for name, task in status.tasks.items():
        if task.running is None or wanted not in {name, "all"}:
            continue
        done, total = task.running.done, task.running.total
        far = f"{done:,} of {total:,} ({min(1, done / total):.0%})" if total else "begun"
        waits = (
            None
            if task.upstream is None
            else why_it_waits(task.upstream, status.budgets.get(task.upstream), status.now)
        )
        words.append(f"{name}: {far}" if waits is None else f"{name}: {far}, waits: {waits}")
    return "; ".join(words) or "waiting for its end"


def why_it_waits(upstream: str, budget: BudgetStatus | None, now: int) -> str | None:
    """Why calls to this upstream have to wait at the moment; None if they do not."""
    if budget is None:
        return None
    if budget.closed_until is not None and budget.closed_until > now:
        return f"{upstream} answered 429, resumes {shown_until(budget.closed_until, now)}"
    if budget.waiting.task == 0:
        return None
    for window in ("second", "minute"):
        limit, spent = getattr(budget.limits, window), getattr(budget.spent, window)
        tasks_max = None if limit is None else limit - int(limit * budget.limits.request_share)
        if tasks_max is not None and spent >= tasks_max:
            return f"the {limit:,} calls a {window} to {upstream} are used up"
    return f"the calls to {upstream} are paced over the month"
