"""States load completely, no stored value keeps the scheduler from starting, and a save writes what has changed."""

import asyncio
import copy
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.storage import Storage
from holdfast.testing.virtual_time import START_MS, VirtualClock, run_virtual
from support.examples import shape_differences
from support.scheduler import (
    MINUTE,
    QUOTAS,
    Job,
    Scheduler,
    ended_run,
    prices,
    refresh_prices,
    run_entries,
    scheduler,
    store_entries,
)
from support.scripted_fetch import Request, ScriptedFetch, always, response
from tocsin import __version__
from tocsin.fetch import FetchResponse
from tocsin.scheduler.state import SchedulerRecord, SchedulerState, TaskState
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.scheduler.types import LastError, Problem, RunFilter, RunRecord
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.windows import DAY_MS

Entries: TypeAlias = Mapping[str, Any]
# What this release stores: the entries of one object. Once a release is published, its file never changes. To write
# it: `PYTHONPATH=tests:packages/holdfast/tests python -m scheduler.test_state`.
STATE = Path(__file__).parents[1] / "data" / "states" / f"{__version__}.json"
UNREADABLE = "state.entry_unreadable"
PROCESS_ENDED = "the process ended during this run, or the object was reset or moved"
PRICE = ScriptedFetch(always(response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}})))
BEGUN_AT = START_MS + MINUTE  # when a scheduler starts on a damaged state
NEXT_SLOT = START_MS + 5 * MINUTE
RUN, BUDGET = "run:000000000001", "budget:tenero"
DAY = "day:2026-05-13"
MISSING = object()
TENERO = "task:tenero"
DAMAGED = [
    (TENERO, []),
    (TENERO, "garbage"),
    (f"{TENERO}.lastRun", 0),
    (f"{TENERO}.lastRun", 10**12),
    (f"{TENERO}.lastRunAt", "yesterday"),
    (f"{TENERO}.lastSlotAt", None),
    (f"{TENERO}.lastSlotAt", -1),
    (f"{TENERO}.lastSuccessAt", {}),
    (f"{TENERO}.lastOutcome", "exploded"),
    (f"{TENERO}.lastError", {"at": 1, "class": "Limited"}),
    (f"{TENERO}.lastError", {"at": "x", "class": "Limited", "message": ""}),
    (f"{TENERO}.lastResult", [1]),
    (f"{TENERO}.nextRunAfter", 10**400),
    (f"{TENERO}.consecutiveFailures", "many"),
    (f"{TENERO}.interruptions", -1),
    (f"{TENERO}.missedSlots", [0]),
    (f"{TENERO}.wakeAt", "soon"),
    (f"{TENERO}.runCounts", {"ok": "many"}),
    (f"{TENERO}.runCounts", {"ok": -1}),
    (f"{TENERO}.recentCalls", [1, "x"]),
    (f"{TENERO}.recentCalls", [10**16]),
    ("scheduler", 7),
    ("scheduler.version", "newest"),
    ("scheduler.pausedUntil", "tomorrow"),
    ("scheduler.pausedUntil", -1),
    ("scheduler.armedAt", {}),
    ("scheduler.armedAt", 10**400),
    ("scheduler.lastJobAt", {"submit": "now"}),
    ("scheduler.alert", {"pending": 7}),
    ("scheduler.heartbeat", 7),
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
    (f"{BUDGET}.month.seenAt", MISSING),
    (f"{BUDGET}.month", 7),
    (f"{BUDGET}.month.offsetMs", -(10**20)),
    (f"{BUDGET}.limits.minute", 0),
    (f"{BUDGET}.limits.minute", 10**400),
    (f"{BUDGET}.minute.buckets", [[1, 2, 3]]),
    ("measures", "garbage"),
    ("measures.alarmLateness", 7),
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


def warnings(made: Scheduler) -> list[str]:
    """The events of loading that are not just information."""
    return [line.event for line in made.log.lines if line.event.startswith("state.") and line.level != "INFO"]


def outcomes(runs: list[RunRecord]) -> list[tuple[int, str, str]]:
    return [(run.id, run.task, run.outcome) for run in runs]


def stored_state() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(STATE.read_text())
    return entries


async def sweep_slowly(context: TaskContext) -> TaskResult:
    """Do more units of work than fit into the slice."""
    hiro = context.upstream("hiro", HiroClient)
    for done in range(100):
        context.checkpoint()
        await hiro.principal_transactions(f"SP{done}", context.session)
        context.progress(done + 1, 100, scanned=done + 1, rejectionReasons={"tx_failed": done})
        await context.clock.sleep(10)
    raise AssertionError("not reached")


def jobs() -> tuple[Job, Job]:
    prices = Job("tenero", 5 * MINUTE, run=refresh_prices)
    return prices, Job("sweep", 10 * MINUTE, slice_ms=MINUTE, upstream="hiro", run=sweep_slowly)


async def write_state(directory: Path) -> dict[str, Any]:
    """Store what this release stores: runs of every outcome, one under way, a pause, a back-off, two budgets."""
    price = response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}})
    limited = response({}, status=429, headers={"retry-after": "100"})
    no_rows = response({"total": 0, "limit": 50, "cursor": {"next": None}, "results": []})
    prices = iter([price, limited])

    async def reply(request: Request) -> FetchResponse:
        if "tenero" not in request.url:
            return no_rows
        await asyncio.sleep(0 if (answer := next(prices, None)) else 3_600)
        return answer or price

    async with scheduler(directory, *jobs(), fetch=ScriptedFetch(reply), quotas=QUOTAS) as made:
        await asyncio.sleep(10 * 60 + 2)  # tenero: ok, failed, under way; sweep: partial, under way
        await made.client().pause_until(made.clock.now() + 120 * MINUTE)
        await asyncio.sleep(13)  # sweep: stopped at its checkpoint
        made.reset()
        await made.client().status()  # tenero: interrupted, and to be run again
        under_way = made.stub().refresh_now("sweep")
        await asyncio.sleep(5)
        entries = made.entries()
    await asyncio.gather(under_way, return_exceptions=True)
    return entries


