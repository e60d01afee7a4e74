"""One shape for every error, no 5xx for any input, pages of other sites, and requests under way at a stop."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import BindingMissing, StoreUnavailable, UsageError
from holdfast.testing.virtual_time import VirtualClock, run_virtual
from holdfast_testing.captured_log import CapturedLog
from support.asgi import Answer, ask, open_server
from support.web_thread import served_in_thread
from support.world import ADMIN_KEY, CRON_SECRET, Tocsin, tocsin_in
from tocsin.errors import RequestRefused
from tocsin.local.logs import library_logs
from tocsin.local.server import HttpServer
from tocsin.web.app import ErrorMiddleware
from tocsin.web.limits import BODY_MAX, ClientLimits, networks_of
from tocsin.web.response import refusal_of
from tocsin.web.route import Handler, Operation, routes_of


def assert_error_shape(answer: Answer) -> None:
    shape = json.loads(answer.body)
    assert isinstance(shape["error"], str)
    assert shape["error"]
    assert isinstance(shape["code"], str)
    assert isinstance(shape["retryable"], bool)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/api", "/api/prices/", "/api/nothing", "//api/prices", "/healthz/x"])
async def test_an_unknown_route_is_a_404(made: Tocsin, path: str) -> None:
    """Even with one slash too many: nothing redirects."""
    answer = await ask(made.built.web(), path)  # without the pages

    assert (answer.status, answer.json()["code"]) == (404, "not_found")
    assert_error_shape(answer)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/api/prices", "GET, HEAD"),
        ("POST", "/api/prices", "GET, HEAD"),
        ("PUT", "/api/admin/scheduler", "GET, POST, HEAD"),
        ("BREW", "/healthz", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_ones(
    made: Tocsin, method: str, path: str, allow: str
) -> None:
    """All methods of the path are in `Allow`."""
    answer = await made.ask(path, method=method)

    assert (answer.status, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow
    assert_error_shape(answer)


async def test_head_is_a_get(made: Tocsin) -> None:
    """Same status and headers; the server leaves the body out."""
    got, head = await made.ask("/healthz"), await made.ask("/healthz", method="HEAD")

    assert (head.status, head.headers) == (200, got.headers)
    assert (await made.ask("/api/prices", method="HEAD")).status == 200


async def test_a_closed_store_is_a_503(made: Tocsin) -> None:
    """For every route that reads prices, and without the name of the file."""
    await made.kv.close()
    for path in ("/api/prices", "/api/prices?token=stx", "/metrics"):
        answer = await made.ask(path)

        assert (answer.status, answer.json()["code"]) == (503, "store_unavailable")
        assert answer.json()["retryable"] is True
        assert b"sqlite" not in answer.body.lower()
        assert_error_shape(answer)


PATHS = [
    "/api/prices",
    "/api/competition/cron",
    "/api/admin/scheduler",
    "/api/admin/scheduler/runs",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/api/docs",
]
TEXT = st.text(max_size=40) | st.sampled_from(
    ["stx", "0", "-1", "9" * 40, "pause", "2h", "refresh", "all", "\x00", "%"]
)
QUERY = st.lists(
    st.tuples(st.sampled_from(["tokens", "token", "action", "until", "for", "task", "limit"]) | TEXT, TEXT), max_size=4
)
HEADER = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=40)


@dataclass(frozen=True)
class Sent:
    """Any request. With `keyed`, it has the keys of an operator and of the cron route."""

    path: str
    method: str
    query: list[tuple[str, str]]
    raw_query: str | None
    headers: dict[str, str]
    keyed: bool
    body: bytes

    async def to(self, made: Tocsin) -> Answer:
        encoded = "&".join(f"{quote(name)}={quote(value)}" for name, value in self.query)
        keys = {"X-Admin-Key": ADMIN_KEY, "X-Cron-Secret": CRON_SECRET} if self.keyed else {}
        target = f"{self.path}?{encoded if self.raw_query is None else self.raw_query}"
        return await made.ask(target, method=self.method, headers={**self.headers, **keys}, body=self.body)


REQUEST = st.builds(
    Sent,
    path=st.sampled_from(PATHS) | TEXT.map(lambda text: "/" + quote(text, safe="/")),
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "X"]),
    query=QUERY,
    raw_query=st.none() | st.binary(max_size=40).map(lambda raw: quote(raw, safe="&=;+,%")),
    headers=st.dictionaries(
        st.sampled_from(["If-None-Match", "X-Admin-Key", "X-Cron-Secret", "Last-Event-ID", "Accept"]), HEADER
    ),
    keyed=st.booleans(),
    body=st.binary(max_size=100),
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(requests=st.lists(REQUEST, min_size=4, max_size=8))
def test_no_input_leads_to_a_5xx(requests: list[Sent]) -> None:
    """Any request: success, or an error in the shape of all errors, never a defect."""

    async def send() -> list[Answer]:
        with tempfile.TemporaryDirectory() as directory:
            async with tocsin_in(Path(directory), arm=True) as made:
                return [await request.to(made) for request in requests]

    for answer in run_virtual(send()):
        assert answer.status < 500
        if answer.status >= 400:
            assert_error_shape(answer)


DOC = Operation("POST", "/it", "doIt", "")


def app_of(handler: Handler, log: CapturedLog, **options: object) -> ASGIApp:
    """An app with one route."""
    operation = replace(DOC, **options)  # type: ignore[arg-type]
    (route,) = routes_of([(operation, handler)], ClientLimits(10, VirtualClock(), CapturedLog()))
    return ErrorMiddleware(route, log)


async def test_a_defect_is_logged_and_not_shown() -> None:
    """500 in the shape of all errors; the traceback is for the operator."""

    async def broken(_request: Request) -> ASGIApp:
        raise ZeroDivisionError("secret detail")

    log = CapturedLog()
    answer = await ask(app_of(broken, log), "/it", method="POST")

    assert (answer.status, answer.json()["code"]) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert_error_shape(answer)
    (line,) = log.named("request.failed")
    assert "secret detail" in line["error"]
    assert "test_app.py" in line["traceback"]


async def test_half_a_response_is_cut_off() -> None:
    """When it fails after it has begun, only the connection can still show it."""

    async def failing_later(_request: Request) -> ASGIApp:
        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ZeroDivisionError

        return app

    log = CapturedLog()
    with pytest.raises(ZeroDivisionError):
        await ask(app_of(failing_later, log), "/it", method="POST")
    assert len(log.named("request.failed")) == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UsageError("do this"), 400, "bad_request"),
        (StoreUnavailable("/data is full"), 503, "store_unavailable"),
        (BindingMissing("KV"), 503, "not_configured"),
        (RequestRefused(422, "tx_failed", "it failed"), 422, "tx_failed"),
        (KeyError("x"), 500, "internal_error"),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int, code: str) -> None:
    """One table has them all; only sentences that were written for clients are passed on."""
    refusal = refusal_of(error)

    assert (refusal.status, refusal.code) == (status, code)
    assert "/data" not in str(refusal)


async def echo(request: Request) -> ASGIApp:
    return Response(await request.body())


async def test_a_body_is_capped() -> None:
    """Announced or not, one byte too many is refused; up to there all of it is read."""

    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 1024

    app = app_of(echo, CapturedLog())
    fits = b"x" * BODY_MAX

    assert (await ask(app, "/it", method="POST", body=fits)).body == fits
    assert len((await ask(app, "/it", method="POST", body=pieces(64))).body) == BODY_MAX
    for body in (fits + b"x", pieces(65)):
        answer = await ask(app, "/it", method="POST", body=body)
        assert (answer.status, answer.json()["code"]) == (413, "body_too_large")
        assert_error_shape(answer)


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    """After half a minute, with a code of its own; no client may keep a connection by sending nothing."""
    app = app_of(echo, CapturedLog())

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    assert await posted(app, receive) == (408, "body_too_slow")


async def test_a_body_that_comes_drop_by_drop_is_given_up() -> None:
    """Half a minute is for the whole body: a byte now and then does not lengthen it."""
    app, began_s = app_of(echo, CapturedLog()), asyncio.get_running_loop().time()

    async def receive() -> Message:
        await asyncio.sleep(5)
        assert asyncio.get_running_loop().time() < began_s + 60
        return {"type": "http.request", "body": b"x", "more_body": True}

    assert await posted(app, receive) == (408, "body_too_slow")
    assert asyncio.get_running_loop().time() == began_s + 30


async def posted(app: ASGIApp, receive: Receive) -> tuple[int, str]:
    """The status and the code of the answer to a post."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/it", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])["code"]


