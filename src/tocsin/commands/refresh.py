"""`tocsin refresh`: requests the refresh in a thread, and meanwhile shows on a terminal how far each task is."""

import sys
from concurrent.futures import Future, wait
from contextlib import ExitStack
from threading import Thread

import typer
from rich.console import Console

from holdfast.errors import HoldfastError
from tocsin.commands.client import REFRESH_S, Answer, ServiceClient
from tocsin.text import shown_until

POLL_S = 0.25
INTERRUPTED = 130  # as a shell reports Ctrl-C


def refresh_with_progress(client: ServiceClient, task: str, reason: str | None) -> Answer:
    """Refresh, and return the service's response. Progress goes to stderr, and only to a terminal."""
    answer: Future[Answer] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.act({"action": "refresh", "task": task, "reason": reason}, timeout_s=REFRESH_S))
        except Exception as error:  # noqa: BLE001 - raised again where the answer is awaited
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()  # a daemon: Ctrl-C does not wait for the run's end
    try:
        with ExitStack() as stack:
            shown = Console(stderr=True, highlight=False).status("asking")
            if sys.stderr.isatty():
                stack.enter_context(shown)
            while wait([answer], POLL_S).not_done:
                shown.update(_progress(client, task))
    except KeyboardInterrupt:
        which = "" if task == "all" else f" --task {task}"
        typer.echo(f"The run continues in the service. `tocsin runs{which}` shows how it ends.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    return answer.result()


def _progress(client: ServiceClient, wanted: str) -> str:
    try:
        status = client.scheduler()["status"]
    except HoldfastError:
        return "the service sends no status"  # the refresh itself will report the error
    return progress_words(status, wanted)


def progress_words(status: Answer, wanted: str) -> str:
    """How far the running tasks are, and what they wait for."""
    words = []
    for name, task in status["tasks"].items():
        if task["running"] is None or wanted not in {name, "all"}:
            continue
        done, total = task["running"]["done"], task["running"]["total"]
        far = f"{done:,} of {total:,} ({min(1, done / total):.0%})" if total else "begun"
        upstream = task["upstream"]
        waits = None if upstream is None else why_it_waits(upstream, status["budgets"].get(upstream), status["now"])
        words.append(f"{name}: {far}" if waits is None else f"{name}: {far}, waits: {waits}")
    return "; ".join(words) or "waiting for its end"


def why_it_waits(upstream: str, budget: Answer | None, now: int) -> str | None:
    """Why calls to this upstream have to wait at the moment; None if they do not."""
    if budget is None:
        return None
    closed_until, limits = budget["closedUntil"], budget["limits"]
    if closed_until is not None and closed_until > now:
        return f"{upstream} answered 429, resumes {shown_until(closed_until, now)}"
    if budget["waiting"]["task"] == 0:
        return None
    for window in ("second", "minute"):
        limit = limits[window]
        if limit is not None and budget["spent"][window] >= limit - int(limit * limits["requestShare"]):
            return f"the {limit:,} calls a {window} to {upstream} are used up"
    return f"the calls to {upstream} are paced over the month"
