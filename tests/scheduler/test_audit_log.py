"""The audit log in the object's storage: bounded, durable, and without secrets."""

import asyncio
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast_testing.virtual_time import VirtualClock
from support.scheduler import MINUTE, Job, Scheduler, scheduler
from tocsin.logs import Redactor
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import AuditEntry


async def act(made: Scheduler, action: str = "resume", role: str = "operator", reason: str | None = None) -> str:
    entry = AuditEntry.from_json(
        {"key": "alice", "role": role, "client": "192.0.2.7", "action": action, "target": None, "reason": reason}
    )
    record_id = await made.client().audit_begin(entry)
    await made.client().audit_end(record_id, "done", None)
    return record_id


async def test_records_survive_a_restart_newest_first(tmp_path: Path) -> None:
    """With their numbers; an action whose end was not recorded stays `begun`."""
    clock = VirtualClock()
    async with scheduler(tmp_path, clock=clock, arm=False) as made:
        await act(made, "pause")
        await asyncio.sleep(60)
        await made.client().audit_begin(AuditEntry("bob", "operator", "192.0.2.8", "resume"))
    async with scheduler(tmp_path, clock=clock, arm=False) as made:
        await asyncio.sleep(60)
        await act(made, "refresh")
        kept = await made.client().audit(50)

    assert [(record.id, record.action, record.outcome) for record in kept.records] == [
        ("operator-3", "refresh", "done"),
        ("operator-2", "resume", "begun"),
        ("operator-1", "pause", "done"),
    ]
    assert kept.records[0].at - kept.records[2].at == 120_000


@pytest.mark.slow
async def test_the_newest_thousand_are_kept_and_cron_pushes_none_out(tmp_path: Path) -> None:
    """A caller that acts every few minutes must not hide people's actions."""
    async with scheduler(tmp_path, arm=False) as made:
        for _ in range(1_003):
            await act(made)
        for _ in range(104):
            await act(made, role="cron")
        stored = [key for key in made.entries() if key.startswith("audit:")]
        kept = (await made.client().audit(2_000)).records

    assert len(stored) == len(kept) == 1_100
    assert {record.id for record in kept if record.role == "operator"} == {
        f"operator-{number}" for number in range(4, 1_004)
    }
    assert min(int(record.id.partition("-")[2]) for record in kept if record.role == "cron") == 5


async def test_actions_at_once_get_records_of_their_own(tmp_path: Path) -> None:
    """Also the first ones after a start, while the newest number is being read."""
    async with scheduler(tmp_path, arm=False) as made:
        ids = await asyncio.gather(*[act(made) for _ in range(20)])

    assert len(set(ids)) == 20


async def test_a_key_that_is_pasted_as_a_reason_is_masked(tmp_path: Path) -> None:
    """In the record and in the log line."""
    async with scheduler(tmp_path, arm=False) as made:
        made.env.mask = Redactor(["a-key-that-is-secret"]).text
        await act(made, reason="my key is a-key-that-is-secret")
        (record,) = (await made.client().audit(1)).records
        line = made.log.named("admin.acted")[0]

    assert record.reason == "my key is [redacted]"
    assert line["reason"] == "my key is [redacted]"
    assert (line["key"], line["action"], line["outcome"], line["record"]) == ("alice", "resume", "done", "operator-1")


async def test_the_log_is_not_read_when_the_object_wakes(tmp_path: Path) -> None:
    """Waking would cost a thousand rows; its state is the same with it."""
    async with scheduler(tmp_path, Job("tenero", 5 * MINUTE)) as made:
        await made.client().pause_until(made.clock.now() + 60_000)
        await act(made)
        made.reset()
        status = await made.client().status()

    assert status.paused_until is not None
    assert made.log.named("state.entry_unreadable") == []


async def test_an_unknown_record_cannot_be_ended(tmp_path: Path) -> None:
    """A sentence, not a defect."""
    async with scheduler(tmp_path, arm=False) as made:
        for record_id in ("operator-9", "nonsense", ""):
            with pytest.raises(UsageError, match="there is no record"):
                await made.client().audit_end(record_id, "done", None)


async def test_a_reload_changes_the_tasks_of_the_living_object(tmp_path: Path) -> None:
    """A cadence, a task that comes and one that goes; the alarm follows at once."""
    prices, feed = Job("tenero", 60 * MINUTE), Job("feed", 10 * MINUTE, upstream="hiro")
    async with scheduler(tmp_path, prices, Job("sweep", 60 * MINUTE, upstream="hiro")) as made:
        await asyncio.sleep(1)
        prices.started.clear()
        prices.cadence_ms = 5 * MINUTE
        made.env.tasks = [prices.task(), feed.task()]
        await made.client().reload()
        await asyncio.sleep(3_600)
        status = await made.client().status()

    assert list(status.tasks) == ["tenero", "feed"]
    assert status.tasks["tenero"].cadence_ms == 300_000
    assert len(prices.started) == 12  # in an hour; the first run was a second ago
    assert len(feed.started) == 7


async def test_a_run_under_way_ends_although_its_task_is_gone(tmp_path: Path) -> None:
    """It is recorded as it began, and its task does not come back."""
    slow, go = Job("sweep", 5 * MINUTE), asyncio.Event()

    async def wait(_context: TaskContext) -> TaskResult:
        await go.wait()
        return TaskResult({})

    slow.run = wait
    async with scheduler(tmp_path, Job("tenero", 60 * MINUTE), slow) as made:
        await asyncio.sleep(1)
        made.env.tasks = made.env.tasks[:1]
        await made.client().reload()
        go.set()
        await asyncio.sleep(1_200)
        runs = (await made.client().runs(None, 50)).runs

    assert [run.outcome for run in runs if run.task == "sweep"] == ["ok"]
    assert slow.started[1:] == []
