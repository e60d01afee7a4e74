"""The task `tenero`: one price refresh, whatever the upstream does."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.testing.virtual_time import START_MS, VirtualClock
from holdfast_testing.captured_log import CapturedLog
from holdfast_testing.stores import open_kv
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.rate_limits import TENERO_STARTER, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import DIKO, FILLER_TOKENS, TRADED_TOKENS, VELAR
from support.local_store import open_competition
from support.market import Market
from support.scripted_fetch import Request, always, response
from support.simulated import quiet_simulator
from support.simulated_fetch import TENERO_URL, SimulatedFetch
from support.task_run import TaskBench, task_bench
from support.upstreams import Wired
from tocsin.errors import RunStopped
from tocsin.fetch import FetchResponse
from tocsin.prices.refresh import EMPTY_RESULT, MEMORY_KEY, TokenMemory, refresh_prices_task
from tocsin.prices.store import (
    STATIC_TOKENS,
    CachedPrice,
    get_cached_token_price,
    get_cached_token_prices,
    prices_of,
    put_token_price,
    supported_tokens,
    tracked_tokens,
    traded_tokens,
)
from tocsin.settings import Settings
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.tenero import tenero_upstream, token_address

TASK = refresh_prices_task(Settings())
SBTC, STSTX = STATIC_TOKENS[1:]
OTHERS = [f"{SBTC.partition('.')[0]}.token-{n}::token" for n in range(9)]
USDA = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.usda-token::usda"
HALF_READABLE = [
    {"address": "SP1.unknown", "price_usd": 1.0, "decimals": 6},
    {"address": token_address(OTHERS[0]), "price_usd": {}, "decimals": 6},
    {"address": token_address(OTHERS[1]), "price_usd": 1.0, "decimals": -1},
    {"price_usd": 1.0},
]
PRICED: dict[str, float | None] = {"stx": 0.85, SBTC: 103_420.5, STSTX: 0.97}
STARTER = Quota(minute=10, month=10_000)
PAIRS = [(token.id, "stx") for token in TRADED_TOKENS]


def static_market(**more: float | None) -> Market:
    return Market([{**PRICED, **more}])


@asynccontextmanager
async def static_bench(directory: Path, *traded: str) -> AsyncIterator[tuple[TaskBench, Market]]:
    """Run on a market that lists the static tokens; these others were traded as well."""
    market = static_market()
    async with task_bench(directory, market) as bench:
        if traded:
            await bench.traded(*[(token_id, "stx") for token_id in traded])
        yield bench, market


def failing(status: int, headers: dict[str, str] | None = None) -> Callable[[Request], FetchResponse]:
    return lambda _: response({"message": "no"}, status=status, headers=headers or {})


async def usd_of(bench: TaskBench, token_id: str) -> float | None:
    found = await get_cached_token_price(bench.kv, token_id)
    assert found is not None
    return found.price_usd


async def test_one_page_prices_all_tokens(tmp_path: Path) -> None:
    """A refresh is one call; its result has the documented shape, and readers find prices and the set."""
    async with static_bench(tmp_path) as (bench, market):
        market.headers = {"x-ratelimit-minute-remaining": "99", "x-ratelimit-month-remaining": "49000"}
        result = await bench.run(TASK)

        assert result.error is None
        assert result.limited_until is None
        assert result.counters == {
            "startedAt": START_MS,
            "durationMs": 0,
            "tokensAttempted": 3,
            "succeeded": 3,
            "failed": 0,
            "withoutPrice": 0,
            "heldBack": 0,
            "unasked": 0,
            "written": 3,
            "calls": 1,
            "rateLimitRemaining": {"minute": 99, "month": 49_000},
            "unpricedTokens": [],
        }
        assert set(result.counters) == {"startedAt", "durationMs", *EMPTY_RESULT}
        assert await supported_tokens(bench.kv) == STATIC_TOKENS
        found = await get_cached_token_prices(bench.kv, STATIC_TOKENS)
        assert [price.price_usd for price in found.values()] == [0.85, 103_420.5, 0.97]
        (line,) = bench.wired.log.of("prices.refreshed")
        assert (line.level, line.fields["succeeded"]) == ("INFO", 3)


async def test_progress_is_shown_as_prices_come_in(tmp_path: Path) -> None:
    """Done and total in tokens, and the counters so far."""
    async with task_bench(tmp_path, static_market()) as bench:
        await bench.run(TASK)

        assert [(done, total) for done, total, _ in bench.progress] == [(1, 3), (2, 3), (3, 3)]
        assert [counters["succeeded"] for _, _, counters in bench.progress] == [1, 2, 3]


async def test_a_pegged_stablecoin_costs_no_call(tmp_path: Path) -> None:
    """It is tracked, and has a price without the source."""
    async with static_bench(tmp_path, USDA) as (bench, market):
        result = await bench.run(TASK)

        assert (result.counters["tokensAttempted"], len(market.asked)) == (3, 1)
        assert await supported_tokens(bench.kv) == (*STATIC_TOKENS, USDA)


async def test_what_the_list_lacks_is_asked_for_singly_and_found_there_again(tmp_path: Path) -> None:
    """The list is not searched for it in every refresh, only once a day."""
    async with static_bench(tmp_path, OTHERS[0]) as (bench, market):
        market.unlisted = {OTHERS[0]: 2.5}
        market.pages += [{OTHERS[8]: 1.0}, {OTHERS[7]: 1.0}]
        calls = []
        for _ in range(3):
            calls.append((await bench.run(TASK)).counters["calls"])
            await bench.wired.clock.sleep(300)
        market.pages[0][OTHERS[0]] = 2.6  # now the list has it
        await bench.wired.clock.sleep(86_400)
        calls += [(await bench.run(TASK)).counters["calls"] for _ in range(2)]

        assert calls == [4, 2, 2, 1, 1]
        assert await usd_of(bench, OTHERS[0]) == 2.6


@pytest.mark.parametrize("rows", [HALF_READABLE, HALF_READABLE[:3], HALF_READABLE[:1]])
async def test_one_bad_list_does_not_switch_the_list_off(tmp_path: Path, rows: list[object]) -> None:
    """Rows that cannot be read, or a list that is far too short: from the next refresh on all are refreshed."""
    market = static_market(**dict.fromkeys(OTHERS, 2.0))
    market.unlisted = market.pages[0]
    async with task_bench(tmp_path, market) as bench:
        await bench.traded(*[(token_id, "stx") for token_id in OTHERS])
        await bench.run(TASK)
        bad = [response({"data": {"rows": rows, "next": None}})]
        market.broken = lambda request: bad.pop() if "?" in request.url and bad else None
        refreshes = []
        for _ in range(5):
            await bench.wired.clock.sleep(300)
            refreshes.append((await bench.run(TASK)).counters)

        assert [result["unasked"] for result in refreshes] == [8, 0, 0, 0, 0]
        assert [result["succeeded"] for result in refreshes] == [4, 12, 12, 12, 12]
        assert [result["calls"] for result in refreshes[3:]] == [1, 1]


async def test_another_tokens_bad_row_does_not_hide_what_the_list_lacks(tmp_path: Path) -> None:
    """The row's token can be read: the others' absence is believed, and the pages are not read each time."""
    async with static_bench(tmp_path, OTHERS[0]) as (bench, market):
        market.pages += [{OTHERS[6]: 1.0}, {OTHERS[7]: 1.0}]
        market.unlisted = {OTHERS[0]: 2.5}
        market.row = lambda token_id, usd: {  # type: ignore[method-assign]
            "address": token_address(token_id),
            "price_usd": usd,
            "decimals": 99 if token_id == OTHERS[8] else 6,
        }
        market.pages[0][OTHERS[8]] = 1.0
        calls = [(await bench.run(TASK)).counters["calls"] for _ in range(3)]

        assert calls == [4, 2, 2]


async def test_a_token_that_the_source_does_not_know_is_not_a_failure(tmp_path: Path) -> None:
    """It is counted, named, and remembered as having no price."""
    async with static_bench(tmp_path, OTHERS[0]) as (bench, _):
        result = await bench.run(TASK)

        assert result.error is None
        assert (result.counters["succeeded"], result.counters["withoutPrice"]) == (3, 1)
        assert result.counters["unpricedTokens"] == [OTHERS[0]]
        found = await get_cached_token_price(bench.kv, OTHERS[0])
        assert found is not None
        assert (found.price_usd, found.decimals, found.fetched_at) == (None, None, START_MS)


async def test_a_price_that_goes_missing_is_kept_and_reported(tmp_path: Path) -> None:
    """A 200 with 0 or null does not remove the last good price."""
    async with static_bench(tmp_path) as (bench, market):
        await bench.run(TASK)
        market.pages[0]["stx"] = 0
        market.pages[0][SBTC] = None

        result = await bench.run(TASK)

        assert result.error is None
        assert (result.counters["succeeded"], result.counters["withoutPrice"]) == (1, 2)
        assert result.counters["unpricedTokens"] == []
        assert await usd_of(bench, "stx") == 0.85
        gone = [line.fields["token"] for line in bench.wired.log.of("price.disappeared")]
        assert gone == ["stx", SBTC]


async def test_a_refresh_without_any_price_is_a_failure(tmp_path: Path) -> None:
    """An upstream that moved its answers elsewhere looks like this: it must not count as a quiet day."""
    async with task_bench(tmp_path, Market([dict.fromkeys(STATIC_TOKENS)])) as bench:
        result = await bench.run(TASK)

        assert result.error is not None
        assert "no price for any of 3 tokens" in result.error
        assert result.error_kind is None
        assert bench.wired.log.of("prices.refreshed")[0].level == "ERROR"


@pytest.mark.parametrize(
    ("status", "part", "kind"),
    [
        (503, "503", "Unavailable"),
        (404, "TENERO_API_URL", "BadRequest"),
        (401, "TENERO_API_KEY", "Unauthorised"),
        (410, "successor", "Gone"),
    ],
)
async def test_a_failed_list_fails_the_refresh_and_keeps_the_prices(
    tmp_path: Path, status: int, part: str, kind: str
) -> None:
    """Every token is counted, the reason is logged, and no single call is made instead."""
    async with static_bench(tmp_path) as (bench, market):
        await bench.run(TASK)
        market.broken = failing(status)
        asked_before = len(market.asked)

        result = await bench.run(TASK)

        assert result.error is not None
        assert part in result.error
        assert result.error_kind == kind
        assert (result.counters["failed"], result.counters["succeeded"]) == (3, 0)
        assert all(path.startswith("?") for path in market.asked[asked_before:])
        assert len(await get_cached_token_prices(bench.kv, STATIC_TOKENS)) == 3
        (line,) = bench.wired.log.of("prices.asking_failed")
        assert (line.level, line.fields["tokens"], line.fields["reason"]) == ("WARN", 3, result.error)


async def test_a_429_says_when_to_come_back(tmp_path: Path) -> None:
    """It gave no price, and our own budget did not refuse the call."""
    async with static_bench(tmp_path) as (bench, market):
        market.broken = failing(429, {"retry-after": "600"})
        result = await bench.run(TASK)

        assert result.limited_until == START_MS + 600_000
        assert (result.error, result.by_budget, result.progressed) == (None, False, False)
        assert result.incomplete == "tenero answered 429: too many calls (3 of 3 tokens had no answer)"
        assert result.counters["failed"] == 3
        assert bench.wired.log.of("prices.asking_failed")[0].fields["answer"] == "limited"


async def test_a_limit_in_the_middle_ends_the_refresh_without_failing_it(tmp_path: Path) -> None:
    """Prices received before it count; the rest count as failed."""
    async with static_bench(tmp_path, OTHERS[0], OTHERS[1]) as (bench, market):
        market.broken = lambda request: (
            None if "?" in request.url else response({}, status=429, headers={"retry-after": "600"})
        )
        result = await bench.run(TASK)

        assert result.error is None
        assert result.limited_until is not None
        assert (result.counters["succeeded"], result.counters["failed"], result.counters["unasked"]) == (3, 1, 1)


@pytest.mark.parametrize(("window", "until_ms"), [("minute", 60_000), ("month", 3_600_000)])
async def test_calls_used_up_are_a_signal_to_slow_down(tmp_path: Path, window: str, until_ms: int) -> None:
    """Even when everything was answered."""
    async with static_bench(tmp_path) as (bench, market):
        market.headers = {f"x-ratelimit-{window}-remaining": "0"}
        result = await bench.run(TASK)

        assert result.error is None
        assert result.limited_until == START_MS + until_ms


async def test_one_bad_token_fails_alone(tmp_path: Path) -> None:
    """A single call that breaks its contract is counted and logged, and the others go on."""
    async with static_bench(tmp_path, OTHERS[0], OTHERS[1]) as (bench, market):
        market.unlisted = {OTHERS[0]: 1.0, OTHERS[1]: 2.0}
        market.broken = lambda request: (
            response({"data": {"address": "x"}}) if request.url.endswith(token_address(OTHERS[0])) else None
        )
        result = await bench.run(TASK)

        assert result.error is None
        assert (result.counters["succeeded"], result.counters["failed"]) == (4, 1)
        (line,) = bench.wired.log.of("prices.asking_failed")
        assert (line.fields["first"], line.fields["answer"]) == (OTHERS[0], "malformed")


async def test_a_jump_is_believed_when_seen_twice(tmp_path: Path) -> None:
    """Readers see the old price until then, and the log has a line both times."""
    async with static_bench(tmp_path) as (bench, market):
        await bench.run(TASK)
        market.pages[0]["stx"] = 85.0
        first = await bench.run(TASK)
        held = await usd_of(bench, "stx")
        assert bench.wired.log.of("price.jump_accepted") == []
        second = await bench.run(TASK)
        believed = await usd_of(bench, "stx")

        assert (first.counters["heldBack"], second.counters["heldBack"]) == (1, 0)
        assert (held, believed) == (0.85, 85.0)
        lines = [*bench.wired.log.of("price.jump_held"), *bench.wired.log.of("price.jump_accepted")]
        assert [line.fields["token"] for line in lines] == ["stx", "stx"]
        assert [(line.level, line.fields["was"]) for line in lines] == [("WARN", 0.85), ("INFO", 0.85)]


async def test_a_jump_is_forgotten_with_the_next_usual_price(tmp_path: Path) -> None:
    """Seen twice means in two refreshes in a row: the same jump later is held back again."""
    market, held = static_market(), []
    async with task_bench(tmp_path, market) as bench:
        for price in (0.85, 85.0, 0.86, 85.0, 85.0):
            market.pages[0]["stx"] = price
            held.append((await bench.run(TASK)).counters["heldBack"])
        known = await usd_of(bench, "stx")

    assert (held, known) == ([0, 1, 0, 1, 0], 85.0)


async def test_the_factor_of_a_jump_can_be_set(tmp_path: Path) -> None:
    """`price_jump_factor` is a setting of the task."""
    async with static_bench(tmp_path) as (bench, market):
        task = refresh_prices_task(Settings(price_jump_factor=1.01))
        await bench.run(task)
        market.pages[0]["stx"] = 0.9

        assert (await bench.run(task)).counters["heldBack"] == 1


async def test_unchanged_prices_are_written_once_an_hour(tmp_path: Path) -> None:
    """Writes cost money on one of the platforms."""
    async with task_bench(tmp_path, static_market()) as bench:
        written = []
        for _ in range(14):
            written.append((await bench.run(TASK)).counters["written"])
            await bench.wired.clock.sleep(300)

        assert written == [3, *[0] * 11, 3, 0]


async def test_a_stopped_run_has_kept_what_it_learned(tmp_path: Path) -> None:
    """A pause between two units of work: the list's prices are there, and the rest goes first next time."""
    async with static_bench(tmp_path, OTHERS[0]) as (bench, market):
        market.unlisted = {OTHERS[0]: 2.5}
        with pytest.raises(RunStopped):
            await TASK.run(bench.context(TASK, stop_after=1))
        assert len(await get_cached_token_prices(bench.kv, STATIC_TOKENS)) == 3
        await bench.run(TASK)

        assert market.asked[1] == f"/{token_address(OTHERS[0])}"


