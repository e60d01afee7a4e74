"""A scheduler that a test scripts, and a site around it on real stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.captured_log import CapturedLog
from support.local_store import open_competition, open_kv
from support.virtual_time import START_MS, VirtualClock
from tocsin.bindings import JSON, Clock
from tocsin.competition.allowlist import built_in
from tocsin.competition.rules import Rules
from tocsin.errors import UsageError
from tocsin.web.deps import HealthSnapshot, Keys, WebDeps

ADMIN_KEY = "adm1n-k3y"
CRON_SECRET = "cr0n-s3cret"
CHAINHOOK_SECRET = "ch41n-s3cret"
OLD_CHAINHOOK_SECRET = "0ld-s3cret"
HIRO_503 = {"class": "TaskFailed", "message": "hiro said 503"}
HEALTHY = HealthSnapshot(loop_tick_age_s=0.1, store_error=None, alarm_at=START_MS + 60_000)


def task_status(**changes: JSON) -> dict[str, JSON]:
    return {
        "enabled": True,
        "cadenceMs": 300_000,
        "effectiveCadenceMs": 300_000,
        "cadenceReason": "as configured: the plan allows it",
        "nextDueAt": START_MS + 60_000,
        "running": None,
        "lastSuccessAt": START_MS - 240_000,
        "lastError": None,
        "overdue": False,
        **changes,
    }


def status(**changes: JSON) -> dict[str, JSON]:
    """A status as api.md has it."""
    return {
        "now": START_MS,
        "nextAlarmAt": START_MS + 60_000,
        "pausedUntil": None,
        "lastTeneroRunAt": START_MS - 240_000,
        "lastSweepRunAt": START_MS - 840_000,
        "lastTeneroResult": {"succeeded": 9, "failed": 0, "tokensAttempted": 9, "durationMs": 210},
        "lastSweepResult": {"scanned": 430, "found": 12, "inserted": 11, "failedWallets": 0},
        "consecutiveFailures": {"tenero": 0, "sweep": 2},
        "nextRunAfter": {"tenero": None, "sweep": START_MS + 90_000},
        "tasks": {
            "tenero": task_status(),
            "sweep": task_status(cadenceMs=900_000, lastError=HIRO_503),
        },
        "budgets": {"tenero": {"left": {"month": 48_211}}, "hiro": {"left": {"month": None}}},
        **changes,
    }


@dataclass
class ScriptedScheduler:
    """Does what the test says, and remembers what it was asked. `failing` is raised by every call."""

    clock: Clock
    shown: dict[str, JSON] = field(default_factory=status)
    failing: Exception | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    history: list[JSON] = field(default_factory=list)
    happened: list[dict[str, JSON]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    statuses_per_refresh: int = 0  # a refresh ends when the status was asked for so often meanwhile
    _asked: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def arm(self) -> JSON:
        self._called("arm")
        return None

    async def status(self) -> JSON:
        self._called("status")
        async with self._asked:
            self._asked.notify_all()
        return {**self.shown, "now": self.clock.now()}

    async def refresh_now(self, task: str) -> JSON:
        self._called("refresh_now", task)
        if task not in {"tenero", "sweep", "all"}:
            raise UsageError(f"there is no task {task!r}: give tenero, sweep or all")
        enough = self.calls.count(("status",)) + self.statuses_per_refresh
        async with self._asked:
            await self._asked.wait_for(lambda: self.calls.count(("status",)) >= enough)
        results = {name: self._result(name) for name in ("tenero", "sweep")}
        return results if task == "all" else results[task]

    async def pause_until(self, at_ms: int) -> JSON:
        self._called("pause_until", at_ms)
        if at_ms <= self.clock.now():
            raise UsageError("pause until a time that is still to come")
        self.shown["pausedUntil"] = at_ms
        return None

    async def resume(self) -> JSON:
        self._called("resume")
        self.shown["pausedUntil"] = None
        return None

    async def runs(self, task: str | None, limit: int) -> JSON:
        self._called("runs", task, limit)
        if task not in {None, *self.shown["tasks"]}:
            raise UsageError(f"there is no task {task!r}: give tenero or sweep")
        return {"runs": [run for run in self.history if task in {None, run["task"]}][:limit]}

    async def events(self, after: int, wait_ms: int) -> JSON:
        self._called("events", after, wait_ms)
        if not self._since(after):
            self.news.clear()
            waiting = asyncio.ensure_future(self.news.wait())
            await asyncio.wait({waiting}, timeout=wait_ms / 1000)
            waiting.cancel()
        found = self._since(after)
        return {"events": found, "next": found[-1]["seq"] if found else after}

    async def perform(self, job: str, argument: JSON) -> JSON:
        self._called("perform", job, argument)
        return None

    def tell(self, event: str, **fields: JSON) -> None:
        seq = len(self.happened) + 1
        self.happened.append({"seq": seq, "at": self.clock.now(), "event": event, **fields})
        self.news.set()

    def _result(self, task: str) -> dict[str, JSON]:
        failed = self.shown["consecutiveFailures"][task] > 0
        run = {
            "id": 7,
            "outcome": "failed" if failed else "ok",
            "error": HIRO_503 if failed else None,
            "joined": False,
            "pausedUntil": self.shown["pausedUntil"],
        }
        return {**self.shown["lastSweepResult" if task == "sweep" else "lastTeneroResult"], "run": run}

    def _since(self, after: int) -> list[dict[str, JSON]]:
        return [event for event in self.happened if event["seq"] > after]

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.failing is not None:
            raise self.failing


@dataclass
class Scene:
    """A site, and what a test may turn on it."""

    site: WebDeps
    scheduler: ScriptedScheduler
    log: CapturedLog
    health: HealthSnapshot

    def with_site(self, **changes: Any) -> WebDeps:
        self.site = replace(self.site, **changes)
        return self.site


@asynccontextmanager
async def scene(directory: Path, clock: Clock | None = None) -> AsyncIterator[Scene]:
    """A site with keys on stores in `directory`; in virtual time unless a clock is given."""
    clock = clock or VirtualClock()
    scheduler, log = ScriptedScheduler(clock), CapturedLog()
    async with open_kv(directory, clock) as kv, open_competition(directory) as db:
        made: Scene

        async def health() -> HealthSnapshot:
            return made.health

        site = WebDeps(
            scheduler=lambda: scheduler,
            kv=kv,
            db=db,
            clock=clock,
            logger=log,
            keys=Keys(ADMIN_KEY, CRON_SECRET, (CHAINHOOK_SECRET, OLD_CHAINHOOK_SECRET)),
            rules=Rules(built_in()),
            health=health,
            version="1.2.3",
        )
        made = Scene(site, scheduler, log, HEALTHY)
        yield made
