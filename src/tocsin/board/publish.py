"""The task `board` publishes the board, and that of the round, when prices or swaps changed, and every hour.

Until the end of the competition the board uses current prices. From then on it uses the prices of the end, which no
longer change. While a round runs, its standings are preliminary floats, computed from its swaps and current prices by
the rules of the round (see `rounds.score`); then they are those of its result.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.types import KV, Database, Row
from tocsin.board.board import (
    ROUND_KEY,
    BoardReader,
    PublishedBoard,
    all_rows,
    percent_of,
    publish,
    read_published,
    twelve_digits,
    unit_prices,
)
from tocsin.board.history import CURVES_KEY, HOUR_MS, PAST_KEY, BoardPast, curves_at, is_outdated, past_at, with_past
from tocsin.board.types import BoardRound, BoardRow
from tocsin.prices.price import PoolFloors, Price, PriceSource
from tocsin.prices.store import prices_of, tracked_tokens, traded_tokens
from tocsin.rounds.capture import closing_prices
from tocsin.rounds.round import RoundPrice, RoundResultRow, RoundRow
from tocsin.rounds.store import PUBLISHED, round_in_force, round_results
from tocsin.scheduler.task import Task, TaskContext, TaskResult
from tocsin.settings import Settings
from tocsin.shape import FreeForm
from tocsin.sql import read_queries
from tocsin.swaps.rules import Rules, rules_of
from tocsin.swaps.values import value_swaps

SQL = read_queries(__file__)

ROUND_PAUSE_MS = 1  # per swap of a round: a round of a million swaps is read every 17 minutes
FOLLOW_MAX = 10_000  # swaps that one run adds to the capital used
LONGEST_RUN_MS = 120_000
EMPTY_RESULT: FreeForm = {"agents": 0}


def board_round(round_: RoundRow) -> BoardRound:
    return BoardRound(
        round_id=round_.round_id,
        starts_at=round_.starts_at * 1000,
        ends_at=round_.ends_at * 1000,
        final=round_.status in PUBLISHED,
        min_volume_usd=round_.min_volume_usd,
        min_priced_trade_count=round_.min_priced_trade_count,
    )


async def rows_now(
    db: Database, round_: RoundRow, board: Sequence[BoardRow], units: Mapping[str, float]
) -> list[BoardRow]:
    """Return the agents of the board that traded in the round, best first. `units`: USD per smallest unit."""
    statement = db.prepare(SQL["trades_of_round"]).bind(
        json.dumps(list(units.items())), round_.starts_at, round_.ends_at
    )
    traded = {row["sender"]: row for row in (await statement.all()).results}
    rows = []
    for row in board:
        of_wallets = [traded[wallet] for wallet in row.wallets if wallet in traded]
        if of_wallets:
            rows.append(_placed(row, of_wallets))
    rows.sort(
        key=lambda row: (
            row.pnl_usd is None,
            -(row.pnl_usd or 0),
            -(row.volume_usd or 0),
            row.latest_trade_at,
            row.stx_address,
        )
    )
    return [replace(row, rank=rank) for rank, row in enumerate(rows, 1)]


def _placed(row: BoardRow, of_wallets: Sequence[Row]) -> BoardRow:
    def total(name: str) -> float:
        return sum(wallet[name] or 0 for wallet in of_wallets)

    trades, priced, excess, valued = (int(total(name)) for name in ("trades", "priced", "excess", "valued"))
    given_micros, received_micros = int(total("given_micros")), int(total("received_micros"))
    volume = twelve_digits(total("given_usd")) if priced else None
    pnl = twelve_digits(total("received_usd") - total("given_usd")) if priced else None
    all_priced = priced + excess == trades
    return replace(
        row,
        trade_count=trades,
        latest_trade_at=max(wallet["latest"] for wallet in of_wallets) * 1000,
        volume_usd=volume,
        capital_usd=None,
        pnl_usd=pnl,
        pnl_percent=percent_of(pnl, volume),
        pnl_at_trade_usd=(received_micros - given_micros) / 1e6 if valued else None,
        volume_at_trade_usd=given_micros / 1e6 if valued else None,
        valued_trade_count=valued,
        unpriced_tokens=[] if all_priced else row.unpriced_tokens,
        thin_tokens=[] if all_priced else row.thin_tokens,
        uncounted_trade_count=trades - priced,
        excess_trade_count=excess,
        rank_change=None,
    )


def rows_of_result(results: Sequence[RoundResultRow], board: Sequence[BoardRow]) -> list[BoardRow]:
    """Return the agents in the order of the result, including those no longer on the board."""
    known = {row.erc8004_agent_id: row for row in board}
    return [_resulting(each, known.get(each.erc8004_agent_id)) for each in results]


def _resulting(result: RoundResultRow, known: BoardRow | None) -> BoardRow:
    is_priced = result.priced_trade_count > 0
    pnl, volume = (result.pnl_usd, result.volume_usd) if is_priced else (None, None)
    return BoardRow(
        rank=result.rank,
        stx_address=result.stx_address,
        btc_address=result.btc_address,
        display_name=None if known is None else known.display_name,
        bns_name=None if known is None else known.bns_name,
        erc8004_agent_id=result.erc8004_agent_id,
        trade_count=result.trade_count,
        latest_trade_at=result.latest_trade_at * 1000,
        volume_usd=volume,
        capital_usd=float(result.exact.capital_usd) if is_priced else None,
        pnl_usd=pnl,
        pnl_percent=percent_of(pnl, volume),
        pnl_at_trade_usd=None,
        valued_trade_count=0,
        unpriced_tokens=result.exact.unpriced_tokens,
        thin_tokens=result.exact.thin_tokens,
        wallets=result.exact.wallets,
        uncounted_trade_count=result.unpriced_trade_count,
        sparkline=[] if known is None else known.sparkline,
    )


@dataclass(frozen=True, slots=True)
class _BoardPrices:
    """The prices of the board. `thin` tokens do not count."""

    units: Mapping[str, float]  # USD per smallest unit of the tokens that count
    thin: Collection[str]
    as_of: int | None
    final: bool


async def board_at(db: Database, kv: KV, now: int, rules: Rules) -> PublishedBoard:
    """The board as it is now, without the capital used by the newest swaps."""
    return await _board(db, now, await _prices_at(db, kv, now, rules.end_s, rules.floors), 0)


async def _board(db: Database, now: int, valued: _BoardPrices, follow_max: int) -> PublishedBoard:
    rows = await all_rows(db, valued.units, valued.thin, follow_max=follow_max)
    return PublishedBoard(rows, now, valued.as_of, valued.final)


async def _prices_at(db: Database, kv: KV, now: int, end_s: int | None, floors: PoolFloors) -> _BoardPrices:
    """The prices of the end if that has passed and a price was recorded then, otherwise current prices."""
    token_ids = tracked_tokens(await traded_tokens(db))
    prices, as_of, final = dict[str, Price](), end_s and end_s * 1000, False
    if as_of is not None and now >= as_of:
        prices = {each.token_id: _price(each) for each in await closing_prices(db, token_ids, as_of // 1000)}
        final = any(price.source != "peg" for price in prices.values())
    if not final:
        prices = await prices_of(kv, token_ids, now)
        as_of = max((price.fetched_at for price in prices.values() if price.fetched_at is not None), default=None)
    priced = unit_prices(prices)
    thin = {
        token_id
        for token_id, price in prices.items()
        if token_id in priced
        and price.source != "peg"
        and floors.is_thin(token_id, price.liquidity_usd, price.volume_usd)
    }
    return _BoardPrices({token: usd for token, usd in priced.items() if token not in thin}, thin, as_of, final)


def _price(closing: RoundPrice) -> Price:
    """The price of the end, in the form of a current one."""
    liquidity, volume = (None if usd is None else float(usd) for usd in (closing.liquidity_usd, closing.volume_usd))
    source: PriceSource = "peg" if closing.source == "peg" else "tenero"
    usd, decimals = float(closing.price_usd), closing.decimals
    return Price(usd, decimals, closing.at, stale=False, source=source, liquidity_usd=liquidity, volume_usd=volume)


def board_task(settings: Settings, rules: Rules | None = None) -> Task:
    """The task under the rules of the settings, or under the given rules."""
    in_force = rules_of(settings) if rules is None else rules

    async def run(context: TaskContext) -> TaskResult:
        await value_swaps(context.db, context.clock.now(), in_force.floors)
        context.checkpoint()
        board = await publish_board(context.db, context.kv, context.clock.now(), in_force)
        return TaskResult({"agents": len(board.rows)})

    return Task(
        name="board",
        cadence_ms=HOUR_MS,
        slice_ms=LONGEST_RUN_MS,
        run=run,
        empty_result=EMPTY_RESULT,
        why="it also runs when prices were refreshed, and when swaps were recorded or withdrawn",
        title="Leaderboard",
        woken_by=_is_news,
    )


def _is_news(task: str, counters: FreeForm) -> bool:
    """Whether a run of another task may have changed the board."""
    return task in {"tenero", "sweep"} or any(counters.get(name) for name in ("inserted", "withdrawn"))


async def publish_board(db: Database, kv: KV, now: int, rules: Rules) -> PublishedBoard:
    """Publish the board and that of the round. New swaps are added to the capital used first."""
    valued = await _prices_at(db, kv, now, rules.end_s, rules.floors)
    board = await _board(db, now, valued, FOLLOW_MAX)
    past, counted = await read_published(kv, PAST_KEY, BoardPast), valued.units.keys()
    if past is None or now // HOUR_MS * HOUR_MS != past.hour_at or await is_outdated(db, past, counted):
        past = await past_at(db, now, counted)
        await publish(kv, past, PAST_KEY)
        await publish(kv, await curves_at(db, board.rows, now), CURVES_KEY)
    rows, periods = with_past(board.rows, past)
    board = replace(board, rows=rows, periods=periods)
    await publish(kv, board)
    await _publish_round(db, kv, board)
    return board


async def _publish_round(db: Database, kv: KV, board: PublishedBoard) -> None:
    """Publish the board of the current round, or of the last one. A result is published once.

    This reads all swaps of the round, so the pause before the next time grows with their number.
    """
    now = board.as_of
    round_ = await round_in_force(db, now)
    known = await BoardReader(kv, ROUND_KEY).read()
    if round_ is None:
        if known is not None:  # the board of a round that was made void
            await kv.delete(ROUND_KEY)
        return
    shown, rules = board_round(round_), round_.rules
    if known is not None and (known.round, known.round_version) == (shown, round_.version):
        swaps = sum(row.trade_count for row in known.rows)
        if shown.final or 0 <= now - known.as_of < swaps * ROUND_PAUSE_MS:
            return
    floors = PoolFloors(float(rules.min_liquidity_usd), float(rules.min_day_volume_usd), rules.core_tokens)
    valued = await _prices_at(db, kv, now, round_.ends_at, floors)
    if shown.final:
        rows = rows_of_result(await round_results(db, round_.round_id), board.rows)
    else:
        rows = await rows_now(db, round_, board.rows, valued.units)
    published = PublishedBoard(rows, now, valued.as_of, final=False, round=shown, round_version=round_.version)
    await publish(kv, published, ROUND_KEY)
