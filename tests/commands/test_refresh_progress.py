"""`tocsin refresh` on a terminal: how far it is, why it waits, and what Ctrl-C means."""

import asyncio
import os
import pty
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import START_MS
from support.patience import PATIENCE_S
from support.simulated_fetch import SimulatedFetch
from support.statuses import budget_status, scheduler_status
from support.tocsin_command import TOCSIN, rest_of_terminal
from support.web_thread import served_in_thread
from support.world import ADMIN_KEY
from tocsin.commands.refresh import progress_words
from tocsin.fetch import FetchResponse
from tocsin.scheduler.types import Progress
from tocsin.upstream.budget import BudgetStatus, WaitingCallers

WAITING = WaitingCallers(task=3, request=0)


def status(budgets: dict[str, BudgetStatus] | None = None, **running: tuple[int, int]) -> Any:
    """Return a status with this progress of the tasks."""
    made = scheduler_status()
    tasks = {
        name: replace(task, running=Progress(START_MS, *running[name], 7) if name in running else None)
        for name, task in made.tasks.items()
    }
    return replace(made, tasks=tasks, budgets=made.budgets if budgets is None else budgets).to_json()


def test_the_words_tell_how_far_the_running_tasks_are() -> None:
    """Only those that were asked for; a run that has not counted its work has begun, and none is over 100 %."""
    both = status(tenero=(5, 10), sweep=(10, 40))

    assert progress_words(both, "all") == "tenero: 5 of 10 (50%); sweep: 10 of 40 (25%)"
    assert progress_words(both, "sweep") == "sweep: 10 of 40 (25%)"
    assert progress_words(status(sweep=(0, 0)), "sweep") == "sweep: begun"
    assert progress_words(status(sweep=(1_200, 1_100)), "sweep") == "sweep: 1,200 of 1,100 (100%)"
    assert progress_words(status(tenero=(5, 10)), "sweep") == "waiting for its end"


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
    expected = "sweep: 3 of 9 (33%)" if words is None else f"sweep: 3 of 9 (33%), waits: {words}"
    assert progress_words(status({"hiro": budget}, sweep=(3, 9)), "sweep") == expected


@pytest.mark.slow
def test_ctrl_c_says_that_the_run_goes_on(tmp_path: Path) -> None:
    """A terminal shows the progress, and after Ctrl-C one sentence and the exit code of an interrupt."""
    answered = 0

    async def ten_times(url: str, **options: Any) -> FetchResponse:
        nonlocal answered
        answered += 1
        if answered > 10:
            await asyncio.Event().wait()
        return await SimulatedFetch(served.tocsin.simulator)(url, **options)

    with served_in_thread(tmp_path, fetch=lambda _: ten_times) as served:
        ours, theirs = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "ADMIN_KEY": ADMIN_KEY}
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        process = subprocess.Popen(
            [TOCSIN, "refresh", "sweep", "--port", str(served.port)],
            stderr=theirs, stdout=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        signal.signal(signal.SIGINT, inherited)
        os.close(theirs)
        shown = b""
        ends = time.monotonic() + PATIENCE_S
        while b"%)" not in shown and time.monotonic() < ends:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)
        shown += rest_of_terminal(ours)

    assert code == 130
    assert re.search(rb"sweep: [\d,]+ of [\d,]+ \(\d+%\)", shown)
    assert b"The run continues in the service. `tocsin runs --task sweep` shows how it ends." in shown