async def test_a_store_that_fails_is_the_platforms_error(tmp_path: Path) -> None:
    """It passes through the run unchanged, and no call is spent on a store that cannot be read."""
    async with static_bench(tmp_path) as (bench, market):
        await bench.db.prepare("ALTER TABLE token_totals RENAME COLUMN token TO other").run()

        with pytest.raises(StoreError):
            await bench.run(TASK)

        assert market.asked == []


async def test_a_refresh_that_waits_counts_the_time(tmp_path: Path) -> None:
    """In milliseconds, from its first call to its last answer."""
    async with simulated_bench(tmp_path, STARTER) as (bench, simulator):
        simulator.faults.add(SimulatedFault(kind="delay", path="/tokens", seconds=2.5))
        result = await bench.run(TASK)

    assert result.counters["durationMs"] == 2_560


async def test_singles_are_not_begun_when_little_time_is_left(tmp_path: Path) -> None:
    """The run ends by itself before its slice is over."""
    async with static_bench(tmp_path, OTHERS[0]) as (bench, market):
        context = bench.context(TASK)
        await bench.wired.clock.sleep(context.time_left_s() - 79)

        result = await TASK.run(context)
        assert result.counters["unasked"] == 1
        assert len(market.asked) == 1


async def test_prices_of_tokens_no_longer_traded_are_left_alone(tmp_path: Path) -> None:
    """They expire by themselves; the memory holds the tracked tokens only."""
    async with task_bench(tmp_path, always(response({"data": {"rows": []}}))) as bench:
        await put_token_price(bench.kv, OTHERS[5], CachedPrice(3.0, 6, START_MS))
        await bench.kv.put(MEMORY_KEY, json.dumps({OTHERS[5]: TokenMemory(asked_at=1).to_json()}))

        await bench.run(TASK)
        assert await get_cached_token_price(bench.kv, OTHERS[5])
        assert OTHERS[5] not in json.loads(await bench.kv.get(MEMORY_KEY) or "")


