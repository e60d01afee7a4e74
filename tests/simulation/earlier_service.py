"""The data of a service that ran for weeks before the history begins.

It also checks what must be left at the end: only old runs are removed.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.local.data_dir import DataDir
from holdfast_testing.captured_log import CapturedLog
from simulation.damage import stored_texts, write_texts
from simulation.process import MIGRATIONS

if TYPE_CHECKING:
    from simulation.history import History

EarlierService: TypeAlias = Literal["none", "today"]

DAY_MS = 86_400_000
RUNS = range(2_150, 2_600)  # more than are kept whatever their age
RAN_FOR_DAYS = 45
LINES_EVERY = 10  # one run in this many has log lines
OLD_DAYS = 410  # daily totals are kept for 400
KEPT_DAYS, RUNS_KEPT = 30, 2_000
REMOVED_AT_ONCE = 128
CLOCK_DAYS = 2  # how far the machine's clock may be wrong
GONE_TASK = "mirror"  # of an earlier release


def write_earlier_service(directory: Path, kind: EarlierService, start_ms: int, rng: Random) -> int:
    """Store the data; return how many runs it had begun."""
    if kind == "none":
        return 0
    DataDir(directory, MIGRATIONS, now=start_ms, logger=CapturedLog()).close()
    count = rng.choice(RUNS)
    entries: dict[str, Any] = {
        "scheduler": {"armedAt": start_ms - RAN_FOR_DAYS * DAY_MS},
        f"task:{GONE_TASK}": {"lastRun": count},
    }
    for number in range(1, count + 1):
        run = _run(number, count, start_ms)
        if number == count:  # it was cut off, and this task no longer exists
            run |= {"task": GONE_TASK, "outcome": "running", "endedAt": None, "durationMs": None}
        entries[f"run:{number:012}"] = run
    for number in range(1, count + 1, LINES_EVERY):
        entries[f"run-log:{number:012}"] = {"lines": [], "leftOut": 0}
    for days_ago in range(OLD_DAYS - 5, OLD_DAYS):
        day = datetime.fromtimestamp(start_ms / 1000 - days_ago * 86_400, UTC).strftime("%Y-%m-%d")
        entries[f"day:{day}"] = {"day": day, "tasks": {}}
    write_texts(directory, "v1", {key: json.dumps(value) for key, value in entries.items()})
    return count


def _run(number: int, count: int, start_ms: int) -> dict[str, Any]:
    started_at = start_ms - 60_000 - (count - number) * RAN_FOR_DAYS * DAY_MS // count
    return {
        "id": number,
        "task": ("tenero", "sweep")[number % 2],
        "trigger": "alarm",
        "slotAt": started_at,
        "missedSlots": 0,
        "startedAt": started_at,
        "endedAt": started_at + 400,
        "durationMs": 400,
        "outcome": "ok",
        "result": {},
        "error": None,
        "calls": 1,
        "reason": None,
    }


def check_kept_runs(history: "History") -> None:
    """Check that all recent runs and the newest ones are kept, few older ones, and no log lines of those."""
    keys = stored_texts(history.directory, history.settings.instance)
    texts = {int(key[4:]): text for key, text in keys.items() if key.startswith("run:")}
    aside = {int(key.rpartition(":")[2]) for key in keys if key.startswith("unreadable:run:")}
    lines = {int(key[8:]) for key in keys if key.startswith("run-log:")}
    newest, oldest = max(texts), min(texts)
    if newest < history.runs_before:
        history.broken("run-history", f"{newest} is the newest run, and there were {history.runs_before}")
    missing = set(range(oldest, newest)) - texts.keys() - aside
    if missing:
        history.broken("run-history", f"there are no runs {sorted(missing)[:5]} between {oldest} and {newest}")
    now_ms = history.clock.now()
    first_kept = max(1, newest - RUNS_KEPT + 1)
    if oldest > first_kept and aside.isdisjoint(range(first_kept, oldest)):
        history.broken("run-history", f"the oldest run is {oldest}, of {newest}")
    kept_ms = (KEPT_DAYS + CLOCK_DAYS) * DAY_MS
    old = [
        number
        for number in texts
        if number <= newest - RUNS_KEPT - 2 * REMOVED_AT_ONCE and _age_ms(texts[number], now_ms) > kept_ms
    ]
    if old:
        history.broken("run-history", f"{len(old)} runs are older than they are kept: {old[:5]}")
    stray = [number for number in lines - aside if number < oldest]
    if stray:
        history.broken("run-history", f"log lines of runs that were removed: {sorted(stray)[:5]}")


def _age_ms(text: str, now_ms: int) -> int:
    run = json.loads(text)
    started_at = run.get("startedAt") if isinstance(run, dict) else None
    return now_ms - started_at if type(started_at) is int else 0
