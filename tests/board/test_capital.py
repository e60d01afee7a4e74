"""The capital used: kept swap by swap, and always what a plain computation from all swaps gives."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.testing.virtual_time import run_virtual
from holdfast.types import Database
from support.history_rows import PlainSwap, add_swaps, remove_swap, traders_in
from tocsin.board import capital as outlays
from tocsin.board.board import all_rows
from tocsin.board.capital import Trader, capital

TOKENS = ("stx", "A.a::a", "B.b::b")
ONE, TWO, THREE = "SP1", "SP2", "SP3"  # the first two are wallets of one agent
SOLO = Trader(7, (ONE,), ())


async def give(db: Database, numbers: Iterable[int], sender: str = ONE, amount: int = 1) -> None:
    """Add swaps that give this much STX each."""
    await add_swaps(db, [PlainSwap(number, sender, "stx", amount, "A.a::a", 1) for number in numbers])


def plain(swaps: Iterable[PlainSwap], trader: Trader) -> dict[str, int]:
    """The definition, word by word."""
    counted = sorted(
        (
            swap
            for swap in swaps
            if swap.sender in trader.wallets and not {swap.token_in, swap.token_out} & set(trader.left_out)
        ),
        key=lambda swap: swap.position,
    )
    largest = {}
    for token in TOKENS:
        most = net = 0
        for swap in counted:
            net += swap.amount_in * (swap.token_in == token) - swap.amount_out * (swap.token_out == token)
            most = max(most, net)
        if most:
            largest[token] = most
    return largest


numbers = st.integers(1, 12)
swaps = st.builds(
    lambda number, sender, tokens, given_, gotten: PlainSwap(number, sender, tokens[0], given_, tokens[1], gotten),
    numbers,
    st.sampled_from((ONE, TWO, THREE)),
    st.permutations(TOKENS),
    st.integers(1, 50) | st.integers(10**30, 10**39),
    st.integers(1, 50) | st.integers(10**30, 10**39),
)
steps = st.lists(
    st.one_of(
        swaps,
        numbers,  # the swap of this number leaves
        st.lists(st.sampled_from(TOKENS), max_size=2).map(lambda tokens: ("left out", tuple(sorted(set(tokens))))),
        st.just("follow"),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(steps, st.sampled_from([1, 3, 1000]))
def test_it_is_what_a_plain_computation_gives(steps: list[Any], at_once: int) -> None:
    """Whatever arrives late, is withdrawn or stops counting, and however few swaps are read at a time."""

    async def check() -> None:
        with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
            patch.setattr(outlays, "READ_MIN", min(2, at_once))
            async with traders_in(Path(directory), (ONE, 7), (TWO, 7), (THREE, 8)) as db:
                await play(db)

    async def play(db: Database) -> None:
        kept: dict[int, PlainSwap] = {}
        left_out: tuple[str, ...] = ()
        for step in steps:
            if isinstance(step, PlainSwap) and step.number not in kept:
                kept[step.number] = step
                await add_swaps(db, [step])
            elif isinstance(step, int) and step in kept:
                await remove_swap(db, kept.pop(step))
            elif isinstance(step, tuple):
                left_out = step[1]
            elif step == "follow":
                await capital(db, [Trader(7, (ONE, TWO), left_out), Trader(8, (THREE,), left_out)], at_once)
        traders = [Trader(7, (ONE, TWO), left_out), Trader(8, (THREE,), left_out)]
        found: dict[int, Mapping[str, int]] = {}
        for _ in range(40):
            found = await capital(db, traders)
            assert all(found[each.agent_id] == plain(kept.values(), each) for each in traders if each.agent_id in found)
            if len(found) == 2:
                break
            await capital(db, traders, at_once)
        assert len(found) == 2

    run_virtual(check())


async def test_a_new_swap_costs_one_step(tmp_path: Path) -> None:
    """The swaps before it are not read again; if one arrives late, all of them are."""
    async with traders_in(tmp_path, (ONE, 7)) as db:
        await give(db, range(10, 110))
        await capital(db, [SOLO], 1_000)
        spy = RowCount(db)
        await give(db, [500])
        await capital(spy, [SOLO], 1_000)
        after_new, spy.swaps = spy.swaps, 0
        await give(db, [5])
        assert await capital(db, [SOLO]) == {}
        await capital(spy, [SOLO], 1_000)
        assert await capital(db, [SOLO]) == {7: {"stx": 102}}

    assert (after_new, spy.swaps) == (1, 102)


@pytest.mark.parametrize(("swaps_max", "read"), [(1, 50), (50, 50), (51, 100), (400, 100)])
async def test_however_few_swaps_a_call_may_read_it_reads_some(swaps_max: int, read: int, tmp_path: Path) -> None:
    """Fifty of everybody at least, and then more, as long as some are left."""
    async with traders_in(tmp_path, (ONE, 7)) as db:
        await give(db, range(1, 101))
        spy = RowCount(db)
        await capital(spy, [SOLO], swaps_max)

    assert spy.swaps == read


class RowCount:
    """A database that counts the swaps read from it. `meanwhile` happens once, right after the first of them."""

    def __init__(self, db: Database, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self._db = db
        self._meanwhile = meanwhile
        self.swaps = 0

    def prepare(self, sql: str) -> Any:
        return self._db.prepare(sql)

    async def batch(self, statements: Any) -> Any:
        results = await self._db.batch(statements)
        self.swaps += sum("amount_in" in row for result in results for row in result.results)
        if self.swaps and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
        return results


async def test_two_runs_at_once_do_not_undo_each_other(tmp_path: Path) -> None:
    """The one that writes second finds that the other was first, and the swap is not lost."""
    async with traders_in(tmp_path, (ONE, 7)) as db:

        async def trade_and_follow() -> None:
            await give(db, [2], amount=7)
            await capital(db, [SOLO], 1_000)

        await give(db, [1], amount=5)
        await capital(RowCount(db, trade_and_follow), [SOLO], 1_000)
        await capital(db, [SOLO], 1_000)

        assert await capital(db, [SOLO]) == {7: {"stx": 12}}


async def test_churning_does_not_shrink_the_base(tmp_path: Path) -> None:
    """Trading 1 STX back and forth two hundred times uses a capital of 1 STX, and the return is on that."""
    async with traders_in(tmp_path, (ONE, 7)) as db:
        turns = (("A.a::a", 100, "stx", 99), ("stx", 100, "A.a::a", 100))
        await add_swaps(db, [PlainSwap(n, ONE, *turns[n % 2]) for n in range(1, 201)])
        (row,) = await all_rows(db, {"stx": 1.0, "A.a::a": 1.0}, follow_max=1_000)

    assert (row.volume_usd, row.pnl_usd) == (20_000.0, -100.0)
    assert row.capital_usd == 199.0
    assert row.pnl_percent == pytest.approx(-100 / 199 * 100)


async def test_one_call_catches_up_with_many_agents(tmp_path: Path) -> None:
    """What is read counts, not what might have been."""
    senders = [(f"SP{number}", number) for number in range(1, 11)]
    async with traders_in(tmp_path, *senders) as db:
        for sender, agent_id in senders:
            first = agent_id * 1_000
            await give(db, range(first, first + 60), sender)
        traders = [Trader(agent_id, (sender,), ()) for sender, agent_id in senders]

        assert await capital(db, traders, 1_000) == {agent_id: {"stx": 60} for _, agent_id in senders}


async def test_what_changes_while_an_agent_does_not_take_part_counts_later(tmp_path: Path) -> None:
    """It loses its claim, a reorg takes one of its swaps, and it takes part again, with the same wallets."""
    async with traders_in(tmp_path, (ONE, 7)) as db:
        await give(db, [1, 2], amount=5)
        before = await capital(db, [SOLO], 100)
        await remove_swap(db, PlainSwap(2, ONE, "stx", 5, "A.a::a", 1))
        await capital(db, [], 100)

        assert before == {7: {"stx": 10}}
        assert await capital(db, [SOLO], 100) == {7: {"stx": 5}}
