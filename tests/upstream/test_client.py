"""Every answer has its class, every failure its log line, and every retry its bound."""

import asyncio
import json
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import START_MS
from support.scripted_fetch import Request, always, example_response, in_turn, response
from support.upstreams import HIRO_URL, KEY, Wired, read_transaction, wired_hiro, wired_tenero
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import FetchResponse
from tocsin.upstream.answer import Answer, BadRequest, Gone, Limited, Malformed, NotFound, Ok, Unauthorised, Unavailable
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import UpstreamClient, backoff_s, header_number, read_retry_after
from tocsin.upstream.hiro import hiro_upstream

NOW = 1_778_787_000_000  # Thu, 14 May 2026 19:30:00 GMT
MONTH_MS = 2_678_400_000  # 31 days


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response({"a": 1}), Ok),
        (example_response("hiro/tx_404"), NotFound),
        (example_response("tenero/token_404"), NotFound),
        (response(b"", status=404), NotFound),
        (response({"message": "Route GET:/extended/v3/x not found"}, status=404), BadRequest),
        (response({"message": "Cannot GET /api/v1/stacks/tokens"}, status=404), BadRequest),
        (response({"message": "cannot find name a.btc"}, status=404), NotFound),
        (response({"message": "no Route matched with those values"}, status=404), BadRequest),
        (response("<html>not found</html>", status=404), Malformed),
        (example_response("hiro/limit_400"), BadRequest),
        (example_response("hiro/tx_400_bad_hex"), BadRequest),
        (response({}, status=401), Unauthorised),
        (response({}, status=403), Unauthorised),
        (example_response("hiro/deprecated_410"), Gone),
        (example_response("hiro/rate_limited_429"), Limited),
        (example_response("tenero/rate_429"), Limited),
        (example_response("tenero/month_429"), Limited),
        (example_response("hiro/db_503"), Unavailable),
        (response({}, status=520), Unavailable),
        (response({}, status=408), Unavailable),
        (response(b"", status=204), Malformed),
        (response(b"", status=304), Malformed),
        (response(b"", status=302), Malformed),
        (response({}, status=700), Malformed),
        (response("{cut"), Malformed),
        (response(b"\xff\xfe\x00"), Malformed),
        (response("[" * 100_000), Malformed),
    ],
)
async def test_every_answer_has_its_class(answer: FetchResponse, expected: type) -> None:
    """One class per meaning; only the healthy ones leave no failure in the log."""
    wired = wired_hiro(lambda _: answer)

    result = await wired.ask()

    assert type(result) is expected
    failed = wired.log.of("upstream.attempt_failed")
    assert bool(failed) == (expected not in {Ok, NotFound})
    assert all(line.fields["answer"] == result.kind for line in failed)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FetchTimeout("no complete answer within 8 s"), Unavailable),
        (FetchFailed("cut"), Unavailable),
        (FetchTooLarge("more than 8 MB", 200, {}, b"{"), Malformed),
    ],
)
async def test_a_missing_answer_has_its_class(error: Exception, expected: type) -> None:
    """Silence and cut connections are unavailable; a body beyond the cap is malformed."""

    def fail(_: Request) -> FetchResponse:
        raise error

    wired = wired_hiro(fail)

    assert type(await wired.ask()) is expected
    assert wired.log.of("upstream.attempt_failed")


async def test_a_failure_can_be_explained_from_its_log_line() -> None:
    """Upstream, path, status, cf-ray, attempt, limit headers and the start of the body are all there."""
    wired = wired_hiro(lambda _: example_response("hiro/rate_limited_429", cf_ray="8f00-AMS"))

    answer = await wired.ask("/extended/v3/x?limit=5")

    line = wired.log.of("upstream.attempt_failed")[0]
    assert line.level == "WARN"
    assert line.fields["upstream"] == "hiro"
    assert line.fields["path"] == "/extended/v3/x?limit=5"
    assert line.fields["status"] == 429
    assert line.fields["cf_ray"] == "8f00-AMS"
    assert line.fields["attempt"] == 1
    assert line.fields["limits"]["x-ratelimit-limit-stacks-month"] == "150000"
    assert line.fields["limits"]["retry-after"] == "22"
    assert line.fields["body_start"].startswith("Per-minute rate limit exceeded")
    assert isinstance(answer, Limited)


