"""Faults through the in-process face, in virtual time."""

import asyncio
import json
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import Any

import pytest

from support.simulated import ask, quiet_simulator
from support.virtual_time import VirtualClock
from tocsin.bindings import Fetch, FetchResponse
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge, UsageError
from tocsin.simulator.faults import FAULT_KINDS, BadTimes, FaultInjector, SimulatedFault
from tocsin.simulator.simulated_fetch import HIRO_URL, TENERO_URL, SimulatedFetch
from tocsin.simulator.simulator import Simulator

TOKEN = f"{TENERO_URL}/v1/stacks/tokens/stx"
TIP = f"{HIRO_URL}/extended"


def fetching(*faults: SimulatedFault) -> tuple[Simulator, Fetch, VirtualClock]:
    clock = VirtualClock()
    simulator = quiet_simulator(clock)
    for fault in faults:
        simulator.faults.add(fault)
    return simulator, SimulatedFetch(simulator), clock


async def test_a_fetch_answers_like_the_upstream() -> None:
    """Status, lower-case headers and body of the reply; redirects are answers, not followed."""
    simulator, fetch, _ = fetching()
    tx = simulator.chain.swap()
    simulator.chain.mine()

    found = await fetch(f"{HIRO_URL}/extended/v1/tx/{tx.tx_id}", headers={"X-API-Key": "k"})
    moved = await fetch(f"{HIRO_URL}/extended/v1/tx/{tx.tx_id[2:]}")

    assert (found.status, json.loads(found.body)["tx_id"]) == (200, tx.tx_id)
    assert all(name == name.lower() for name in found.headers)
    assert found.headers["cf-ray"].endswith("-SIM")
    assert moved.status == 302
    assert [(request.upstream, request.keyed, request.status) for request in simulator.requests] == [
        ("hiro", True, 200),
        ("hiro", False, 302),
    ]


async def test_nothing_else_is_reached() -> None:
    """A host that is not simulated cannot be connected to."""
    _, fetch, _ = fetching()

    with pytest.raises(FetchFailed, match="nothing is simulated"):
        await fetch("https://elsewhere.example/")


async def test_the_chain_follows_the_clock() -> None:
    """Virtual time moves blocks: a request after a sleep sees the chain of that moment."""
    simulator, fetch, clock = fetching()
    before = json.loads((await fetch(TIP)).body)["chain_tip"]["block_height"]
    simulator.speed = 60.0

    await clock.sleep(10)

    after = json.loads((await fetch(TIP)).body)["chain_tip"]["block_height"]
    assert after - before == 10 * 60 // 5


async def test_latency_takes_time() -> None:
    """An answer comes after the latency, or not at all when nobody waits that long."""
    simulator, _, clock = fetching()
    fetch = SimulatedFetch(simulator, latency_s=0.25)

    await fetch(TIP)
    assert clock.monotonic() == pytest.approx(0.25)
    with pytest.raises(FetchTimeout):
        await fetch(TIP, timeout_s=0.1)
    assert clock.monotonic() == pytest.approx(0.35)


@pytest.mark.parametrize(("retry_after", "as_date"), [(None, False), (7, False), (90, True)])
async def test_429_with_and_without_retry_after(retry_after: int | None, as_date: bool) -> None:
    """Seconds, a date, or nothing tells how long to wait; the body is the upstream's own."""
    fault = SimulatedFault(kind="limited", retry_after=retry_after, as_date=as_date)
    _, fetch, clock = fetching(fault)

    hiro, tenero = await fetch(TIP), await fetch(TOKEN)

    assert (hiro.status, tenero.status) == (429, 429)
    assert hiro.body.startswith(b"Per-minute rate limit exceeded")
    assert json.loads(tenero.body)["statusCode"] == 429
    for answer in (hiro, tenero):
        sent = answer.headers.get("retry-after")
        if as_date:
            assert sent is not None
            assert parsedate_to_datetime(sent).timestamp() == clock.now() // 1000 + 90
        else:
            assert sent == (None if retry_after is None else str(retry_after))


async def test_any_status_with_any_body() -> None:
    """5xx, 401, 403 or a redirect to another host, with the body and headers that are given."""
    simulator, fetch, _ = fetching(SimulatedFault(kind="status", status=502, times=1))
    simulator.faults.add(
        SimulatedFault(
            kind="status", status=301, body="", extra_headers={"location": "https://evil.example/"}, times=1
        )
    )

    moved, broken, fine = await fetch(TIP), await fetch(TIP), await fetch(TIP)

    assert (moved.status, moved.headers["location"], moved.body) == (301, "https://evil.example/", b"")
    assert (broken.status, fine.status) == (502, 200)


async def test_a_hang_lasts_as_long_as_the_caller_waits() -> None:
    """No answer ever comes: the caller's own patience ends it."""
    _, fetch, clock = fetching(SimulatedFault(kind="hang"))

    with pytest.raises(FetchTimeout):
        await fetch(TIP, timeout_s=8.0)

    assert clock.monotonic() == pytest.approx(8.0)


@pytest.mark.parametrize("kind", ["slow", "delay"])
async def test_slow_answers_take_their_time(kind: Any) -> None:
    """A slow answer arrives whole after its time, or is given up before."""
    _, fetch, clock = fetching(SimulatedFault(kind=kind, seconds=5.0))

    answer = await fetch(TIP)
    assert answer.status == 200
    assert clock.monotonic() == pytest.approx(5.0)
    with pytest.raises(FetchTimeout):
        await fetch(TIP, timeout_s=3.0)
    assert clock.monotonic() == pytest.approx(8.0)


