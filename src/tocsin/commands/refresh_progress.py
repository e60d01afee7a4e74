"""A refresh as a command shows it: asked for in a thread, its progress read from the status meanwhile."""

from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from threading import Thread

from rich.progress import Progress, TaskID

from tocsin.bindings import JSON
from tocsin.commands.progress import counted_progress
from tocsin.commands.service_client import REFRESH_S, ServiceClient
from tocsin.errors import TocsinError

PATH = "/api/admin/scheduler"


def refresh_with_progress(client: ServiceClient, task: str, poll_s: float) -> JSON:
    """The service's answer. Progress goes to stderr, and only to a terminal."""
    answer: Future[JSON] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.post(PATH, {"action": "refresh", "task": task}, timeout_s=REFRESH_S))
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
        tasks = client.get(PATH, keyed=True)["status"]["tasks"]
    except TocsinError:
        return  # the refresh itself will tell
    for name, task in tasks.items():
        running = task["running"]
        if running is None or wanted not in {name, "all"}:
            continue
        if name not in bars:
            bars[name] = progress.add_task(name)
        progress.update(bars[name], completed=running.get("done", 0), total=running.get("total") or None)
