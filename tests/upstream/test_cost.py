"""A call may cost several: a read-only contract call at Hiro counts twice. And answers are relayed as they came."""

import asyncio

from support.scripted_fetch import Request, always, in_turn, response
from support.upstreams import KEY, value_of, wired_hiro
from tocsin.fetch import FetchResponse
from tocsin.upstream.answer import BadRequest, Limited, Malformed, Unavailable
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import Relayed

CALL = "/v2/contracts/call-read/SP1/names/get"
TWO = {"x-ratelimit-cost-stacks": "2"}


async def test_no_window_has_more_calls_than_its_limit_counted_by_cost() -> None:
    """Requests may have half of ten calls a minute, so two that cost two each, whenever the minute begins."""
    made_at: list[float] = []

    def answer(_request: Request) -> FetchResponse:
        made_at.append(wired.clock.monotonic())
        return response({}, headers=TWO)

    wired = wired_hiro(answer, Quota(minute=10, month=100_000))
    for _ in range(20):
        session = wired.request()
        session.patience_s = 65.0
        await wired.client.relay("/x", session, cost=2)
    assert len(made_at) == 20
    assert max(sum(at <= other < at + 60 for other in made_at) for at in made_at) == 2
    assert wired.limiter.status().spent.month == 40


async def test_a_month_that_cannot_pay_says_when_it_can() -> None:
    """One call is left for requests: one that costs two waits, and goes out at the time that was named."""
    wired = wired_hiro(always(response({})), Quota(month=3_100))
    while wired.limiter.calls_left(wired.request().lane) >= 2:
        await wired.client.relay("/x", wired.request())

    refused = await wired.client.relay("/x", wired.request(), cost=2)
    assert isinstance(refused, Limited)
    assert refused.by_budget
    assert (await wired.client.relay("/x", wired.request())).kind == "ok"

    await wired.clock.sleep((refused.until - wired.clock.now()) / 1000)
    later = await wired.client.relay("/x", wired.request(), cost=2)
    assert isinstance(later, Limited)  # the cheaper call was paid for in between
    await wired.clock.sleep((later.until - wired.clock.now()) / 1000)
    assert (await wired.client.relay("/x", wired.request(), cost=2)).kind == "ok"


async def test_what_the_header_says_is_counted_for_every_call() -> None:
    """Also for a task's call that was thought to cost one; nonsense counts as one, and at most as ten."""
    costs = iter(["2", "1", "", "many", "0", "99999"])
    wired = wired_hiro(lambda _: response({}, headers={"x-ratelimit-cost-stacks": next(costs)}))
    counted = []
    for _ in range(6):
        session = wired.task()
        await wired.ask(session=session)
        counted.append(session.calls)
    assert counted == [2, 1, 1, 1, 1, 10]
    assert wired.limiter.status().spent.month == 16
    assert wired.limiter.status().in_flight == 0


async def test_answers_are_relayed_as_they_came() -> None:
    """The body, the ETag and the cost of what was found; "not found" with its body; and that nothing changed."""
    text = '{"b":1,  "a":[1.50]}'
    wired = wired_hiro(
        in_turn(
            iter(
                [
                    response(text, headers={"etag": 'W/"e1"', **TWO}),
                    response('{"error":"no such name"}', status=404),
                    response(b"", status=404),
                    response(b"", status=304, headers={"etag": '"e2"'}),
                    response(text, headers={"etag": '"a\nb"'}),
                ]
            )
        )
    )
    answers = [value_of(await wired.client.relay("/x", wired.request(), etag='"e1"')) for _ in range(5)]
    assert answers == [
        Relayed(200, text, 'W/"e1"', 2),
        Relayed(404, '{"error":"no such name"}', None, 1),
        Relayed(404, "{}", None, 1),
        Relayed(304, "{}", '"e2"', 1),
        Relayed(200, text, None, 1),
    ]
    assert wired.fetch.requests[0].headers["if-none-match"] == '"e1"'
    assert wired.fetch.requests[0].headers["x-api-key"] == KEY


async def test_what_is_not_a_fact_is_not_relayed_as_one() -> None:
    """A page instead of JSON, an unknown route, a failure, a 304 that nobody asked for."""
    cases = [
        (response("<html>"), Malformed),
        (response("<html>", status=404), Malformed),
        (response({"message": "Route GET:/x not found"}, status=404), BadRequest),
        (response({}, status=400), BadRequest),
        (response({}, status=503), Unavailable),
        (response(b"", status=304), Malformed),
    ]
    for answer, expected in cases:
        wired = wired_hiro(always(answer))
        assert isinstance(await wired.client.relay("/x", wired.request()), expected)


async def test_a_post_that_reads_is_a_post_with_its_body() -> None:
    """It is sent as JSON, retried like a read, and its redirect is not followed."""
    answers = iter([response({}, status=503), response({"okay": True, "result": "0x03"})])
    wired = wired_hiro(in_turn(answers))
    wired.fetch.method = "POST"
    relayed = await wired.client.relay(CALL, wired.request(), body='{"sender":"SP1","arguments":[]}', cost=2)
    assert value_of(relayed).body == '{"okay": true, "result": "0x03"}'
    first, second = wired.fetch.requests
    assert (first.body, first.headers["content-type"]) == (b'{"sender":"SP1","arguments":[]}', "application/json")
    assert second.body == first.body
    assert wired.limiter.status().spent.month == 4

    moved = wired_hiro(always(response(b"", status=307, headers={"location": "/elsewhere"})))
    moved.fetch.method = "POST"
    assert isinstance(await moved.client.relay(CALL, moved.request(), body="{}"), BadRequest)


async def test_a_caller_that_leaves_gives_no_second_permit_away() -> None:
    """A cancelled call of cost two stays counted as two, and nothing stays in flight."""
    wired = wired_hiro(always(response({})), latency_s=5.0)
    call = asyncio.create_task(wired.client.relay("/x", wired.request(), cost=2))
    await asyncio.sleep(1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (wired.limiter.status().spent.month, wired.limiter.status().in_flight) == (2, 0)
