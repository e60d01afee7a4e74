"""The fixture `objects` and its plugin."""

import time
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest

from holdfast import AlarmInfo, DurableObject
from holdfast.errors import ObjectReset, UsageError
from holdfast.local import sqlite_file
from holdfast.testing import VirtualObjects
from holdfast.testing.virtual_time import START_MS
from holdfast_testing.processes import python

FIVE_MINUTES = 300_000


class Clockwork(DurableObject):
    """Counts how often it was made and how often it rang; its handler can fail."""

    async def begin(self, every_ms: int = FIVE_MINUTES) -> None:
        await self.ctx.storage.put("every_ms", every_ms)
        await self.ctx.storage.set_alarm(self.ctx.now() + every_ms)

    async def fail(self) -> None:
        await self.ctx.storage.put("fails", True)

    async def rings(self) -> int:
        return int(await self.ctx.storage.get("rings") or 0)

    async def remember(self, value: int) -> int:
        """What was in memory before."""
        before, self.value = getattr(self, "value", 0), value
        return before

    async def alarm(self, info: AlarmInfo) -> None:
        if await self.ctx.storage.get("fails"):
            raise ConnectionError("nobody answers")
        await self.ctx.storage.put("rings", await self.rings() + 1)
        await self.ctx.storage.set_alarm(info.scheduled_time + await self.ctx.storage.get("every_ms"))


class Pair(DurableObject):
    """Writes two entries in two commits, and tells the outside in between."""

    async def write(self) -> None:
        await self.ctx.storage.put("a", 1)
        await self.ctx.storage.sync()
        self.env.told.append("between")
        await self.ctx.storage.put("b", 1)

    async def keys(self) -> list[str]:
        return list(await self.ctx.storage.list())


async def test_a_day_of_alarms_takes_a_tenth_of_a_second(objects: VirtualObjects) -> None:
    """288 rings, each at its time; by the clock of the CPU, on the best of three days."""
    await objects.get(Clockwork, "a").begin()
    took_s = []
    for day in range(1, 4):
        began_s = time.process_time()
        await objects.advance(days=1)
        took_s.append(time.process_time() - began_s)

        assert await objects.get(Clockwork, "a").rings() == 288 * day
        assert objects.now() == START_MS + day * 86_400_000
        assert objects.alarms() == [("Clockwork", "a", START_MS + (288 * day + 1) * FIVE_MINUTES, 0)]
    assert min(took_s) < 0.1


async def test_advancing_reaches_the_exact_time(objects: VirtualObjects) -> None:
    """What is due at that instant has happened, what is due a millisecond later has not."""
    await objects.get(Clockwork, "a").begin(1000)
    rings = []
    for _ in range(3):
        await objects.advance(milliseconds=999)
        rings.append(await objects.get(Clockwork, "a").rings())
        await objects.advance(milliseconds=1)
        rings.append(await objects.get(Clockwork, "a").rings())

    assert rings == [0, 1, 1, 2, 2, 3]
    assert objects.now() == START_MS + 3000


async def test_an_alarm_rings_on_demand(objects: VirtualObjects) -> None:
    """Before its time; the next one is as the handler set it. Without an alarm nothing happens."""
    clockwork = objects.get(Clockwork, "a")
    without = await objects.ring(clockwork)
    await clockwork.begin()
    rung = [await objects.ring(clockwork), await objects.ring(clockwork)]

    assert (without, rung, await clockwork.rings()) == (False, [True, True], 2)
    assert objects.now() == START_MS
    assert [alarm.due_at for alarm in objects.alarms()] == [START_MS + 3 * FIVE_MINUTES]


@pytest.mark.holdfast(seed=3)
async def test_the_seed_determines_the_retries(objects: VirtualObjects) -> None:
    """A failed ring is retried after two seconds and a part that is random."""
    clockwork = objects.get(Clockwork, "a")
    await clockwork.begin()
    await clockwork.fail()
    await objects.ring(clockwork)

    assert objects.alarms() == [("Clockwork", "a", START_MS + 2119, 1)]


async def test_an_evicted_object_has_forgotten_what_was_in_memory(objects: VirtualObjects) -> None:
    """The same stub reaches the next instance."""
    clockwork = objects.get(Clockwork, "a")
    values = [await clockwork.remember(1), await clockwork.remember(2)]
    await objects.evict(clockwork)
    await objects.evict(clockwork)

    assert [*values, await clockwork.remember(3)] == [0, 1, 0]


async def test_a_restart_keeps_what_is_stored_and_reset_does_not(objects: VirtualObjects) -> None:
    """Alarms are stored, bindings stay, old stubs say what happened."""
    objects.bind(CLOCK=Clockwork)
    await objects.get(Clockwork, "a").begin()
    old = objects.get(Clockwork, "a")
    await old.rings()
    await objects.restart()
    with pytest.raises(ObjectReset, match="shutting down"):
        await old.rings()
    await objects.advance(minutes=10)
    kept = await objects.get(Clockwork, "a").rings()
    await objects.reset()

    assert (kept, objects.alarms(), await objects.get(Clockwork, "a").rings()) == (2, [], 0)
    assert objects.now() == START_MS + 2 * FIVE_MINUTES