async def test_what_is_stored_loads_completely(tmp_path: Path) -> None:
    """Runs, results, failures, the pause, a back-off and the budgets."""
    stored = stored_state()
    clock = VirtualClock(stored["task:sweep"]["lastRunAt"] + 30_000)
    async with scheduler(tmp_path, *jobs(), clock=clock, stored=stored, quotas=QUOTAS) as made:
        status, runs = await made.status(), await made.runs()

    assert warnings(made) == []
    assert outcomes(runs) == [
        (6, "sweep", "interrupted"),  # it was under way
        (5, "sweep", "stopped"),
        (4, "tenero", "interrupted"),
        (3, "tenero", "failed"),
        (2, "sweep", "partial"),
        (1, "tenero", "ok"),
    ]
    assert runs[0].error is not None
    assert runs[0].error.message == PROCESS_ENDED
    assert [run.to_json() for run in reversed(runs[1:])] == [stored[f"run:{n:012}"] for n in range(1, 6)]
    assert status.paused_until == stored["scheduler"]["pausedUntil"]
    assert status.consecutive_failures == {"tenero": 2, "sweep": 1}
    assert status.next_run_after == {"tenero": stored["task:tenero"]["nextRunAfter"], "sweep": None}
    assert status.last_result["tenero"] == stored["task:tenero"]["lastResult"]
    assert status.tasks["tenero"].last_error == LastError.from_json(stored["task:tenero"]["lastError"])
    assert status.tasks["sweep"].run_counts == {"partial": 1, "stopped": 1, "interrupted": 1}
    assert (status.budgets["hiro"].spent.month, status.budgets["tenero"].spent.month) == (7, 3)


