"""With the same state at the same instant, the Worker sends the same bytes as the service."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from cloudflare.platforms import open_scheduler
from holdfast.testing.virtual_time import VirtualClock, run_virtual
from holdfast.types import JSON
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from support.asgi import Answer, ask
from support.competition import register
from support.simulated import lively_chain
from support.workerd import Workerd, require_workerd, running
from support.world import named_keys
from tocsin.rounds.actions import ROUND
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.web.pages import redirects

ADMIN_KEY = "an-admin-key-for-tests"
HOUR_MS = 3_600_000
# In the future: workerd has a real clock, where an alarm in the past would ring at once.
START_MS = 2_000_000_000_000
ROUND_OF_TEST: JSON = {
    "action": "add",
    "roundId": "half-hour-1",
    "startsAt": START_MS // 1000 - 1_800,
    "endsAt": START_MS // 1000 + 2_700,
    "graceS": 10,  # over before the next look at the chain, which finds transactions that cannot be verified yet
    "rewards": {"overall_pnl": 50_000},
}
TABLES = (
    "agents",
    "claims",
    "swaps",
    "excess_swaps",
    "swap_values",
    "refusals",
    "candidates",
    "marks",
    "nonces",
    "competition_state",
    "competition_rounds",
    "competition_round_price_snapshots",
    "competition_round_results",
    "competition_rewards",
    "competition_round_files",
    "competition_round_flags",
    "competition_round_discrepancies",
    "competition_round_excesses",
    "price_tokens",
    "price_points",
    "agent_days",
)
TASKS = ("tenero", "feed", "sweep", "board", "snapshot")
PATHS = (
    "/api/prices",
    "/api/prices?token=stx",
    "/api/prices?tokens=stx,nothing.here",
    "/api/prices?tokens=not/a/token",
    "/api/competition/leaderboard",
    "/api/competition/leaderboard?sort=pnl&dir=asc&limit=3",
    "/api/competition/leaderboard?sort=nonsense",
    "/api/competition/leaderboard?period=24h&sort=volume",
    "/api/competition/leaderboard?period=30d",
    "/api/competition/leaderboard?period=round",
    "/api/competition/leaderboard?period=1y",
    "/api/competition/agents/{wallet}",
    "/api/competition/curves",
    "/api/competition/history?address={wallet}&period=24h",
    "/api/competition/history?address={wallet}&period=1y",
    "/api/competition/trades?address={wallet}",
    "/api/competition/trades?address={wallet}&limit=5",
    "/api/competition/status?address={wallet}",
    "/api/competition/allowlist",
    "/api/competition/tracked-tokens",
    "/api/competition/rounds",
    "/api/competition/rounds/current",
    "/api/competition/rounds/half-hour-1",
    "/api/competition/rounds/half-hour-1/file",
    "/api/competition/rounds/half-hour-1/results/{wallet}",
    "/api/competition/rounds/half-hour-2",
    "/api/admin/competition/finalize",
    "/api/competition/cron",
    "/api/competition/trades?docs=1",
    "/api/competition/leaderboard?address={wallet}&limit=1",
    "/api/competition/leaderboard?limit=500&cursor=",
    "/api/competition/leaderboard?limit=2.5",
    "/api/competition/trades?address={wallet}&limit=0",
    "/api/prices?tokens=",
    "/api/prices?token=SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token",
    "/api/openapi.json",
    "/api/admin/scheduler",
    "/api/admin/scheduler/runs?limit=500",
    "/healthz",
    "/openapi.json",
    "/nothing",
    "/",
    "/leaderboard/?sort=pnl",
    "/leaderboard",
    "/rounds",
    "/rounds/half-hour-1",
    "/rounds/half-hour-2",
    "/agents/{wallet}",
    "/agents/{wallet}/card.png",
    "/leaderboard/card.png",
    "/rounds/half-hour-1/card.png",
)


class OpenScheduler(SchedulerDO):
    """The scheduler, with a method that returns its storage."""

    async def dump(self) -> JSON:
        entries = await self.ctx.storage.list()
        return {"entries": entries, "alarmAt": await self.ctx.storage.get_alarm()}


async def run_locally(directory: Path) -> dict[str, Any]:
    """An hour of the service with a busy chain, then a restart. Returns its responses and its whole state."""
    clock = VirtualClock(START_MS)
    chain = lively_chain(wallets=12, hours=0.5, start_ms=START_MS - HOUR_MS // 2)
    limits = HiroRateLimit(UNLIMITED, UNLIMITED), TeneroRateLimit(UNLIMITED, UNLIMITED)
    simulator = Simulator(chain, clock, hiro_rate_limit=limits[0], tenero_rate_limit=limits[1])
    async with open_scheduler(directory, simulator) as local:
        await register(local.app.platform.db, chain.wallets)
        await local.namespace.get_by_name("v1").arm()
        await local.app.scheduler().run_job(ROUND, {"action": ROUND_OF_TEST, "by": "ann"})
        await clock.sleep(3_600)
    async with open_scheduler(directory, simulator, OpenScheduler, admin_key=named_keys(ADMIN_KEY)) as local:
        stub, db, kv = local.namespace.get_by_name("v1"), local.app.platform.db, local.app.platform.kv
        await stub.arm()  # as a visitor's request does on Cloudflare
        return {
            "now": clock.now(),
            "wallet": (wallet := chain.wallets[0].address),
            "object": await stub.dump(),
            "rows": {table: (await db.prepare(f"SELECT * FROM {table}").all()).results for table in TABLES},
            "kv": await kv.get_many((await kv.list()).keys),
            "responses": await responses(local.app.web(redirects()), wallet),
        }


async def responses(app: ASGIApp, wallet: str) -> dict[str, Answer]:
    headers = {"X-Admin-Key": ADMIN_KEY}
    return {path: await ask(app, path.format(wallet=wallet), headers=headers) for path in PATHS}


def load(workerd: Workerd, state: dict[str, Any]) -> None:
    """Load this state into a new deployment, and stop its clock."""
    workerd.migrate()
    for table, rows in state["rows"].items():
        workerd.insert(table, rows)
    for key, value in state["kv"].items():
        workerd.call("CONTRACT", "x", "kv_put", key, value)
    workerd.set_clock(state["now"])
    entries, alarm_at = json.dumps(state["object"]["entries"]), state["object"]["alarmAt"]
    workerd.native_call("SCHEDULER", "v1", "load", entries, alarm_at)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workerd, dict[str, Any]]]:
    require_workerd()
    state = run_virtual(run_locally(tmp_path_factory.mktemp("local")))
    settings = {"ADMIN_KEY": ADMIN_KEY, "HIRO_API_URL": "http://hiro.test", "TENERO_API_URL": "http://tenero.test"}
    with running(tmp_path_factory.mktemp("workerd"), settings) as workerd:
        load(workerd, state)
        yield workerd, state


@pytest.mark.parametrize("path", PATHS)
def test_the_worker_sends_the_same_bytes(both: tuple[Workerd, dict[str, Any]], path: str) -> None:
    """Status, body and every header of the application, after an hour of prices and sweeps."""
    workerd, state = both
    here: Answer = state["responses"][path]
    there = workerd.ask(path.format(wallet=state["wallet"]), headers={"X-Admin-Key": ADMIN_KEY})
    assert (there.status, there.body) == (here.status, here.body)
    sent = {name: value for name, value in there.headers.items() if name != "transfer-encoding"}
    assert sent == here.headers


def test_there_was_something_to_compare(both: tuple[Workerd, dict[str, Any]]) -> None:
    """The hour had swaps, refusals, prices and runs."""
    _, state = both
    bodies = {
        path: response.json()
        for path, response in state["responses"].items()
        if response.headers.get("content-type") == "application/json"
    }
    assert len(state["rows"]["swaps"]) > 100
    assert state["rows"]["refusals"]
    assert len(bodies["/api/prices"]["prices"]) > 3
    assert bodies["/api/admin/scheduler"]["status"]["lastFeedResult"]["blocksBehind"] == 0
    assert state["rows"]["nonces"]
    assert sum(bodies["/api/admin/scheduler"]["refusals"].values()) == len(state["rows"]["refusals"])
    runs = bodies["/api/admin/scheduler/runs?limit=500"]["runs"]
    inserted = {task: sum(run["result"].get("inserted", 0) for run in runs if run["task"] == task) for task in TASKS}
    assert len(runs) > 70
    assert len(bodies["/api/competition/rounds/half-hour-1"]["results"]) > 5
    assert inserted["feed"] + inserted["sweep"] > 100  # whichever comes first records them
