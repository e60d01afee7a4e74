"""The simulator's faults as the service's `fetch` sees them, in virtual time."""

import asyncio
import json
from contextlib import nullcontext
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from holdfast.testing.virtual_time import VirtualClock
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.simulator import Simulator
from support.simulated import quiet_simulator
from support.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import Fetch, FetchResponse

TOKEN = f"{TENERO_URL}/v1/stacks/tokens/stx"
TIP = f"{HIRO_URL}/extended"


def simulated_fetch(*faults: SimulatedFault) -> tuple[Simulator, Fetch, VirtualClock]:
    clock = VirtualClock()
    simulator = quiet_simulator(clock)
    for fault in faults:
        simulator.faults.add(fault)
    return simulator, SimulatedFetch(simulator), clock


async def test_a_fetch_returns_the_upstreams_reply() -> None:
    """It has the status, the headers in lower case and the body. A redirect is not followed."""
    simulator, fetch, _ = simulated_fetch()
    tx = simulator.chain.swap()
    simulator.chain.mine()

    response = await fetch(f"{HIRO_URL}/extended/v1/tx/{tx.tx_id}", headers={"X-API-Key": "k"})
    redirect = await fetch(f"{HIRO_URL}/extended/v1/tx/{tx.tx_id[2:]}")

    assert (response.status, json.loads(response.body)["tx_id"]) == (200, tx.tx_id)
    assert all(name == name.lower() for name in response.headers)
    assert response.headers["cf-ray"].endswith("-SIM")
    assert redirect.status == 302
    assert [(request.upstream, request.keyed, request.status) for request in simulator.requests] == [
        ("hiro", True, 200),
        ("hiro", False, 302),
    ]


async def test_no_other_host_is_reachable() -> None:
    """A host that is not simulated cannot be reached."""
    _, fetch, _ = simulated_fetch()

    with pytest.raises(FetchFailed, match="nothing is simulated"):
        await fetch("https://elsewhere.example/")


async def test_the_chain_follows_the_clock() -> None:
    """Blocks follow virtual time: a request after a sleep gets the chain of that moment."""
    simulator, fetch, clock = simulated_fetch()
    before = json.loads((await fetch(TIP)).body)["chain_tip"]["block_height"]
    simulator.speed = 60.0

    await clock.sleep(10)

    after = json.loads((await fetch(TIP)).body)["chain_tip"]["block_height"]
    assert after - before == 10 * 60 // 5


async def test_latency_takes_time() -> None:
    """A response comes after the latency, or times out when the timeout is shorter."""
    simulator, _, clock = simulated_fetch()
    fetch = SimulatedFetch(simulator, latency_s=0.25)

    await fetch(TIP)
    with pytest.raises(FetchTimeout):
        await fetch(TIP, timeout_s=0.1)
    assert clock.monotonic() == pytest.approx(0.35)


@pytest.mark.parametrize(("retry_after", "as_date"), [(None, False), (7, False), (90, True)])
async def test_429_with_and_without_retry_after(retry_after: int | None, as_date: bool) -> None:
    """Retry-After is in seconds, a date, or missing; the body is the upstream's own."""
    fault = SimulatedFault(kind="limited", retry_after=retry_after, as_date=as_date)
    _, fetch, clock = simulated_fetch(fault)

    hiro, tenero = await fetch(TIP), await fetch(TOKEN)

    assert (hiro.status, tenero.status) == (429, 429)
    assert hiro.body.startswith(b"Per-minute rate limit exceeded")
    assert json.loads(tenero.body)["statusCode"] == 429
    for response in (hiro, tenero):
        header = response.headers.get("retry-after")
        if as_date:
            assert header is not None
            assert parsedate_to_datetime(header).timestamp() == clock.now() // 1000 + 90
        else:
            assert header == (None if retry_after is None else str(retry_after))


async def test_any_status_with_any_body() -> None:
    """5xx, 401, 403 or a redirect to another host, with the body and headers that are given."""
    simulator, fetch, _ = simulated_fetch(SimulatedFault(kind="status", status=502, times=1))
    simulator.faults.add(
        SimulatedFault(kind="status", status=301, body="", extra_headers={"location": "https://evil.example/"}, times=1)
    )

    redirect, error, fine = await fetch(TIP), await fetch(TIP), await fetch(TIP)

    assert (redirect.status, redirect.headers["location"], redirect.body) == (301, "https://evil.example/", b"")
    assert (error.status, fine.status) == (502, 200)


