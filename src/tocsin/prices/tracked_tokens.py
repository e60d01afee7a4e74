"""Which tokens are priced: a fixed few, and those that agents trade.

The set is found by each refresh and published in KV, so that a visitor's request never counts swaps.
"""

import json
import re
from collections.abc import Sequence
from importlib.resources import files

from tocsin.bindings import KV, Database

TRADED_MAX = 50
TRACKED_KEY = "tenero:tracked"

STATIC_TOKENS: tuple[str, ...] = tuple(
    json.loads(files("tocsin.prices").joinpath("static_tokens.json").read_text())["tokens"]
)

_NAME = "[A-Za-z][A-Za-z0-9_-]{0,127}"
TOKEN_ID_PATTERN = rf"^(?:stx|S[PMTN][0-9A-HJKMNP-TV-Z]{{38,40}}\.{_NAME}(?:::{_NAME})?)$"
_TOKEN_ID = re.compile(TOKEN_ID_PATTERN)

# Rows that are no token ids are left out afterwards, so a few more than needed are read.
_READ_MAX = 4 * TRADED_MAX
# Kept with every swap that counts, whoever found it: the question costs as much as there are tokens.
_TRADED = "SELECT token FROM token_totals ORDER BY trades DESC, token LIMIT ?"


def is_token_id(text: str) -> bool:
    """Whether it is `stx`, a contract, or `contract::asset`."""
    return _TOKEN_ID.fullmatch(text) is not None


async def active_tokens(db: Database) -> tuple[str, ...]:
    """The static tokens, then the traded ones: swaps that count, of any source, most traded first."""
    traded = [token for token in await traded_tokens(db) if token not in STATIC_TOKENS]
    return (*STATIC_TOKENS, *traded[:TRADED_MAX])


async def traded_tokens(db: Database) -> list[str]:
    """Ids of traded tokens, most traded first."""
    rows = (await db.prepare(_TRADED).bind(_READ_MAX).all()).results
    return [row["token"] for row in rows if isinstance(row["token"], str) and is_token_id(row["token"])]


async def publish_tracked(kv: KV, token_ids: Sequence[str]) -> None:
    """Tell readers which tokens are priced; an unchanged set is not written again."""
    text = json.dumps(list(token_ids))
    if await kv.get(TRACKED_KEY) != text:
        await kv.put(TRACKED_KEY, text)


async def tracked_tokens(kv: KV) -> tuple[str, ...]:
    """The tokens of the newest refresh; before the first one, the static ones."""
    published = await published_tokens(kv)
    return STATIC_TOKENS if published is None else published


async def published_tokens(kv: KV) -> tuple[str, ...] | None:
    """The tokens of the newest refresh, if there was one."""
    text = await kv.get(TRACKED_KEY)
    return None if text is None else tuple(json.loads(text))
