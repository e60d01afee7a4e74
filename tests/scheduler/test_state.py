"""States load completely, no stored value keeps the scheduler from starting, and a save writes what has changed."""

import asyncio
import copy
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.types import Storage
from holdfast_testing.virtual_time import START_MS, VirtualClock, run_virtual
from support.examples import shape_differences
from support.scheduler import MINUTE, Job, Scheduler, ended_run, prices, run_entries, scheduler, store_entries
from support.scripted_fetch import ScriptedFetch, always, response
from support.stored_states import NEWEST, QUOTAS, jobs, refresh_prices, stored_state, write_state
from tocsin.scheduler.state import SchedulerState, TaskState
from tocsin.scheduler.types import LastError, RunRecord, Status
from tocsin.upstream.budget import Quota
from tocsin.upstream.windows import DAY_MS, Moment

Entries: TypeAlias = Mapping[str, Any]
UNREADABLE = "state.entry_unreadable"
PROCESS_ENDED = "the process ended during this run, or the platform moved the object"
DEMO = {"hiro": Quota(10**9, 10**9, 10**9), "tenero": Quota(None, 10**9, 10**9)}
PRICE = ScriptedFetch(always(response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}})))
BEGUN_AT = START_MS + MINUTE  # when a scheduler starts on a damaged state
NEXT_SLOT = START_MS + 5 * MINUTE
RUN, BUDGET = "run:000000000001", "budget:tenero"
DAY = "day:2026-05-13"
MISSING = object()
DAMAGED = [
    ("pausedUntil", "tomorrow"),
    ("pausedUntil", 1.5),
    ("armedAt", {}),
    ("armedAt", True),
    ("savedAt", [1, 2]),
    ("savedAt", ["now", 1, "boot"]),
    ("savedAt", 7),
    ("runSeq", None),
    ("runSeq", "1"),
    *((key, []) for key in ("consecutiveFailures", "nextRunAfter", "lastSlotAt", "lastSuccessAt")),
    *((key, "garbage") for key in ("lastError", "missedSlots", "rerun", "runCounts", "lastOutcome")),
    *((key, "garbage") for key in ("lastRun", "interruptions", "recentCalls")),
    ("lastRun", {"tenero": "1"}),
    ("interruptions", {"tenero": "2"}),
    ("recentCalls", {"tenero": [1, "2"]}),
    ("lastReason", {"tenero": 7}),
    ("consecutiveFailures", {"tenero": "3"}),
    ("nextRunAfter", {"tenero": {}}),
    ("lastSlotAt", {"tenero": 1.5}),
    ("lastSuccessAt", {"tenero": "now"}),
    ("lastError", {"tenero": {"at": 1, "class": "Limited"}}),
    ("lastError", {"tenero": {"at": "x", "class": "Limited", "message": ""}}),
    ("missedSlots", {"tenero": [0]}),
    ("rerun", {"tenero": "yes"}),
    ("wakeAt", {"tenero": "soon"}),
    ("runCounts", {"tenero": {"ok": "many"}}),
    ("runCounts", {"tenero": 7}),
    ("lastTeneroRunAt", "yesterday"),
    ("lastTeneroResult", [1]),
    ("daysCountedSince", "long ago"),
    (DAY, "garbage"),
    (DAY, {}),
    (f"{DAY}.tasks", {"tenero": {"runs": "many"}}),
    (RUN, "garbage"),
    (RUN, {}),
    (f"{RUN}.task", MISSING),
    (f"{RUN}.outcome", "exploded"),
    (f"{RUN}.result", 7),
    (f"{RUN}.error", {"class": "Limited"}),
    (BUDGET, 7),
    (BUDGET, {}),
    (f"{BUDGET}.month.spent", MISSING),
    (f"{BUDGET}.month", 7),
    (f"{BUDGET}.month.offsetMs", -(10**20)),
    (f"{BUDGET}.limits.minute", 0),
    (f"{BUDGET}.limits.minute", 10**400),
    (f"{BUDGET}.minute", [[1, 2, 3]]),
    ("measures", "garbage"),
    ("measures.alarmLateness", MISSING),
    ("measures.runSeconds.tenero.counts", 7),
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(10**30), 10**400, -(10**400), 1e300, 0, -1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("tenero"), inner, max_size=3)
    ),
    max_leaves=8,
)
places = st.lists(st.integers(0, 40), max_size=4)
NOW = Moment(START_MS, 1_000_000, "a boot")