@pytest.mark.parametrize(
    ("written", "expected"),
    [(False, [([], 0), (["a"], 1), (["a", "b"], 1)]), (True, [(["a"], 0), (["a", "b"], 1), (["a", "b"], 1)])],
)
async def test_a_crash_at_every_commit(
    objects: VirtualObjects, written: bool, expected: list[tuple[list[str], int]]
) -> None:
    """Before a commit or just after it: what is stored, and how often the outside was told."""
    seen = []
    for commit in count(1):
        await objects.reset()
        told: list[str] = []
        objects.bind(told=told)
        async with objects.crash_at(commit=commit, written=written) as crash:
            await objects.get(Pair, "x").write()
            assert not crash, "a call that was interrupted by the crash does not return"
        seen.append((await objects.get(Pair, "x").keys(), len(told)))
        if not crash:
            break

    assert seen == expected


class Table(DurableObject):
    """Writes the same number to an entry and to a table."""

    async def write(self, numbers: int) -> None:
        self.ctx.storage.sql.exec("CREATE TABLE IF NOT EXISTS numbers (n INTEGER)")
        for number in range(numbers):
            self.ctx.storage.sql.exec("INSERT INTO numbers VALUES (?)", number)
            await self.ctx.storage.put("last", number)
            await self.ctx.storage.sync()

    async def read(self) -> list[int | None]:
        tables = "SELECT count(*) AS n FROM sqlite_master WHERE name = 'numbers'"
        made = self.ctx.storage.sql.exec(tables).one().n
        newest = self.ctx.storage.sql.exec("SELECT max(n) AS n FROM numbers").one().n if made else None
        return [await self.ctx.storage.get("last"), newest]


@pytest.mark.parametrize("written", [False, True])
async def test_tables_and_entries_crash_together(objects: VirtualObjects, written: bool) -> None:
    """At every commit both have the same number; after the restart the object goes on."""
    seen = []
    for commit in count(1):
        await objects.reset()
        async with objects.crash_at(commit=commit, written=written) as crash:
            await objects.get(Table, "x").write(2)
        seen.append(await objects.get(Table, "x").read())
        await objects.get(Table, "x").write(3)
        assert await objects.get(Table, "x").read() == [2, 2]
        if not crash:
            break

    assert seen == ([[0, 0], [1, 1], [1, 1]] if written else [[None, None], [0, 0], [1, 1]])


async def test_other_errors_leave_the_block_of_a_crash(objects: VirtualObjects) -> None:
    """If the commit was not reached, an error of the code is the test's."""
    crash = objects.crash_at(commit=5)
    await crash.__aenter__()
    swallowed = await crash.__aexit__(UsageError, UsageError("a mistake"), None)

    assert not swallowed


async def test_no_time_is_spent_on_syncs_unless_asked_for(objects: VirtualObjects) -> None:
    """The default."""
    assert not sqlite_file.SYNCS


@pytest.mark.holdfast(sync=True, start="2026-03-29T01:00+01:00")
async def test_syncs_and_the_start_can_be_asked_for(objects: VirtualObjects) -> None:
    """As in the service, and at an instant of the test's choice."""
    assert sqlite_file.SYNCS
    assert objects.now() == 1_774_742_400_000


def run_pytest(directory: Path, test: str, *options: str) -> str:
    """Run a test file in a process of its own, without our settings; the plugin comes by its name."""
    (directory / "test_it.py").write_text(dedent(test))
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = asyncio\n")
    plain = ("-q", "-rN", "-p", "no:cacheprovider")  # no summary: with `CI` set it repeats every message whole
    return python("-m", "pytest", *plain, "-p", "holdfast.testing.plugin", *options, cwd=directory).stdout


@pytest.mark.slow
def test_only_tests_with_the_fixture_are_ours(tmp_path: Path) -> None:
    """Another async test is left to its own plugin, and another fixture of this name to its owner."""
    output = run_pytest(
        tmp_path,
        """
        import asyncio, pytest

        class TestTheirs:
            @pytest.fixture
            def objects(self):
                return [1]

            async def test_another_fixture(self, objects):
                pass

            def test_another_fixture_in_a_plain_test(self, objects):
                assert objects == [1]

        async def test_theirs():
            pass

        async def test_ours(objects):
            await asyncio.sleep(10**6)

        def test_plain(objects):
            pass

        @pytest.mark.holdfast(sed=1)
        async def test_typo(objects):
            pass
        """,
    )
    assert "4 failed, 2 passed" in output or "3 failed, 2 passed, 1 error" in output
    assert output.count("async def functions are not natively supported") == 2
    assert "a test with the fixture `objects` must be an `async def`" in output
    assert "unexpected keyword argument 'sed'" in output


@pytest.mark.slow
def test_all_async_tests_are_ours_if_the_option_says_so(tmp_path: Path) -> None:
    """`holdfast_virtual_time` in the ini file."""
    test = """
    import asyncio

    async def test_a_long_wait():
        await asyncio.sleep(10**6)
    """
    assert "1 passed" in run_pytest(tmp_path, test, "-o", "holdfast_virtual_time=true")


@pytest.mark.parametrize(("page", "program", "count"), [("testing", "orders", 4), ("jobs", "reports", 2)])
def test_the_pages_show_the_examples_that_run(page: str, program: str, count: int) -> None:
    """Every block of code is part of an example, and those are tests."""
    here = Path(__file__).parents[1]
    examples = "".join((here / "examples" / name).read_text() for name in (f"{program}.py", f"test_{program}.py"))
    blocks = [block.split("```")[0] for block in (here / "docs" / f"{page}.md").read_text().split("```python\n")[1:]]
    assert len(blocks) == count
    for block in blocks:
        assert block in examples, block
