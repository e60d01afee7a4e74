"""Every answer has its class, every failure its log line, and every retry its bound."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from holdfast.errors import UsageError
from holdfast.types import JSON
from holdfast_testing.virtual_time import START_MS
from support.scripted_fetch import Request, always, example_response, in_turn, response
from support.upstreams import HIRO_URL, KEY, Wired, wired_hiro, wired_tenero
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import FetchResponse
from tocsin.upstream import hiro_parse
from tocsin.upstream.answer import Answer, BadRequest, Gone, Limited, Malformed, NotFound, Ok, Unauthorised, Unavailable
from tocsin.upstream.budget import Quota
from tocsin.upstream.client import RetryPolicy, UpstreamClient, read_retry_after
from tocsin.upstream.hiro import hiro_upstream


def anything(body: JSON) -> JSON:
    return body


async def ask(wired: Wired, target: str = "/x") -> Answer[JSON]:
    return await wired.client.get(target, anything, wired.task())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response({"a": 1}), Ok),
        (example_response("hiro/tx_404"), NotFound),
        (example_response("tenero/token_404"), NotFound),
        (response(b"", status=404), NotFound),
        (response({"message": "Route GET:/extended/v3/x not found"}, status=404), BadRequest),
        (response({"message": "Cannot GET /api/v1/stacks/tokens"}, status=404), BadRequest),
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

    result = await ask(wired)

    assert type(result) is expected
    failed = wired.log.of("upstream.attempt_failed")
    assert bool(failed) == (expected not in {Ok, NotFound})
    assert all(line.fields["answer"] == result.kind for line in failed)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FetchTimeout("no complete answer within 8 s"), Unavailable),
        (FetchFailed("cut"), Unavailable),
        (FetchTooLarge(), Malformed),
    ],
)
async def test_no_answer_has_its_class_too(error: Exception, expected: type) -> None:
    """Silence and cut connections are unavailable; a body beyond the cap is malformed."""

    def fail(_: Request) -> FetchResponse:
        raise error

    wired = wired_hiro(fail)

    assert type(await ask(wired)) is expected
    assert wired.log.of("upstream.attempt_failed")


async def test_a_failure_can_be_explained_from_its_log_line() -> None:
    """Upstream, path, status, cf-ray, attempt, limit headers and the start of the body are all there."""
    wired = wired_hiro(lambda _: example_response("hiro/rate_limited_429", cf_ray="8f00-AMS"))

    answer = await ask(wired, "/extended/v3/x?limit=5")

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

            answer = await wired.client.get("/x", hiro_parse.transaction_v3, wired.task())

            everything = repr(wired.log.lines) + repr(answer) + repr(wired.client._upstream)
            assert KEY[:3] not in everything
            assert all(c.isprintable() for c in everything)


@pytest.mark.parametrize("echo", [json.dumps('q7"w8\\e9z5k1')[1:-1], "q7%22w8%5Ce9z5k1"])
@pytest.mark.parametrize("place", range(187, 201))
async def test_a_key_is_masked_in_every_form_before_the_text_is_cut(echo: str, place: int) -> None:
    """A key that an upstream sends back escaped, across the cut of the log line, shows no part of itself."""
    wired = wired_hiro(always(response("." * place + echo + "tail", status=500)), key='q7"w8\\e9z5k1')

    await wired.client.get("/x", hiro_parse.transaction_v3, wired.task())

    shown = wired.log.of("upstream.attempt_failed")[0].fields["body_start"]
    assert shown.startswith("." * place)
    assert set(shown[place:]) <= {"*", "…"}


async def test_the_key_travels_in_its_header_alone() -> None:
    """`x-api-key`, a user agent, nothing in the URL; without a key no such header."""
    with_key = wired_hiro(lambda _: response({}))
    without = wired_tenero(lambda _: response({}))
    await ask(with_key)
    await ask(without)

    sent = with_key.fetch.requests[0]
    assert sent.headers["x-api-key"] == KEY
    assert sent.headers["user-agent"].startswith("tocsin/")
    assert KEY not in sent.url
    assert (sent.timeout_s, sent.body_max) == (8.0, 4 * 1024 * 1024)
    assert "x-api-key" not in without.fetch.requests[0].headers


async def test_a_redirect_within_the_host_is_followed() -> None:
    """Each hop is a call of the budget; a circle of them ends."""

    def moved(request: Request) -> FetchResponse:
        if request.url.endswith("/old"):
            return response(b"", status=301, headers={"location": "/new?a=1"})
        return response({"url": request.url})

    wired = wired_hiro(moved)
    assert await ask(wired, "/old") == Ok({"url": f"{HIRO_URL}/new?a=1"})
    assert wired.limiter.status().spent.month == 2

    circle = wired_hiro(lambda _: response(b"", status=307, headers={"location": "/x"}))
    assert isinstance(await ask(circle), BadRequest)
    assert len(circle.fetch.requests) == 4


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

    assert isinstance(await ask(wired), BadRequest)
    assert len(wired.fetch.requests) == 1


async def test_an_ignored_key_is_an_error_once() -> None:
    """A configured key with an anonymous client's limits is reported, and again after it had worked."""
    minute = {"limit": "50"}

    def limits(_: Request) -> FetchResponse:
        return response({}, headers={"x-ratelimit-limit-stacks-minute": minute["limit"]})

    wired = wired_hiro(limits)
    for minute["limit"] in ("50", "50", "500", "50"):
        await ask(wired)

    lines = wired.log.of("upstream.key_ignored")
    assert [line.level for line in lines] == ["ERROR", "ERROR"]
    assert "HIRO_API_KEY" in lines[0].fields["reason"]
    assert wired.keys_ignored == [lines[0].fields["reason"]] * 2

    anonymous = wired_hiro(limits, key=None)
    await ask(anonymous)
    assert not anonymous.log.of("upstream.key_ignored")
    assert not anonymous.keys_ignored

    tenero = wired_tenero(lambda _: example_response("tenero/token"), key=KEY)
    await ask(tenero)
    assert tenero.log.of("upstream.key_ignored")


