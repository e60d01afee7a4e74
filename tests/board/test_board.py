"""The leaderboard against a plain computation from the truth."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.values import encode
from stacks_simulator.tokens import TRADED_TOKENS
from stacks_simulator.truth import TrueSwap
from support.competition import World, chain_of, leaderboard, open_world, price_of, register, sweep
from support.history_rows import PlainSwap, add_swaps, traders_in
from tocsin.board.board import DIRECTIONS, SORTS, BoardPage, BoardQuery, all_rows, page_of
from tocsin.prices.price import Price
from tocsin.swaps import trades

PRICES = {token.id: price_of(token.base_price, token.decimals) for token in TRADED_TOKENS}
UNKNOWN = next(token.id for token in TRADED_TOKENS if token.symbol == "WELSH")


async def traded(world: World, kinds: tuple[str, ...] = ("simple", "multihop", "fee_leg", "huge")) -> None:
    """Some swaps of every wallet, at different times."""
    chain = world.simulator.chain
    for number, wallet in enumerate(chain.wallets):
        for _ in range(number % 4 + 1):
            for kind in kinds:
                chain.swap(wallet, kind)
        chain.mine()
        await world.clock.sleep(601)
        world.simulator.advance()
    await sweep(world)


def expected(truth: list[TrueSwap], prices: dict[str, Price]) -> dict[str, dict[str, Any]]:
    """The figures of the board, swap by swap."""
    lines: dict[str, dict[str, Any]] = {}
    for swap in truth:
        line = lines.setdefault(
            swap.sender, {"trades": 0, "given": 0.0, "received": 0.0, "priced": 0, "unpriced": set()}
        )
        line["trades"] += 1
        missing = {token for token in (swap.token_in, swap.token_out) if token not in prices}
        line["unpriced"] |= missing
        if missing:
            continue
        line["priced"] += 1
        sides = (("given", swap.token_in, swap.amount_in), ("received", swap.token_out, swap.amount_out))
        for side, token, amount in sides:
            price = prices[token]
            assert price.price_usd is not None
            assert price.decimals is not None
            line[side] += amount * price.price_usd / 10**price.decimals
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("unpriced", [(), (UNKNOWN,), ("stx",), tuple(PRICES)])
async def test_figures_are_those_of_the_swaps(unpriced: tuple[str, ...], tmp_path: Path) -> None:
    """Volume and gain count pairs with both sides priced; tokens without a price are named."""
    prices = {token: price for token, price in PRICES.items() if token not in unpriced}
    async with open_world(tmp_path, chain_of(9)) as world:
        await traded(world)
        board = await leaderboard(world.db, prices)

    swaps, chain = world.simulator.chain.truth(), world.simulator.chain
    truth, blocks = expected(swaps, prices), {swap.txid: chain.transactions[swap.txid].block for swap in swaps}
    assert {row.stx_address for row in board.rows} == set(truth)
    for row in board.rows:
        line = truth[row.stx_address]
        times = [block.time_s for swap in swaps if swap.sender == row.stx_address and (block := blocks[swap.txid])]
        assert (row.trade_count, row.latest_trade_at) == (line["trades"], max(times) * 1000)
        assert row.unpriced_tokens == sorted(line["unpriced"])
        if line["priced"] == 0:
            assert (row.volume_usd, row.capital_usd, row.pnl_usd, row.pnl_percent) == (None, None, None, None)
        else:
            assert row.volume_usd == pytest.approx(line["given"])
            assert row.pnl_usd == pytest.approx(line["received"] - line["given"], rel=1e-6, abs=1e-6 * line["given"])
            assert row.pnl_usd is not None
            assert row.capital_usd is not None
            assert 0 < row.capital_usd <= line["given"] * 1.000001
            assert row.pnl_percent == pytest.approx(row.pnl_usd / row.capital_usd * 100)
    assert as_json(board)


def as_json(board: BoardPage) -> str:
    return encode([row.to_json() for row in board.rows], "the board")


async def test_every_order_is_a_ranking_over_pages(tmp_path: Path) -> None:
    """Pages continue the ranks; rows without a value are last in both directions."""
    names = {"trades": "trade_count", "volume": "volume_usd", "pnl": "pnl_usd", "latest": "latest_trade_at"}
    prices = {token: PRICES[token] for token in list(PRICES)[:4]}
    async with open_world(tmp_path, chain_of(12)) as world:
        await traded(world, ("simple",))
        for sort, direction in product(SORTS, DIRECTIONS):
            page = await leaderboard(world.db, prices, sort=sort, direction=direction, limit=5)
            rows = page.rows
            while page.next is not None:
                page = await leaderboard(world.db, prices, sort=sort, direction=direction, limit=5, after=page.next)
                rows = [*rows, *page.rows]

            assert [row.rank for row in rows] == list(range(1, 13))
            values = [getattr(row, names[sort]) for row in rows]
            present = [value for value in values if value is not None]
            assert values == [*sorted(present, reverse=direction == "desc"), *[None] * (12 - len(present))]


async def test_only_eligible_agents_are_shown(tmp_path: Path) -> None:
    """As for the verifier, an agent that is no longer eligible leaves the board, and may return."""
    async with open_world(tmp_path, chain_of(3)) as world:
        await traded(world)
        wallet = world.simulator.chain.wallets[0]
        await register(world.db, [replace(wallet, tier="registered")])
        without = await leaderboard(world.db, PRICES)
        await register(world.db, [wallet])
        again = await leaderboard(world.db, PRICES)

    assert wallet.address not in {row.stx_address for row in without.rows}
    assert len(again.rows) == len(without.rows) + 1 == 3


async def test_rotated_wallets_are_one_agent(tmp_path: Path) -> None:
    """Two wallets of one identity make one row with the sum of both, under the one that traded last."""
    async with open_world(tmp_path, chain_of(3)) as world:
        await traded(world)
        first, second, _ = world.simulator.chain.wallets
        apart = {row.stx_address: row for row in (await leaderboard(world.db, PRICES)).rows}
        await register(world.db, [replace(first, erc8004_agent_id=second.erc8004_agent_id)])
        rows = (await leaderboard(world.db, PRICES)).rows

    (merged,) = [row for row in rows if row.erc8004_agent_id == second.erc8004_agent_id]
    assert len(rows) == 2
    assert merged.stx_address == second.address
    assert merged.wallets == [second.address, first.address]
    assert all(row.wallets == [row.stx_address] for row in rows if row is not merged)
    assert merged.trade_count == sum(apart[wallet.address].trade_count for wallet in (first, second))
    volumes = [apart[wallet.address].volume_usd for wallet in (first, second)]
    assert merged.volume_usd == pytest.approx(sum(volume for volume in volumes if volume is not None))
    assert None not in volumes


async def test_a_price_beyond_all_numbers_gives_no_value(tmp_path: Path) -> None:
    """The board is shown, without that agent's sums, and can be written as JSON."""
    prices = {**PRICES, "stx": price_of(1e308, 0)}
    async with open_world(tmp_path, chain_of(2)) as world:
        await traded(world)
        board = await leaderboard(world.db, prices)

    assert {row.volume_usd for row in board.rows} == {None}
    assert as_json(board)


