"""What the pages show in tests and screenshots: a board, its prices and trades. Seeded.

Everything is built as the service's own shapes and turned into JSON, which tests may change.
"""

import hashlib
import json
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stacks_simulator.addresses import SINGLE_SIG, encode_address
from support.statuses import HOUR, MINUTE
from tocsin.board.types import BoardRow
from tocsin.prices.price import Price
from tocsin.shape import SnakeShape
from tocsin.swaps.types import SwapSource, Trade
from tocsin.web.response import ErrorBody

Json: TypeAlias = dict[str, Any]

STX = "stx"
SBTC = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token::sbtc-token"
STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
AEUSDC = "SP3Y2ZSH8P7D50B0VBTSX11S7XSG24M1VB9YFQA4K.token-aeusdc::aeUSDC"
WELSH = "SP3NE50GEXFG9SZGTT51P40X2CKYSZ5CC4ZTZ7A2G.welshcorgicoin-token::welshcorgicoin"
LEO = "SP1AY6K3PQV5MRT6R4S671NWW2FRVPKM0BR162CT6.leo-token::leo"
OBSCURE = "SP2C1WREHGM75C7TGFAEJPFKTFTEGZKF6DFT6E2GE.kangaroo::kangaroo"

PRICES = {
    STX: (0.6142, 6),
    SBTC: (97_184.55, 8),
    STSTX: (0.6621, 6),
    AEUSDC: (1.0, 6),
    WELSH: (0.00041277, 6),
    LEO: (0.0000912, 6),
}
NAMES = (
    "Amber Falcon", "Tidal Loom", "Quiet Ledger", "Iron Sparrow", "Basalt Fox", "Copper Comet",
    "Midnight Abacus", "Velvet Anchor", "Granite Otter", "Solar Thistle", "Paper Tiger", "Hollow Reed",
    "Cobalt Wren", "Sage Lantern", "North Kiln", "Opal Drift", "Lucid Badger", "Marble Swift",
    "Ember Stoat", "Silent Mint", "Brass Heron",
)  # fmt: skip
SOURCES: tuple[SwapSource, ...] = ("agent", "cron")


def address(random: Random) -> str:
    return encode_address(SINGLE_SIG, random.randbytes(20))


def sample_prices(now: int, *, age_ms: int = 2 * MINUTE, stale: bool = False) -> Json:
    prices = {
        token: Price(price, decimals, now - age_ms - index * 1500, stale=stale, source="tenero")
        for index, (token, (price, decimals)) in enumerate(PRICES.items())
    }
    prices[AEUSDC] = Price(1.0, 6, None, stale=False, source="peg")
    prices[OBSCURE] = Price(None, None, now - age_ms, stale=False, source="tenero")
    return {token: price.to_json() for token, price in prices.items()}


def sample_row(random: Random, index: int, now: int) -> BoardRow:
    """An agent without trades."""
    cycle, place = divmod(index, len(NAMES))
    name = f"{NAMES[place]} {cycle + 1}" if cycle else NAMES[place]
    wallet = address(random)
    return BoardRow(
        rank=0,
        stx_address=wallet,
        btc_address="bc1q" + "".join(random.choices("qpzry9x8gf2tvdw0s3jn54khce6mua7l", k=38)),
        display_name=None if place % 7 == 6 else name,
        bns_name=f"{name.lower().replace(' ', '-')}.btc" if place % 3 == 0 else None,
        erc8004_agent_id=12 + index * 3,
        trade_count=0,
        latest_trade_at=now - int(random.expovariate(1 / (9 * HOUR))) - 30_000,
        volume_usd=None,
        capital_usd=None,
        pnl_usd=None,
        pnl_percent=None,
        pnl_at_trade_usd=None,
        valued_trade_count=0,
        unpriced_tokens=[],
        thin_tokens=[],
        wallets=[wallet],
    )


def sample_trades(row: BoardRow, random: Random, *, obscure: bool) -> list[Trade]:
    """Newest first."""
    tokens = [STX, SBTC, STSTX, AEUSDC, WELSH, LEO]
    at, size, skill = row.latest_trade_at, random.lognormvariate(4.2, 0.9), random.gauss(1.01, 0.04)
    trades = []
    for number in range(max(1, int(random.lognormvariate(3.0, 1.0)))):
        token_in, token_out = random.sample(tokens, 2)
        if obscure and number % 6 == 2:
            token_out = OBSCURE
        worth = size * random.uniform(0.3, 2)
        trades.append(sample_trade(row.stx_address, random, token_in, token_out, worth, skill, at))
        at -= int(random.expovariate(1 / (11 * HOUR)))
    return trades


