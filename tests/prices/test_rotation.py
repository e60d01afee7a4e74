"""Which tokens a refresh asks for, so that none starves."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.testing.virtual_time import START_MS, run_virtual
from holdfast.types import JSON
from stacks_simulator.addresses import address_of
from support.market import Market
from support.scripted_fetch import Request, response
from support.task_run import task_bench
from tocsin.errors import MalformedShape
from tocsin.fetch import FetchResponse
from tocsin.prices.refresh import (
    HeldPrice,
    RefreshPlan,
    TokenMemory,
    memory_from_json,
    memory_to_json,
    plan_refresh,
    refresh_prices_task,
)
from tocsin.prices.store import STATIC_TOKENS, get_cached_token_prices
from tocsin.settings import Settings

NOW = START_MS
DAY_MS = 86_400_000
TASK = refresh_prices_task(Settings())
TOKENS = [f"{address_of('deployer')}.token-{n}::token" for n in range(8)]
PAGES = 3  # what a refresh reads at most; on the fourth "page" are the tokens that no list has


def unlisted(asked_at: int, missed_at: int) -> TokenMemory:
    return TokenMemory(asked_at, missed_at, unlisted=True)


def missed(asked_at: int, missed_at: int) -> TokenMemory:
    return TokenMemory(asked_at, missed_at)


def plan(listed: str, single: str, *, single_first: bool = False) -> RefreshPlan:
    return RefreshPlan(tuple(listed), tuple(single), single_first)


WAITED = {"a": TokenMemory(NOW - 1), **{name: unlisted(NOW - 5, NOW - 9) for name in "bcde"}}


@pytest.mark.parametrize(
    ("tokens", "memory", "expected"),
    [
        # Tokens that were never asked for are looked for in the list, in the order given.
        ("ab", {}, plan("ab", "")),
        # Those that were not asked for longest come first, in the list and among the single ones alike.
        ("ab", {"a": TokenMemory(NOW - 1), "b": TokenMemory(NOW - 9)}, plan("ba", "")),
        ("cd", {"c": unlisted(NOW - 2, NOW - 99), "d": unlisted(NOW - 3, NOW - 99)}, plan("", "dc")),
        # Both kinds are planned together.
        (
            "abcd",
            {
                "a": TokenMemory(NOW - 1),
                "b": TokenMemory(NOW - 9),
                "c": unlisted(NOW - 2, NOW - 99),
                "d": unlisted(NOW - 3, NOW - 99),
            },
            plan("ba", "dc"),
        ),
        # Single tokens go before the list if they waited longer, so a list that uses up the budget cannot starve them.
        ("ab", {"a": TokenMemory(NOW - 1), "b": unlisted(NOW - 2, NOW - 5)}, plan("a", "b", single_first=True)),
        ("ab", {"a": TokenMemory(NOW - 5), "b": unlisted(NOW - 5, NOW - 9)}, plan("a", "b")),
        (
            "abc",
            {"a": TokenMemory(NOW - 3), "b": unlisted(NOW - 5, NOW - 9), "c": unlisted(NOW - 1, NOW - 9)},
            plan("a", "bc", single_first=True),
        ),
        # Within a day the list is not searched for what it lacked; then, or by a clock set back, all are looked for.
        ("a", {"a": unlisted(NOW - 3, NOW - DAY_MS + 1)}, plan("", "a")),
        ("a", {"a": unlisted(NOW - 3, NOW)}, plan("", "a")),
        *[
            (
                "abc",
                {"a": unlisted(NOW, at), "b": unlisted(NOW - 1, NOW - 5), "c": TokenMemory(NOW - 2)},
                plan("cba", ""),
            )
            for at in (NOW - DAY_MS, NOW + 1)
        ],
        # A token that the list did not reach is asked for once by itself, and the list is still searched for it.
        ("ab", {"a": TokenMemory(NOW - 1), "b": missed(NOW - 5, NOW - 2)}, plan("ba", "b", single_first=True)),
        ("b", {"b": missed(NOW - 4, NOW - 3)}, plan("b", "b", single_first=True)),
        ("b", {"b": missed(NOW - 3, NOW - 3)}, plan("b", "")),
        ("b", {"b": missed(NOW - 2, NOW - 3)}, plan("b", "")),
        ("bc", {"b": missed(NOW - 5, NOW - 4), "c": missed(NOW - 1, NOW - 9)}, plan("bc", "bc", single_first=True)),
        # More single tokens than pages are looked for in the list too; those that waited are asked for before it.
        ("abcd", WAITED, plan("a", "bcd", single_first=True)),
        ("abcde", WAITED, plan("bcdea", "bcde", single_first=True)),
    ],
)
def test_which_tokens_are_asked_for_and_in_which_order(
    tokens: str, memory: dict[str, TokenMemory], expected: RefreshPlan
) -> None:
    assert plan_refresh(tokens, memory, NOW) == expected


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.builds(
            TokenMemory,
            st.integers(0, NOW + 9),
            st.none() | st.integers(0, NOW + 9),
            st.booleans(),
            st.none() | st.builds(HeldPrice, st.floats(1e-9, 1e9), st.none() | st.integers(0, 38)),
        ),
    )
)
def test_no_token_is_forgotten_and_the_memory_survives_being_stored(memory: dict[str, TokenMemory]) -> None:
    """Whatever is remembered of it; only single tokens that go first may be looked for in the list as well."""
    made = plan_refresh("abcdefgh", memory, NOW)
    assert {*made.listed, *made.single} == set("abcdefgh")
    assert made.single_first or not {*made.listed} & {*made.single}

    stored = json.loads(json.dumps(memory_to_json(memory)))

    assert memory_from_json(stored, "abcdefgh") == memory
    assert plan_refresh("abcdefgh", memory_from_json(stored, "abcdefgh"), NOW) == made


@pytest.mark.parametrize(
    "stored", [None, 7, {"a": 1}, {"a": [1, 2]}, {"a": ["x", None, False, None]}, {"a": {"askedAt": "x"}}]
)
def test_a_memory_of_another_shape_is_refused(stored: JSON) -> None:
    """The refresh then starts with an empty one, and logs it."""
    with pytest.raises(MalformedShape):
        memory_from_json(stored, ["a"])


# However few calls a refresh gets


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
