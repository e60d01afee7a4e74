"""Responses that many request: cached by query, computed once, the previous one served in the meantime."""

import asyncio
from dataclasses import dataclass, field

import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import VirtualClock
from tocsin.shape import Shape
from tocsin.web.cache import ResponseCache
from tocsin.web.response import PreparedResponse


@dataclass(frozen=True, slots=True)
class Shown(Shape):
    """What the route shows."""

    number: int


@dataclass
class Route:
    """Takes half a second for each response, and counts them."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    computed: list[int] = field(default_factory=list)
    broken: bool = False

    async def respond(self, limit: int) -> Shown:
        self.computed.append(limit)
        number = len(self.computed)
        await self.clock.sleep(0.5)
        if self.broken:
            raise StoreUnavailable("no")
        return Shown(number)

    def cache(self, *, in_one_loop: bool = True) -> ResponseCache[int]:
        return ResponseCache(self.clock, 5, self.respond, in_one_loop=in_one_loop)


def _limit(query: QueryParams) -> int:
    return int(query.get("limit", "50"))


async def show(cache: ResponseCache[int], query: str = "") -> bytes:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    response = await cache.show(request, _limit(request.query_params))
    assert isinstance(response, PreparedResponse)
    body: bytes = response.complete.body["body"]
    return body


async def test_however_many_wait_it_is_computed_once() -> None:
    """And however they write what they ask for."""
    route = Route()
    cache = route.cache()
    queries = ["", "limit=50", "limit=050", "x=1", "x=2&limit=50", *[f"r={number}" for number in range(200)]]

    bodies = await asyncio.gather(*[show(cache, query) for query in queries])

    assert set(bodies) == {b'{"number":1}'}
    assert route.computed == [50]


async def test_the_one_before_is_sent_while_a_newer_one_is_computed() -> None:
    """So nobody waits; after ten seconds it would be too old."""
    route = Route()
    cache = route.cache()
    await show(cache)
    await route.clock.sleep(3)
    began = route.clock.monotonic()
    stale = [await show(cache) for _ in range(5)]
    waited = route.clock.monotonic() - began
    await route.clock.sleep(0.8)
    newer = await show(cache)
    await route.clock.sleep(60)
    later = await show(cache)

    assert (stale, waited) == ([b'{"number":1}'] * 5, 0)
    assert newer == b'{"number":2}'
    assert later == b'{"number":3}'
    assert route.computed == [50, 50, 50]


async def test_what_is_under_way_is_not_kept_after_a_change() -> None:
    """A response that was begun before may not know of it."""
    route = Route()
    cache = route.cache()
    first = asyncio.create_task(show(cache))
    await route.clock.sleep(0.2)
    cache.forget()
    second = await show(cache)

    assert (await first, second) == (b'{"number":1}', b'{"number":2}')
    assert await show(cache) == b'{"number":2}'


async def test_an_error_is_for_those_who_wait_and_is_not_kept() -> None:
    """The next one computes again; one who does not wait is not harmed."""
    route = Route()
    cache = route.cache()
    await show(cache)
    route.broken = True
    await route.clock.sleep(3)
    assert await show(cache) == b'{"number":1}'
    await route.clock.sleep(30)
    with pytest.raises(StoreUnavailable):
        await show(cache)
    route.broken = False

    assert await show(cache) == b'{"number":4}'


async def test_a_client_that_leaves_takes_nothing_from_the_others() -> None:
    """The computation that it started continues."""
    route = Route()
    cache = route.cache()
    first = asyncio.create_task(show(cache))
    await route.clock.sleep(0.2)
    second = asyncio.create_task(show(cache))
    await route.clock.sleep(0.2)
    first.cancel()

    assert await second == b'{"number":1}'
    assert route.computed == [50]


async def test_what_a_request_computes_alone_is_not_kept_after_a_change() -> None:
    """On Cloudflare, too: it was begun before, and may not know of it."""
    route = Route()
    cache = route.cache(in_one_loop=False)
    first = asyncio.create_task(show(cache))
    await route.clock.sleep(0.2)
    cache.forget()
    await first

    assert await show(cache) == b'{"number":2}'


async def test_where_requests_cannot_wait_for_each_other_each_computes_its_own() -> None:
    """On Cloudflare a request may not wait for what another one began; what is ready is still shared."""
    route = Route()
    cache = route.cache(in_one_loop=False)

    bodies = await asyncio.gather(*[show(cache) for _ in range(3)])

    assert sorted(bodies) == [b'{"number":1}', b'{"number":2}', b'{"number":3}']
    assert await show(cache, "x=1") in bodies
    assert len(route.computed) == 3


async def test_a_query_is_parsed_once_however_often_its_response_is_renewed() -> None:
    """The board is asked for without end, and computed every second."""
    route = Route()
    cache = route.cache()
    await show(cache, "limit=7")
    for _ in range(5):
        await route.clock.sleep(2)
        await show(cache, "limit=7")  # begins to compute a newer one
        await route.clock.sleep(0.6)
        for _ in range(20):
            assert cache.fresh(b"limit=7") is not None
    assert route.computed == [7] * 6
