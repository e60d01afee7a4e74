"""`tocsin refresh`: requests the refresh in a thread, and meanwhile shows its progress from the status.

There is one bar, for one task or for all. It never runs backwards: when a run finds more work, the bar waits. The words
beside it tell how far each task is, and what it waits for.
"""

import sys
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from dataclasses import dataclass, field, replace
from threading import Thread

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from holdfast.errors import HoldfastError
from holdfast.types import JSON
from tocsin.commands.client import REFRESH_S, SCHEDULER, ServiceClient
from tocsin.scheduler.types import Progress, SchedulerOverview, Status
from tocsin.text import shown_until
from tocsin.upstream.budget import BudgetStatus

INTERRUPTED = 130  # as a shell reports Ctrl-C


@dataclass(frozen=True, slots=True)
class RefreshView:
    """What is shown: words, and the share of the work that is done, from 0 to 1, None while unknown."""

    share: float | None = None
    words: str = "asking"
    seen: Mapping[str, Progress] = field(default_factory=dict)  # the runs of each task, as they were last seen

    def after(self, status: Status, wanted: str) -> "RefreshView":
        """The view after this status."""
        running = {
            name: task.running
            for name, task in status.tasks.items()
            if task.running is not None and wanted in {name, "all"}
        }
        seen = {**self.seen, **running}
        parts = [_share(seen[name], is_over=name not in running) for name in seen]
        known = [part for part in parts if part is not None]
        share = sum(known) / len(parts) if known else None
        if share is not None and self.share is not None:
            share = max(share, self.share)
        words = [_words(name, running[name], status) for name in running]
        return RefreshView(self.share if share is None else share, "; ".join(words) or self.words, seen)


def refresh_with_progress(client: ServiceClient, task: str, poll_s: float, why: Mapping[str, str]) -> JSON:
    """Refresh, and return the service's response. Progress goes to stderr, and only to a terminal."""
    answer: Future[JSON] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.post(SCHEDULER, {"action": "refresh", "task": task, **why}, timeout_s=REFRESH_S))
        except Exception as error:  # noqa: BLE001 - raised again where the answer is awaited
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()  # a daemon: Ctrl-C does not wait for the run's end
    view = RefreshView()
    try:
        with _bar() as progress:
            bar = progress.add_task(view.words, total=None)
            while not _is_over(answer, poll_s):
                view = _looked(client, task, view)
                total = None if view.share is None else 1.0
                progress.update(bar, description=view.words, completed=view.share or 0.0, total=total)
    except KeyboardInterrupt:
        which = "" if task == "all" else f" --task {task}"
        typer.echo(f"The run continues in the service. `tocsin runs{which}` shows how it ends.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    return answer.result()


def _bar() -> ProgressBar:
    """A bar with a description that tells how far the work is: on stderr, and only on a terminal."""
    return ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _is_over(answer: "Future[JSON]", within_s: float) -> bool:
    try:
        answer.exception(timeout=within_s)
    except StillRunning:
        return False
    return True


def _looked(client: ServiceClient, wanted: str, view: RefreshView) -> RefreshView:
    try:
        overview = SchedulerOverview.from_json(client.get(SCHEDULER, keyed=True))
    except HoldfastError:
        return replace(view, words="the service sends no status")  # the refresh itself will report the error
    return view.after(overview.status, wanted)


def _share(progress: Progress, *, is_over: bool) -> float | None:
    if is_over:
        return 1.0
    return min(1.0, progress.done / progress.total) if progress.total > 0 else None


def _words(name: str, progress: Progress, status: Status) -> str:
    upstream = status.tasks[name].upstream
    far = f"{progress.done:,} of {progress.total:,}" if progress.total else "begun"
    waits = None if upstream is None else why_it_waits(upstream, status.budgets.get(upstream), status.now)
    return f"{name}: {far}" if waits is None else f"{name}: {far}, waits: {waits}"


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