async def test_the_log_says_whether_a_refresh_goes_on(tmp_path: Path) -> None:
    """After a token without an answer it does; after a 429 it does not."""
    lines = []
    for status in (500, 429):

        def broken(request: Request, status: int = status) -> FetchResponse | None:
            return response({"message": "no"}, status=status) if ".token" in request.url else None

        market = Market([PRICED], broken=broken)
        directory = tmp_path / str(status)
        directory.mkdir()
        async with task_bench(directory, market) as bench:
            await bench.traded((OTHERS[0], "stx"))
            await bench.run(TASK)
            [line] = bench.wired.log.of("prices.asking_failed")
            lines.append((line.fields["first"], line.fields["goes_on"]))

    assert lines == [(OTHERS[0], True), (OTHERS[0], False)]


@pytest.mark.parametrize("stored", ["[", "[]", '{"stx": {"askedAt": "now"}}'])
async def test_a_memory_that_cannot_be_read_is_begun_again(stored: str, tmp_path: Path) -> None:
    """With a line in the log."""
    async with task_bench(tmp_path, static_market()) as bench:
        await bench.kv.put(MEMORY_KEY, stored)

        result = await bench.run(TASK)

        assert result.error is None
        assert len(bench.wired.log.of("prices.memory_unreadable")) == 1
        assert list(json.loads(await bench.kv.get(MEMORY_KEY) or "")) == list(STATIC_TOKENS)


