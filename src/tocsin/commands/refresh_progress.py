"""`tocsin refresh`: asks for the refresh in a thread, and shows its progress from the status meanwhile."""

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from threading import Thread

from rich.progress import Progress, TaskID

from tocsin.bindings import JSON
from tocsin.commands.progress import counted_progress
from tocsin.commands.service_client import REFRESH_S, SCHEDULER, ServiceClient
from tocsin.errors import TocsinError
from tocsin.shapes.scheduler import SchedulerOverview


def refresh_with_progress(client: ServiceClient, task: str, poll_s: float, why: Mapping[str, str]) -> JSON:
    """The service's response. Progress goes to stderr, and only to a terminal."""
    answer: Future[JSON] = Future()

    def ask() -> None:
        try:
            answer.set_result(
                client.post(SCHEDULER, {"action": "refresh", "task": task, **why}, timeout_s=REFRESH_S)
            )
        except Exception as error:  # noqa: BLE001 - raised again where the answer is awaited
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()  # a daemon: Ctrl-C does not wait for the run's end
    bars: dict[str, TaskID] = {}
    with counted_progress() as progress:
        while not _is_over(answer, poll_s):
            _show(client, task, progress, bars)
    return answer.result()


def _is_over(answer: "Future[JSON]", within_s: float) -> bool:
    try:
        answer.exception(timeout=within_s)
    except StillRunning:
        return False
    return True


def _show(client: ServiceClient, wanted: str, progress: Progress, bars: dict[str, TaskID]) -> None:
    try:
        overview = SchedulerOverview.from_json(client.get(SCHEDULER, keyed=True))
    except TocsinError:
        return  # the refresh itself will report it
    for name, task in overview.status.tasks.items():
        running = task.running
        if running is None or wanted not in {name, "all"}:
            continue
        if name not in bars:
            bars[name] = progress.add_task(name)
        progress.update(bars[name], completed=running.done, total=running.total or None)