async def test_the_stored_state_has_the_layout_of_the_newest_file(tmp_path: Path) -> None:
    """A change of the layout needs a new version, an upgrade, and a new file: see scheduler/state.py."""
    written, stored = await write_state(tmp_path), stored_state()

    assert shape_differences(stored, written) + shape_differences(written, stored) == []


@pytest.mark.parametrize("version", [3, 5, 99, 0])
async def test_an_unknown_version_does_not_keep_it_from_starting(
    tmp_path: Path, one_run: Entries, version: int
) -> None:
    """A newer release, or damage: what can be read is used."""
    clock = VirtualClock(BEGUN_AT)
    await store_entries(tmp_path, clock, {**one_run, "scheduler": {**one_run["scheduler"], "version": version}})
    async with started(tmp_path, clock) as (made, job):
        await asyncio.sleep(5 * 60)
        runs = await made.runs()
        entries = made.entries()

    assert [line["version"] for line in made.log.named("state.version_unknown")] == [version]
    assert outcomes(runs) == [(2, "tenero", "ok"), (1, "tenero", "ok")]
    assert job.started == [NEXT_SLOT]
    assert entries["scheduler"]["version"] == 4


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
    """No kind of entry is left out."""
    assert {place.split(".")[0] for place, _ in DAMAGED} == {*one_run}


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


def damage(body: Any, place: list[int], value: Any) -> Any:
    """Replace the part of an entry that the numbers lead to."""
    if not place or not isinstance(body, dict | list) or not body:
        return value
    names = list(body) if isinstance(body, dict) else list(range(len(body)))
    name = names[place[0] % len(names)]
    body[name] = damage(body[name], place[1:], value)
    return body


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 40), places, values), min_size=1, max_size=4))
def test_no_stored_value_keeps_the_scheduler_from_starting(
    one_run: Entries, changes: list[tuple[int, list[int], Any]]
) -> None:
    """Any JSON value under any known key, or anywhere inside one: it starts, and answers, and runs its task."""

    async def play(directory: Path) -> None:
        entries, names = copy.deepcopy(dict(one_run)), sorted(one_run)
        for number, place, value in changes:
            key = names[number % len(names)]
            entries[key] = damage(entries[key], place, value)
        clock = VirtualClock(BEGUN_AT)
        await store_entries(directory, clock, entries)
        async with started(directory, clock) as (made, _job):
            await made.status()
            await made.client().runs(RunFilter(None, 500))
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


@pytest.mark.parametrize("damage", ["garbage", {"lastRun": 10**15}, {"lastRun": -7}, {"lastRun": "x"}, None])
async def test_a_run_under_way_is_noticed_if_its_task_s_entry_is_damaged_or_missing(
    tmp_path: Path, damage: Any
) -> None:
    """Then the newest runs are read; an older one that was under way is far behind them."""
    clock = VirtualClock(START_MS + MINUTE)
    runs = run_entries(*(ended_run(n) for n in range(1, 200)), ended_run(200, outcome="running", at=START_MS + 1_000))
    entries = {**runs, "task:sweep": {"lastRun": 7}, **({"scheduler": {}, TENERO: damage} if damage else {})}
    async with scheduler(tmp_path, prices(), clock=clock, stored=entries, arm=False) as made:
        [found, *_] = await made.runs()
        refreshed = await made.client().refresh("tenero")

    assert (found.id, found.outcome) == (200, "interrupted")
    assert refreshed.run.id == 201


def state(*names: str) -> SchedulerState:
    return SchedulerState({name: TaskState() for name in names})


def test_the_usual_calls_are_those_of_the_newest_twelve_complete_runs() -> None:
    """Of the task itself; runs that were not complete say nothing."""
    made = state("tenero", "sweep")
    for number in range(1, 15):
        made.end(ended_run(number, calls=number), START_MS)
    made.end(ended_run(15, calls=99, outcome="partial"), START_MS)
    made.end(ended_run(16, "sweep", calls=77), START_MS)

    assert list(made.tasks["tenero"].recent_calls) == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert list(made.tasks["sweep"].recent_calls) == [77]