def limited(request: Request) -> FetchResponse | None:
    """Single tokens are limited; the list is not."""
    if "/tokens?" in request.url:
        return None
    return response({"message": "too many calls"}, status=429, headers={"retry-after": "600"})


async def test_after_a_429_of_a_single_token_the_list_is_not_asked(tmp_path: Path) -> None:
    """It waited longest, so it is requested first; the 429 is for all of Tenero."""
    market = Market([PRICED], broken=limited)
    waited = TokenMemory(asked_at=START_MS - 600_000, missed_at=START_MS - 600_000, unlisted=True)
    recent = TokenMemory(asked_at=START_MS - 1_000)
    memory = {OTHERS[1]: waited, **dict.fromkeys(STATIC_TOKENS, recent)}
    async with task_bench(tmp_path, market) as bench:
        await bench.traded((OTHERS[1], "stx"))
        await bench.kv.put(MEMORY_KEY, json.dumps({name: each.to_json() for name, each in memory.items()}))

        result = await bench.run(TASK)

    assert market.asked == [f"/{OTHERS[1].partition('::')[0]}"]
    assert result.limited_until == START_MS + 600_000
    assert result.incomplete is not None
    assert (result.counters["succeeded"], result.counters["failed"], result.counters["unasked"]) == (0, 1, 3)


