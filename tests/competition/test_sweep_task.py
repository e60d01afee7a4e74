"""The task `sweep`, as the scheduler sees it."""

from pathlib import Path

from support.competition import CADENCE_MS, chain_of, open_world, sweep
from tocsin.settings import Settings
from tocsin.swaps.rules import AllowList, Rules, built_in
from tocsin.swaps.sweep import Sweep, sweep_task


async def test_a_sweep_that_did_nothing_has_the_result_of_one_that_was_cut_off_at_once(tmp_path: Path) -> None:
    """So `lastSweepResult` always has the same fields."""
    task = sweep_task(Settings())
    async with open_world(tmp_path) as world:
        counters = Sweep(world.run(), world.rules, cadence_ms=task.cadence_ms).counters()

    assert counters == {**task.empty_result, "startedAt": counters["startedAt"], "durationMs": 0}


async def test_a_sweep_by_a_clock_that_was_ahead_is_forgotten(tmp_path: Path) -> None:
    """By the next one that begins: otherwise it would count as soon as that time has come."""
    async with open_world(tmp_path, chain_of(1)) as world:
        kept = "SELECT value FROM competition_state WHERE key = 'competition_swept_at'"
        await sweep(world)
        now = (await world.all(kept))[0]["value"]
        await Sweep(world.run(), world.rules, cadence_ms=CADENCE_MS).prepare()
        unchanged = await world.all(kept)
        ahead = str(world.clock.now() + 1)
        await (
            world.db.prepare("UPDATE competition_state SET value = ? WHERE key = 'competition_swept_at'")
            .bind(ahead)
            .run()
        )
        await Sweep(world.run(), world.rules, cadence_ms=CADENCE_MS).prepare()

        assert (unchanged, await world.all(kept)) == ([{"value": now}], [])


async def test_a_complete_sweep_says_nothing_about_other_rules(tmp_path: Path) -> None:
    """When it began is kept until the rules change; then the next complete one is the first again."""
    async with open_world(tmp_path, chain_of(1)) as world:
        kept = "SELECT value FROM competition_state WHERE key = 'competition_swept_at'"
        await sweep(world)
        before = await world.all(kept)
        grown = Rules(built_in().plus(AllowList({"SP1.a": frozenset({"swap"})})), world.rules.start_s)
        begun = Sweep(world.run(), grown, cadence_ms=CADENCE_MS)
        await begun.prepare()
        changed = await world.all(kept)
        await Sweep(world.run(), grown, cadence_ms=CADENCE_MS).keep_swept_at()
        await Sweep(world.run(), grown, cadence_ms=CADENCE_MS).prepare()
        after = await world.all(kept)

    assert (len(before), changed, len(after)) == (1, [], 1)