def test_memory_holds_the_runs_that_have_not_ended() -> None:
    """All others are in the storage."""
    made = state("tenero", "sweep")
    for number in range(1, 5):
        made.begin(ended_run(number, outcome="running"))
    made.begin(ended_run(5, "sweep", outcome="running"))
    for number in (1, 3, 4):
        made.end(ended_run(number), START_MS)

    assert list(made.open_runs) == [2, 5]


@pytest.mark.parametrize("by_ms", [-DAY_MS, DAY_MS])
def test_ages_and_holds_keep_their_length_when_the_clock_is_set(by_ms: int) -> None:
    """A pause ends at a time of the clock."""
    made = state("tenero")
    task = made.tasks["tenero"]
    made.own.armed_at = task.last_success_at = task.watched_since = START_MS - MINUTE
    task.next_run_after, made.own.paused_until = START_MS + MINUTE, START_MS + 2 * DAY_MS
    made.move_times(by_ms)
    made.bound_times(START_MS + by_ms)

    assert made.own.armed_at == task.last_success_at == task.watched_since == START_MS - MINUTE + by_ms
    assert task.next_run_after == START_MS + MINUTE + by_ms
    assert made.own.paused_until == START_MS + 2 * DAY_MS


def test_a_clock_that_was_set_back_between_two_processes_makes_no_time_longer_than_it_can_be() -> None:
    """Nothing was set up or complete after now, and no pause and no hold is longer than the longest."""
    made = state("tenero")
    task = made.tasks["tenero"]
    made.own.armed_at = task.last_success_at = task.watched_since = START_MS + DAY_MS
    task.next_run_after = made.own.paused_until = START_MS + 60 * DAY_MS
    made.bound_times(START_MS)

    assert (made.own.armed_at, task.last_success_at, task.watched_since) == (START_MS, START_MS, START_MS)
    assert (task.next_run_after, made.own.paused_until) == (START_MS + 60 * MINUTE, START_MS + 7 * DAY_MS)


def test_a_problem_is_shown_for_a_day_whatever_the_clock_was() -> None:
    """One that was found before the clock was set back does not stay until the clock is there again."""
    found = {f"{hours}": Problem(START_MS + hours * 60 * MINUTE, f"{hours} h") for hours in (-24, -23, 0, 23, 24)}
    assert SchedulerRecord(problems=found).problems_at(START_MS) == ["-23 h", "0 h", "23 h"]


def test_a_hold_and_a_pause_end_exactly_on_time() -> None:
    """They last until then."""
    made = state("tenero")
    task = made.tasks["tenero"]
    task.next_run_after = made.own.paused_until = START_MS + 5_000
    times = []
    for passed_ms in (4_999, 5_000):
        made.bound_times(START_MS + passed_ms)
        times.append((task.next_run_after, made.own.paused_until))

    assert times == [(START_MS + 5_000, START_MS + 5_000), (None, None)]


def test_a_complete_run_clears_failures_hold_and_error() -> None:
    """Failures in a row, the hold, the error; the counts of all runs stay."""
    made = state("tenero")
    for number in (1, 2):
        made.begin(ended_run(number, outcome="failed"))
        made.end(ended_run(number, outcome="failed"), START_MS, is_failure=True, hold_ms=60_000)
    task = made.tasks["tenero"]
    before = (task.consecutive_failures, task.next_run_after, task.last_error is not None)
    made.begin(ended_run(3))
    made.end(ended_run(3), START_MS, items=4)

    assert before == (2, START_MS + 60_000, True)
    assert (task.consecutive_failures, task.next_run_after, task.last_error) == (0, None, None)
    assert task.run_counts == {"failed": 2, "ok": 1}
    assert made.ended_runs == 3
    assert made.days["2026-05-13"].tasks["tenero"].items == 4