async def test_no_secret_and_no_control_character_reaches_the_log() -> None:
    """An upstream that sends our key back, even across the cut, or a terminal's escapes, is defused."""
    headers = {"cf-ray": KEY, "retry-after": KEY, "location": f"https://evil.test/{KEY}", "warning": f"299 {KEY}"}
    message = json.dumps({"message": f"{KEY}\x07"})
    for status in (200, 400, 404, 500, 302):
        for body in (f"\x1b[31m{KEY}" + "x" * 500, "y" * 195 + KEY, f"[{message}", message, "[" + KEY * 40):
            wired = wired_hiro(always(response(body, status=status, headers=headers)))

            answer = await wired.client.get("/x", read_transaction, wired.task())

            everything = repr(wired.log.lines) + repr(answer) + repr(wired.client._upstream)
            assert KEY[:3] not in everything
            assert all(c.isprintable() for c in everything)


@pytest.mark.parametrize("echo", [json.dumps('q7"w8\\e9z5k1')[1:-1], "q7%22w8%5Ce9z5k1"])
@pytest.mark.parametrize("place", range(187, 201))
async def test_a_key_is_masked_in_every_form_before_the_text_is_cut(echo: str, place: int) -> None:
    """A key that an upstream sends back escaped, across the cut of the log line, shows no part of itself."""
    wired = wired_hiro(always(response("." * place + echo + "tail", status=500)), key='q7"w8\\e9z5k1')

    await wired.client.get("/x", read_transaction, wired.task())

    shown = wired.log.of("upstream.attempt_failed")[0].fields["body_start"]
    assert shown.startswith("." * place)
    assert set(shown[place:]) <= {"*", "…"}


async def test_the_key_travels_in_its_header_alone() -> None:
    """`x-api-key`, a user agent, nothing in the URL; without a key no such header."""
    with_key = wired_hiro(lambda _: response({}))
    without = wired_tenero(lambda _: response({}))
    await with_key.ask()
    await without.ask()

    sent = with_key.fetch.requests[0]
    assert sent.headers["x-api-key"] == KEY
    assert sent.headers["user-agent"].startswith("tocsin/")
    assert KEY not in sent.url
    assert (sent.timeout_s, sent.body_max) == (8.0, 4 * 1024 * 1024)
    assert "x-api-key" not in without.fetch.requests[0].headers


async def test_a_redirect_within_the_host_is_followed() -> None:
    """Each hop is a call of the budget."""

    def moved(request: Request) -> FetchResponse:
        if request.url.endswith("/old"):
            return response(b"", status=301, headers={"location": "/new?a=1"})
        return response({"url": request.url})

    wired = wired_hiro(moved)
    assert await wired.ask("/old") == Ok({"url": f"{HIRO_URL}/new?a=1"})
    assert wired.limiter.status().spent.month == 2


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.test/",
        "//evil.test/",
        "http://hiro.test/",
        "https://hiro.test:444/",
        "https://hiro.test@evil.test/",
        "https://key@hiro.test/",
        "https://[",
        "/a b",
        "/\u00e9",
        "javascript:alert(1)",
        "/" + "x" * 3_000,
    ],
)
async def test_a_redirect_elsewhere_is_refused(location: str) -> None:
    """Our key never follows a redirect to another host, port or scheme."""
    wired = wired_hiro(lambda _: response(b"", status=302, headers={"location": location}))

    assert isinstance(await wired.ask(), BadRequest)
    assert len(wired.fetch.requests) == 1