def warnings(made: Scheduler) -> list[str]:
    """The events of loading that are not just information."""
    return [line.event for line in made.log.lines if line.event.startswith("state.") and line.level != "INFO"]


def outcomes(runs: list[RunRecord]) -> list[tuple[int, str, str]]:
    return [(run.id, run.task, run.outcome) for run in runs]


async def test_the_state_of_release_0_1_0_loads_completely(tmp_path: Path) -> None:
    """Runs, results, failures, the pause, back-offs and budgets; and it is in today's layout afterwards."""
    stored = stored_state("0.1.0")
    clock = VirtualClock(1_794_762_350_000)  # seconds after its process was killed
    await store_entries(tmp_path, clock, stored)
    prices, sweep = Job("tenero", 10_000, 9_000), Job("sweep", 20_000, 19_000, upstream="hiro")
    async with scheduler(tmp_path, prices, sweep, clock=clock, quotas=DEMO) as made:
        status, runs = await made.status(), await made.runs()
        entries, days = made.entries(), (await made.client().days(30)).days
        await made.client().resume()
        await asyncio.sleep(60)

    assert warnings(made) == []
    assert {name: totals.outcomes for name, totals in days[0].tasks.items()} == {
        "tenero": {"ok": 5, "failed": 1, "interrupted": 1},
        "sweep": {"ok": 3, "stopped": 1, "interrupted": 1},
    }
    assert [line["from_version"] for line in made.log.named("state.upgraded")] == [1]
    assert entries["version"] == 3
    assert not any(key.startswith("unreadable:") for key in entries)
    assert runs[0].error is not None
    assert (runs[0].id, runs[0].outcome, runs[0].error.message) == (12, "interrupted", PROCESS_ENDED)
    assert [run.to_json() for run in reversed(runs[1:])] == [
        {**stored[f"run:{number:012}"], "reason": None, "done": 0, "total": 0} for number in range(1, 12)
    ]
    check_status_of_0_1_0(status, stored)
    assert sweep.started[0] == 1_794_762_350_000  # its interrupted run, as soon as the pause has ended
    assert prices.started[0] == stored["nextRunAfter"]["tenero"]


def check_status_of_0_1_0(status: Status, stored: Entries) -> None:
    assert status.paused_until == stored["pausedUntil"]
    assert status.consecutive_failures == {"tenero": 2, "sweep": 1}
    assert status.next_run_after == {"tenero": stored["nextRunAfter"]["tenero"], "sweep": None}
    assert status.last_run_at == {"tenero": stored["lastTeneroRunAt"], "sweep": stored["lastSweepRunAt"]}
    assert status.last_result["sweep"] == stored["lastSweepResult"]
    prices, sweep = status.tasks["tenero"], status.tasks["sweep"]
    assert sweep.last_error == LastError.from_json(stored["lastError"]["sweep"])
    assert prices.last_success_at == stored["lastSuccessAt"]["tenero"]
    assert prices.run_counts == {"ok": 5, "failed": 1, "interrupted": 1}
    assert sweep.run_counts == {"ok": 3, "stopped": 1, "interrupted": 1}
    hiro, tenero = status.budgets["hiro"], status.budgets["tenero"]
    assert (hiro.spent.month, tenero.spent.month) == (316, 12)
    assert (hiro.spent.minute, tenero.spent.minute) == (316, 11)  # when they were made is unknown: just now
    assert tenero.closed_until == stored["budget:tenero"]["closedUntil"]


async def test_the_state_of_release_0_2_0_loads_completely(tmp_path: Path) -> None:
    """Of today's layout: nothing is upgraded."""
    await check_state_of_0_2_0(tmp_path, stored_state("0.2.0"), upgraded_from=[])


async def test_the_state_of_version_2_loads_completely(tmp_path: Path) -> None:
    """It lacked what its runs show: they are read once, and the result is stored."""
    stored = stored_state("0.2.0-version-2")
    await check_state_of_0_2_0(tmp_path, stored, upgraded_from=[2])
    clock = VirtualClock(stored["lastSweepRunAt"] + 60_000)
    async with scheduler(tmp_path, *jobs(), clock=clock, quotas=QUOTAS) as made:
        await made.client().resume()
        entries = made.entries()

    assert made.log.named("state.upgraded") == []
    assert entries["lastRun"] == {"tenero": 4, "sweep": 6}
    assert entries["interruptions"] == {"tenero": 1, "sweep": 1}
    assert entries["recentCalls"] == {"tenero": [1], "sweep": []}


