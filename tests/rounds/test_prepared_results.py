"""A prepared result is exactly the result that would be computed after the grace, whatever changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.round_changes import CHANGES, PREPARE_S, claim, made, populate, published, run_sql
from support.round_world import AGENTS, GRACE_S, ROUND_ID, RULES, START_S, STSTX, RoundWorld, round_world
from support.watched_database import Moment, WatchedDatabase
from tocsin.rounds import finalize
from tocsin.rounds.store import all_rounds, current_rounds
from tocsin.swaps.rules import AllowList


@asynccontextmanager
async def big_world(directory: Path) -> AsyncIterator[RoundWorld]:
    async with round_world(made(directory)) as world:
        await populate(world)
        yield world


async def result_of(world: RoundWorld) -> dict[str, Any]:
    await world.swept(GRACE_S)
    await world.run(GRACE_S)
    assert await world.status() == "finalized"
    return await published(world)


def used(world: RoundWorld) -> list[object]:
    """Return for each result whether it had been prepared."""
    return [each["prepared"] for each in world.log.named("round.finalized")]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_after_the_preparation(tmp_path: Path, name: str) -> None:
    """The preparation is used only if nothing of the round has changed, and every byte is the same as without it."""
    change, is_used = CHANGES[name]
    async with big_world(tmp_path / "prepared") as world, big_world(tmp_path / "not") as other:
        await world.run(PREPARE_S)
        assert len(world.log.named("round.prepared")) == 1
        for each in (world, other):
            each.clock.at_s = GRACE_S - 5
            await change(each)
        expected = await result_of(other)

        assert await result_of(world) == expected
        assert (used(world), used(other)) == ([is_used], [False])
        assert await world.all("SELECT * FROM competition_round_preparations") == []
        assert await world.all("SELECT * FROM competition_round_prepared_outcomes") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, is_used) in CHANGES.items() if not is_used])
async def test_what_has_changed_is_prepared_again(tmp_path: Path, name: str) -> None:
    """The next check during the grace sees it. Then the result is ready, and the same."""
    change, _ = CHANGES[name]
    async with big_world(tmp_path / "prepared") as world, big_world(tmp_path / "not") as other:
        await world.run(PREPARE_S)
        for each in (world, other):
            each.clock.at_s = PREPARE_S + 100
            await change(each)
        await world.run(PREPARE_S + 300)
        await world.run(PREPARE_S + 600)
        expected = await result_of(other)

        assert await result_of(world) == expected
        assert (used(world), len(world.log.named("round.prepared"))) == ([True], 2)


async def test_a_round_is_prepared_from_the_middle_of_its_grace(tmp_path: Path) -> None:
    """Nobody sees it, the round stays open, and the alarm is set for the end of the grace."""
    async with big_world(tmp_path / "world") as world:
        await world.run(PREPARE_S - 1)
        assert world.log.named("round.prepared") == []
        before = [await current_rounds(world.db, PREPARE_S), await all_rounds(world.db, PREPARE_S)]
        looked = await world.run(PREPARE_S)

        assert world.log.named("round.prepared") == [{"round": ROUND_ID, "took_ms": 0}]
        assert [await current_rounds(world.db, PREPARE_S), await all_rounds(world.db, PREPARE_S)] == before
        assert (await world.status(), looked.wake_at, looked.incomplete) == ("open", GRACE_S * 1000, None)
        assert await world.all("SELECT * FROM competition_round_results") == []
        assert len(await world.all("SELECT * FROM competition_round_swaps")) == 3


async def test_a_round_that_waits_is_prepared(tmp_path: Path) -> None:
    """The service was down during the grace: while the round waits for its data, the result is prepared."""
    async with big_world(tmp_path / "prepared") as world, big_world(tmp_path / "not") as other:
        await world.run(GRACE_S + 600)
        waits = (await world.status(), len(world.log.named("round.prepared")))
        for each in (world, other):
            await each.swept(GRACE_S + 650)
            await each.run(GRACE_S + 660)
            await run_sql(each, "UPDATE competition_rounds SET closed_at = 'one minute apart'")

        assert (waits, used(world), used(other)) == (("closed", 1), [True], [False])
        assert await published(world) == await published(other)


async def test_a_forced_capture_uses_it(tmp_path: Path) -> None:
    """An operator takes the record as it is: the block up to which it is proven is the one of the capture."""
    async with big_world(tmp_path / "world") as world:
        await world.run(PREPARE_S)
        world.clock.at_s = GRACE_S
        await world.act("close", roundId=ROUND_ID)
        await world.act("snapshot", roundId=ROUND_ID, force=True, reason="Hiro is down")
        states = await world.all("SELECT state FROM competition_round_preparations")
        await world.swap(70, 0, ("stx", 1), (STSTX, 9), at_s=START_S)  # after the capture: a discrepancy
        await world.act("finalize", roundId=ROUND_ID)
        head = await world.all("SELECT text FROM competition_round_files")
        await world.run(GRACE_S + 60)

        assert (states, used(world)) == ([{"state": "captured"}], [True])
        assert '"complete_until_block":null,' in head[0]["text"]
        assert await world.all("SELECT kind FROM competition_round_discrepancies") == [{"kind": "late"}]


async def test_a_wallet_that_is_eligible_again_changes_nothing(tmp_path: Path) -> None:
    """Its claim failed and was verified again between preparation and capture."""
    async with big_world(tmp_path / "world") as world, big_world(tmp_path / "not") as other:
        await world.run(PREPARE_S)
        await claim(world, 2, "failed")
        await claim(world, 2, "verified")
        expected = await result_of(other)

        assert await result_of(world) == expected
        assert used(world) == [True]


async def test_another_release_computes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service was upgraded after the preparation: the scores of another release are not published."""
    async with big_world(tmp_path / "world") as world, big_world(tmp_path / "not") as other:
        await world.run(PREPARE_S)
        expected = await result_of(other)
        monkeypatch.setattr(finalize, "__version__", "99.0")

        assert await result_of(world) == expected
        assert used(world) == [False]