async def test_an_ignored_key_is_an_error_once() -> None:
    """A configured key with an anonymous client's limits is reported, and again after it had worked."""
    minute = {"limit": "50"}

    def limits(_: Request) -> FetchResponse:
        return response({}, headers={"x-ratelimit-limit-stacks-minute": minute["limit"]})

    wired = wired_hiro(limits)
    for minute["limit"] in ("50", "50", "500", "50"):
        await wired.ask()

    lines = wired.log.of("upstream.key_ignored")
    assert [line.level for line in lines] == ["ERROR", "ERROR"]
    assert "HIRO_API_KEY" in lines[0].fields["reason"]
    told = [event.fields["reason"] for event in wired.events if event.event == "upstream.key_ignored"]
    assert told == [lines[0].fields["reason"]] * 2

    anonymous = wired_hiro(limits, key=None)
    await anonymous.ask()
    assert not anonymous.log.of("upstream.key_ignored")

    tenero = wired_tenero(lambda _: example_response("tenero/token"), key=KEY)
    await tenero.ask()
    assert tenero.log.of("upstream.key_ignored")


def failing_then_ok(*failures: FetchResponse) -> Iterator[FetchResponse]:
    yield from failures
    while True:
        yield response({"fine": True})


async def test_a_passing_failure_is_retried() -> None:
    """Two 5xx or two 429 in a row are survived, a third is not; they are counted apart."""
    for mixed, expected in (
        ([response({}, status=503)] * 2, Ok),
        ([response({}, status=503)] * 3, Unavailable),
        ([response({}, status=429)] * 2, Ok),
        ([response({}, status=429)] * 3, Limited),
        ([response({}, status=429), response({}, status=502)] * 2, Ok),
    ):
        wired = wired_hiro(in_turn(failing_then_ok(*mixed)))
        assert type(await wired.ask()) is expected


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
async def test_lasting_failures_are_not_retried(status: int) -> None:
    """Only 429, 5xx and silence are worth another call."""
    wired = wired_hiro(lambda _: response({}, status=status))
    await wired.ask()

    assert len(wired.fetch.requests) == 1


async def test_retry_after_is_obeyed_by_all_callers() -> None:
    """Within patience the call waits for it; the limiter is closed to other callers too."""
    wired = wired_hiro(in_turn(failing_then_ok(response({}, status=429, headers={"retry-after": "30"}))))
    first = asyncio.create_task(wired.ask())
    await wired.clock.sleep(1)
    second = await wired.ask("/y", wired.request())

    again = "next call 19:30 UTC"
    assert second == Limited(START_MS + 30_000, f"hiro: calls wait after a 429, {again}")
    assert await first == Ok({"fine": True})
    assert wired.clock.monotonic() == 30


async def test_a_retry_after_beyond_patience_ends_the_call() -> None:
    """The answer says until when, and not one more call is made before."""
    wired = wired_hiro(lambda _: response({}, status=429, headers={"retry-after": "900"}))

    assert await wired.ask() == Limited(START_MS + 900_000, "hiro answered 429: too many calls")
    assert isinstance(await wired.ask(), Limited)
    assert len(wired.fetch.requests) == 1
    assert wired.log.of("upstream.call_withheld")


async def test_quota_warnings_are_ratios_of_the_headers_own_limit() -> None:
    """A per-second remainder of 20 of 40 does not warn; a month at a tenth does, once."""

    def limits(_: Request) -> FetchResponse:
        return response(
            {},
            headers={
                "x-ratelimit-limit-stacks-second": "40",
                "x-ratelimit-remaining-stacks-second": "20",
                "x-ratelimit-limit-stacks-month": "150000",
                "x-ratelimit-remaining-stacks-month": "15000",
            },
        )

    wired = wired_hiro(limits, Quota(second=40, month=150_000))
    await wired.ask()
    await wired.ask()

    assert [line.fields["remaining"] for line in wired.log.of("budget.quota_low")] == [15_000]
    assert wired.client.limits.month.remaining == 15_000


