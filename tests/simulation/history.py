"""Runs one plan from its first process to the calm at its end, and checks what must hold."""

import asyncio
import gc
import hashlib
import json
import sqlite3
import traceback
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from starlette.types import ASGIApp

from holdfast.errors import HoldfastError
from holdfast.types import JSON
from simulation.actions import Actions
from simulation.checks import (
    SETTLE_S,
    CallChecks,
    DatabaseReader,
    FoundChecks,
    RunChecks,
    Violation,
    cadences_of,
    has_alarm,
    readiness,
)
from simulation.damage import Damage
from simulation.earlier_service import write_earlier_service
from simulation.ending import check_ending
from simulation.jobs import NAMES, JobSite
from simulation.machine import CallFault, Disk, MachineClock, ProcessKilled, SimulatedTime, quiet_end
from simulation.outside import MonthChecks, Outside
from simulation.plan import DAY_S, Event, Plan
from simulation.process import SimulatedProcess
from simulation.round_checks import RoundChecks
from simulation.users import left_over
from support.asgi import ask, unchecked
from support.simulated_fetch import HIRO_URL
from tocsin.commands.files import DB_FILE
from tocsin.settings import Settings
from tocsin.upstream.registry import upstreams

_in_order = json.JSONEncoder(default=str, sort_keys=True).encode
CALM_SWEEP_MS = 6 * 3_600_000  # a call that shows no events is refused at the fourth attempt
CALM_FEED_MS = 3_600_000  # a run reads 2,000 transactions, and six weeks of them may be unread
TRACE_KEPT = 400  # lines
RESTART_S = 5.0  # until a supervisor restarts a process that ended by itself
RESTART_MAX_S = 300.0  # it waits longer each time the process does not start
SCRATCH = Path("/dev/shm")  # in memory, if the machine has it: the files are temporary
COMMITS_MAX = 300  # of the scheduler in a second: an alarm that rings again at once makes more
CALLS_END_S = 120.0  # after the last call, everybody waiting for another one has one or gives up
BREAKER_S = 3_600.0  # how long it holds a task back
# Plans that can pay for the cadences. They differ from the earlier ones, so what upstreams reported about those is
# forgotten.
HIRO_BOUGHT, TENERO_BOUGHT = 300_000, 100_000
PRICES_SHARE = 0.4  # of checks that include the prices


@dataclass(slots=True)
class Report:
    """How a history went."""

    seed: int
    days: float
    digest: str
    violations: list[Violation]
    trace: list[str]
    happened: Counter[str]
    counts: dict[str, int] = field(default_factory=dict)
    longest_missing: Mapping[str, float] = field(default_factory=dict)  # see FoundChecks


