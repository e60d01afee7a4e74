"""Tocsin's Worker on the real workerd: from process start to the first reply, and the lateness of alarms.

Machines differ and are shared: compare figures only within one run.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from support.workerd import MODULES, Workerd, running

STARTS, RINGS, CALLS = 5, 200, 300
ADDRESS = "SPHP0ZECSZ2Z8NZJWPXA51FWZJ1PT28RB3MV592G"


def cold_start_s(directory: Path) -> float:
    started_at = time.perf_counter()
    with running(directory, {}, from_snapshot=False, optimized=True) as workerd:
        workerd.call("SCHEDULER", "v1", "status")
        return time.perf_counter() - started_at


def alarm_lateness_ms(workerd: Workerd) -> list[int]:
    """Each ring sets the alarm for 20 ms later."""
    workerd.call("CONTRACT", "bench", "script", 20, *["rearm"] * RINGS)
    workerd.call("CONTRACT", "bench", "rings", RINGS)
    lateness_ms: list[int] = workerd.call("CONTRACT", "bench", "get", "late")
    return lateness_ms[:RINGS]


def durations_ms(work: Callable[[], object]) -> list[float]:
    durations = []
    for _ in range(CALLS):
        started_at = time.perf_counter()
        work()
        durations.append((time.perf_counter() - started_at) * 1000)
    return durations


def percentiles(values: list[float] | list[int]) -> str:
    ordered = sorted(values)
    return f"{statistics.median(ordered):.1f} / {ordered[int(len(ordered) * 0.99)]:.1f} ms"


def main() -> None:
    console = Console(width=110)
    if not MODULES.exists():
        console.print("workerd is not installed: run `make test` on a machine with npm")
        return
    with tempfile.TemporaryDirectory() as scratch:
        starts = [cold_start_s(Path(scratch) / f"start{number}") for number in range(STARTS)]
        with running(Path(scratch) / "warm", {"TOCSIN_READS_PER_MINUTE": "0"}, optimized=True) as workerd:
            workerd.migrate()
            calls = durations_ms(lambda: workerd.call("CONTRACT", "bench", "echo", 1))
            health = durations_ms(lambda: workerd.ask("/healthz"))
            prices = durations_ms(lambda: workerd.ask("/api/prices"))
            trades = durations_ms(lambda: workerd.ask("/api/competition/trades?address=" + ADDRESS))
            lateness_ms = alarm_lateness_ms(workerd)
    table = Table("on workerd, in Python", "measured", title="Cloudflare platform")
    table.add_row(
        f"process start → status of the scheduler, {STARTS} starts, median / worst",
        f"{statistics.median(starts):.1f} / {max(starts):.1f} s",
    )
    table.add_row(f"alarm lateness, {RINGS} rings, p50 / p99", percentiles(lateness_ms))
    table.add_row("a call to an object, by way of the Worker, p50 / p99", percentiles(calls))
    table.add_row("GET /healthz: the application alone", percentiles(health))
    table.add_row("GET /api/prices: kept for a second, else two reads of KV", percentiles(prices))
    table.add_row("GET /api/competition/trades: D1", percentiles(trades))
    console.print(table)


if __name__ == "__main__":
    main()
