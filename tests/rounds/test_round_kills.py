"""A run that is killed at any call of the database goes on later: exactly one result, the right one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.round_world import GRACE_S, ROUND_ID, STSTX, RoundWorld, round_world
from tocsin.bindings import Database, DBResult, Row, Statement
from tocsin.rounds.capture import capture
from tocsin.rounds.finalize import finalize
from tocsin.rounds.round_store import the_round


class Killed(BaseException):
    """The process ends here. No handler of the service may catch it."""


@dataclass
class Mortal:
    """A database whose process dies at the call of a number: before it, or after it was committed."""

    db: Database
    dies_at: int
    after: bool
    calls: int = 0

    def prepare(self, sql: str) -> "MortalStatement":
        return MortalStatement(self, self.db.prepare(sql))

    async def batch(self, statements: Sequence[Any]) -> list[DBResult]:
        self.count(after=False)
        results = await self.db.batch([each.inner for each in statements])
        self.count(after=True)
        return results

    def count(self, *, after: bool) -> None:
        self.calls += not after
        if self.calls == self.dies_at and after == self.after:
            raise Killed


@dataclass
class MortalStatement:
    """A statement of it."""

    owner: Mortal
    inner: Statement

    def bind(self, *values: str | float | bytes | None) -> "MortalStatement":
        return MortalStatement(self.owner, self.inner.bind(*values))

    async def first(self) -> Row | None:
        self.owner.count(after=False)
        row = await self.inner.first()
        self.owner.count(after=True)
        return row

    async def all(self) -> DBResult:
        return await self.run()

    async def run(self) -> DBResult:
        self.owner.count(after=False)
        result = await self.inner.run()
        self.owner.count(after=True)
        return result


async def ended(world: RoundWorld) -> None:
    await world.swept(GRACE_S)
    await world.run(GRACE_S)


@pytest.mark.slow
async def test_a_kill_at_every_call_leaves_one_result(tmp_path: Path) -> None:
    """Before and after every call of closing, capturing and finalizing; each history ends with the same bytes."""
    (tmp_path / "whole").mkdir()
    async with round_world(tmp_path / "whole") as world:
        counting = Mortal(world.db, 0, after=False)
        world.wrapped = counting
        await ended(world)
        expected, calls = await world.everything(), counting.calls
    assert expected["competition_rounds"][0]["status"] == "finalized"
    assert len(expected["competition_round_results"]) == 3
    assert calls > 10

    for after in (False, True):
        for number in range(1, calls + 1):
            directory = tmp_path / f"{number}-{after}"
            directory.mkdir()
            async with round_world(directory) as world:
                world.wrapped = Mortal(world.db, number, after)
                with pytest.raises(Killed):
                    await ended(world)
                world.wrapped = None
                await world.run(GRACE_S + 300)
                assert await world.everything() == expected, f"killed at call {number}, after: {after}"


async def test_two_runs_at_once_write_one_result(tmp_path: Path) -> None:
    """An operator finalizes while the task does: the second changes nothing."""
    async with round_world(tmp_path) as world:
        await world.swept(GRACE_S)
        world.clock.at_s = GRACE_S
        await world.act("close", roundId="week-1-2027-01-15")
        await world.act("snapshot", roundId="week-1-2027-01-15")
        first = await world.act("finalize", roundId="week-1-2027-01-15")
        results = await world.everything()
        second = await world.act("finalize", roundId="week-1-2027-01-15")
        await world.run(GRACE_S + 60)

        assert await world.everything() == results
    assert (first.ok, second.ok, second.http_status, second.code) == (True, False, 409, "wrong_status")


async def test_a_round_that_was_made_void_meanwhile_stays_void(tmp_path: Path) -> None:
    """An operator was quicker than the step that a run had begun."""
    for status in ("closed", "finalizing"):
        (tmp_path / status).mkdir()
        async with round_world(tmp_path / status) as world:
            await world.swept(GRACE_S)
            world.clock.at_s = GRACE_S
            await world.act("close", roundId=ROUND_ID)
            if status == "finalizing":
                await world.act("snapshot", roundId=ROUND_ID)
            before = await the_round(world.db, ROUND_ID)
            await world.act("void", roundId=ROUND_ID, reason="a test")
            if status == "closed":
                captured = await capture(
                    world.db,
                    before,
                    [],
                    {"stx", STSTX},
                    allowlist_version="v",
                    complete_until_block=None,
                    now=1,
                )
                assert not captured
            else:
                assert await finalize(world.db, before, 1) is None
            everything = await world.everything()

        assert everything["competition_rounds"][0]["status"] == "void"
        assert (before.status, everything["competition_round_results"]) == (status, [])
