"""The client over real HTTP on 127.0.0.1, through the local platform's fetch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stacks_simulator.faults import SimulatedFault
from stacks_simulator.serve import serving
from stacks_simulator.simulator import Simulator
from support.simulated import quiet_simulator
from support.upstreams import Wired
from tocsin.upstream.answer import Malformed, Ok, Unavailable
from tocsin.upstream.client import UpstreamClient
from tocsin.upstream.hiro import hiro_upstream

local_fetch = pytest.importorskip("tocsin.local.fetch")

CLOSED = "http://127.0.0.1:9"


@asynccontextmanager
async def wired_to(simulator: Simulator, url: str = "") -> AsyncIterator[Wired]:
    """A client of a served simulator."""
    fetch = local_fetch.HttpFetch()
    async with serving(simulator) as address:
        wired = Wired(hiro_upstream(url or address.hiro, "s3cret"), lambda _: pytest.fail("not scripted"))
        wired.client = UpstreamClient(wired.upstream, fetch, wired.limiter)
        try:
            yield wired
        finally:
            await fetch.aclose()


async def test_a_real_answer_is_read() -> None:
    """Headers and body travel; the key is in its header."""
    simulator = quiet_simulator()
    simulator.chain.mine(tx := simulator.chain.swap())
    async with wired_to(simulator) as wired:
        page = await wired.hiro.network_transactions(wired.request())
        assert isinstance(page, Ok)
        assert [item.tx_id for item in page.value.items] == [tx.tx_id]
        assert wired.client.limits.minute.limit == simulator.hiro_rate_limit.keyed.minute
    assert [request.keyed for request in simulator.requests] == [True]


@pytest.mark.parametrize(
    ("fault", "expected", "reason"),
    [
        (SimulatedFault(kind="cut_body", times=1), Ok, "FetchFailed"),  # half an answer is not an answer
        (SimulatedFault(kind="hang"), Unavailable, "FetchTimeout"),  # a visitor does not wait for another attempt
        (SimulatedFault(kind="huge", size=5 * 1024 * 1024), Malformed, "sent more than"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_an_answer_that_does_not_arrive_has_its_class(fault: SimulatedFault, expected: type, reason: str) -> None:
    simulator = quiet_simulator()
    simulator.faults.add(fault)
    async with wired_to(simulator) as wired:
        assert type(await wired.ask("/extended", wired.request())) is expected
    [line] = wired.log.of("upstream.attempt_failed")
    assert reason in line.fields["reason"]


async def test_a_closed_port_is_unavailable() -> None:
    """No server listens there."""
    async with wired_to(quiet_simulator(), CLOSED) as wired:
        assert isinstance(await wired.ask(session=wired.request()), Unavailable)