async def check_state_of_0_2_0(directory: Path, stored: Entries, upgraded_from: list[int]) -> None:
    clock = VirtualClock(stored["lastSweepRunAt"] + 30_000)
    async with scheduler(directory, *jobs(), clock=clock, stored=stored, quotas=QUOTAS) as made:
        status, runs = await made.status(), await made.runs()

    assert warnings(made) == []
    assert [line["from_version"] for line in made.log.named("state.upgraded")] == upgraded_from
    assert outcomes(runs) == [
        (6, "sweep", "interrupted"),  # it was under way
        (5, "sweep", "stopped"),
        (4, "tenero", "interrupted"),
        (3, "tenero", "failed"),
        (2, "sweep", "partial"),
        (1, "tenero", "ok"),
    ]
    assert [run.to_json() for run in reversed(runs[1:])] == [stored[f"run:{n:012}"] for n in range(1, 6)]
    assert status.paused_until == stored["pausedUntil"]
    assert status.consecutive_failures == {"tenero": 2, "sweep": 1}
    assert status.next_run_after == stored["nextRunAfter"]
    assert status.last_result["tenero"] == stored["lastTeneroResult"]
    assert status.tasks["tenero"].last_error == LastError.from_json(stored["lastError"]["tenero"])
    assert status.tasks["sweep"].run_counts == {"partial": 1, "stopped": 1, "interrupted": 1}
    assert (status.budgets["hiro"].spent.month, status.budgets["tenero"].spent.month) == (7, 3)


async def test_the_stored_state_has_the_layout_of_the_newest_file(tmp_path: Path) -> None:
    """A change of the layout needs a new version, an upgrade, and a new file: see scheduler/stored.py."""
    written, stored = await write_state(tmp_path), stored_state(NEWEST)

    assert shape_differences(stored, written) + shape_differences(written, stored) == []


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_an_upgrade_accepts_what_is_in_todays_layout_already(tmp_path: Path, version: int) -> None:
    """After a rollback a state of version 1 may hold entries of both layouts."""
    stored = {**stored_state("0.2.0"), "version": version}
    clock = VirtualClock(stored["lastSweepRunAt"])
    async with scheduler(tmp_path, *jobs(), clock=clock, stored=stored, quotas=QUOTAS) as made:
        runs = await made.runs()
        entries = made.entries()

    assert warnings(made) == []
    assert [run.to_json() for run in reversed(runs[1:])] == [stored[f"run:{n:012}"] for n in range(1, 6)]
    assert entries["version"] == 3


async def test_a_run_without_calls_is_upgraded(tmp_path: Path) -> None:
    """At first 0.1.0 did not count them."""
    run = stored_state("0.1.0")["run:000000000001"]
    del run["calls"]
    clock = VirtualClock(run["endedAt"])
    async with scheduler(tmp_path, prices(), clock=clock, stored={"run:000000000001": run}, arm=False) as made:
        [record] = await made.runs()

    assert warnings(made) == []
    assert (record.outcome, record.calls) == ("ok", 0)


@pytest.mark.parametrize("version", [4, 99, 0, -1, "3", 3.0, True, None, []])
async def test_an_unknown_version_does_not_keep_it_from_starting(
    tmp_path: Path, one_run: Entries, version: Any
) -> None:
    """A newer release, or damage: what can be read is used."""
    clock = VirtualClock(BEGUN_AT)
    await store_entries(tmp_path, clock, {**one_run, "version": version})
    async with started(tmp_path, clock) as (made, job):
        await asyncio.sleep(5 * 60)
        runs = await made.runs()
        entries = made.entries()

    assert [line["version"] for line in made.log.named("state.version_unknown")] == [version]
    assert outcomes(runs) == [(2, "tenero", "ok"), (1, "tenero", "ok")]
    assert job.started == [NEXT_SLOT]
    assert entries["version"] == 3


@pytest.fixture(scope="module", name="one_run")
def state_of_one_run() -> dict[str, Any]:
    """The entries of a scheduler with one task that has run once."""

    async def write(directory: Path) -> dict[str, Any]:
        async with started(directory, VirtualClock()) as (made, _job):
            await asyncio.sleep(60)
            return made.entries()

    with tempfile.TemporaryDirectory() as directory:
        return run_virtual(write(Path(directory)))


@asynccontextmanager
async def started(directory: Path, clock: VirtualClock) -> AsyncIterator[tuple[Scheduler, Job]]:
    """A scheduler on what is stored, with one task that makes a call."""
    job = prices(refresh_prices)
    async with scheduler(directory, job, clock=clock, fetch=PRICE, quotas=QUOTAS) as made:
        yield made, job