@pytest.mark.parametrize(
    ("url", "key"),
    [("ftp://x", None), ("https://", None), ("https://x/?a=1", None), ("https://x", "a\nb"), ("https://x", "")],
)
def test_a_wrong_address_or_key_is_refused_with_its_setting(url: str, key: str | None) -> None:
    """The sentence names the setting to fix."""
    with pytest.raises(UsageError, match="HIRO_API_"):
        hiro_upstream(url, key)


async def test_a_path_in_the_base_url_is_kept() -> None:
    """Behind a proxy's prefix everything works the same."""
    wired = Wired(hiro_upstream("https://proxy.test/hiro/", None), lambda _: response({}))
    await wired.ask("/x")

    assert wired.fetch.requests[0].url == "https://proxy.test/hiro/x"
    assert isinstance(wired.client, UpstreamClient)


def test_the_wait_before_a_retry_doubles_up_to_eight_seconds() -> None:
    """Half a second before the first; chance makes it shorter."""
    assert [backoff_s(retry, 1.0) for retry in (1, 2, 3, 4, 5, 6, 50)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert [backoff_s(3, jitter) for jitter in (0.0, 0.25)] == [0, 0.5]


@pytest.mark.parametrize(("status", "kind"), [(500, Unavailable), (429, Limited)])
async def test_a_call_is_made_three_times_at_most(status: int, kind: type) -> None:
    """Once, and twice again; each is counted by the session."""
    wired = wired_hiro(always(response({}, status=status, headers={"retry-after": "1"})))
    session = wired.task()
    answer = await wired.ask(session=session)

    assert type(answer) is kind
    assert (len(wired.fetch.requests), session.calls) == (3, 3)
    assert [line.fields["attempt"] for line in wired.log.of("upstream.attempt_failed")] == [1, 2, 3]


async def test_the_retries_of_a_session_are_shared_by_its_calls() -> None:
    """With one left, the first call takes it and the second has none."""
    wired = wired_hiro(always(response({}, status=500)))
    session = wired.task(retries_max=1)
    for _ in range(2):
        await wired.ask(session=session)

    assert len(wired.fetch.requests) == 3


async def test_after_five_calls_without_an_answer_nothing_is_asked_any_more() -> None:
    """The sixth ends without a call, with the reason; an answered one resets the count."""
    wired = wired_hiro(always(response({}, status=500)))
    session = wired.task(retries_max=0)
    answers = [await wired.ask(session=session) for _ in range(6)]

    assert len(wired.fetch.requests) == 5
    assert answers[5] == Unavailable("hiro gave no answer 5 times in a row: no call was made")

    mixed = chain(repeat(response({}, status=500), 4), [response({})], repeat(response({}, status=500)))
    wired = wired_hiro(in_turn(mixed))
    session = wired.task(retries_max=0)
    for _ in range(12):
        await wired.ask(session=session)
    assert len(wired.fetch.requests) == 10


@pytest.mark.parametrize("retry_after", ["69.9", "70"])
async def test_a_retry_waits_only_as_long_as_the_patience_of_its_session(retry_after: str) -> None:
    """70 seconds for a task: a 503 that asks for more ends the call at once."""
    answers = [response({}, status=503, headers={"retry-after": retry_after}), response({"a": 1})]
    wired = wired_hiro(in_turn(iter(answers)))
    answer = await wired.ask()
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
    answer = await wired.ask()

    assert (type(answer), len(wired.fetch.requests)) == (Ok if count == 2 else Limited, count)


async def test_a_limited_call_says_when_the_next_can_be_made() -> None:
    """By the upstream after a 429, by our own budget when a window is full; only then no call is made."""
    limited = wired_hiro(always(response({}, status=429, headers={"retry-after": "600"})))
    by_upstream = await limited.ask()
    full = wired_tenero(always(response({})), Quota(minute=1, request_share=0))
    await full.ask()
    session = full.task()
    session.patience_s = 0.0
    by_budget = await full.ask(session=session)

    assert isinstance(by_upstream, Limited)
    assert (by_upstream.until, by_upstream.by_budget) == (START_MS + 600_000, False)
    assert isinstance(by_budget, Limited)
    assert by_budget.by_budget
    assert by_budget.reason.startswith("tenero: the limit of 1 calls per minute is reached, next call ")
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

    assert await three.ask("/0") == Ok({"hop": 3})
    assert isinstance(await four.ask("/0"), BadRequest)
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

        answers.append(type(await wired_hiro(moved).ask("/x/old")))

    assert answers == [Ok, BadRequest]


async def test_a_log_line_is_short_whatever_the_upstream_sends() -> None:
    """300 characters of a path, 200 of a body and of a header, 20 headers of limits with 80 characters each."""
    headers = {f"x-ratelimit-{chr(97 + n)}": "v" * 200 for n in range(26)}
    answer = response("b" * 500, status=400, headers={**headers, "cf-ray": "r" * 300, "server": "s"})
    wired = wired_hiro(always(answer))
    await wired.ask("/" + "p" * 400)
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
    answer = await wired.ask(retries_max=0)
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

    assert (line.level, line.fields["count"]) == ("WARN", 2)
    assert (line.fields["first"], len(line.fields["path"])) == ("r" * 200, 300)


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
    await wired.ask(session=session)

    assert counted == [("hiro", "unavailable", 1.5), ("hiro", "ok", 1.5)]


async def test_a_deprecation_has_its_own_code() -> None:
    """It is logged once per wording; other warnings of HTTP are none."""
    for warning, levels in (("299 - soon", ["WARN"]), ("199 - soon", []), ("", [])):
        wired = wired_hiro(always(response({}, headers={"warning": warning})))
        for _ in range(3):
            await wired.ask()
        assert [line.level for line in wired.log.of("upstream.deprecation_announced")] == levels


async def test_an_operators_call_goes_through_a_closed_limiter_once() -> None:
    """The first call of the session; the second waits like every other."""
    closed = response({}, status=429, headers={"retry-after": "600"})
    wired = wired_hiro(in_turn(chain([closed], repeat(response({}, status=429, headers={"retry-after": "600"})))))
    await wired.ask()
    before = len(wired.fetch.requests)
    session = wired.task()
    session.may_probe = True
    for _ in range(2):
        await wired.ask(session=session)

    assert (before, len(wired.fetch.requests)) == (1, 2)
    assert not session.may_probe


async def test_a_call_without_a_wait_is_tried_again_at_once() -> None:
    """The random wait may be zero, and nothing else makes it wait."""
    wired = wired_hiro(in_turn(iter([response({}, status=503), response({"a": 1})])))
    wired.client._random = lambda: 0.0

    assert await wired.client.get("/x", lambda body: body, wired.task()) == Ok({"a": 1})
    assert wired.clock.monotonic() == 0


def changing(*answers: FetchResponse) -> Wired:
    """A wire for PATCH that gives one answer after the other, then repeats the last one."""
    wired = wired_hiro(in_turn(chain(answers, repeat(answers[-1]))))
    wired.fetch.method = "PATCH"
    return wired


async def patch(wired: Wired) -> Answer[None]:
    """Make a change: paid from the budget like a GET, and bounded like one."""
    answer = await wired.client.patch("/hook/enabled", {"enabled": True}, wired.task())
    assert wired.limiter.status().spent.month == len(wired.fetch.requests)
    assert {(request.timeout_s, request.body_max) for request in wired.fetch.requests} == {(8.0, 4 * 1024 * 1024)}
    return answer


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_a_change_is_sent_once_with_its_body_and_our_key(status: int) -> None:
    """The answer to it need not have a body."""
    wired = changing(response(b"", status=status))

    assert await patch(wired) == Ok(None)
    (request,) = wired.fetch.requests
    assert (request.url, json.loads(request.body or b"")) == (f"{HIRO_URL}/hook/enabled", {"enabled": True})
    assert (request.headers["content-type"], request.headers["x-api-key"]) == ("application/json", KEY)


async def test_a_change_is_tried_again_when_the_upstream_is_busy() -> None:
    """It is idempotent, and every attempt is paid for."""
    wired = changing(response({}, status=503), response({}, status=429), response(b"", status=204))

    assert await patch(wired) == Ok(None)
    assert len(wired.fetch.requests) == 3


async def test_a_redirect_of_a_change_is_not_followed() -> None:
    """Not even within the same host."""
    wired = changing(response(b"", status=307, headers={"location": "/elsewhere"}))
    answer = await patch(wired)

    assert isinstance(answer, BadRequest)
    assert "HIRO_API_URL" in answer.reason
    assert len(wired.fetch.requests) == 1


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, Unauthorised), (404, NotFound), (410, Gone), (422, BadRequest), (429, Limited), (500, Unavailable)],
)
async def test_a_change_that_was_not_made_has_the_class_of_its_answer(status: int, expected: type) -> None:
    """As for a GET."""
    assert isinstance(await patch(changing(response(b"", status=status))), expected)


