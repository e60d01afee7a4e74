"""Responses that many request: cached by query, computed once."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import VirtualClock
from tocsin.shape import Shape
from tocsin.web.cache import ResponseCache
from tocsin.web.deps import Process
from tocsin.web.response import PreparedResponse
from tocsin.web.route import Operation


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

    async def respond(self, _request: Request, limit: int) -> Shown:
        self.computed.append(limit)
        number = len(self.computed)
        await self.clock.sleep(0.5)
        if self.broken:
            raise StoreUnavailable("no")
        return Shown(number)

    def cache(self, *, in_one_loop: bool = True) -> ResponseCache:
        deps: Any = SimpleNamespace(clock=self.clock, in_one_loop=in_one_loop, process=Process())
        operation = Operation("GET", "/it", "it", "It.", max_age_s=5, kept=64)
        return ResponseCache(deps, [], operation, self.respond)


def _limit(query: QueryParams) -> int:
    return int(query.get("limit", "50"))


async def show(cache: ResponseCache, query: str = "") -> bytes:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    response = await cache.show(request, limit=_limit(request.query_params))
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


async def test_a_response_is_kept_for_a_second() -> None:
    """From the moment at which its computation began."""
    route = Route()
    cache = route.cache()
    first = await show(cache)
    await route.clock.sleep(0.4)
    kept = await show(cache)
    await route.clock.sleep(0.2)
    newer = await show(cache)

    assert (first, kept, newer) == (b'{"number":1}', b'{"number":1}', b'{"number":2}')
    assert route.computed == [50, 50]


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
    """The next one computes again."""
    route = Route(broken=True)
    cache = route.cache()
    errors = await asyncio.gather(show(cache), show(cache), return_exceptions=True)
    route.broken = False

    assert [type(error) for error in errors] == [StoreUnavailable] * 2
    assert await show(cache) == b'{"number":2}'


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
    for _ in range(5):
        await show(cache, "limit=7")
        for _ in range(20):
            assert cache.fresh(b"limit=7") is not None
        await route.clock.sleep(2)
        assert cache.fresh(b"limit=7") is None
    assert route.computed == [7] * 5
