"""The same state at the same instant: the Worker answers the very bytes that the service answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from contract.platforms import LocalScheduler, open_scheduler
from support.asgi import Answer, ask
from support.competition import register
from support.simulated import lively_chain
from support.virtual_time import VirtualClock, run_virtual
from support.workerd import Workerd, require_workerd, running
from tocsin import __version__
from tocsin.bindings import JSON
from tocsin.competition.rules import rules_of
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.settings import Settings
from tocsin.simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from tocsin.simulator.simulator import Simulator
from tocsin.web.app import create_app
from tocsin.web.deps import HealthSnapshot, Keys, WebDeps
from tocsin.web.static_pages import redirects

ADMIN_KEY = "an-admin-key-for-tests"
HOUR_MS = 3_600_000
START_MS = (
    2_000_000_000_000  # far ahead: an alarm of the past would ring at once in a runtime whose clock is real
)
TABLES = ("agents", "claims", "swaps", "refusals", "candidates", "marks", "competition_state")
PATHS = (
    "/api/prices",
    "/api/prices?token=stx",
    "/api/prices?tokens=stx,nothing.here",
    "/api/prices?tokens=not/a/token",
    "/api/competition/leaderboard",
    "/api/competition/leaderboard?sort=pnl&dir=asc&limit=3",
    "/api/competition/leaderboard?sort=nonsense",
    "/api/competition/trades?address={wallet}",
    "/api/competition/trades?address={wallet}&limit=5",
    "/api/competition/status?address={wallet}",
    "/api/competition/allowlist",
    "/api/competition/tracked-tokens",
    "/api/competition/cron",
    "/api/admin/scheduler",
    "/api/admin/scheduler/runs?limit=500",
    "/healthz",
    "/openapi.json",
    "/nothing",
    "/",
    "/leaderboard/?sort=pnl",
)


class OpenScheduler(SchedulerDO):
    """The scheduler, and all that it has stored."""

    async def dump(self) -> JSON:
        entries = await self.ctx.storage.list()
        return {"entries": entries, "alarmAt": await self.ctx.storage.get_alarm()}


async def lived_locally(directory: Path) -> dict[str, Any]:
    """An hour of the service with a lively chain, a restart: its answers then, and its whole state."""
    clock = VirtualClock(START_MS)
    chain = lively_chain(wallets=12, hours=0.5, start_ms=START_MS - HOUR_MS // 2)
    limits = HiroRateLimit(UNLIMITED, UNLIMITED), TeneroRateLimit(UNLIMITED, UNLIMITED)
    simulator = Simulator(chain, clock, hiro_rate_limit=limits[0], tenero_rate_limit=limits[1])
    async with open_scheduler(directory, simulator) as local:
        await register(local.db, chain.wallets)
        await local.namespace.get_by_name("v1").arm()
        await clock.sleep(3_600)
    async with open_scheduler(directory, simulator, OpenScheduler) as local:
        stub = local.namespace.get_by_name("v1")
        await stub.arm()  # as a visitor's request does there
        return {
            "now": clock.now(),
            "wallet": (wallet := chain.wallets[0].address),
            "object": await stub.dump(),
            "rows": {
                table: (await local.db.prepare(f"SELECT * FROM {table}").all()).results for table in TABLES
            },
            "kv": await local.kv.get_many((await local.kv.list()).keys),
            "answers": await answers(create_app(site_of(local), redirects()), wallet),
        }


async def answers(app: ASGIApp, wallet: str) -> dict[str, Answer]:
    headers = {"X-Admin-Key": ADMIN_KEY}
    return {path: await ask(app, path.format(wallet=wallet), headers=headers) for path in PATHS}


def site_of(local: LocalScheduler) -> WebDeps:
    async def health() -> HealthSnapshot:
        raise NotImplementedError

    return WebDeps(
        scheduler=lambda: local.namespace.get_by_name("v1"),
        kv=local.kv,
        db=local.db,
        clock=local.clock,
        logger=local.log,
        keys=Keys(ADMIN_KEY),
        rules=rules_of(Settings()),
        health=health,
        version=__version__,
    )


def load(workerd: Workerd, state: dict[str, Any]) -> None:
    """Bring a new deployment into this state, and stop its clock."""
    workerd.migrate()
    for table, rows in state["rows"].items():
        if rows:
            columns = ", ".join(rows[0])
            read = ", ".join(f"json_extract(value, '$.{column}')" for column in rows[0])
            insert = f"INSERT INTO {table} ({columns}) SELECT {read} FROM json_each(?)"
            for at in range(0, len(rows), 200):
                workerd.sql((insert, [json.dumps(rows[at : at + 200])]))
    for key, value in state["kv"].items():
        workerd.call("CONTRACT", "x", "kv_put", key, value)
    workerd.set_clock(state["now"])
    entries, alarm_at = json.dumps(state["object"]["entries"]), state["object"]["alarmAt"]
    workerd.native_call("SCHEDULER", "v1", "load", entries, alarm_at)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workerd, dict[str, Any]]]:
    require_workerd()
    state = run_virtual(lived_locally(tmp_path_factory.mktemp("local")))
    settings = {
        "ADMIN_KEY": ADMIN_KEY,
        "HIRO_API_URL": "http://hiro.test",
        "TENERO_API_URL": "http://tenero.test",
    }
    with running(tmp_path_factory.mktemp("workerd"), settings) as workerd:
        load(workerd, state)
        yield workerd, state


@pytest.mark.parametrize("path", PATHS)
def test_the_worker_answers_the_same_bytes(both: tuple[Workerd, dict[str, Any]], path: str) -> None:
    """Status, body and every header that the application sets, after an hour's prices and sweeps."""
    workerd, state = both
    here: Answer = state["answers"][path]
    there = workerd.ask(path.format(wallet=state["wallet"]), headers={"X-Admin-Key": ADMIN_KEY})
    assert (there.status, there.body) == (here.status, here.body)
    assert there.headers == here.headers


def test_there_was_something_to_compare(both: tuple[Workerd, dict[str, Any]]) -> None:
    """Swaps, refusals, prices and runs: the hour was not empty."""
    _, state = both
    told = {path: answer.json() for path, answer in state["answers"].items() if answer.body}
    assert len(state["rows"]["swaps"]) > 100
    assert state["rows"]["refusals"]
    assert len(told["/api/prices"]["prices"]) > 3
    assert told["/api/admin/scheduler"]["status"]["lastSweepResult"]["inserted"] > 0
    assert sum(told["/api/admin/scheduler"]["refusals"].values()) == len(state["rows"]["refusals"])
    assert len(told["/api/admin/scheduler/runs?limit=500"]["runs"]) > 10