@pytest.mark.parametrize(
    ("fault", "timeout_s", "outcome", "took_s"),
    [
        (SimulatedFault(kind="hang"), 8.0, FetchTimeout, 8.0),
        (SimulatedFault(kind="slow", seconds=5.0), 8.0, None, 5.0),
        (SimulatedFault(kind="slow", seconds=5.0), 3.0, FetchTimeout, 3.0),
        (SimulatedFault(kind="delay", seconds=5.0), 8.0, None, 5.0),
        (SimulatedFault(kind="delay", seconds=5.0), 3.0, FetchTimeout, 3.0),
        (SimulatedFault(kind="cut"), 8.0, FetchFailed, 0.0),
        (SimulatedFault(kind="cut_body"), 8.0, FetchFailed, 0.0),
        (SimulatedFault(kind="huge", size=2_000_000), 8.0, FetchTooLarge, 0.0),
        (SimulatedFault(kind="huge", size=900_000), 8.0, None, 0.0),
    ],
)
async def test_a_fault_takes_its_time_and_ends_as_over_a_connection(
    fault: SimulatedFault, timeout_s: float, outcome: type[Exception] | None, took_s: float
) -> None:
    """A body within the caller's limit arrives whole, and is still JSON."""
    _, fetch, clock = simulated_fetch(fault)

    with nullcontext() if outcome is None else pytest.raises(outcome):
        response = await fetch(TIP, timeout_s=timeout_s, body_max=1_000_000)
        assert json.loads(response.body)["status"] == "ready"

    assert clock.monotonic() == pytest.approx(took_s)


async def test_wrong_bodies_arrive_with_status_200() -> None:
    """Truncated JSON, a web page, and values of other types arrive as complete, successful responses."""

    async def fetch_with(kind: Any) -> FetchResponse:
        _, fetch, _ = simulated_fetch(SimulatedFault(kind=kind))
        return await fetch(TOKEN)

    cut, page, wrong = [await fetch_with(kind) for kind in ("truncated", "wrong_json", "wrong_types")]

    assert {cut.status, page.status, wrong.status} == {200}
    for response in (cut, page):
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(response.body)
    _, healthy, _ = simulated_fetch()
    assert json.loads(wrong.body) != json.loads((await healthy(TOKEN)).body)


async def test_a_fault_has_an_upstream_a_path_a_number_and_a_time() -> None:
    """A fault applies only to its upstream, path, number of times and time; the latest fault goes first."""
    simulator, fetch, clock = simulated_fetch(
        SimulatedFault(kind="status", status=500, upstream="tenero", times=2),
        SimulatedFault(kind="status", status=503, path="/v1/names/", until_ms=quiet_simulator().clock.now() + 60_000),
    )

    async def status(url: str) -> int:
        return (await fetch(url)).status

    assert [await status(TOKEN) for _ in range(3)] == [500, 500, 200]
    assert await status(TIP) == 200
    assert await status(f"{HIRO_URL}/v1/names/amber-otter.btc") == 503
    await clock.sleep(60)
    assert await status(f"{HIRO_URL}/v1/names/amber-otter.btc") == 200
    simulator.faults.add(SimulatedFault(kind="hang"))
    simulator.faults.clear()
    assert await status(TIP) == 200


async def test_a_fault_can_apply_to_a_share_of_the_requests() -> None:
    """It applies to about its share of the requests, and to the same ones for the same seed."""

    async def statuses() -> list[int]:
        _, fetch, _ = simulated_fetch(SimulatedFault(kind="status", share=0.3))
        return [(await fetch(TIP)).status for _ in range(200)]

    first = await statuses()
    assert 30 < first.count(503) < 90
    assert first == await statuses()


async def test_callers_wait_concurrently() -> None:
    """A hanging request does not delay another."""
    _, fetch, clock = simulated_fetch(SimulatedFault(kind="hang", upstream="tenero"))

    async def give_up() -> None:
        with pytest.raises(FetchTimeout):
            await fetch(TOKEN)

    async with asyncio.TaskGroup() as group:
        group.create_task(give_up())
        response = await fetch(TIP)
        assert (response.status, clock.monotonic()) == (200, 0.0)


async def test_pages_that_lead_nowhere() -> None:
    """A cursor that leads to its own page, or to a page without rows; other replies are not changed."""
    simulator, fetch, _ = simulated_fetch()
    simulator.chain.dust(simulator.chain.wallets[0], 30)
    simulator.chain.mine()
    pages = f"{HIRO_URL}/extended/v3/transactions?limit=10"
    simulator.faults.add(SimulatedFault(kind="own_cursor", times=1))
    own = json.loads((await fetch(pages)).body)
    right = json.loads((await fetch(pages)).body)
    simulator.faults.add(SimulatedFault(kind="empty_page", times=1))
    head = json.loads((await fetch(pages)).body)
    empty = json.loads((await fetch(f"{pages}&cursor={right['cursor']['next']}")).body)
    simulator.faults.add(SimulatedFault(kind="own_cursor", times=1))
    tip = await fetch(TIP)

    assert (own["cursor"]["next"], own["results"]) == (right["cursor"]["current"], right["results"])
    assert head == right
    assert (empty["results"], empty["cursor"]) == ([], {"next": None, "previous": None, "current": None})
    assert json.loads(tip.body)["status"] == "ready"