@pytest.mark.parametrize("kind", ["cut", "cut_body"])
async def test_a_cut_connection_is_a_failure(kind: Any) -> None:
    """Before or after the first byte, there is no answer."""
    _, fetch, _ = fetching(SimulatedFault(kind=kind))

    with pytest.raises(FetchFailed, match="cut"):
        await fetch(TIP)


async def test_a_huge_body_meets_the_cap() -> None:
    """Past the cap it is refused; below it, it arrives and is still JSON."""
    _, fetch, _ = fetching(SimulatedFault(kind="huge", size=2_000_000))

    with pytest.raises(FetchTooLarge):
        await fetch(TIP, body_max=1_000_000)
    answer = await fetch(TIP, body_max=3_000_000)
    assert len(answer.body) > 2_000_000
    assert json.loads(answer.body)["status"] == "ready"


async def test_bodies_that_are_not_what_they_should_be() -> None:
    """Truncated JSON, a web page, and values of other types arrive as complete, successful answers."""

    async def spoiled(kind: Any) -> FetchResponse:
        _, fetch, _ = fetching(SimulatedFault(kind=kind))
        return await fetch(TOKEN)

    cut, page, wrong = [await spoiled(kind) for kind in ("truncated", "wrong_json", "wrong_types")]

    assert {cut.status, page.status, wrong.status} == {200}
    for answer in (cut, page):
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(answer.body)
    _, healthy, _ = fetching()
    assert json.loads(wrong.body) != json.loads((await healthy(TOKEN)).body)


async def test_faults_are_aimed_counted_and_timed() -> None:
    """Only the upstream, path, number and time that were meant are hit; the latest fault goes first."""
    simulator, fetch, clock = fetching(
        SimulatedFault(kind="status", status=500, upstream="tenero", times=2),
        SimulatedFault(
            kind="status", status=503, path="/v2/", until_ms=quiet_simulator().clock.now() + 60_000
        ),
    )

    async def status(url: str) -> int:
        return (await fetch(url)).status

    assert [await status(TOKEN) for _ in range(3)] == [500, 500, 200]
    assert await status(TIP) == 200
    assert await status(f"{HIRO_URL}/v2/info") == 503
    await clock.sleep(60)
    assert await status(f"{HIRO_URL}/v2/info") == 200
    simulator.faults.add(SimulatedFault(kind="hang"))
    simulator.faults.clear()
    assert await status(TIP) == 200


async def test_a_share_of_the_requests_is_hit() -> None:
    """A thinned fault hits about its share, the same ones for the same seed."""

    async def hits() -> list[int]:
        _, fetch, _ = fetching(SimulatedFault(kind="status", share=0.3))
        return [(await fetch(TIP)).status for _ in range(200)]

    first = await hits()
    assert 30 < first.count(503) < 90
    assert first == await hits()


async def test_callers_wait_side_by_side() -> None:
    """One hanging request does not hold up another."""
    _, fetch, clock = fetching(SimulatedFault(kind="hang", upstream="tenero"))

    async def give_up() -> None:
        with pytest.raises(FetchTimeout):
            await fetch(TOKEN)

    async with asyncio.TaskGroup() as group:
        group.create_task(give_up())
        answer = await fetch(TIP)
        assert (answer.status, clock.monotonic()) == (200, 0.0)


def test_bad_times_follow_their_seed() -> None:
    """The schedule is the same for a seed, hits about as long as it says, and brings every kind in time."""
    times = BadTimes(seed=3, every_s=600, lasting_s=60)
    moments = [times.fault_at(second * 1000) for second in range(0, 86_400, 5)]
    hit = [fault for fault in moments if fault]

    assert moments == [
        BadTimes(seed=3, every_s=600, lasting_s=60).fault_at(s * 1000) for s in range(0, 86_400, 5)
    ]
    assert 0.05 < len(hit) / len(moments) < 0.2
    assert {fault.kind for fault in hit} == set(FAULT_KINDS)


def test_scheduled_faults_reach_requests() -> None:
    """During a bad time requests are spoiled, outside of it they are not."""
    simulator = quiet_simulator()
    simulator.faults = FaultInjector(
        1, BadTimes(seed=1, every_s=3600, lasting_s=1200, share=1.0, kinds=("status",))
    )
    for _ in range(720):
        ask(simulator, "/extended")
        simulator.clock.now_ms += 5_000  # type: ignore[attr-defined]  # the test's own clock

    faults = [request.fault for request in simulator.requests]
    assert "status" in faults
    assert None in faults
    assert sum(1 for a, b in pairwise(faults) if a != b) <= 4, "bad times are stretches"


@pytest.mark.parametrize(
    "values", [{}, {"kind": "explode"}, {"kind": "hang", "when": 3}, {"kind": "hang", "times": "3"}]
)
def test_a_mistaken_fault_says_what_is_accepted(values: dict[str, Any]) -> None:
    """Unknown kinds and fields, and numbers that are none, are refused by name."""
    with pytest.raises(UsageError, match=r"kinds are limited.*fields are kind|must be a number"):
        SimulatedFault.of(values)