async def test_another_allow_list_computes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is in the file."""
    later = replace(RULES, allowlist=AllowList({"SP1.pool": frozenset({"swap"})}))
    async with big_world(tmp_path / "world") as world:
        await world.run(PREPARE_S)
        monkeypatch.setattr("support.round_world.RULES", later)
        await world.swept(GRACE_S, later)
        await world.run(GRACE_S)
        head = await world.all("SELECT text FROM competition_round_files")

        assert used(world) == [False]
        assert '"allowlist_version":"4259609f293f"' in head[0]["text"]


async def test_the_next_version_is_prepared_anew(tmp_path: Path) -> None:
    """A reopened round that waits: its second result is prepared, too, and the file of the first one stays."""
    async with big_world(tmp_path / "world") as world:
        await world.run(PREPARE_S)
        await result_of(world)
        await world.act("reopen", roundId=ROUND_ID, reason="a swap came late")
        await world.swap(70, 1, ("stx", 1), (STSTX, 500), at_s=START_S)
        await run_sql(world, "UPDATE marks SET walked_at = NULL")
        await world.run(GRACE_S + 300)
        waits = await world.status()
        first = await world.all("SELECT text FROM competition_round_files WHERE version = 1")
        await world.swept(GRACE_S + 400)
        await world.run(GRACE_S + 600)
        winner = await world.all("SELECT stx_address FROM competition_round_results WHERE rank = 1")

        assert (waits, used(world), winner) == ("closed", [True, True], [{"stx_address": AGENTS[1]}])
        assert await world.all("SELECT text FROM competition_round_files WHERE version = 1") == first


async def test_a_void_round_has_no_preparation(tmp_path: Path) -> None:
    async with big_world(tmp_path / "world") as world:
        await world.run(PREPARE_S)
        await world.act("void", roundId=ROUND_ID, reason="a test")
        await world.run(PREPARE_S + 300)

        assert await world.all("SELECT * FROM competition_round_preparations") == []


async def test_a_preparation_that_fails_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """A price of 0 cannot be scored. The round waits for nothing yet; it is stuck when its grace is over."""
    async with big_world(tmp_path / "world") as world:
        await run_sql(
            world, "INSERT INTO competition_round_price_overrides VALUES (?, ?, '0', 6, '', '', '')", *(ROUND_ID, STSTX)
        )
        looked = await world.run(PREPARE_S)
        told = world.log.named("round.not_prepared")
        await world.swept(GRACE_S)
        stuck = await world.run(GRACE_S)

    problem = "A price is above 0. A token without one is left out."
    assert (looked.incomplete, looked.counters["waiting"]) == (None, {})
    assert told == [{"round": ROUND_ID, "reason": problem}]
    assert stuck.incomplete == f"{ROUND_ID} waits: its next step failed: {problem}"


async def test_without_the_price_of_stx_nothing_is_prepared(tmp_path: Path) -> None:
    """It would not be used: an operator sets the price first."""
    async with big_world(tmp_path / "world") as world:
        await run_sql(world, "DELETE FROM price_points")
        await world.run(PREPARE_S)

        assert await world.all("SELECT * FROM competition_round_preparations") == []


async def test_a_preparation_that_takes_too_long_stops(tmp_path: Path) -> None:
    """The run ends as usual, with the alarm for the end of the grace. The next one tries again."""
    async with big_world(tmp_path / "world") as world:

        async def slow(number: int, moment: Moment) -> None:
            world.clock.at_s += 20

        world.wrapped = WatchedDatabase(world.db, slow)
        stopped = await world.run(PREPARE_S)
        told, states = (
            world.log.named("round.not_prepared"),
            await world.all("SELECT state FROM competition_round_preparations"),
        )
        world.wrapped = None
        await world.run(PREPARE_S + 900)
        await result_of(world)

        assert (stopped.wake_at, stopped.incomplete) == (GRACE_S * 1000, None)
        assert ([each["round"] for each in told], states) == ([ROUND_ID], [{"state": "begun"}])
        assert used(world) == [True]