def damaged(entries: Entries, place: str, value: Any) -> tuple[str, Any]:
    """A key, and its entry with this value at the place, or with none."""
    key, *path = place.split(".")
    if not path:
        return key, value
    entry = part = copy.deepcopy(entries[key])
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    if value is MISSING:
        del part[path[-1]]
    return key, entry


def test_every_kind_of_entry_is_damaged(one_run: Entries) -> None:
    """Except the version, which has its own test, and `runSeq`, which is not always there."""
    assert {place.split(".")[0] for place, _ in DAMAGED} == {*one_run} - {"version"} | {"runSeq"}


@pytest.mark.parametrize(("place", "value"), DAMAGED)
async def test_a_damaged_entry_is_put_aside_and_reported_once(
    tmp_path: Path, one_run: Entries, place: str, value: Any
) -> None:
    """The scheduler starts with the default in its place, and the task runs at its next slot."""
    key, entry = damaged(one_run, place, value)
    clock = VirtualClock(BEGUN_AT)
    await store_entries(tmp_path, clock, {**one_run, key: entry})
    async with started(tmp_path, clock) as (made, job):
        await asyncio.sleep(5 * 60)
        newest = (await made.runs())[0]
        entries = made.entries()
    async with started(tmp_path, clock) as (again, _job):
        await again.client().status()

    [line] = made.log.of(UNREADABLE)
    assert (line.level, line.fields["key"]) == ("ERROR", key)
    assert line.fields["reason"]
    assert f"unreadable:{key}" in line.fields["fix"]
    assert entries[f"unreadable:{key}"] == entry
    assert job.started[-1] == NEXT_SLOT
    assert newest.outcome == "ok"
    assert warnings(again) == []


async def test_a_damaged_entry_of_an_older_release_is_kept_as_it_was(tmp_path: Path) -> None:
    """The upgrade does not bring it back, and what is put aside is what was stored."""
    run, budget = "run:000000000009", "budget:tenero"
    stored = stored_state("0.1.0")
    del stored[run]["task"]
    stored[budget]["month"]["spent"] = "many"
    clock = VirtualClock(stored["lastTeneroRunAt"])
    await store_entries(tmp_path, clock, stored)
    async with started(tmp_path, clock) as (made, _job):
        await made.status()
        entries = made.entries()
    async with started(tmp_path, clock) as (again, _job):
        await again.client().status()

    assert sorted(line["key"] for line in made.log.named(UNREADABLE)) == [budget, run]
    assert (entries[f"unreadable:{run}"], entries[f"unreadable:{budget}"]) == (stored[run], stored[budget])
    assert run not in entries
    assert warnings(again) == []


def damage(body: Any, place: list[int], value: Any) -> Any:
    """Replace the part of an entry that the numbers lead to."""
    if not place or not isinstance(body, dict | list) or not body:
        return value
    names = list(body) if isinstance(body, dict) else list(range(len(body)))
    name = names[place[0] % len(names)]
    body[name] = damage(body[name], place[1:], value)
    return body


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 40), places, values), min_size=1, max_size=4), is_old=st.booleans())
def test_no_stored_value_keeps_the_scheduler_from_starting(
    one_run: Entries, changes: list[tuple[int, list[int], Any]], is_old: bool
) -> None:
    """Any JSON value under any known key, or anywhere inside one: it starts, and answers, and runs its task."""

    async def play(directory: Path) -> None:
        stored = stored_state("0.1.0") if is_old else one_run
        entries, names = copy.deepcopy(dict(stored)), sorted(stored)
        for number, place, value in changes:
            key = names[number % len(names)]
            entries[key] = damage(entries[key], place, value)
        clock = VirtualClock(BEGUN_AT)
        await store_entries(directory, clock, entries)
        async with started(directory, clock) as (made, _job):
            await made.status()
            await made.client().runs(None, 500)
            await made.client().resume()
            assert (await made.client().refresh("tenero")).run.outcome in {"ok", "failed"}
            status = await made.status()
            assert status.next_alarm_at is not None
            assert status.next_alarm_at <= clock.now() + 14 * MINUTE
        async with started(directory, clock) as (again, _job):
            await again.client().status()
        assert made.log.of("object.reset") == []
        assert again.log.of(UNREADABLE) == []

    with tempfile.TemporaryDirectory() as directory:
        run_virtual(play(Path(directory)))


