"""A call at its limits: how often, how long, how much of it is shown, and what ends a session."""

from itertools import chain, repeat
from typing import Any

import pytest

from holdfast_testing.virtual_time import START_MS
from support.scripted_fetch import Request, always, in_turn, response
from support.upstreams import HIRO_URL, Wired, wired_hiro, wired_tenero
from tocsin.errors import FetchFailed
from tocsin.fetch import FetchResponse
from tocsin.upstream.answer import BadRequest, Limited, Malformed, Ok, Unavailable
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import RetryPolicy, UpstreamClient


async def ask(wired: Wired, target: str = "/x", **options: Any) -> Any:
    return await wired.client.get(target, lambda body: body, wired.task(**options))


def test_the_wait_before_a_retry_doubles_up_to_eight_seconds() -> None:
    """Half a second before the first; chance makes it shorter."""
    policy = RetryPolicy()

    assert [policy.backoff(retry, 1.0) for retry in range(1, 8)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert policy.backoff(3, 0.25) == 0.5
    assert (policy.limited_max, policy.unavailable_max) == (2, 2)


@pytest.mark.parametrize(("status", "kind"), [(500, Unavailable), (429, Limited)])
async def test_a_call_is_made_three_times_at_most(status: int, kind: type) -> None:
    """Once, and twice again; each is counted by the session."""
    wired = wired_hiro(always(response({}, status=status, headers={"retry-after": "1"})))
    session = wired.task()
    answer = await wired.client.get("/x", lambda body: body, session)

    assert type(answer) is kind
    assert (len(wired.fetch.requests), session.calls) == (3, 3)
    assert [line.fields["attempt"] for line in wired.log.of("upstream.attempt_failed")] == [1, 2, 3]


async def test_a_429_and_a_503_are_counted_apart() -> None:
    """Two of each may come before the answer."""
    answers = [
        *(response({}, status=status, headers={"retry-after": "1"}) for status in (429, 503, 429, 503)),
        response({"a": 1}),
    ]
    wired = wired_hiro(in_turn(iter(answers)))

    assert await ask(wired) == Ok({"a": 1})


async def test_the_retries_of_a_session_are_shared_by_its_calls() -> None:
    """With one left, the first call takes it and the second has none."""
    wired = wired_hiro(always(response({}, status=500)))
    session = wired.task(retries_max=1)
    for _ in range(2):
        await wired.client.get("/x", lambda body: body, session)

    assert len(wired.fetch.requests) == 3


async def test_after_five_calls_without_an_answer_nothing_is_asked_any_more() -> None:
    """The sixth ends without a call, with the reason; an answered one resets the count."""
    wired = wired_hiro(always(response({}, status=500)))
    session = wired.task(retries_max=0)
    answers = [await wired.client.get("/x", lambda body: body, session) for _ in range(6)]

    assert len(wired.fetch.requests) == 5
    assert answers[5] == Unavailable("hiro gave no answer 5 times in a row: no call was made")

    mixed = chain(repeat(response({}, status=500), 4), [response({})], repeat(response({}, status=500)))
    wired = wired_hiro(in_turn(mixed))
    session = wired.task(retries_max=0)
    for _ in range(12):
        await wired.client.get("/x", lambda body: body, session)
    assert len(wired.fetch.requests) == 10


@pytest.mark.parametrize("retry_after", ["69.9", "70"])
async def test_a_retry_waits_only_as_long_as_the_patience_of_its_session(retry_after: str) -> None:
    """70 seconds for a task: a 503 that asks for more ends the call at once."""
    answers = [response({}, status=503, headers={"retry-after": retry_after}), response({"a": 1})]
    wired = wired_hiro(in_turn(iter(answers)))
    answer = await ask(wired)
    took_s = wired.clock.monotonic()

    if retry_after == "69.9":
        assert (answer, took_s) == (Ok({"a": 1}), 69.9)
    else:
        assert (type(answer), took_s, len(wired.fetch.requests)) == (Unavailable, 0, 1)


@pytest.mark.parametrize(("retry_after", "count"), [("69", 2), ("69.95", 2), ("71", 1)])
async def test_a_429_is_waited_for_within_the_patience_of_its_session(retry_after: str, count: int) -> None:
    """One that takes longer ends the call at once: the task runs again when it is over."""
    answers = chain([response({}, status=429, headers={"retry-after": retry_after})], repeat(response({})))
    wired = wired_hiro(in_turn(answers))
    answer = await ask(wired)

    assert (type(answer), len(wired.fetch.requests)) == (Ok if count == 2 else Limited, count)


async def test_a_limited_call_says_when_the_next_can_be_made() -> None:
    """By the upstream after a 429, by our own budget when a window is full; only then no call is made."""
    limited = wired_hiro(always(response({}, status=429, headers={"retry-after": "600"})))
    by_upstream = await ask(limited)
    full = wired_tenero(always(response({})), Quota(minute=1, request_share=0))
    await ask(full)
    session = full.task()
    session.patience_s = 0.0
    by_budget = await full.client.get("/x", lambda body: body, session)

    assert isinstance(by_upstream, Limited)
    assert (by_upstream.until, by_upstream.by_budget) == (START_MS + 600_000, False)
    assert isinstance(by_budget, Limited)
    assert by_budget.by_budget
    assert by_budget.reason.startswith("tenero: the limit of 1 calls per minute is reached; the next call can")
    assert len(full.fetch.requests) == 1


async def test_three_redirects_are_followed() -> None:
    """A fourth is a circle."""

    def moved(hops: int) -> Any:
        def serve(request: Request) -> FetchResponse:
            hop = int(request.url.rpartition("/")[2])
            if hop == hops:
                return response({"hop": hop})
            return response(b"", status=302, headers={"location": f"/{hop + 1}"})

        return serve

    three, four = wired_hiro(moved(3)), wired_hiro(moved(4))

    assert await ask(three, "/0") == Ok({"hop": 3})
    assert isinstance(await ask(four, "/0"), BadRequest)
    assert len(four.fetch.requests) == 4


async def test_a_url_of_2048_characters_is_followed() -> None:
    """One that is longer is not."""
    answers = []
    for length in (2_048, 2_049):
        path = "/" + "x" * (length - len(HIRO_URL) - 1)

        def moved(request: Request, path: str = path) -> FetchResponse:
            if request.url.endswith("/x/old"):
                return response(b"", status=302, headers={"location": path})
            return response({})

        answers.append(type(await ask(wired_hiro(moved), "/x/old")))

    assert answers == [Ok, BadRequest]


async def test_a_body_of_the_largest_size_is_read_and_a_byte_more_is_not() -> None:
    """Four mebibytes, whatever the platform let through; the failure says that less may help."""
    size = 4 * 1024 * 1024
    fits = await ask(wired_hiro(always(response(b'"' + b"x" * (size - 2) + b'"'))))
    more = await ask(wired_hiro(always(response(b'"' + b"x" * (size - 1) + b'"'))))

    assert isinstance(fits, Ok)
    assert more == Malformed("hiro sent more than 4194304 bytes", too_large=True)


async def test_a_log_line_is_short_whatever_the_upstream_sends() -> None:
    """300 characters of a path, 200 of a body and of a header, 20 headers of limits with 80 characters each."""
    headers = {f"x-ratelimit-{chr(97 + n)}": "v" * 200 for n in range(26)}
    answer = response("b" * 500, status=400, headers={**headers, "cf-ray": "r" * 300, "server": "s"})
    wired = wired_hiro(always(answer))
    await ask(wired, "/" + "p" * 400)
    [line] = wired.log.of("upstream.attempt_failed")
    fields = line.fields

    assert (line.level, len(fields["path"]), len(fields["body_start"])) == ("ERROR", 300, 200)
    assert len(fields["cf_ray"]) == 200
    assert len(fields["limits"]) == 20
    assert {len(value) for value in fields["limits"].values()} == {80}
    assert "server" not in fields["limits"]


async def test_a_failure_without_an_answer_has_no_status() -> None:
    """And its reason names what happened."""

    def fail(_request: Request) -> FetchResponse:
        raise FetchFailed("no route")

    wired = wired_hiro(fail)
    answer = await ask(wired, retries_max=0)
    [line] = wired.log.of("upstream.attempt_failed")

    assert answer == Unavailable("hiro gave no answer (FetchFailed): no route")
    assert (line.level, line.fields["status"], line.fields["answer"]) == ("WARN", None, "unavailable")
    assert "body_start" not in line.fields


async def test_rows_that_are_refused_are_one_line() -> None:
    """With their number and the first reason; none for none."""
    wired = wired_hiro(always(response({})))
    wired.client.rows_refused("/" + "p" * 400, [], wired.task())
    wired.client.rows_refused("/" + "p" * 400, ["r" * 300, "other"], wired.task())
    [line] = wired.log.of("upstream.rows_refused")

    assert (line.level, line.fields["count"], line.fields["first"], len(line.fields["path"])) == (
        "WARN",
        2,
        "r" * 200,
        300,
    )


async def test_answers_that_contradict_each_other_are_an_error_of_the_log() -> None:
    """Named like every other failure."""
    wired = wired_hiro(always(response({})))
    answer = wired.client.contract_broken("/" + "p" * 400, "two totals", wired.task())
    [line] = wired.log.of("upstream.answer_refused")

    assert answer == Malformed("hiro broke its contract: two totals")
    assert (line.level, len(line.fields["path"]), line.fields["reason"]) == ("ERROR", 300, answer.reason)


async def test_how_long_each_attempt_took_is_counted() -> None:
    """By upstream and class of answer, in seconds."""
    counted: list[tuple[str, str, float]] = []
    answers = in_turn(iter([response({}, status=500), response({})]))
    wired = wired_hiro(answers, latency_s=1.5)
    session = wired.task()
    session.on_answer = lambda upstream, kind, took_s: counted.append((upstream, kind, round(took_s, 6)))
    await wired.client.get("/x", lambda body: body, session)

    assert counted == [("hiro", "unavailable", 1.5), ("hiro", "ok", 1.5)]


async def test_a_deprecation_has_its_own_code() -> None:
    """Other warnings of HTTP are none."""
    for warning, count in (("299 - soon", 1), ("199 - soon", 0), ("", 0)):
        wired = wired_hiro(always(response({}, headers={"warning": warning})))
        await ask(wired)
        assert len(wired.log.of("upstream.deprecation_announced")) == count


async def test_an_operators_call_goes_through_a_closed_limiter_once() -> None:
    """The first call of the session; the second waits like every other."""
    closed = response({}, status=429, headers={"retry-after": "600"})
    wired = wired_hiro(in_turn(chain([closed], repeat(response({}, status=429, headers={"retry-after": "600"})))))
    await ask(wired)
    before = len(wired.fetch.requests)
    session = wired.task()
    session.may_probe = True
    for _ in range(2):
        await wired.client.get("/x", lambda body: body, session)

    assert (before, len(wired.fetch.requests)) == (1, 2)
    assert not session.may_probe


async def test_a_call_without_a_wait_is_tried_again_at_once() -> None:
    """The random wait may be zero, and nothing else makes it wait."""
    wired = wired_hiro(in_turn(iter([response({}, status=503), response({"a": 1})])))
    client = UpstreamClient(wired.upstream, wired.fetch, wired.limiter, wired.clock, lambda: 0.0)

    assert await client.get("/x", lambda body: body, wired.task()) == Ok({"a": 1})
    assert wired.clock.monotonic() == 0
