"""What the scheduler's object costs on the real runtime: rows at each wake, calls for each scrape."""

from pathlib import Path

import pytest

from support.workerd import Workerd, require_workerd, running

RUNS = 54_720  # of 30 days: three tasks at their cadences
OFF = {"TOCSIN_TENERO_ENABLED": "no", "TOCSIN_SWEEP_ENABLED": "no"}


@pytest.mark.slow
def test_a_wake_reads_no_more_rows_with_a_full_history(tmp_path: Path) -> None:
    """The last runs, today and the state, of 54,720 runs and 400 days. Cloudflare bills a row for each entry."""
    require_workerd()
    with running(tmp_path, OFF) as workerd:
        workerd.call("SCHEDULER", "v1", "arm")
        workerd.native_call("SCHEDULER", "v1", "load_history", RUNS, 400)
        workerd.kill()
        workerd.start()
        rows = workerd.native_call("SCHEDULER", "v1", "rows_read")
        history = workerd.call("SCHEDULER", "v1", "runs", {"limit": 1})["runs"]

    assert history[0]["id"] >= RUNS
    assert 5 < rows <= 20


def test_a_scrape_of_the_metrics_makes_one_call_to_the_object(workerd: Workerd) -> None:
    """It gets the status and the measures together."""
    workerd.call("SCHEDULER", "v1", "refresh_now", "tenero")
    workerd.ask("/healthz")  # a visitor arms it, at most once a minute
    workerd.scheduler_calls()
    text = workerd.ask("/metrics").body.decode()

    assert [method for method in workerd.scheduler_calls() if method != "arm"] == ["measured_status"]
    assert 'tocsin_run_duration_seconds_count{task="tenero"}' in text
    assert "tocsin_scheduler_up 1" in text