async def test_a_deprecation_is_logged_once_per_wording() -> None:
    """However often the header comes."""
    wired = wired_hiro(lambda _: response({}, headers={"warning": '299 - "Deprecated: use v3"'}))
    for _ in range(3):
        await ask(wired)

    assert [line.level for line in wired.log.of("upstream.deprecation_announced")] == ["WARN"]


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
        assert type(await ask(wired)) is expected


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
async def test_what_will_not_change_is_not_retried(status: int) -> None:
    """Only 429, 5xx and silence are worth another call."""
    wired = wired_hiro(lambda _: response({}, status=status))
    await ask(wired)

    assert len(wired.fetch.requests) == 1


async def test_retry_after_is_obeyed_by_all_callers() -> None:
    """Within patience the call waits for it; the limiter is closed to other callers too."""
    wired = wired_hiro(in_turn(failing_then_ok(response({}, status=429, headers={"retry-after": "30"}))))
    first = asyncio.create_task(ask(wired))
    await wired.clock.sleep(1)
    second = await wired.client.get("/y", anything, wired.request())

    again = "the next call can be made at 2026-05-13 19:30 UTC"
    assert second == Limited(START_MS + 30_000, f"hiro: all callers wait after a 429; {again}")
    assert await first == Ok({"fine": True})
    assert wired.clock.monotonic() == 30


async def test_a_retry_after_beyond_patience_ends_the_call() -> None:
    """The answer says until when, and not one more call is made before."""
    wired = wired_hiro(lambda _: response({}, status=429, headers={"retry-after": "900"}))

    assert await ask(wired) == Limited(START_MS + 900_000, "hiro answered 429: too many calls")
    assert isinstance(await ask(wired), Limited)
    assert len(wired.fetch.requests) == 1
    assert wired.log.of("upstream.call_withheld")


async def test_a_503_with_retry_after_waits_that_long() -> None:
    """The server's own estimate is the least we wait."""
    wired = wired_hiro(in_turn(failing_then_ok(response({}, status=503, headers={"retry-after": "7"}))))
    await ask(wired)

    assert wired.clock.monotonic() >= 7


def test_back_off_has_full_jitter() -> None:
    """A wait from 0 to the doubled ceiling, and the ceiling is capped."""
    policy = RetryPolicy()

    assert policy.backoff(1, 0.0) == 0
    assert policy.backoff(3, 0.5) == 1.0
    assert policy.backoff(50, 1.0) == 8.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "22"}, 22_000),
        ({"retry-after": "1.5"}, 1_500),
        ({"retry-after": "Thu, 14 May 2026 19:30:00 GMT"}, (1_778_787_000_000 - START_MS)),
        ({"retry-after": "Thu, 14 May 2026 19:30:00 GMT", "date": "Thu, 14 May 2026 19:29:00 GMT"}, 60_000),
        ({"retry-after": "Thu, 14 May 2020 19:30:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "9" * 40}, None),
        ({"retry-after": "Thu, 99 Foo 2026 99:30:00 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(headers: dict[str, str], expected: int | None) -> None:
    """A date is measured from the answer's own date, so that our clock may be wrong."""
    assert read_retry_after(headers, START_MS) == expected


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
    await ask(wired)
    await ask(wired)

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
    await ask(wired, "/x")

    assert wired.fetch.requests[0].url == "https://proxy.test/hiro/x"
    assert isinstance(wired.client, UpstreamClient)
