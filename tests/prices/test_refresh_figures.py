"""A refresh besides its prices: its figures before the first one, its duration, its log, and its memory."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.market import Market
from support.scripted_fetch import Request, response
from support.task_run import task_bench
from tocsin.fetch import FetchResponse
from tocsin.prices.refresh import MEMORY_KEY, refresh_prices_task
from tocsin.prices.tokens import STATIC_TOKENS
from tocsin.settings import Settings

TASK = refresh_prices_task(Settings())
SBTC, STSTX = STATIC_TOKENS[1:]
PRICED: dict[str, float | None] = {"stx": 0.85, SBTC: 103_420.5, STSTX: 0.97}


def test_before_the_first_refresh_nothing_is_counted() -> None:
    """The status shows these until a run has ended."""
    assert TASK.empty_result == {
        "tokensAttempted": 0,
        "succeeded": 0,
        "failed": 0,
        "withoutPrice": 0,
        "heldBack": 0,
        "unasked": 0,
        "written": 0,
        "calls": 0,
        "rateLimitRemaining": {"minute": None, "month": None},
        "unpricedTokens": [],
    }


async def test_a_refresh_that_waits_counts_the_time(tmp_path: Path) -> None:
    """In milliseconds, from its first call to its last answer."""
    market = Market([PRICED])
    async with task_bench(tmp_path, market) as bench:
        await bench.wired.clock.sleep(100)
        client = bench.wired.tenero.client
        whole = client.get

        async def slow(*arguments: Any) -> Any:
            await bench.wired.clock.sleep(2.5)
            return await whole(*arguments)

        client.get = slow  # type: ignore[method-assign, assignment]  # the same, later
        result = await bench.run(TASK)

    assert result.counters["durationMs"] == 2_500


async def test_the_log_says_whether_a_refresh_goes_on(tmp_path: Path) -> None:
    """After a token without an answer it does; after a 429 it does not."""
    other = f"{SBTC.partition('.')[0]}.token::token"
    lines = []
    for status in (500, 429):

        def broken(request: Request, status: int = status) -> FetchResponse | None:
            return response({"message": "no"}, status=status) if ".token" in request.url else None

        market = Market([PRICED], broken=broken)
        directory = tmp_path / str(status)
        directory.mkdir()
        async with task_bench(directory, market) as bench:
            await bench.traded((other, "stx"))
            await bench.run(TASK)
            [line] = bench.wired.log.of("prices.asking_failed")
            lines.append((line.fields["first"], line.fields["goes_on"]))

    assert lines == [(other, True), (other, False)]


@pytest.mark.parametrize("stored", ["[", "[]", '{"stx": {"askedAt": "now"}}'])
async def test_a_memory_that_cannot_be_read_is_begun_again(stored: str, tmp_path: Path) -> None:
    """With a line in the log."""
    async with task_bench(tmp_path, Market([PRICED])) as bench:
        await bench.kv.put(MEMORY_KEY, stored)

        result = await bench.run(TASK)

        assert result.error is None
        assert len(bench.wired.log.of("prices.memory_unreadable")) == 1
        assert list(json.loads(await bench.kv.get(MEMORY_KEY) or "")) == list(STATIC_TOKENS)