# Against the simulated Tenero


@asynccontextmanager
async def simulated_bench(directory: Path, quota: Quota) -> AsyncIterator[tuple[TaskBench, Simulator]]:
    clock, log = VirtualClock(), CapturedLog()
    simulator = quiet_simulator(clock)
    wired = Wired(tenero_upstream(TENERO_URL, None), always(response({})), quota, clock=clock, log=log)
    fetch = SimulatedFetch(simulator, latency_s=0.06)
    wired.client = UpstreamClient(wired.upstream, fetch, wired.limiter)
    async with open_competition(directory) as db, open_kv(directory, clock) as kv:
        yield TaskBench(db, kv, wired), simulator


async def test_every_way_of_quoting_ends_as_a_price_or_as_none(tmp_path: Path) -> None:
    """Numbers, strings, zero, null, unlisted and unknown tokens: all are priced except the one without a price."""
    async with simulated_bench(tmp_path, STARTER) as (bench, _):
        await bench.traded(*PAIRS)

        result = await bench.run(TASK)

        assert result.error is None
        assert result.counters["unpricedTokens"] == [VELAR.id]
        found = await prices_of(bench.kv, tracked_tokens(await traded_tokens(bench.db)), bench.wired.clock.now())
        assert {token_id for token_id, price in found.items() if price.price_usd is None} == {VELAR.id}
        assert {price.decimals for price in found.values()} == {6, 8, 18}
        assert found[DIKO.id].price_usd is not None