def with_trades(row: BoardRow, trades: list[Trade]) -> BoardRow:
    """The row as the board shows it for these trades, at the sample prices."""
    given = received = 0.0
    for trade in trades:
        if trade.token_in in PRICES and trade.token_out in PRICES:
            given += _worth(trade.token_in, trade.amount_in)
            received += _worth(trade.token_out, trade.amount_out)
    tokens = {token for trade in trades for token in (trade.token_in, trade.token_out)}
    uncounted = sum(not {trade.token_in, trade.token_out} <= set(PRICES) for trade in trades)
    return replace(
        row,
        trade_count=len(trades),
        latest_trade_at=trades[0].burn_block_time * 1000,
        volume_usd=round(given, 2),
        capital_usd=round(given / 3, 2),
        pnl_usd=round(received - given, 2),
        pnl_percent=round((received - given) / given * 300, 2) if given else None,
        pnl_at_trade_usd=round((received - given) / 2, 2) if given else None,
        valued_trade_count=len(trades) - 1,
        unpriced_tokens=sorted(tokens - set(PRICES)),
        uncounted_trade_count=uncounted,
        volume_at_trade_usd=round(given, 2) if given else None,
    )


def with_past(row: BoardRow, random: Random) -> BoardRow:
    """Add a curve that ends at the agent's current value; some are shorter than seven days, some have a gap."""
    if row.pnl_usd is None:
        return row
    steps = [0.0]
    for _ in range(28):
        steps.append(steps[-1] + random.gauss(0, abs(row.pnl_usd) / 8 + 1))
    line: list[float | None] = []
    line += [round(row.pnl_usd + step - steps[-1], 2) for step in steps]
    begins = random.choice((0, 0, 0, 9, 20, 28))
    line[:begins] = [None] * begins
    if random.random() < 0.2:
        line[12:15] = [None] * 3
    return replace(row, sparkline=line, rank_change=random.choice((None, 0, 1, 2, -1, -4, 12)))


def sample_board(count: int, now: int, seed: int = 7) -> tuple[list[Json], dict[str, list[Json]]]:
    """Rows, and the trades behind them by address."""
    random = Random(seed)
    rows: list[Json] = []
    trades_of: dict[str, list[Json]] = {}
    for index in range(count):
        row = sample_row(random, index, now)
        trades = sample_trades(row, random, obscure=index % 8 == 3)
        rows.append(with_past(with_trades(row, trades), Random(index)).to_json())
        trades_of[row.stx_address] = [trade.to_json() for trade in trades]
    return rows, trades_of


def _worth(token: str, units: str) -> float:
    price, decimals = PRICES[token]
    return price * int(units) / 10.0**decimals


def sample_trade(
    sender: str, random: Random, token_in: str, token_out: str, worth: float, skill: float, at: int
) -> Trade:
    def units(token: str, value: float) -> str:
        price, decimals = PRICES.get(token, (0.01, 0))
        return str(int(value / price * 10**decimals))

    return trade_of(
        sender,
        txid=f"0x{random.getrandbits(256):064x}",
        given=(token_in, units(token_in, worth)),
        received=(token_out, units(token_out, worth * random.gauss(skill, 0.05))),
        at_s=at // 1000,
        source=random.choice(SOURCES),
    )


def trade_of(
    sender: str,
    *,
    txid: str,
    given: tuple[str, str],
    received: tuple[str, str],
    at_s: int,
    source: SwapSource = "agent",
) -> Trade:
    """A trade: tokens with amounts in their smallest units."""
    return Trade(
        txid=txid,
        sender=sender,
        contract_id="SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR.xyk-swap-helper-v-1-3",
        function_name="swap-helper-a",
        token_in=given[0],
        amount_in=given[1],
        token_out=received[0],
        amount_out=received[1],
        burn_block_time=at_s,
        block_height=at_s // 600,
        tx_status="success",
        source=source,
        provider=None,
    )


def shaped(shape: type[SnakeShape], body: Json) -> Json:
    """Return the body, which must be exactly what the service would send for this shape."""
    sent: Json = shape.from_json(body).to_json()
    assert sent == body, f"this is not a {shape.__name__}: {_difference(sent, body)}"
    return sent


def _difference(sent: Any, body: Any) -> Any:
    """Return the part of the body that the shape lacks or has differently."""
    if isinstance(sent, dict) and isinstance(body, dict):
        names = [name for name in {**sent, **body} if sent.get(name) != body.get(name)]
        return {name: _difference(sent.get(name), body.get(name)) for name in names}
    return body


def refused_with(status: int, code: str, sentence: str) -> Response:
    return JSONResponse(ErrorBody(sentence, code, retryable=status >= 500).to_json(), status)


def tagged(request: Request, shape: type[SnakeShape], body: Json) -> Response:
    text = json.dumps(shaped(shape, body)).encode()
    tag = f'"{hashlib.sha256(text).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "public, max-age=30"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="application/json", headers=headers)
