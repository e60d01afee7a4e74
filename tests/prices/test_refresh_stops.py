"""A stopped refresh makes no more calls: not the list after single calls, nor single calls after the list."""

import json
from pathlib import Path

from holdfast_testing.virtual_time import START_MS
from support.market import Market
from support.scripted_fetch import Request, response
from support.task_run import task_bench
from tocsin.fetch import FetchResponse
from tocsin.prices.refresh import MEMORY_KEY, TokenMemory, refresh_prices_task
from tocsin.prices.tokens import STATIC_TOKENS
from tocsin.settings import Settings

TASK = refresh_prices_task(Settings())
SBTC, STSTX = STATIC_TOKENS[1:]
LONE = f"{SBTC.partition('.')[0]}.token-1::token"


def limited(request: Request) -> FetchResponse | None:
    """Single tokens are limited; the list is not."""
    if "/tokens?" in request.url:
        return None
    return response({"message": "too many calls"}, status=429, headers={"retry-after": "600"})


async def test_after_a_429_of_a_single_token_the_list_is_not_asked(tmp_path: Path) -> None:
    """It waited longest, so it is requested first; the 429 is for all of Tenero."""
    market = Market([{"stx": 0.85, SBTC: 103_420.5, STSTX: 0.97}], broken=limited)
    waited = TokenMemory(asked_at=START_MS - 600_000, missed_at=START_MS - 600_000, unlisted=True)
    recent = TokenMemory(asked_at=START_MS - 1_000)
    memory = {LONE: waited, **dict.fromkeys(STATIC_TOKENS, recent)}
    async with task_bench(tmp_path, market) as bench:
        await bench.traded((LONE, "stx"))
        await bench.kv.put(MEMORY_KEY, json.dumps({name: each.to_json() for name, each in memory.items()}))

        result = await bench.run(TASK)

    assert market.asked == [f"/{LONE.partition('::')[0]}"]
    assert result.limited_until == START_MS + 600_000
    assert result.incomplete is not None
    assert (result.counters["succeeded"], result.counters["failed"], result.counters["unasked"]) == (0, 1, 3)
