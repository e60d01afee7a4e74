"""No token starves: however few calls a refresh gets, every token is eventually requested."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast_testing.virtual_time import run_virtual
from stacks_simulator.addresses import address_of
from support.market import Market
from support.scripted_fetch import Request, response
from support.task_run import task_bench
from tocsin.fetch import FetchResponse
from tocsin.prices.refresh import refresh_prices_task
from tocsin.prices.store import get_cached_token_prices
from tocsin.prices.tokens import STATIC_TOKENS
from tocsin.settings import Settings

TASK = refresh_prices_task(Settings())
TOKENS = [f"{address_of('deployer')}.token-{n}::token" for n in range(8)]
PAGES = 3  # what a refresh reads at most; on the fourth "page" are the tokens that no list has


class CallAllowance:
    """Lets a number of calls through, then answers 429 until it is reset."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.left = calls

    def __call__(self, _request: Request) -> FetchResponse | None:
        self.left -= 1
        return None if self.left >= 0 else response({}, status=429, headers={"retry-after": "900"})


async def refreshes_until_all_are_priced(directory: Path, places: list[int], calls: int) -> int:
    """`places` gives the page of each token."""
    pages: list[dict[str, float | None]] = [{}, {}, {}, {}]
    where = dict(zip([*STATIC_TOKENS, *TOKENS], places, strict=True))
    for token_id, place in where.items():
        pages[place][token_id] = 1.5
    market = Market(pages[:PAGES], unlisted={token_id: 1.5 for page in pages for token_id in page})
    allowance = market.broken = CallAllowance(calls)
    async with task_bench(directory, market) as bench:
        await bench.traded(*[(token_id, "stx") for token_id in TOKENS])
        for number in range(1, 40):
            allowance.left = allowance.calls
            await bench.run(TASK)
            await bench.wired.clock.sleep(3_600)
            if len(await get_cached_token_prices(bench.kv, list(where))) == len(where):
                return number
    raise AssertionError(f"after 40 refreshes of {calls} calls some token is still without a price")


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=11, max_size=11), st.integers(1, 5))
@example([1] * 11, 1)
def test_every_token_is_priced_however_few_calls_a_refresh_gets(places: list[int], calls: int) -> None:
    """Even one call per refresh is eventually enough, wherever the tokens are."""
    with tempfile.TemporaryDirectory() as directory:
        assert run_virtual(refreshes_until_all_are_priced(Path(directory), places, calls)) <= 39


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.permutations(TOKENS), st.integers(1, 4))
def test_tokens_that_always_fail_do_not_hold_up_the_others(order: list[str], bad: int) -> None:
    """A token whose answer is always broken is asked for in its turn, not in every turn."""

    async def scenario(directory: Path) -> int:
        poison = {token_id.partition("::")[0] for token_id in order[:bad]}
        market = Market([dict.fromkeys(STATIC_TOKENS, 1.5)], unlisted=dict.fromkeys(order[bad:], 1.5))
        market.broken = lambda request: response("broken") if request.url.rpartition("/")[2] in poison else None
        async with task_bench(directory, market) as bench:
            await bench.traded(*[(token_id, "stx") for token_id in order])
            for _ in range(2):
                await bench.run(TASK)
                await bench.wired.clock.sleep(300)
            return len(await get_cached_token_prices(bench.kv, order))

    with tempfile.TemporaryDirectory() as directory:
        assert run_virtual(scenario(Path(directory))) == len(TOKENS) - bad
