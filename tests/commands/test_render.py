"""How the terminal shows text and figures from outside."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from support.pages_server import World
from support.statuses import refresh_result, run_record, scheduler_status, task_status
from tocsin.commands import render
from tocsin.commands.render import shown_name
from tocsin.scheduler.types import Health, Progress, TaskStatus
from tocsin.shape import FreeForm
from tocsin.upstream.lookups import LookupUse

READY = Health(True, "ready", [], []).to_json()
ADDRESS = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"


@pytest.mark.parametrize(
    ("display_name", "bns_name", "shown"),
    [
        ("Ann", "ann.btc", "Ann"),
        (None, "ann.btc", "ann.btc"),
        ("\u3164\u2800", "ann.btc", "ann.btc"),
        ("\u200b\u2060 ", "\ufeff", ADDRESS),
        ("\x1b]0;owned\x07[bold]A\nB", None, "]0;owned[bold]A B"),
    ],
)
def test_an_agent_is_called_by_the_first_name_that_can_be_seen(
    display_name: str | None, bns_name: str | None, shown: str
) -> None:
    """Or by its address. A name is text, not a command to the terminal."""
    assert shown_name(ADDRESS, display_name, bns_name) == shown


def test_a_row_with_an_impossible_time_does_not_hide_the_others() -> None:
    """The board is printed, even with a trade in the year 31690708 and with a huge gain."""
    sample: Any = World.sample(3).rows
    sample[0] |= {"latestTradeAt": 10**18, "pnlUsd": 1e300}

    lines = printed(render.board({"rows": sample, "final": False})).splitlines()
    assert len(lines) == 5
    assert re.search(r"1e\+300 .* unknown", lines[1])


def printed(lines: Iterable[RenderableType]) -> str:
    console = render.console()
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get()


def test_each_cause_has_a_line_and_a_pause_has_one_for_all_tasks() -> None:
    """A headline of several sentences on one line cannot be read."""
    reasons = ["Token prices failed 3 times: tenero answered 503; next run 08:40 UTC", "sweep is overdue"]
    notes = ["Transaction feed paused until 2026-05-13 21:30 UTC", "History: no complete run yet"]
    several = printed(render.verdict(Health(False, "failing", reasons, notes).to_json(), is_paused=True))
    one = printed(render.verdict(Health(True, "paused", [], notes[:1]).to_json()))

    assert several.splitlines() == [
        "Not ready (failing)",
        "  Token prices failed 3 times: tenero answered 503; next run 08:40 UTC",
        "  sweep is overdue",
        "  History: no complete run yet",
    ]
    assert one == "Ready, paused: Transaction feed paused until 2026-05-13 21:30 UTC\n"


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        (task_status(), ("ok", "green")),
        (task_status(last_success_at=None), ("ok", "yellow")),
        (task_status(running=Progress(1, 3, 9, 7)), ("running 3/9", "cyan")),
        (task_status(condition="starting", last_success_at=None), ("starting", "yellow")),
        (
            task_status(condition="overdue", problem="late", running=Progress(1, 3, 9, 7)),
            ("overdue, running 3/9", "red"),
        ),
    ],
)
def test_only_a_task_that_has_succeeded_and_has_no_problem_is_green(task: TaskStatus, shown: tuple[str, str]) -> None:
    """Also while it is running."""
    _, _, table, *_ = render.status(scheduler_status(tasks={"tenero": task}).to_json(), READY)

    assert isinstance(table, Table)
    cell = next(iter(table.columns[1].cells))
    assert isinstance(cell, Text)
    assert (cell.plain, cell.style) == shown


def test_a_budget_has_one_number_and_says_what_is_kept_back() -> None:
    """Tasks cannot use the calls that are kept for requests."""
    shown = printed(render.status(scheduler_status().to_json(), READY))

    assert re.search(r"tenero +43,390 +4,821 +3,100 +6", shown)
    assert re.search(r"hiro +- +- +- +48", shown)


def test_look_ups_of_other_programs_are_a_line_each() -> None:
    status = replace(scheduler_status(), lookups={"site": LookupUse(3_000, 1_400, 1_500, 90, 10, 0)})
    shown = printed(render.status(status.to_json(), READY))

    assert "site: 3000 look-ups, 1500 from memory, 1400 calls, 90 stale, 10 refused, 0 failed" in shown


def test_counters_are_words() -> None:
    result: FreeForm = {"tokensAttempted": 1_200, "withoutPrice": 1, "failed": 0, "cursor": 7, "durationMs": 5}
    run = refresh_result(run_record(result=result))

    assert (
        printed(render.refreshed({"tenero": run.to_json()})) == "tenero: ok: 1,200 tokens attempted, 1 without price\n"
    )
