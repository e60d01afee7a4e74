"""What the pages are shown in tests and screenshots: a board, its prices and trades. Seeded, plain JSON."""

from random import Random
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

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
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def address(random: Random) -> str:
    return "SP" + "".join(random.choices(ALPHABET, k=39))


def sample_prices(now: int, *, age_ms: int = 2 * MINUTE, stale: bool = False) -> Json:
    found: Json = {}
    for index, (token, (price, decimals)) in enumerate(PRICES.items()):
        peg = token == AEUSDC
        found[token] = {
            "priceUsd": price,
            "decimals": decimals,
            "fetchedAt": now - age_ms - index * 1500,
            "stale": stale and not peg,
            "source": "peg" if peg else "tenero",
        }
    found[OBSCURE] = {
        "priceUsd": None,
        "decimals": None,
        "fetchedAt": now - age_ms,
        "stale": False,
        "source": "tenero",
    }
    return found


def sample_row(random: Random, index: int, now: int) -> Json:
    """An agent without trades."""
    cycle, place = divmod(index, len(NAMES))
    name = f"{NAMES[place]} {cycle + 1}" if cycle else NAMES[place]
    wallet = address(random)
    return {
        "rank": 0,
        "stxAddress": wallet,
        "btcAddress": "bc1q" + "".join(random.choices("qpzry9x8gf2tvdw0s3jn54khce6mua7l", k=38)),
        "displayName": None if place % 7 == 6 else name,
        "bnsName": f"{name.lower().replace(' ', '-')}.btc" if place % 3 == 0 else None,
        "erc8004AgentId": 12 + index * 3,
        "tradeCount": 0,
        "latestTradeAt": now - int(random.expovariate(1 / (9 * HOUR))) - 30_000,
        "volumeUsd": None,
        "pnlUsd": None,
        "pnlPercent": None,
        "unpricedTokens": [],
        "wallets": [wallet],
    }


def sample_trades(row: Json, random: Random, *, obscure: bool) -> list[Json]:
    """Newest first."""
    tokens = [STX, SBTC, STSTX, AEUSDC, WELSH, LEO]
    at, size, skill = row["latestTradeAt"], random.lognormvariate(4.2, 0.9), random.gauss(1.01, 0.04)
    found = []
    for number in range(max(1, int(random.lognormvariate(3.0, 1.0)))):
        token_in, token_out = random.sample(tokens, 2)
        if obscure and number % 6 == 2:
            token_out = OBSCURE
        worth = size * random.uniform(0.3, 2)
        found.append(trade(row["stxAddress"], random, token_in, token_out, worth, skill, at))
        at -= int(random.expovariate(1 / (11 * HOUR)))
    return found


def with_trades(row: Json, trades: list[Json]) -> Json:
    """The row as the board shows it for these trades, at the sample prices."""
    given = received = 0.0
    for one in trades:
        if one["token_in"] in PRICES and one["token_out"] in PRICES:
            given += _worth(one["token_in"], one["amount_in"])
            received += _worth(one["token_out"], one["amount_out"])
    tokens = {token for one in trades for token in (one["token_in"], one["token_out"])}
    return {
        **row,
        "tradeCount": len(trades),
        "latestTradeAt": trades[0]["burn_block_time"] * 1000,
        "volumeUsd": round(given, 2),
        "pnlUsd": round(received - given, 2),
        "pnlPercent": round((received - given) / given * 100, 2) if given else None,
        "unpricedTokens": sorted(tokens - set(PRICES)),
    }


def sample_board(count: int, now: int, seed: int = 7) -> tuple[list[Json], dict[str, list[Json]]]:
    """Rows, and the trades behind them by address."""
    random = Random(seed)
    rows, trades = [], {}
    for index in range(count):
        row = sample_row(random, index, now)
        made = trades[row["stxAddress"]] = sample_trades(row, random, obscure=index % 8 == 3)
        rows.append(with_trades(row, made))
    return rows, trades


def _worth(token: str, units: str) -> float:
    price, decimals = PRICES[token]
    return price * int(units) / 10.0**decimals


def trade(
    sender: str, random: Random, token_in: str, token_out: str, worth: float, skill: float, at: int
) -> Json:
    def units(token: str, value: float) -> str:
        price, decimals = PRICES.get(token, (0.01, 0))
        return str(int(value / price * 10**decimals))

    return {
        "txid": f"0x{random.getrandbits(256):064x}",
        "sender": sender,
        "contract_id": "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR.xyk-swap-helper-v-1-3",
        "function_name": "swap-helper-a",
        "token_in": token_in,
        "token_out": token_out,
        "amount_in": units(token_in, worth),
        "amount_out": units(token_out, worth * random.gauss(skill, 0.05)),
        "burn_block_time": at // 1000,
        "tx_status": "success",
        "scored_value": None,
        "scored_at": None,
        "source": random.choice(["agent", "cron"]),
    }