async def test_after_a_rollback_the_newest_runs_are_read(tmp_path: Path) -> None:
    """Version 2 stored two runs after what version 3 had noted. One of them was under way, as an older one was."""
    clock = VirtualClock(START_MS + 600 * MINUTE)
    numbers = range(1, 201)
    runs = {number: ended_run(number, calls=number, at=START_MS + number * 1_000) for number in numbers}
    runs[7] = ended_run(7, "sweep", "running", at=START_MS + 7_000)
    runs[199] = ended_run(199, "tenero", "interrupted", at=START_MS + 199_000)
    runs[200] = ended_run(200, "tenero", "running", at=START_MS + 200_000)
    entries = run_entries(*runs.values())
    noted = {"lastRun": {"tenero": 198, "sweep": 6}, "interruptions": {"tenero": 5, "sweep": 5}}
    entries |= {"version": 2, "runSeq": 200, "daysCountedSince": START_MS, "openRuns": [7], **noted}
    entries |= {"recentCalls": {"tenero": [5], "sweep": [5]}}
    await store_entries(tmp_path, clock, entries)
    jobs = prices(), Job("sweep", 5 * MINUTE)
    async with scheduler(tmp_path, *jobs, clock=clock, arm=False) as made:
        found = await made.runs(limit=200)
        stored = made.entries()

    assert [run.id for run in found if run.outcome == "interrupted"] == [200, 199, 7]
    assert stored["version"] == 3
    assert "openRuns" not in stored
    assert stored["lastRun"] == {"tenero": 200, "sweep": 7}
    assert stored["interruptions"] == {"tenero": 2, "sweep": 1}
    assert stored["recentCalls"] == {"tenero": [*range(187, 199)], "sweep": []}


async def test_a_run_under_way_is_noticed_if_the_numbers_of_the_last_runs_are_damaged(tmp_path: Path) -> None:
    """Then the newest runs are read."""
    clock = VirtualClock(START_MS + MINUTE)
    run = run_entries(ended_run(1, "tenero", "running", at=START_MS + 1_000))
    for damage in ("garbage", {"tenero": 2.5}, {"tenero": 10**15}, {str(n): n for n in range(1, 200)}):
        directory = tmp_path / str(damage)[:12]
        directory.mkdir()
        entries = {"version": 3, "runSeq": 1, "daysCountedSince": START_MS, "lastRun": damage, **run}
        async with scheduler(directory, prices(), clock=clock, stored=entries, arm=False) as made:
            [found] = await made.runs()

        assert found.outcome == "interrupted", damage


@pytest.mark.parametrize("noted", [[*range(1, 500)], [10**5000], [-7], ["1"], "garbage"])
async def test_damaged_numbers_of_version_2_do_not_keep_it_from_starting(tmp_path: Path, noted: Any) -> None:
    """The newest runs are read anyway."""
    clock = VirtualClock(START_MS + MINUTE)
    run = run_entries(ended_run(1, "tenero", "running", at=START_MS + 1_000))
    entries = {"version": 2, "runSeq": 1, "daysCountedSince": START_MS, "openRuns": noted, **run}
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries, arm=False) as made:
        [found] = await made.runs()

    assert found.outcome == "interrupted"


def state(*names: str) -> SchedulerState:
    return SchedulerState({name: TaskState() for name in names})


def test_the_usual_calls_are_those_of_the_newest_twelve_complete_runs() -> None:
    """Of the task itself; runs that were not complete say nothing."""
    made = state("tenero", "sweep")
    for number in range(1, 15):
        made.end(ended_run(number, calls=number), NOW)
    made.end(ended_run(15, calls=99, outcome="partial"), NOW)
    made.end(ended_run(16, "sweep", calls=77), NOW)

    assert list(made.tasks["tenero"].recent_calls) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert list(made.tasks["sweep"].recent_calls) == [77]


def test_memory_holds_the_runs_that_have_not_ended() -> None:
    """All others are in the storage."""
    made = state("tenero", "sweep")
    for number in range(1, 5):
        made.begin(ended_run(number, outcome="running"))
    made.begin(ended_run(5, "sweep", outcome="running"))
    for number in (1, 3, 4):
        made.end(ended_run(number), NOW)

    assert list(made.open_runs) == [2, 5]


