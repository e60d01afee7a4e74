"""The standings of a round: while it runs, from its swaps and current prices; then from its result.

Volume, P&L and order follow the rules of the round (see `rounds.score`). While a round runs they are preliminary
floats.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.types import Database, Row
from tocsin.board.board import percent_of, twelve_digits
from tocsin.board.types import BoardRound, BoardRow
from tocsin.prices.price import PoolFloors
from tocsin.rounds.round import RoundResultRow, RoundRow
from tocsin.rounds.store import PUBLISHED, result_of, round_of

# The running round; if there are several, the one that ends first; if there is none, the one that ended last.
_ROUND = """
SELECT * FROM competition_rounds WHERE starts_at <= ?1 AND status <> 'void'
ORDER BY ends_at <= ?1, iif(ends_at > ?1, ends_at, -ends_at), round_id LIMIT 1"""
_RESULTS = "SELECT * FROM competition_round_results WHERE round_id = ? ORDER BY rank"
# The + keeps SQLite from reading all swaps in the order of their senders.
_TRADED = """
WITH price AS MATERIALIZED (
  SELECT CAST(json_extract(value, '$[0]') AS TEXT) AS token, json_extract(value, '$[1]') AS usd
  FROM json_each(?1)
)
SELECT s.sender, count(*) AS trades, count(i.usd * o.usd) AS priced, count(x.txid) AS excess,
  max(s.burn_block_time) AS latest,
  sum(iif(o.usd IS NULL, NULL, CAST(s.amount_in AS REAL) * i.usd)) AS given_usd,
  sum(iif(i.usd IS NULL, NULL, CAST(s.amount_out AS REAL) * o.usd)) AS received_usd,
  count(v.given_micros + v.received_micros) AS valued,
  sum(iif(v.received_micros IS NULL, NULL, v.given_micros)) AS given_micros,
  sum(iif(v.given_micros IS NULL, NULL, v.received_micros)) AS received_micros
FROM swaps s
LEFT JOIN excess_swaps x ON x.txid = s.txid
LEFT JOIN price i ON i.token = s.token_in AND x.txid IS NULL
LEFT JOIN price o ON o.token = s.token_out AND x.txid IS NULL
LEFT JOIN swap_values v ON v.txid = s.txid
WHERE s.burn_block_time >= ?2 AND s.burn_block_time < ?3
GROUP BY +s.sender"""


async def round_in_force(db: Database, now: int) -> RoundRow | None:
    """Return the running round; if there is none, the last one."""
    row = await db.prepare(_ROUND).bind(now // 1000).first()
    return None if row is None else round_of(row)


def has_result(round_: RoundRow) -> bool:
    return round_.status in PUBLISHED


def floors_of(round_: RoundRow) -> PoolFloors:
    rules = round_.rules
    return PoolFloors(float(rules.min_liquidity_usd), float(rules.min_day_volume_usd), rules.core_tokens)


def board_round(round_: RoundRow) -> BoardRound:
    return BoardRound(
        round_id=round_.round_id,
        starts_at=round_.starts_at * 1000,
        ends_at=round_.ends_at * 1000,
        final=has_result(round_),
        min_volume_usd=round_.min_volume_usd,
        min_priced_trade_count=round_.min_priced_trade_count,
    )


async def rows_now(
    db: Database, round_: RoundRow, board: Sequence[BoardRow], units: Mapping[str, float]
) -> list[BoardRow]:
    """Return the agents of the board that traded in the round, best first. `units`: USD per smallest unit."""
    statement = db.prepare(_TRADED).bind(json.dumps(list(units.items())), round_.starts_at, round_.ends_at)
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


async def rows_of_result(db: Database, round_id: str, board: Sequence[BoardRow]) -> list[BoardRow]:
    """Return the agents in the order of the result, including those no longer on the board."""
    known = {row.erc8004_agent_id: row for row in board}
    found = (await db.prepare(_RESULTS).bind(round_id).all()).results
    return [_resulting(result_of(row), known.get(row["erc8004_agent_id"])) for row in found]


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
