"""`tocsin refresh` on a terminal: one bar that never runs backwards, why it waits, and what Ctrl-C means."""

import os
import pty
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.testing.virtual_time import START_MS
from support.patience import PATIENCE_S
from support.scripted_scheduler import ADMIN_KEY
from support.statuses import budget_status, scheduler_status, task_status
from support.tocsin_command import TOCSIN, rest_of_terminal
from support.web_thread import served_in_thread
from tocsin.commands.refresh import RefreshView, why_it_waits
from tocsin.scheduler.types import Progress, Status
from tocsin.upstream.budget import BudgetStatus, WaitingCallers

WAITING = WaitingCallers(task=3, request=0)


def status(**running: tuple[int, int]) -> Status:
    """Return a status with this progress of the tasks."""
    made = scheduler_status()
    tasks = {
        name: replace(task, running=Progress(START_MS, *running[name], 7) if name in running else None)
        for name, task in made.tasks.items()
    }
    return replace(made, tasks=tasks)


def test_the_bar_never_runs_backwards() -> None:
    """A sweep that finds more to do: 18 of 40 becomes 19 of 98, and the bar waits."""
    shares, view = [], RefreshView()
    for done, total in ((0, 0), (18, 40), (19, 98), (44, 98), (98, 98), (98, 120)):
        view = view.after(status(sweep=(done, total)), "sweep")
        shares.append(view.share)

    assert shares == [None, 0.45, 0.45, 0.45, 1.0, 1.0]
    assert view.words == "sweep: 98 of 120"


def test_all_tasks_are_one_bar() -> None:
    """A run that has ended counts as done, and the text is about those still running."""
    view = RefreshView().after(status(tenero=(5, 10), sweep=(10, 40)), "all")
    assert (view.share, view.words) == (0.375, "tenero: 5 of 10; sweep: 10 of 40")
    view = view.after(status(sweep=(20, 40)), "all")
    assert (view.share, view.words) == (0.75, "sweep: 20 of 40")
    assert RefreshView().after(status(tenero=(5, 10)), "sweep").share is None


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (budget_status(minute=(500, 500), month=(9, 100)), None),
        (
            budget_status(minute=(450, 500), month=(9, 100), waiting=WAITING),
            "the 500 calls a minute to hiro are used up",
        ),
        (
            budget_status(minute=(1, 500), month=(9, 100), waiting=WAITING),
            "the calls to hiro are paced over the month",
        ),
        (
            budget_status(minute=(1, 500), month=(9, 100), closed_until=START_MS + 40_000),
            "hiro answered 429, resumes in 40s",
        ),
    ],
)  # fmt: skip
def test_what_a_run_waits_for(budget: BudgetStatus, words: str | None) -> None:
    assert why_it_waits("hiro", budget, START_MS) == words
    shown = replace(status(sweep=(3, 9)), budgets={"hiro": budget})
    expected = "sweep: 3 of 9" if words is None else f"sweep: 3 of 9, waits: {words}"
    assert RefreshView().after(shown, "sweep").words == expected


@pytest.mark.slow
def test_ctrl_c_says_that_the_run_goes_on(tmp_path: Path) -> None:
    """A terminal shows the bar, and after Ctrl-C one sentence and the exit code of an interrupt."""
    with served_in_thread(tmp_path) as served:
        scheduler = served.scheduler
        tasks = {**scheduler.shown.tasks, "tenero": task_status(running=Progress(START_MS, 3, 9, 7))}
        served.do(lambda: scheduler.show(tasks=tasks))
        scheduler.statuses_per_refresh = 10**6
        ours, theirs = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "ADMIN_KEY": ADMIN_KEY}
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        process = subprocess.Popen(
            [TOCSIN, "refresh", "tenero", "--port", str(served.port)],
            stderr=theirs, stdout=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        signal.signal(signal.SIGINT, inherited)
        os.close(theirs)
        shown = b""
        ends = time.monotonic() + PATIENCE_S
        while b"tenero: 3 of 9" not in shown and time.monotonic() < ends:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)
        shown += rest_of_terminal(ours)
        scheduler.statuses_per_refresh = 0

    assert code == 130
    assert b"33%" in shown
    assert b"The run continues in the service. `tocsin runs --task tenero` shows how it ends." in shown
