"""In every state of the service, readiness, status, board and metrics say the same. On the local platform."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast_testing.virtual_time import VirtualClock
from support.asgi import ask
from support.scheduler import MINUTE, Job, Scheduler, scheduler, store_entries
from support.scripted_scheduler import ADMIN_KEY, scene
from support.service_states import CASES, NOW, Case, check, entries_of
from tocsin.scheduler.task import Task
from tocsin.scheduler.types import SERVICE_STATES
from tocsin.scheduler.watch import HealthWatch
from tocsin.web.app import create_app


async def seen(made: Scheduler, directory: Path, store_error: str | None = None) -> list[Any]:
    """What a site around this scheduler shows."""
    async with scene(directory, made.clock) as around:
        watch = HealthWatch(made.client, around.site.kv, made.clock)
        await watch.look()

        async def health() -> Any:
            return replace(await watch.snapshot(), store_error=store_error)

        app = create_app(around.with_site(scheduler=made.client, health=health))
        readyz = await ask(app, "/readyz")
        overview = await ask(app, "/api/admin/scheduler", headers={"X-Admin-Key": ADMIN_KEY})
        board = await ask(app, "/api/competition/leaderboard")
        metrics = await ask(app, "/metrics")
        return [readyz, overview.json(), board.json(), metrics.body.decode()]


def tasks() -> list[Task]:
    """With the names, cadences and bounds of the real ones."""
    feed = Job("feed", MINUTE, upstream="hiro", slice_ms=MINUTE).task()
    sweep = Job("sweep", 15 * MINUTE, upstream="hiro", slice_ms=14 * MINUTE).task()
    return [Job("tenero", 5 * MINUTE).task(), replace(feed, overdue_after_ms=2 * sweep.cadence_ms), sweep]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_everything_says_the_same_in_every_state(tmp_path: Path, name: str) -> None:
    """The state, whether it is ready, and the sentences."""
    case, clock = CASES[name], VirtualClock(NOW)
    await store_entries(tmp_path, clock, entries_of(case))
    async with scheduler(tmp_path, *tasks(), clock=clock) as made:
        check(case, *await seen(made, tmp_path))


async def test_what_only_a_process_can_be(tmp_path: Path) -> None:
    """Switched off by the settings, or with a store that cannot be written."""
    clock = VirtualClock(NOW)
    await store_entries(tmp_path, clock, entries_of(CASES["ready"]))
    *others, sweep = tasks()
    async with scheduler(tmp_path, *others, replace(sweep, enabled=False), clock=clock) as made:
        disabled = await seen(made, tmp_path)
        broken = await seen(made, tmp_path, "db.sqlite was deleted")

    check(Case("disabled", False, "sweep is disabled (TOCSIN_SWEEP_ENABLED)"), *disabled)
    check(Case("broken", False, "the store cannot be written: db.sqlite was deleted"), *broken)


def test_the_table_has_every_state() -> None:
    """Except those of the process."""
    assert {case.state for case in CASES.values()} == set(SERVICE_STATES) - {"disabled", "broken"}