async def test_a_hook_is_enabled_by_a_change() -> None:
    """Of its own address, to true."""
    wired = changing(response(b"", status=200))

    assert await wired.hiro.enable_hook("/chainhooks/v1/me/7", wired.task()) == Ok(None)
    (request,) = wired.fetch.requests
    assert request.url == f"{HIRO_URL}/chainhooks/v1/me/7/enabled"
    assert json.loads(request.body or b"") == {"enabled": True}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("0", 0), (" 7 ", 7), ("1000000000", 10**9), ("1000000001", None), ("-1", None), ("", None), ("1.5", None)],
)
def test_a_count_is_a_plausible_number(value: str, expected: int | None) -> None:
    assert header_number({"x": value}, "x") == expected
    assert header_number({}, "x") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("22", 22_000),
        ("1.5", 1_500),
        ("0", 0),
        ("0.001", 1),
        ("2678399", MONTH_MS - 1_000),
        ("2678400", MONTH_MS),
        ("2678401", MONTH_MS),
        ("Thu, 14 May 2026 19:30:01 GMT", 1_000),
        ("Thu, 14 May 2026 19:30:01", 1_000),
        ("Thu, 14 May 2020 19:30:00 GMT", 0),
        ("Sun, 14 Jun 2026 19:29:59 GMT", MONTH_MS - 1_000),
        ("Sun, 14 Jun 2026 19:30:01 GMT", MONTH_MS),
        ("Thu, 14 May 2026 19:30:01 GMT" + " (" + "x" * 32 + ")", 1_000),  # 64 characters
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(value: str, expected: int) -> None:
    """A month at most."""
    assert read_retry_after({"retry-after": value}, NOW) == expected