async def test_a_price_of_almost_nothing_does_not_take_the_board_down(tmp_path: Path) -> None:
    """A percentage too large for a number is left out; the board is shown in every order."""
    almost_nothing = ((1e-307, 0), (1e-300, 6), (1e-300, 38), (5e-324, 6), (1e-18, 38))
    async with open_world(tmp_path, chain_of(2)) as world:
        await traded(world, ("simple",))
        sender = world.simulator.chain.wallets[0].address
        await world.db.prepare("DELETE FROM swaps WHERE sender = ?").bind(sender).run()
        await add_swaps(world.db, [PlainSwap(1, sender, "stx", 1, UNKNOWN, 99_999_999_999)])
        for price, sort in product(almost_nothing, SORTS):
            board = await leaderboard(world.db, {**PRICES, "stx": price_of(*price)}, sort=sort)

            assert len(board.rows) == 2
            assert as_json(board)


async def test_a_price_without_decimals_is_not_used(tmp_path: Path) -> None:
    """Decimals are never guessed: such a token is named as unpriced."""
    prices = {**PRICES, "stx": price_of(0.8, None), UNKNOWN: price_of(None, 6)}
    async with open_world(tmp_path, chain_of(4)) as world:
        await traded(world)
        rows = (await leaderboard(world.db, prices)).rows

    truth = expected(world.simulator.chain.truth(), {t: p for t, p in PRICES.items() if t not in {"stx", UNKNOWN}})
    assert {row.stx_address: row.unpriced_tokens for row in rows} == {
        sender: sorted(line["unpriced"]) for sender, line in truth.items()
    }


@pytest.mark.parametrize(
    "after", ["x", "é" * 9, "A" * 10_000, trades.write(["pnl:desc", -1]), trades.write(["trades:desc", 5])]
)
def test_a_wrong_cursor_is_explained(after: str) -> None:
    """The sentence says what is accepted."""
    with pytest.raises(UsageError, match="cursor must be next of the previous page"):
        page_of([], BoardQuery(after=after))


async def test_an_agent_is_shown_with_the_wallet_that_traded_last(tmp_path: Path) -> None:
    """Its latest trade is that wallet's; figures at trade time are unknown as long as no trade has a value."""
    async with traders_in(tmp_path, ("SP1", 7), ("SP2", 7), ("SP3", 7)) as db:
        times = {"SP1": 1_000, "SP2": 3_000, "SP3": 2_000}
        swaps = [PlainSwap(at, wallet, "stx", 10, "A.a::a", 10, burn_block_time=at) for wallet, at in times.items()]
        await add_swaps(db, swaps)
        (row,) = await all_rows(db, {}, follow_max=100)

        await add_swaps(db, [PlainSwap(1, "SP1", "stx", 10, "A.a::a", 10, burn_block_time=3_001, block_time=3_600)])
        (newer,) = await all_rows(db, {}, follow_max=100)

    assert (row.stx_address, row.latest_trade_at) == ("SP2", 3_000_000)
    assert (newer.stx_address, newer.latest_trade_at) == ("SP1", 3_600_000), "the time of its Stacks block"
    assert row.wallets[0] == "SP2"
    assert (row.valued_trade_count, row.pnl_at_trade_usd, row.volume_at_trade_usd) == (0, None, None)
    assert (row.trade_count, row.uncounted_trade_count) == (3, 3)