@pytest.mark.parametrize(("before", "hold_ms"), [(0, None), (1, 2_000), (3, 8_000), (4, 10_000), (9, 10_000)])
def test_runs_that_are_cut_off_in_a_row_wait_longer_each_time(before: int, hold_ms: int | None) -> None:
    """At once, then 2, 4, 8 seconds, ten at most; runs of other tasks in between do not count, complete ones do."""
    made = state("tenero", "sweep")
    made.end(ended_run(1, outcome="interrupted"), START_MS)
    made.end(ended_run(2), START_MS)
    for number in range(3, 3 + before):
        made.end(ended_run(number, outcome="interrupted"), START_MS)
    made.end(ended_run(80, "sweep"), START_MS)
    made.begin(ended_run(90, outcome="running"))
    made.interrupt(START_MS)
    task = made.tasks["tenero"]

    assert task.rerun
    assert task.next_run_after == (None if hold_ms is None else START_MS + hold_ms)
    assert task.consecutive_failures == 1


async def test_an_open_run_of_a_removed_task_is_ended(tmp_path: Path) -> None:
    """A release without that task starts: the run was interrupted, and nothing else is made of it."""
    clock = VirtualClock(START_MS + DAY_MS)
    running = RunRecord(7, "gone", "alarm", START_MS, 0, START_MS)
    entries = {"scheduler": {}, "task:gone": {"lastRun": 7}, "run:000000000007": running.to_json()}
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
    """The first one writes everything; a run that begins or ends changes its task's entry, a counter in place too."""
    written = Written()
    storage = cast("Storage", written)
    made = state("tenero", "sweep")
    made.save(storage)
    record = RunRecord(id=1, task="tenero", trigger="alarm", slot_at=1_000, missed_slots=0, started_at=1_000)
    made.begin(record)
    made.save(storage, record)
    for number in (1, 2):
        ended = RunRecord(id=number, task="tenero", trigger="alarm", slot_at=1_000, missed_slots=0, started_at=1_000)
        made.end(ended.ended("ok", 3_000), 3_000)
        made.save(storage, ended.ended("ok", 3_000))
    first, begun, *ends = written.puts

    assert first.keys() == {"task:tenero", "task:sweep", "scheduler"}
    assert begun.keys() == {"task:tenero", "run:000000000001"}
    assert (begun[TENERO]["lastRun"], begun[TENERO]["lastSlotAt"]) == (1, 1_000)
    assert [end.keys() - {"day:1970-01-01"} for end in ends] == [
        {TENERO, "measures", "run:000000000001"},
        {TENERO, "measures", "run:000000000002"},
    ]
    assert [end[TENERO]["runCounts"] for end in ends] == [{"ok": 1}, {"ok": 2}]
    assert [end[TENERO]["recentCalls"] for end in ends] == [[0], [0, 0]]


async def test_after_a_wake_a_save_writes_what_has_changed(tmp_path: Path) -> None:
    """A row that is written costs a thousand times as much as one that is read, and a wake changes nothing."""
    jobs = prices(), Job("sweep", 60 * MINUTE)
    async with scheduler(tmp_path, *jobs) as made:
        await asyncio.sleep(61 * 60)
        before, use = made.entries(), made.watch_store()
        made.reset()
        await made.status()
        woken = set[str]().union(*use.committed)
        await asyncio.sleep(4 * 60 + 30)
        after = made.entries()

    written = {key for keys in use.committed for key in keys if not key.startswith(("run:", "run-log:", "day:"))}
    assert woken == set()
    assert written - {"measures"} == {"task:tenero"}
    assert after["task:sweep"] == before["task:sweep"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        made = run_virtual(write_state(Path(scratch)))
    STATE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