@pytest.mark.slow
async def test_hours_on_the_starter_plan_refreshes_every_token(tmp_path: Path) -> None:
    """53 tokens on all pages of the list, 10 calls a minute: never refused, and no price grows stale."""
    async with simulated_bench(tmp_path, STARTER) as (bench, simulator):
        simulator.tenero_rate_limit = TeneroRateLimit(TENERO_STARTER, TENERO_STARTER)
        await bench.traded(*PAIRS, *[(token.id, "stx") for token in FILLER_TOKENS[::6]])
        ends = bench.wired.clock.now() + 4 * 3_600_000
        while bench.wired.clock.now() < ends:
            due_at = bench.wired.clock.now() + 300_000
            result = await bench.run(TASK)
            await bench.wired.clock.sleep((max(result.limited_until or 0, due_at) - bench.wired.clock.now()) / 1000)

        found = await prices_of(bench.kv, tracked_tokens(await traded_tokens(bench.db)), bench.wired.clock.now())
        assert len(found) == len(TRADED_TOKENS) + len(FILLER_TOKENS[::6])
        assert [token_id for token_id, price in found.items() if price.stale] == []
        assert bench.wired.log.of("upstream.attempt_failed") == []


async def test_an_outage_is_counted_and_over_when_it_is_over(tmp_path: Path) -> None:
    """Others use up the shared limit: it is a failure with log lines, and the next refresh works."""
    async with simulated_bench(tmp_path, Quota(minute=100, month=50_000)) as (bench, simulator):
        await bench.run(TASK)
        simulator.faults.add(SimulatedFault(kind="limited", upstream="tenero", times=50, retry_after=None))

        during = await bench.run(TASK)
        simulator.faults.clear()
        await bench.wired.clock.sleep(3_600)
        after = await bench.run(TASK)

        assert during.incomplete is not None
        assert not during.progressed
        assert during.limited_until is not None
        assert bench.wired.log.of("upstream.attempt_failed")
        assert bench.wired.log.of("prices.asking_failed")
        assert (after.error, after.limited_until, after.counters["succeeded"]) == (None, None, 3)


async def test_a_price_is_as_old_as_its_own_page(tmp_path: Path) -> None:
    """The second page is slow: the prices of the first are not called newer than they are."""
    async with simulated_bench(tmp_path, STARTER) as (bench, simulator):
        began_at = simulator.clock.now()
        simulator.faults.add(SimulatedFault(kind="delay", path="/tokens", seconds=6.0, from_ms=began_at + 100))
        await bench.traded(*PAIRS)

        await bench.run(TASK)

        found = await prices_of(bench.kv, ["stx", DIKO.id], bench.wired.clock.now())
        assert found["stx"].fetched_at == began_at + 60
        assert bench.wired.clock.now() - began_at > 6_000