async def test_a_route_may_accept_larger_bodies() -> None:
    """The cap is the route's."""
    app = app_of(echo, CapturedLog(), body_max=BODY_MAX + 1)

    assert (await ask(app, "/it", method="POST", body=b"x" * (BODY_MAX + 1))).status == 200


def test_a_client_that_sends_before_it_reads_gets_the_error(tmp_path: Path) -> None:
    """Over a real connection: the rest of a refused body is read, and the connection stays usable."""
    with served_in_thread(tmp_path) as running, closing(HTTPConnection("127.0.0.1", running.port)) as client:
        for path, refusal in (
            ("/api/competition/trades", (413, "body_too_large")),
            ("/api/chainhook", (401, "unauthorised")),
        ):
            client.request("POST", path, b"x" * 10_000_000, {"Content-Type": "application/json"})
            answer = client.getresponse()
            assert (answer.status, json.loads(answer.read())["code"]) == refusal


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01 hello\r\n\r\n"])
def test_a_request_that_is_not_http_has_the_same_shape(sent: bytes, tmp_path: Path) -> None:
    """An unknown method, a TLS greeting: the parser refuses them before any route is called."""
    with served_in_thread(tmp_path) as running, create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(sent)
        answer = b""
        while piece := client.recv(4096):
            answer += piece

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "malformed_request"


