"""The audit log in the object's storage: bounded, durable, without secrets, and how each action ended."""

import asyncio
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.scheduler import MINUTE, Scheduler, prices, scheduler, store_entries
from tocsin.errors import RequestRefused
from tocsin.logs import Redactor
from tocsin.scheduler.audit import audited
from tocsin.scheduler.types import AuditEntry, AuditRecord
from tocsin.upstream.windows import DAY_MS

Role: TypeAlias = Literal["operator", "cron"]


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
    async with scheduler(tmp_path, prices()) as made:
        await made.client().pause_until(made.clock.now() + 60_000)
        await act(made)
        made.reset()
        status = await made.status()

    assert status.paused_until is not None
    assert made.log.named("state.entry_unreadable") == []


async def test_a_pause_and_its_record_are_one_transaction(tmp_path: Path) -> None:
    """Both are stored or neither; what is refused is on record, and a call without a name is not."""
    async with scheduler(tmp_path, prices()) as made:
        until = made.clock.now() + MINUTE
        made.runtime.store.refusal = "the disk is full"
        with pytest.raises(HoldfastError):
            await made.client().pause_until(until, None, entry())
        made.runtime.store.refusal = None
        kept = (await made.status()).paused_until, (await made.client().audit(9)).records
        use = made.watch_store()
        await made.client().pause_until(until, None, entry(reason="a test"))
        commits = list(use.committed)
        with pytest.raises(UsageError, match="That time is past"):
            await made.client().pause_until(1, "tenero", entry(target="tenero"))
        await made.client().resume()
        records = (await made.client().audit(9)).records

    assert kept == (None, [])
    assert commits == [{"audit:operator:000000000001", "scheduler"}]
    assert [(each.action, each.target, each.outcome, each.reason) for each in records] == [
        ("pause", "tenero", "refused", None),
        ("pause", None, "done", "a test"),
    ]
    assert records[1].detail == "until 2026-05-13 19:31 UTC"
    assert records[1].ended_at is not None


async def test_an_unknown_record_cannot_be_ended(tmp_path: Path) -> None:
    """A sentence, not a defect."""
    async with scheduler(tmp_path, arm=False) as made:
        for record_id in ("operator-9", "nonsense", ""):
            with pytest.raises(UsageError, match="there is no record"):
                await made.client().audit_end(record_id, "done", None)


def audit_records(role: Role, count: int) -> dict[str, Any]:
    return {
        f"audit:{role}:{number:012}": AuditRecord(
            "alice", role, "192.0.2.7", "resume", id=f"{role}-{number}", at=START_MS + number
        ).to_json()
        for number in range(1, count + 1)
    }


def entry(role: Role = "operator", **texts: str) -> AuditEntry:
    return AuditEntry("alice", role, "192.0.2.7", "pause", **texts)


@pytest.mark.parametrize(("role", "kept_max"), [("operator", 1_000), ("cron", 100)])
async def test_the_oldest_action_makes_room_for_a_new_one(tmp_path: Path, role: Role, kept_max: int) -> None:
    """A thousand of operators and a hundred of cron are kept, not one more and not one less, and neither pushes out.

    A caller that acts every few minutes must not hide people's actions.
    """
    clock, other = VirtualClock(START_MS + DAY_MS), audit_records("cron" if role == "operator" else "operator", 5)
    await store_entries(tmp_path, clock, {**audit_records(role, kept_max - 1), **other})
    async with scheduler(tmp_path, clock=clock, arm=False) as made:
        full = await made.client().audit_begin(entry(role))
        first = sorted(key for key in made.entries() if key.startswith(f"audit:{role}"))
        await made.client().audit_begin(entry(role))
        second = sorted(key for key in made.entries() if key.startswith(f"audit:{role}"))
        assert other.keys() <= made.entries().keys()

    assert full == f"{role}-{kept_max}"
    assert (len(first), first[0]) == (kept_max, f"audit:{role}:000000000001")
    assert (len(second), second[0]) == (kept_max, f"audit:{role}:000000000002")


async def test_the_newest_actions_of_all_are_shown_and_an_unreadable_one_is_left_out(tmp_path: Path) -> None:
    """By their time, operators and programs together; the log names the record that cannot be read."""
    clock = VirtualClock(START_MS + DAY_MS)
    damaged = {"audit:cron:000000000002": {"id": 7}}
    await store_entries(tmp_path, clock, {**audit_records("operator", 3), **audit_records("cron", 1), **damaged})
    async with scheduler(tmp_path, clock=clock, arm=False) as made:
        shown = [each.id for each in (await made.client().audit(2)).records]
        lines = made.log.named("audit.record_unreadable")
        long = await made.client().audit_begin(entry(reason="r" * 301, target="t" * 300))
        await made.client().audit_end(long, "refused", "d" * 400)
        newest = (await made.client().audit(1)).records[0]
        [acted] = made.log.of("admin.acted")

    assert shown == ["operator-3", "operator-2"]
    assert [line["key"] for line in lines] == ["audit:cron:000000000002"]
    assert (newest.reason, newest.target, newest.detail) == ("r" * 300, "t" * 300, "d" * 300)
    assert acted.level == "WARN"


async def action(made: Scheduler, log: CapturedLog, error: Exception | None) -> str | None:
    """An action that ends like this; returns the error that reached the caller."""

    async def work() -> int:
        if error is not None:
            raise error
        return 3

    try:
        result = await audited(made.client, log, entry(), work, lambda count: f"{count} agents")
    except Exception as caught:  # noqa: BLE001 - the caller gets whatever it was
        return str(caught)
    assert result == 3
    return None


async def test_how_an_action_ended_is_on_record(tmp_path: Path) -> None:
    """Done with what was done; refused when the caller was wrong, failed when we were; the caller gets the error."""
    log = CapturedLog()
    endings: list[Exception | None] = [
        None,
        UsageError("give another time"),
        RequestRefused(499, "gone", "the client left"),
        RequestRefused(500, "broken", "our fault"),
        ValueError(),
    ]
    async with scheduler(tmp_path, arm=False) as made:
        reached = [await action(made, log, error) for error in endings]
        records = (await made.client().audit(50)).records

    ended = sorted((int(each.id.partition("-")[2]), each.outcome, each.detail) for each in records)
    assert reached == [None, "give another time", "the client left", "our fault", ""]
    assert ended == [
        (1, "done", "3 agents"),
        (2, "refused", "give another time"),
        (3, "refused", "the client left"),
        (4, "failed", "our fault"),
        (5, "failed", "ValueError"),
    ]
    assert log.lines == []


async def test_an_end_that_cannot_be_recorded_is_in_the_log(tmp_path: Path) -> None:
    """The record stays begun, and the caller still gets the result of what was done."""
    log = CapturedLog()
    async with scheduler(tmp_path, arm=False) as made:

        async def work() -> int:
            made.runtime.store.refusal = "the disk is full " * 40
            return 3

        result = await audited(made.client, log, entry(), work, lambda _count: None)
        made.runtime.store.refusal = None
        [kept] = (await made.client().audit(50)).records

    [line] = log.named("audit.end_failed")
    assert (result, kept.outcome) == (3, "begun")
    assert (line["record"], line["action"], line["outcome"], len(line["error"])) == ("operator-1", "pause", "done", 300)
