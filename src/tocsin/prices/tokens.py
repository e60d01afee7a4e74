"""The tracked tokens: a few fixed ones, and those that agents trade.

Each refresh determines the set and publishes it in KV for readers.
"""

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files

from holdfast.types import KV, Database
from tocsin.stacks import is_token_id

TRADED_MAX = 50
TRACKED_KEY = "tenero:tracked"

STATIC_TOKENS: tuple[str, ...] = tuple(
    json.loads(files("tocsin.prices").joinpath("static_tokens.json").read_text())["tokens"]
)

_TRADED_READ_MAX = 200  # more than are ever priced: some rows may not be token ids
_TRADED = "SELECT token FROM token_totals ORDER BY trades DESC, token LIMIT ?"


def tracked_tokens(traded: Iterable[str]) -> tuple[str, ...]:
    """The static tokens, then the traded ones, most traded first. Anything else is left out."""
    others = [token for token in traded if token not in STATIC_TOKENS and is_token_id(token)]
    return (*STATIC_TOKENS, *others[:TRADED_MAX])


async def publish_tokens(kv: KV, token_ids: Sequence[str]) -> None:
    """Publish the tracked tokens; an unchanged set is not written again."""
    text = json.dumps(list(token_ids))
    if await kv.get(TRACKED_KEY) != text:
        await kv.put(TRACKED_KEY, text)


async def published_tokens(kv: KV) -> tuple[str, ...] | None:
    """The tokens of the newest refresh; None before the first one."""
    text = await kv.get(TRACKED_KEY)
    return None if text is None else tuple(json.loads(text))


async def supported_tokens(kv: KV) -> tuple[str, ...]:
    """The tokens of the newest refresh; before the first one, the static tokens."""
    published = await published_tokens(kv)
    return STATIC_TOKENS if published is None else published


async def traded_tokens(db: Database) -> list[str]:
    """Return the tokens of swaps that count, from any source, most traded first. Reads one row per token."""
    rows = (await db.prepare(_TRADED).bind(_TRADED_READ_MAX).all()).results
    return [str(row["token"]) for row in rows]