def test_what_is_neither_seconds_nor_a_date_is_no_retry_after() -> None:
    day = "Thu, 14 May 2026 19:30:00"
    zones = ("+99999999999999999999", "+9900", "GMT (" + "x" * 33 + ")")
    other_days = ("Thu, 99 Foo 2026 99:30:00 GMT", "Thu, 14 May 99999 19:30:00 GMT", "Thu, 14")
    for value in (*(f"{day} {zone}" for zone in zones), *other_days, "soon", "-5", "9" * 40, ""):
        assert read_retry_after({"retry-after": value}, NOW) is None


def test_a_date_is_measured_from_the_answers_own_date() -> None:
    """Our clock may be wrong."""
    headers = {"retry-after": "Thu, 14 May 2026 19:30:00 GMT", "date": "Thu, 14 May 2026 19:29:00 GMT"}

    assert read_retry_after(headers, NOW) == 60_000
    assert read_retry_after({}, NOW) is None


async def test_two_hundred_warnings_are_remembered() -> None:
    """A new one beyond that is not logged."""
    wired = wired_hiro(in_turn(response({}, headers={"warning": f"299 - {number}"}) for number in range(201)))
    for _ in range(201):
        await wired.ask()

    assert len(wired.log.of("upstream.deprecation_announced")) == 200
