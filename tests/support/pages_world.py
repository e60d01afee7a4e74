"""What the pages show in tests and screenshots: a board, prices, trades, tasks, runs and refusals. Seeded.

Everything is built as the service's own shapes and turned into JSON, which tests may change.
"""

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stacks_simulator.addresses import SINGLE_SIG, encode_address
from support.statuses import DAY, HOUR, MINUTE, budget_status, run_record, scheduler_status, task_status
from tocsin.board.types import BoardRow
from tocsin.prices.price import PastPrice, Price
from tocsin.scheduler.types import RunError, RunRecord, TaskStatus
from tocsin.shape import FreeForm, SnakeShape
from tocsin.swaps.feed import EMPTY_RESULT
from tocsin.swaps.rules import MEANINGS, Code
from tocsin.swaps.types import RecentRefusal, SwapSource, Trade
from tocsin.upstream.budget import BudgetForecast
from tocsin.web.response import ErrorBody

SENDER = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR"
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


def sample_board(count: int, now: int) -> tuple[list[Json], dict[str, list[Json]]]:
    """Rows, and the trades behind them by address."""
    random = Random(7)
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


# The scheduler

TASKS = {
    "tenero": task_status(title="Token prices", slice_ms=2 * MINUTE),
    "feed": task_status(
        title="Transaction feed",
        upstream="hiro",
        cadence_ms=MINUTE,
        effective_cadence_ms=MINUTE,
        cadence_why="a swap is on the board within a minute of its block",
        slice_ms=50_000,
    ),
    "sweep": task_status(
        title="Swap sweep",
        upstream="hiro",
        cadence_ms=15 * MINUTE,
        effective_cadence_ms=15 * MINUTE,
        cadence_why="a swap shows up within a quarter of an hour",
        slice_ms=10 * MINUTE,
    ),
}


def sample_status(now: int) -> Json:
    """Three tasks on time, with budgets in the middle of their month."""
    tenero, feed, sweep = now - 2 * MINUTE - 11_000, now - 11_000, now - 8 * MINUTE
    month_ends_at = now + 16 * DAY
    return scheduler_status(
        now=now,
        next_alarm_at=now + 49_000,
        pause_max_ms=30 * DAY,
        consecutive_failures=dict.fromkeys(TASKS, 0),
        next_run_after=dict.fromkeys(TASKS),
        tasks={
            "tenero": _task("tenero", now + 2 * MINUTE + 49_000, tenero + 1840),
            "feed": _task("feed", now + 49_000, feed + 240),
            "sweep": _task("sweep", now + 7 * MINUTE, sweep + 41_200),
        },
        budgets={
            "tenero": budget_status(
                minute=(6, 100),
                month=(7_420, 50_000),
                month_ends_at=month_ends_at,
                forecast=BudgetForecast(now - DAY, 530, 15_900, None),
            ),
            "hiro": budget_status(
                minute=(48, 500),
                month=(61_950, 150_000),
                month_ends_at=month_ends_at,
                forecast=BudgetForecast(now - DAY, 4_425, 132_750, None),
            ),
        },
        last_run_at={"tenero": tenero, "feed": feed, "sweep": sweep},
        last_result={
            "tenero": {"startedAt": tenero, "durationMs": 1840, **prices_result()},
            "feed": {"startedAt": feed, "durationMs": 240, **feed_result(0)},
            "sweep": {"startedAt": sweep, "durationMs": 41_200, **sweep_result(Random(1))},
        },
    ).to_json()


def _task(name: str, due: int, success: int) -> TaskStatus:
    return replace(TASKS[name], next_due_at=due, last_success_at=success)


def prices_result() -> FreeForm:
    return {"tokensAttempted": 13, "succeeded": 13, "failed": 0, "rateLimitRemaining": {"minute": 94, "month": 42_580}}


def sweep_result(random: Random) -> FreeForm:
    found = random.randrange(2, 14)
    reasons = {"contract_not_allowlisted": random.randrange(4), "sender_not_registered": random.randrange(2)}
    if random.random() < 0.2:
        reasons["tx_failed"] = 1
    return {
        "scanned": 100,
        "found": found,
        "inserted": found // 3,
        "alreadyKnown": found - found // 3,
        "pending": 0,
        "rejected": sum(reasons.values()),
        "rejectionReasons": {code: count for code, count in reasons.items() if count},
        "failedWallets": 0,
        "cursor": None,
    }


def feed_result(found: int) -> FreeForm:
    about: FreeForm = {"reason": "the network's 12,000 transactions a day are 336 calls"}
    counts: FreeForm = {"pages": 1, "transactions": 9, "found": found, "inserted": found}
    return {**EMPTY_RESULT, **about, **counts, "completeUntilBlock": 7_912_345, "transactionsPerDay": 12_000}


def sample_runs(now: int) -> list[Json]:
    """A day of runs, newest first; some of them failed."""
    return [{**run, "result": dict(run["result"])} for run in _runs_until(now - now % MINUTE)]


@lru_cache(maxsize=2)
def _runs_until(now: int) -> list[Json]:
    """Build the runs, cached: they stay the same for a minute, and building them takes longer than most tests."""
    random = Random(3)
    runs: list[RunRecord] = []
    for name, task in TASKS.items():
        started = now - (now % task.cadence_ms)
        while started > now - DAY + 2 * MINUTE:  # no run becomes a day old during a test
            outage = name == "tenero" and 3 * HOUR < now - started < 4 * HOUR
            runs.append(_run(random, name, started, outage=outage))
            started -= task.cadence_ms
    runs.sort(key=lambda run: -run.started_at)
    return [replace(run, id=4000 - number).to_json() for number, run in enumerate(runs)]


def _run(random: Random, name: str, started: int, *, outage: bool) -> RunRecord:
    duration = int(random.lognormvariate({"tenero": 7.4, "feed": 5.5}.get(name, 10.5), 0.35))
    failed = outage or random.random() < 0.015
    result = prices_result() if name == "tenero" else sweep_result(random)
    if name == "feed":
        result = feed_result(random.randrange(3))
    if failed:
        duration = min(TASKS[name].slice_ms, duration * 4)
    late = started // MINUTE % 17 + (400 if failed else 0)
    return run_record(
        slot_at=started - late,
        task=name,
        started_at=started,
        ended_at=started + duration,
        duration_ms=duration,
        outcome="failed" if failed else "ok",
        result={} if failed else result,
        error=RunError("Limited", "the upstream asked us to wait (429)") if failed else None,
    )


# The console


def sample_refusals(now: int) -> list[Json]:
    """Return refusals for three reasons, newest first."""
    codes = (Code.CONTRACT_NOT_ALLOWLISTED, Code.SENDER_NOT_REGISTERED, Code.TX_FAILED)
    return [
        RecentRefusal(
            txid=f"0x{number:064x}",
            code=str(codes[number % 3]),
            reason=f"<b>what was found</b> of number {number}",
            sentence=MEANINGS[codes[number % 3]].sentence,
            sender=SENDER,
            contract_id="SP1.a-pool",
            function_name="swap-x-for-y",
            burn_block_time=now // 1000 - number * 600,
            refused_at=now - number * 10 * MINUTE,
        ).to_json()
        for number in range(1, 121)
    ]


def sample_history(now: int) -> list[Json]:
    """Return a day of prices with a gap and a time without any."""
    random, price, points = Random(5), 0.85, []
    for number in range(288, 0, -1):
        price *= 1 + random.uniform(-0.004, 0.0042)
        if not 100 < number < 130:
            points.append(PastPrice(now - number * 5 * MINUTE, None if number == 60 else round(price, 6)))
    return [point.to_json() for point in points]