def test_a_success_keeps_its_time_unless_the_clock_was_set() -> None:
    """A drift of two seconds changes nothing; more is a clock that was set, and the age stays right."""
    made = state("tenero")
    made.begin(ended_run(1))
    made.end(ended_run(1), NOW)
    task = made.tasks["tenero"]

    assert task.last_success_at(Moment(START_MS + 62_000, 1_060_000)) == START_MS
    assert task.last_success_at(Moment(START_MS + 62_001, 1_060_000)) == START_MS + 2_001
    assert task.last_success_at(Moment(START_MS + 60_000, 1_060_000)) == START_MS


def test_a_hold_ends_exactly_on_time() -> None:
    """It is shown until then, by the wall clock of the moment."""
    task = TaskState()
    task.hold(5_000, NOW)

    assert task.next_run_after(Moment(START_MS + 4_999, 1_004_999)) == START_MS + 5_000
    assert task.next_run_after(Moment(START_MS + 5_000, 1_005_000)) is None


def test_a_complete_run_clears_failures_hold_and_error() -> None:
    """Failures in a row, the hold, the error; the counts of all runs stay."""
    made = state("tenero")
    for number in (1, 2):
        made.begin(ended_run(number, outcome="failed"))
        made.end(ended_run(number, outcome="failed"), NOW, is_failure=True, hold_ms=60_000)
    task = made.tasks["tenero"]
    before = (task.consecutive_failures, task.next_run_after(NOW), task.last_error is not None)
    made.begin(ended_run(3))
    made.end(ended_run(3), NOW, items=4)

    assert before == (2, START_MS + 60_000, True)
    assert (task.consecutive_failures, task.held_until_ms, task.last_error) == (0, None, None)
    assert task.run_counts == {"failed": 2, "ok": 1}
    assert made.ended_runs == 3
    assert made.days["2026-05-13"].tasks["tenero"].items == 4


@pytest.mark.parametrize(("before", "hold_ms"), [(0, None), (1, 2_000), (3, 8_000), (4, 10_000), (9, 10_000)])
def test_runs_that_are_cut_off_in_a_row_wait_longer_each_time(before: int, hold_ms: int | None) -> None:
    """At once, then 2, 4, 8 seconds, ten at most; runs of other tasks in between do not count, complete ones do."""
    made = state("tenero", "sweep")
    made.end(ended_run(1, outcome="interrupted"), NOW)
    made.end(ended_run(2), NOW)
    for number in range(3, 3 + before):
        made.end(ended_run(number, outcome="interrupted"), NOW)
    made.end(ended_run(80, "sweep"), NOW)
    made.begin(ended_run(90, outcome="running"))
    made.interrupt(NOW, lambda _run: "the test ended it")
    task = made.tasks["tenero"]

    assert task.rerun
    assert task.held_until_ms == (None if hold_ms is None else NOW.monotonic_ms + hold_ms)
    assert task.consecutive_failures == 1


async def test_an_open_run_of_a_removed_task_is_ended(tmp_path: Path) -> None:
    """A release without that task starts: the run was interrupted, and nothing else is made of it."""
    clock = VirtualClock(START_MS + DAY_MS)
    running = RunRecord(7, "gone", "alarm", START_MS, 0, START_MS)
    entries = {"version": 3, "runSeq": 7, "daysCountedSince": START_MS, "run:000000000007": running.to_json()}
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries, arm=False) as made:
        await made.status()
        stored = made.entries()["run:000000000007"]
        lines = made.log.named("run.interrupted")

    assert (stored["outcome"], stored["endedAt"]) == ("interrupted", START_MS + DAY_MS)
    assert [(line["task"], line["run"]) for line in lines] == [("gone", 7)]


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
    jobs = prices(), Job("sweep", 60 * MINUTE)
    async with scheduler(tmp_path, *jobs) as made:
        await asyncio.sleep(61 * 60)
        before, commit, written = made.entries(), made.runtime.store.commit, list[str]()

        def committing(owner: Any, changes: Any) -> int:
            written.extend(key for key in changes.entries if not key.startswith(("run:", "run-log:", "day:")))
            return commit(owner, changes)

        monkeypatch.setattr(made.runtime.store, "commit", committing)
        made.reset()
        await made.status()
        woken = list(written)
        await asyncio.sleep(4 * 60 + 30)
        after = made.entries()

    assert woken == []
    assert {key for key in written if key not in {"savedAt", "measures"}} == {
        key for key in after if not key.startswith(("run:", "day:")) and after[key] != before[key]
    } - {"savedAt", "measures"}
    assert "lastSweepRunAt" not in written
    assert "version" not in written
