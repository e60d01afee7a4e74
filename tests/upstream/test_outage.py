"""A failing upstream costs a bounded number of calls and a bounded time, and the log names the problem."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stacks_simulator.addresses import address_of
from support.scripted_fetch import Handler, Request, always, example_response, response
from support.upstreams import Wired, wired_hiro
from tocsin.errors import FetchFailed, FetchTimeout
from tocsin.fetch import FetchResponse
from tocsin.stacks import Page, Transaction
from tocsin.upstream.answer import Answer, Limited, Ok, Unavailable
from tocsin.upstream.budget import Quota
from tocsin.upstream.limiter import CallSession

WALLETS = [address_of(f"wallet {n}") for n in range(100)]
FINE = example_response("hiro/v3_principal_transactions_synthetic")
RETRIES_MAX = 20
LATENCY_S = 0.06
PLAN = Quota(second=20, minute=500, month=150_000)

Sweep = Callable[[Wired, CallSession], Awaitable[list[Answer[Page[Transaction]]]]]


async def one_after_the_other(wired: Wired, run: CallSession) -> list[Answer[Page[Transaction]]]:
    return [await wired.hiro.principal_transactions(wallet, run) for wallet in WALLETS]


async def all_at_once(wired: Wired, run: CallSession) -> list[Answer[Page[Transaction]]]:
    return await asyncio.gather(*(wired.hiro.principal_transactions(wallet, run) for wallet in WALLETS))


SWEEPS = pytest.mark.parametrize("sweep", [one_after_the_other, all_at_once])


async def hang(request: Request) -> FetchResponse:
    await asyncio.sleep(request.timeout_s)
    raise FetchTimeout("no complete answer within 8 s")


def refused(_: Request) -> FetchResponse:
    raise FetchFailed("connection refused")


@SWEEPS
@pytest.mark.parametrize("headers", [{}, {"retry-after": "60"}, {"retry-after": "3600"}, {"retry-after": "0"}])
async def test_endless_429s_cause_few_calls(sweep: Sweep, headers: dict[str, str]) -> None:
    """A hundred wallets against 429: a handful of calls where the reference made five hundred."""
    wired = wired_hiro(always(response("slow down", status=429, headers=headers)), PLAN, latency_s=LATENCY_S)

    answers = await sweep(wired, wired.task(RETRIES_MAX))

    assert {type(answer) for answer in answers} == {Limited}
    assert len(wired.fetch.requests) <= (RETRIES_MAX + len(WALLETS) if headers.get("retry-after") == "0" else 40)
    assert wired.clock.monotonic() <= 600
    assert len(wired.log.of("upstream.attempt_failed")) == len(wired.fetch.requests)
    assert wired.log.of("budget.limiter_closed")


@SWEEPS
@pytest.mark.parametrize(
    ("handler", "took_max_s"), [(hang, 5 * (70 + 8)), (refused, 120), (always(response({}, status=503)), 120)]
)
async def test_a_total_outage_ends_the_run(sweep: Sweep, handler: Handler, took_max_s: float) -> None:
    """After five calls without an answer the others are not made; each failure left its line, and is paid for."""
    wired = wired_hiro(handler, PLAN, latency_s=LATENCY_S)

    answers = await sweep(wired, wired.task(RETRIES_MAX))

    assert {type(answer) for answer in answers} == {Unavailable}
    assert len(wired.fetch.requests) <= RETRIES_MAX + len(WALLETS)
    assert wired.clock.monotonic() <= took_max_s
    assert len(wired.log.of("upstream.attempt_failed")) == len(wired.fetch.requests)
    assert (wired.limiter.status().spent.month, wired.limiter.status().in_flight) == (len(wired.fetch.requests), 0)
    if sweep is one_after_the_other:
        assert len(wired.fetch.requests) == 15


@pytest.mark.parametrize("status", [429, 503])
async def test_retries_of_a_whole_run_have_a_ceiling(status: int) -> None:
    """Every other call fails: twenty wallets are saved by a retry, then failures stay failures."""
    count = 0

    def flaky(_: Request) -> FetchResponse:
        nonlocal count
        count += 1
        return response({}, status=status, headers={"retry-after": "0"}) if count % 2 else FINE

    wired = wired_hiro(flaky)
    run = wired.task(RETRIES_MAX)
    answers = await one_after_the_other(wired, run)

    retries = len(wired.fetch.requests) - len(WALLETS)
    assert retries == RETRIES_MAX
    assert run.retries_left == 0
    assert sum(isinstance(answer, Ok) for answer in answers) >= 50


async def test_a_visitor_waits_seconds_not_minutes() -> None:
    """A request against a hanging upstream ends within its patience and one timeout."""
    wired = wired_hiro(hang)

    answer = await wired.hiro.transactions_with_events(["ab" * 32], wired.request())

    assert isinstance(answer, Unavailable)
    assert wired.clock.monotonic() <= 5 + 8


async def test_the_first_success_ends_the_trouble() -> None:
    """After a storm of 429 and one good answer, calls flow again at full pace."""
    healthy = False

    def moody(_: Request) -> FetchResponse:
        return FINE if healthy else response({}, status=429)

    wired = wired_hiro(moody)
    await one_after_the_other(wired, wired.task())
    healthy = True
    await wired.clock.sleep(3600)
    before = wired.clock.monotonic()

    answers = await all_at_once(wired, wired.task())

    assert {type(answer) for answer in answers} == {Ok}
    assert wired.clock.monotonic() - before <= 1


async def test_a_run_that_was_limited_does_not_wait_again() -> None:
    """Once a call was limited, the rest of the run ends at once; the next run is free."""
    wired = wired_hiro(always(response({}, status=429, headers={"retry-after": "60"})), PLAN)
    run = wired.task()
    await one_after_the_other(wired, run)

    assert run.limited
    assert len(wired.fetch.requests) == 2
    assert wired.clock.monotonic() == 60
    assert not wired.task().limited


async def test_a_given_up_run_does_not_spoil_the_next() -> None:
    """Giving up applies to one session; another one tries again."""
    wired = wired_hiro(refused)
    await one_after_the_other(wired, wired.task())
    before = len(wired.fetch.requests)
    await wired.hiro.principal_transactions(WALLETS[0], wired.task())

    assert len(wired.fetch.requests) == before + 3
