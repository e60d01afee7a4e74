"""A site's own Worker, in JavaScript, binds the scheduler and calls it: names, values and errors."""

from pathlib import Path
from typing import Any

import pytest

from support.workerd import Workerd, require_workerd, running


def test_status_is_a_plain_object_with_the_documented_fields(workerd: Workerd) -> None:
    """A page's Worker needs no conversion, no proxy and none of our stubs."""
    seen = workerd.site_call("status")
    assert seen["plain"] is True
    assert set(seen["result"]) >= {
        *("lastTeneroRunAt", "lastSweepRunAt", "lastTeneroResult", "lastSweepResult"),
        *("consecutiveFailures", "pausedUntil", "nextAlarmAt"),
    }


@pytest.mark.parametrize(("task", "field"), [("tenero", "succeeded"), ("sweep", "contractsScanned")])
def test_refresh_now_returns_the_result_of_the_task(workerd: Workerd, task: str, field: str) -> None:
    """The result is the one that status shows afterwards."""
    seen = workerd.site_call("refreshNow", task)
    assert seen["plain"] is True
    assert seen["result"][field] > 0
    assert seen["result"]["run"]["outcome"] == "ok"


def test_refresh_now_runs_all_tasks(workerd: Workerd) -> None:
    """The result has one entry for each task."""
    results = workerd.site_call("refreshNow", "all")["result"]
    assert {"tenero", "sweep"} <= set(results)
    assert results["sweep"]["contractsScanned"] > 0


def test_a_pause_begins_and_ends(workerd: Workerd) -> None:
    """Status shows the pause in between."""
    until = workerd.site_call("status")["result"]["now"] + 60_000
    assert workerd.site_call("pauseUntil", until)["result"] == {"name": "v1", "pausedUntil": until}
    assert workerd.site_call("status")["result"]["pausedUntil"] == until
    assert workerd.site_call("resume")["result"] == {"name": "v1", "resumed": True}
    assert workerd.site_call("status")["result"]["pausedUntil"] is None
    paused = workerd.site_call("pauseUntil", until, "sweep")["result"]
    assert paused == {"name": "v1", "pausedUntil": until, "task": "sweep"}
    assert workerd.site_call("status")["result"]["tasks"]["sweep"]["pausedUntil"] == until
    assert workerd.site_call("resume", "sweep")["result"] == {"name": "v1", "resumed": True, "task": "sweep"}


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("refreshNow", ["prices"], "there is no task 'prices': give one of tenero, feed, sweep"),
        ("refreshNow", [["sweep"]], "there is no task ['sweep']: give one of tenero, feed, sweep"),
        ("refreshNow", [], "there is no task None: give one of tenero, feed, sweep"),
        ("pauseUntil", [1], "That time is past: it is "),
        ("pauseUntil", ["soon"], "A pause ends at a time in unix milliseconds, not 'soon'. Give one at most "),
        ("pauseUntil", [], "A pause ends at a time in unix milliseconds, not None. Give one at most "),
    ],
)
def test_a_mistake_is_an_error_with_its_sentence_and_a_code(
    workerd: Workerd, method: str, values: list[Any], message: str
) -> None:
    """The message is the sentence, without a traceback."""
    thrown = workerd.site_call(method, *values)["thrown"]
    assert thrown.pop("message").startswith(message)
    assert thrown == {"isError": True, "name": "Error", "code": "bad_request", "retryable": False}


@pytest.mark.slow
def test_a_missing_setting_is_an_error_with_its_sentence(tmp_path: Path) -> None:
    """The object cannot be made: every call throws the reason."""
    require_workerd()
    with running(tmp_path, {"TOCSIN_SWEEP_CADENCE": "soon"}) as workerd:
        thrown = workerd.site_call("status")["thrown"]
    assert "TOCSIN_SWEEP_CADENCE: 'soon' is not a duration" in thrown["message"]
    assert "Traceback" not in thrown["message"]
    assert (thrown["code"], thrown["retryable"]) == ("scheduler_unavailable", True)