class History:
    """One history. `run` returns its report."""

    def __init__(self, plan: Plan, directory: Path, call_faults: Mapping[int, CallFault] | None = None) -> None:
        self.plan = plan
        self.time = SimulatedTime(plan.world.start_ms)
        self.clock = MachineClock(self.time)
        self.rng = Random(f"{plan.seed}:history")
        self.disk = Disk(self.time, Random(f"{plan.seed}:disk"), faults=dict(call_faults or {}))
        self.outside = Outside(plan, self.time)
        self.settings: Settings = self.outside.settings(plan.world.settings)
        self.checks = RunChecks()
        self.calls: dict[str, CallChecks] = {}
        self.months = {"hiro": MonthChecks(), "tenero": MonthChecks()}
        self.happened: Counter[str] = Counter()
        self.directory = directory
        self.reader = DatabaseReader(directory / DB_FILE)
        self.process: SimulatedProcess | None = None
        self.actions = Actions(self)
        self.rounds = RoundChecks(self)
        self.damage = Damage(self)
        self.found = FoundChecks(self)
        self.site = JobSite(self)
        self.runs_before = 0  # of an earlier service
        self.restart_after_s = RESTART_S
        self.is_calm = False
        self._armed = False
        self._commits: deque[float] = deque(maxlen=COMMITS_MAX)
        self._hash = hashlib.sha256()
        self._trace: deque[str] = deque(maxlen=TRACE_KEPT)
        self._events: deque[Event] = deque(plan.events)
        self._looking = 0
        self.at_calm: Callable[[ASGIApp], Awaitable[None]] | None = None
        self._fetched_s = 0.0
        self.reboots = False
        self.not_opened = 0  # in a row

    # What the process does

    def note(self, what: str, /, **fields: object) -> None:
        """Add a line to the trace."""
        line = f"{self.time.now_s:.6f} {what} {_in_order(fields)}"
        self._hash.update(line.encode())
        self._trace.append(line)

    def broken(self, name: str, text: str) -> None:
        self.checks.broken(name, self.time.now_s, text)

    def failed(self, error: BaseException) -> None:
        """Note an error of the simulation itself, or a response that the API's document does not describe."""
        self.broken("serves", "".join(traceback.format_exception(error))[-1500:])
        if self.process is not None:
            self.process.stopped.set()

    def logged(self, event: str, fields: Mapping[str, JSON]) -> None:
        self.note(event, **fields)
        now_s = self.time.now_s
        self.rounds.logged(event, dict(fields))
        self.damage.logged(event, fields.get("key"))
        if event == "run.started":
            for name, effective_ms in self.process.effective_cadences().items() if self.process else ():
                self.checks.stretched(name, effective_ms, now_s)
            if fields["task"] not in NAMES:
                self.checks.started(fields, now_s, self.clock.now())
        elif event == "run.ended":
            self.checks.ended(fields, now_s)
            self.happened[f"run {fields['task']} {fields['outcome']}"] += 1
            self.actions.run_ended(fields)
        elif event == "breaker.opened" and fields["task"] == "rounds":
            self.checks.excuses.add(now_s, now_s + BREAKER_S, event)
        elif event in {"object.reset", "alarm.failed", "store.failed"}:
            self.happened[event] += 1
            self.checks.excuses.add(now_s, now_s + SETTLE_S, event)
            if event == "object.reset":
                self.checks.lost_runs()
        elif event in {"sweep.threw", "verify.threw", "alarm.exhausted", "alarm.dropped", "alert.sent"}:
            self.happened[event] += 1
        elif event == "alert.abandoned":
            self.outside.receiver.given_up += 1

    def fetching(self, url: str) -> None:
        upstream = _upstream_of(url)
        self.note("fetch", url=url)
        self._fetched_s = self.time.now_s
        too_soon = self.months[upstream].called(self.time.now_s, self.clock.now())
        if too_soon is not None and not self.disk.is_slow:
            self.broken("month", f"{upstream}: {too_soon}")
        too_many = self.calls[upstream].called(self.time.now_s)
        if too_many is not None and not self.disk.is_slow:
            self.broken("windows", f"{upstream}: {too_many}")

    def calling(self, url: str) -> None:
        self.note("call", url=url)

    def fetched(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        self.note("fetched", url=url, status=status)
        upstream = _upstream_of(url)
        if upstream == "hiro" or self.settings.tenero_plan_month is not None:  # else its limit is unknown
            self.months[upstream].told(upstream, headers, self.time.now_s, self.clock.now())
        if upstream == "tenero" and status == 200:
            self.outside.last_prices_ms = self.clock.now()

    def committing(self, connection: sqlite3.Connection) -> None:
        self._commits.append(self.time.now_s)
        if len(self._commits) == COMMITS_MAX and self._commits[0] > self.time.now_s - 1.0:
            self.broken("restraint", f"{COMMITS_MAX} commits of the scheduler within a second")
        has = has_alarm(connection)
        if self._armed and not has:
            self.broken("armed", "a commit leaves the scheduler without an alarm")
        self._armed = self._armed or has

    # Running

    def run(self) -> Report:
        ends_s, world = self.plan.days * DAY_S, self.plan.world
        self.runs_before = write_earlier_service(
            self.directory, world.earlier_service, world.start_ms, Random(f"{self.plan.seed}:earlier")
        )
        if self.runs_before:
            self.checks.excuses.add(0.0, SETTLE_S, "the service was down before")
        with self.disk.in_place():
            while self.time.now_s < ends_s and not self.checks.violations:
                self._live(ends_s)
            calls = self.disk.calls
            self._calm()
            if not self.checks.violations:
                self._live(self.time.now_s + self.plan.world.calm_s)
        return Report(
            self.plan.seed,
            self.time.now_s / DAY_S,
            self._hash.hexdigest(),
            self.checks.violations,
            list(self._trace),
            self.happened,
            {
                "runs": self.checks.runs,
                "storage calls": self.disk.calls,
                "storage calls before the calm": calls,
                **self.outside.counts(),
            },
            self.found.longest,
        )

    def _live(self, until_s: float) -> None:
        """Run one process from its start to its end, and the time until the next one."""
        self.disk.process_is_dead = False
        number = self.happened["process"]
        self.happened["process"] += 1
        self.restart_after_s = RESTART_S
        self.calls = self.outside.call_checks(self.settings, self.calls)
        for name, upstream in upstreams(self.settings).items():
            self.months[name].process_began(upstream.key, upstream.quota)
        self.note("process", number=number)
        process = self.process = SimulatedProcess(self, number)
        began_s = self.time.now_s
        try:
            process.loop.run_until_complete(self._main(process, until_s))
            process.loop.abandon()
        except ProcessKilled:
            self._close_reader()
            process.lose()
            self.note("killed")
            self.happened["killed"] += 1
        self._close_reader()
        self.process = None
        self.actions.process_ended()
        self.damage.process_ended()
        if self.checks.clock_set_s > began_s:  # it may have ended before it noticed that, and stored what follows
            self.checks.ages_are_unknown(self.time.now_s + self.restart_after_s)
        if self.reboots:
            self.reboots = False
            if self.clock.reboot():
                self.actions.clock_was_set()
                self.checks.ages_are_unknown(self.time.now_s + self.restart_after_s)
        if process.loop.errors and not self.checks.violations:
            error = process.loop.errors[0].get("exception")
            shown = "" if error is None else "".join(traceback.format_exception(error))
            self.broken("quiet-loop", f"{process.loop.errors[0]} {shown}")
        if self.time.now_s < until_s and not self.checks.violations:
            self._down(min(until_s, self.time.now_s + self.restart_after_s))

    def _close_reader(self) -> None:
        self.reader.close()
        self.rounds.connection_closed()

    def _down(self, until_s: float) -> None:
        """Let time pass outside while no process runs."""
        self.checks.excuses.add(self.time.now_s, until_s + 1.0, "down")
        while self._events and self._events[0].at_s <= until_s:
            event = self._events.popleft()
            self.time.now_s = max(self.time.now_s, event.at_s)
            self.actions.do_outside(event)
        self.time.now_s = max(self.time.now_s, until_s)

    async def _main(self, process: SimulatedProcess, until_s: float) -> None:
        self.checks.process_began(self.time.now_s, self.cadences())
        try:
            await process.open()
        except (HoldfastError, OSError) as error:
            self.note("not opened", error=repr(error))
            self.not_opened += 1
            self.restart_after_s = min(RESTART_MAX_S, RESTART_S * 2**self.not_opened)
            if not self.disk.is_slow and self.time.now_s - self.disk.failed_s > SETTLE_S:
                self.broken("opens", f"the process does not start: {error!r}")
            return
        self.not_opened = 0
        self.actions.process_opened(process)
        self.actions.spawn(self._watch(process))
        while self.time.now_s < until_s and not process.stopped.is_set() and not self.checks.violations:
            next_s = min(until_s, self._events[0].at_s if self._events else until_s)
            if not await self._stopped_before(process, next_s - self.time.now_s):
                while self._events and self._events[0].at_s <= self.time.now_s + 1e-6:
                    event = self._events.popleft()
                    self.note(f"event {event.kind}", **event.values)
                    self.happened[event.kind] += 1
                    self.actions.do(event, process)
        if self.is_calm and not self.checks.violations and not process.stopped.is_set():
            await check_ending(self, process)
            if self.at_calm is not None:
                await self.at_calm(process.web)
        await self.actions.finish()
        self._close_reader()
        await process.close()

    async def _stopped_before(self, process: SimulatedProcess, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await process.stopped.wait()
        except TimeoutError:
            return False
        return True

    async def _watch(self, process: SimulatedProcess) -> None:
        """Check the service from time to time."""
        while True:
            await asyncio.sleep(self.plan.world.look_every_s * process.rng.uniform(0.2, 1.8))
            if not self._looking:
                await self.look(process)

    async def look(self, process: SimulatedProcess) -> None:
        self._looking += 1
        try:
            await self._look(process)
        finally:
            self._looking -= 1
        if self.checks.violations:
            process.stopped.set()

    async def _look(self, process: SimulatedProcess) -> None:
        began_s = self.time.now_s
        await process.app.health.check()
        status = process.app.health.seen().status
        answer = await ask(unchecked(process.web), "/readyz")
        body = answer.json()
        self.note("look", status=answer.status, state=body.get("state"), reasons=body.get("reasons"))
        if status is None:
            self.happened["no status"] += 1
            in_trouble = self.disk.is_full or self.disk.is_slow or process.stopped.is_set()
            excuse = self.checks.excuses.cover(began_s - 1, self.time.now_s)
            if answer.status == 200:
                self.broken("readiness", "ready, but the scheduler does not answer")
            elif not in_trouble and excuse is None:
                self.broken("readiness", f"the scheduler does not answer: {body}")
            return
        self.happened["ready" if answer.status == 200 else "not ready"] += 1
        self.found.look(status, body.get("state"), is_200=answer.status == 200)
        self.checks.looked(status, self.time.now_s, self.clock.now())
        lie = readiness(
            answer.status == 200,
            body.get("reasons", []),
            status,
            self.checks,
            self.time.now_s,
            disk_is_full=self.disk.is_full or not status.tasks.keys().isdisjoint(NAMES),
        )
        if lie is not None:
            self.broken("readiness", lie)
        waiting = left_over(status)
        if waiting is not None and self.time.now_s - self._fetched_s > CALLS_END_S:
            self.broken("permits", waiting)
        self.rounds.look()
        if self.rng.random() < PRICES_SHARE:
            await self.actions.look_at_prices(process)

    def cadences(self) -> dict[str, float]:
        return cadences_of(self.settings) | {"rounds": self.plan.world.rounds_every_s}

    def _calm(self) -> None:
        """End all faults, traffic and pauses, and set the clock right."""
        self.rounds.clock_wrong_s = self.time.now_s if self.clock.is_wrong else self.rounds.clock_wrong_s
        self.is_calm = True
        self.clock.set_right()
        self.actions.clock_was_set()
        self._events.clear()
        self.disk.faults.clear()
        self.disk.full_until_s = self.disk.slow_until_s = 0.0
        self.disk.sync_fails = False
        self.outside.calm()
        self.settings = replace(
            self.settings,
            hiro_plan_month=HIRO_BOUGHT,
            tenero_plan_month=TENERO_BOUGHT,
            sweep_cadence=min(self.settings.sweep_cadence, CALM_SWEEP_MS),
            feed_cadence=min(self.settings.feed_cadence, CALM_FEED_MS),
        )
        self.note("calm")


def _upstream_of(url: str) -> str:
    return "hiro" if url.startswith(HIRO_URL) else "tenero"


def run_history(
    plan: Plan,
    call_faults: Mapping[int, CallFault] | None = None,
    *,
    collect: bool = True,
    at_the_end: Callable[[Path], None] = lambda _: None,
    at_calm: Callable[[ASGIApp], Awaitable[None]] | None = None,
) -> Report:
    """Run a plan. Some storage calls may fail, by their numbers.

    `collect`: collect the garbage of killed processes here, so that it does not run in other code. `at_the_end` gets
    the directory with the data, `at_calm` the web application of the last process.
    """
    with TemporaryDirectory(prefix="tocsin-sim-", dir=SCRATCH if SCRATCH.is_dir() else None) as scratch:
        history = History(plan, Path(scratch), call_faults)
        history.at_calm = at_calm
        with quiet_end():
            report = history.run()
            if collect:
                gc.collect()
        at_the_end(Path(scratch))
    return report
