"""The audit log at its limits: how many actions are kept, and how each ended."""

from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from holdfast.errors import UsageError
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.virtual_time import START_MS, VirtualClock
from support.scheduler import Scheduler, scheduler, store_entries
from tocsin.errors import RequestRefused
from tocsin.scheduler.audit import audited
from tocsin.scheduler.types import AuditEntry, AuditRecord

DAY = 86_400_000
Role: TypeAlias = Literal["operator", "cron"]


def audit_records(role: Role, count: int) -> dict[str, Any]:
    return {
        f"audit:{role}:{number:012}": AuditRecord(
            f"{role}-{number}", START_MS + number, "alice", role, "192.0.2.7", "resume", None, None
        ).to_json()
        for number in range(1, count + 1)
    }


def entry(role: Role = "operator", **texts: str) -> AuditEntry:
    return AuditEntry("alice", role, "192.0.2.7", "pause", **texts)


@pytest.mark.parametrize(("role", "kept_max"), [("operator", 1_000), ("cron", 100)])
async def test_the_oldest_action_makes_room_for_a_new_one(tmp_path: Path, role: Role, kept_max: int) -> None:
    """A thousand of operators and a hundred of cron are kept, not one more and not one less."""
    clock = VirtualClock(START_MS + DAY)
    await store_entries(tmp_path, clock, {"version": 3, **audit_records(role, kept_max - 1)})
    async with scheduler(tmp_path, clock=clock, arm=False) as made:
        full = await made.client().audit_begin(entry(role))
        first = sorted(key for key in made.entries() if key.startswith("audit:"))
        await made.client().audit_begin(entry(role))
        second = sorted(key for key in made.entries() if key.startswith("audit:"))

    assert full == f"{role}-{kept_max}"
    assert (len(first), first[0]) == (kept_max, f"audit:{role}:000000000001")
    assert (len(second), second[0]) == (kept_max, f"audit:{role}:000000000002")


async def test_the_newest_actions_of_all_are_shown_and_an_unreadable_one_is_left_out(tmp_path: Path) -> None:
    """By their time, operators and programs together; the log names the record that cannot be read."""
    clock = VirtualClock(START_MS + DAY)
    damaged = {"audit:cron:000000000002": {"id": 7}}
    await store_entries(
        tmp_path, clock, {"version": 3, **audit_records("operator", 3), **audit_records("cron", 1), **damaged}
    )
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
