"""A save writes everything that has changed, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.types import Storage
from support.scheduler import MINUTE, Job, scheduler
from tocsin.scheduler.state import SchedulerState, TaskState
from tocsin.scheduler.types import RunRecord
from tocsin.upstream.budget import Moment


class Written:
    """A storage that keeps what each save put."""

    def __init__(self) -> None:
        self.puts: list[dict[str, Any]] = []

    def put(self, entries: dict[str, Any]) -> None:
        self.puts.append(entries)


def test_a_save_writes_what_has_changed() -> None:
    """The first one writes everything; a run that ends changes the entries of its task, a counter in place too."""
    written = Written()
    storage = cast("Storage", written)
    state = SchedulerState({"tenero": TaskState(), "sweep": TaskState()})
    state.save(storage, Moment(1_000, 1_000))
    record = RunRecord(id=1, task="tenero", trigger="alarm", slot_at=1_000, missed_slots=0, started_at=1_000)
    state.begin(record)
    state.save(storage, Moment(2_000, 2_000), record)
    for number in (1, 2):
        ended = RunRecord(id=number, task="tenero", trigger="alarm", slot_at=1_000, missed_slots=0, started_at=1_000)
        state.end(ended.ended("ok", 3_000), Moment(3_000, 3_000))
        state.save(storage, Moment(3_000, 3_000), ended)
    first, begun, *ends = written.puts

    assert {"version", "runCounts", "lastSweepRunAt", "pausedUntil", "rerun"} <= first.keys()
    assert begun.keys() == {"savedAt", "lastRun", "lastSlotAt", "lastTeneroRunAt", "run:000000000001"}
    assert begun["lastRun"] == {"tenero": 1, "sweep": None}
    assert begun["lastSlotAt"] == {"tenero": 1_000, "sweep": 0}
    assert [end["runCounts"]["tenero"] for end in ends] == [{"ok": 1}, {"ok": 2}]
    assert all("lastSweepRunAt" not in end and "missedSlots" not in end for end in ends)
    assert [end["recentCalls"]["tenero"] for end in ends] == [[0], [0, 0]]
    assert "lastOutcome" not in ends[1]  # it is the same as before


async def test_after_a_wake_a_save_writes_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is written costs a thousand times as much as one that is read, and a wake changes nothing."""
    jobs = Job("tenero", 5 * MINUTE), Job("sweep", 60 * MINUTE)
    async with scheduler(tmp_path, *jobs) as made:
        await asyncio.sleep(61 * 60)
        before, commit, written = made.entries(), made.runtime.store.commit, list[str]()

        def committing(owner: Any, changes: Any) -> int:
            written.extend(key for key in changes.entries if not key.startswith(("run:", "run-log:", "day:")))
            return commit(owner, changes)

        monkeypatch.setattr(made.runtime.store, "commit", committing)
        made.reset()
        await made.client().status()
        woken = list(written)
        await asyncio.sleep(4 * 60 + 30)
        after = made.entries()

    assert woken == []
    assert {key for key in written if key not in {"savedAt", "measures"}} == {
        key for key in after if not key.startswith(("run:", "day:")) and after[key] != before[key]
    } - {"savedAt", "measures"}
    assert "lastSweepRunAt" not in written
    assert "version" not in written