async def test_a_trusted_proxy_reports_the_client() -> None:
    """Its header is used, and no other client's."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(networks_of(scope)[0])
        await Response("")(scope, receive, send)

    def visit(port: int) -> None:
        with closing(HTTPConnection("127.0.0.1", port)) as client:
            client.request("GET", "/", headers={"X-Forwarded-For": "203.0.113.9"})
            client.getresponse().read()

    for proxies in ((), ("10.0.0.0/8",), ("127.0.0.0/8",)):
        async with open_server(app, *proxies) as server:
            await asyncio.to_thread(visit, server.port)

    assert seen == ["127.0.0.1", "127.0.0.1", "203.0.113.9"]


ELSEWHERE = {"origin": "https://elsewhere.test"}
SITE = {"origin": "https://aibtc.com"}
PREFLIGHT = {"access-control-request-method": "GET", "access-control-request-headers": "if-none-match"}
PUBLIC = [
    "/api/prices",
    "/api/competition/leaderboard",
    "/api/competition/allowlist",
    "/api/competition/tracked-tokens",
    "/api/competition/trades",  # refused for lack of an address: the page must be able to read why
    "/api/competition/status",
    "/openapi.json",
    "/api/openapi.json",
]
CLOSED = [
    "/api/admin/scheduler",
    "/api/admin/scheduler/runs",
    "/api/admin/scheduler/audit",
    "/api/chainhook",
    "/metrics",
    "/readyz",
    "/leaderboard",
]


@pytest.mark.slow
@pytest.mark.parametrize("path", PUBLIC)
async def test_any_site_may_read_what_is_public(path: str, made: Tocsin) -> None:
    """Twice: the second answer comes from the cache. Cookies are never allowed."""
    answers = [await made.ask(path, headers=ELSEWHERE) for _ in range(2)]
    preflight = await made.ask(path, method="OPTIONS", headers={**ELSEWHERE, **PREFLIGHT})

    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-expose-headers"] == "etag, retry-after"
        assert "access-control-allow-credentials" not in answer.headers
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-methods"] == "GET, HEAD"


@pytest.mark.parametrize("path", CLOSED)
async def test_everything_else_is_closed(path: str, made: Tocsin) -> None:
    """Even for somebody who has the key: a page of another site must not use it."""
    headers = {**ELSEWHERE, "X-Admin-Key": ADMIN_KEY}
    answer = await made.ask(path, headers=headers)
    preflight = await made.ask(path, method="OPTIONS", headers={**ELSEWHERE, **PREFLIGHT})

    assert preflight.status in {404, 405}
    for each in (answer, preflight):
        assert not [name for name in each.headers if name.startswith("access-control")]


async def test_a_page_of_another_site_may_not_submit(made: Tocsin) -> None:
    """The browser asks first, because of the content type, and gets no yes. Without that type it is refused."""
    path = "/api/competition/trades"
    headers = {**ELSEWHERE, "access-control-request-method": "POST"}
    preflight = await made.ask(path, method="OPTIONS", headers=headers)
    simple = {**ELSEWHERE, "content-type": "text/plain"}
    posted = await made.ask(path, method="POST", headers=simple, body=b"{}")

    assert (preflight.status, posted.status) == (405, 415)
    for answer in (preflight, posted):
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_sites_can_be_listed(tmp_path: Path) -> None:
    """Then a response differs by origin, and says so to caches."""
    async with tocsin_in(tmp_path, cors_origins=("https://aibtc.com", "https://www.aibtc.com")) as made:
        for _ in range(2):
            allowed = await made.ask("/api/prices", headers=SITE)
            other = await made.ask("/api/prices", headers=ELSEWHERE)
            without = await made.ask("/api/prices")
            assert allowed.headers["access-control-allow-origin"] == "https://aibtc.com"
            for answer in (other, without):
                assert "access-control-allow-origin" not in answer.headers
            assert {answer.headers["vary"] for answer in (allowed, other, without)} == {"origin"}


async def test_no_site_at_all(tmp_path: Path) -> None:
    async with tocsin_in(tmp_path, cors_origins=()) as made:
        answer = await made.ask("/api/prices", headers=SITE)
        preflight = await made.ask("/api/prices", method="OPTIONS", headers={**SITE, **PREFLIGHT})

    assert preflight.status == 405
    assert not [name for name in (*answer.headers, *preflight.headers) if name.startswith("access-control")]


async def stopped_during(handler: Handler, started: asyncio.Event) -> tuple[str, bytes, CapturedLog]:
    """Stop the server while a request is in this handler: head and body of the response, and the log."""
    log = CapturedLog()
    (route,) = routes_of([(DOC, handler)], ClientLimits(10, VirtualClock(), CapturedLog()))
    server = HttpServer("127.0.0.1", 0)
    with library_logs(log):
        await server.start(ErrorMiddleware(route, log))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /it HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        await started.wait()
        await server.stop()
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode().lower(), body, log


async def test_a_request_that_cannot_end_is_refused_in_the_usual_shape() -> None:
    """503, with the time to retry; one warning in the log, and no traceback."""
    started = asyncio.Event()

    async def hang(_request: Request) -> ASGIApp:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    head, body, log = await stopped_during(hang, started)

    assert head.startswith("http/1.1 503 ")
    assert "retry-after: " in head
    assert json.loads(body)["code"] == "scheduler_unavailable"
    assert json.loads(body)["retryable"] is True
    (line,) = log.lines
    assert (line.level, line.event) == ("WARN", "request.failed")
    assert "traceback" not in line.fields


async def test_a_request_that_ends_in_time_gets_its_response() -> None:
    """The grace is for those."""
    started = asyncio.Event()

    async def slow(_request: Request) -> ASGIApp:
        started.set()
        await asyncio.sleep(2)
        return Response("done")

    head, body, log = await stopped_during(slow, started)

    assert head.startswith("http/1.1 200 ")
    assert (body, log.lines) == (b"done", [])


async def test_work_after_a_response_ends_quietly() -> None:
    """As after a push of Chainhook: the next sweep does what is left."""
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    async def respond(_request: Request) -> ASGIApp:
        return Response("done", background=BackgroundTask(hang))

    head, _body, log = await stopped_during(respond, started)

    assert head.startswith("http/1.1 200 ")
    assert log.lines == []


async def test_a_request_that_is_on_its_way_when_the_server_stops_is_answered() -> None:
    """On a new connection and on a kept one; the response ends the connection, and nothing is reset."""
    server = HttpServer("127.0.0.1", 0)
    await server.start(Response("fine"))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    kept_reader, kept_writer = await asyncio.open_connection("127.0.0.1", server.port)
    kept_writer.write(b"GET /it HTTP/1.1\r\nHost: x\r\n\r\n")
    await kept_reader.readuntil(b"fine")
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0.3)
    for sender in (writer, kept_writer):
        sender.write(b"GET /it HTTP/1.1\r\nHost: x\r\n\r\n")
    answers = [await each.read() for each in (reader, kept_reader)]
    await stopping
    for sender in (writer, kept_writer):
        sender.close()

    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
    assert all(b"connection: close" in answer for answer in answers)


async def test_an_idle_connection_does_not_hold_up_the_stop() -> None:
    """It is closed after half a second, long before requests under way are cut off."""
    server = HttpServer("127.0.0.1", 0)
    await server.start(Response("fine"))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    began = asyncio.get_running_loop().time()
    await server.stop()

    assert asyncio.get_running_loop().time() - began < 1
    assert await reader.read() == b""
    writer.close()
