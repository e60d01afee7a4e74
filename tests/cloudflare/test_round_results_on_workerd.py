"""A round from its grace to its result, in Cloudflare's runtime and on D1: exactly the same rows as locally."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.virtual_time import run_virtual
from support.round_world import AGENTS, GRACE_S, RoundWorld, round_world
from support.workerd import require_workerd, running
from tocsin.settings import Settings
from tocsin.swaps.rules import rules_of

RULES = rules_of(Settings())
INPUTS = (
    *("agents", "claims", "swaps", "refusals", "competition_rounds", "price_tokens", "price_points"),
    *("competition_state", "marks"),  # how far the chain was read
)


async def run_locally(directory: Path) -> dict[str, Any]:
    """The rows before the end of the grace, and what is published."""
    async with round_world(directory) as world:
        await world.populate()
        await world.swept(GRACE_S, RULES)
        before = await rows_of(world, INPUTS)
        await world.run(GRACE_S)
        return {"before": before, "published": await world.published()}


async def rows_of(world: RoundWorld, tables: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    return {table: await world.all(f"SELECT * FROM {table}") for table in tables}


@pytest.mark.slow
def test_the_result_is_the_same_on_both_platforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed, captured and published at the end of its grace."""
    require_workerd()
    monkeypatch.setattr("support.round_world.RULES", RULES)
    here = run_virtual(run_locally(tmp_path / "local"))
    settings = {"TOCSIN_FEED_ENABLED": "false"}
    with running(tmp_path, settings) as workerd:
        workerd.migrate()
        for table, rows in here["before"].items():
            workerd.insert(table, rows)
        workerd.set_clock(GRACE_S * 1000)
        ran = workerd.call("SCHEDULER", "v1", "refresh_now", "rounds")
        there = {table: workerd.sql((f"SELECT * FROM {table}", ()))[0] for table in here["published"]}

    assert ran["run"]["outcome"] == "ok"
    assert len(there["competition_round_results"]) == len(AGENTS)
    for table, rows in here["published"].items():
        assert sorted(there[table], key=json.dumps) == sorted(rows, key=json.dumps), table
