"""A round from its grace to its result, in Cloudflare's runtime and on D1: exactly the same rows as locally."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast_testing.virtual_time import run_virtual
from support.round_world import AGENTS, GRACE_S, PREPARE_S, ROUND_ID, START_S, STSTX, RoundWorld, round_world
from support.workerd import Workerd, require_workerd, running
from tocsin.settings import Settings
from tocsin.swaps.rules import rules_of

RULES = rules_of(Settings())
INPUTS = ("agents", "claims", "swaps", "refusals", "competition_rounds", "price_tokens", "price_points")
RECORD = ("competition_state", "marks")  # how far the chain was read
LATE = 62  # a swap of the round that is found after its result was prepared


async def run_locally(directory: Path, *, late: bool) -> dict[str, Any]:
    """The rows before the preparation, those that are added after it, and what is published."""
    async with round_world(directory) as world:
        await world.populate()
        before = await rows_of(world, INPUTS)
        await world.run(PREPARE_S)
        if late:
            await world.swap(LATE, 0, ("stx", 1), (STSTX, 9), at_s=START_S)
        await world.swept(GRACE_S, RULES)
        after = await rows_of(world, (*RECORD, "swaps"))
        await world.run(GRACE_S)
        [finalized] = world.log.named("round.finalized")
        return {
            "before": before,
            "after": {**after, "swaps": [row for row in after["swaps"] if row not in before["swaps"]]},
            "published": await world.published(),
            "prepared": finalized["prepared"],
        }


async def rows_of(world: RoundWorld, tables: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    return {table: await world.all(f"SELECT * FROM {table}") for table in tables}


def load(workerd: Workerd, rows: dict[str, list[dict[str, Any]]]) -> None:
    for table, each in rows.items():
        workerd.insert(table, each)


def run_rounds(workerd: Workerd, at_s: int) -> dict[str, Any]:
    workerd.set_clock(at_s * 1000)
    ran: dict[str, Any] = workerd.call("SCHEDULER", "v1", "refresh_now", "rounds")
    return ran


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["as prepared", "a swap found late"])
def test_the_result_is_the_same_on_both_platforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """Prepared during the grace, captured and published at its end; computed again if a swap was found late."""
    require_workerd()
    monkeypatch.setattr("support.round_world.RULES", RULES)
    here = run_virtual(run_locally(tmp_path / "local", late=late))
    settings = {"TOCSIN_FEED_ENABLED": "false"}
    with running(tmp_path, settings) as workerd:
        workerd.migrate()
        load(workerd, here["before"])
        run_rounds(workerd, PREPARE_S)
        states = workerd.sql(("SELECT round_id, state FROM competition_round_preparations", ()))[0]
        load(workerd, here["after"])
        ran = run_rounds(workerd, GRACE_S)
        there = {table: workerd.sql((f"SELECT * FROM {table}", ()))[0] for table in here["published"]}

        used = [line["prepared"] for line in workerd.console() if line["event"] == "round.finalized"]

    assert states == [{"round_id": ROUND_ID, "state": "ready"}]
    assert (ran["run"]["outcome"], used, here["prepared"]) == ("ok", [not late], not late)
    assert len(there["competition_round_results"]) == len(AGENTS)
    for table, rows in here["published"].items():
        assert sorted(there[table], key=json.dumps) == sorted(rows, key=json.dumps), table
