"""What only the real runtime has: eviction, and its own fetch."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.workerd import Workerd


def test_an_evicted_object_is_woken_by_its_alarm_as_the_same_object(workerd: Workerd) -> None:
    """After ten idle seconds its memory is gone. The ring constructs it again, with its name and entries."""
    before = workerd.call("CONTRACT", "idle", "constructed_at")
    workerd.call("CONTRACT", "idle", "script", 11_500)
    workerd.call("CONTRACT", "awake", "wait", 12.0)
    assert len(workerd.call("CONTRACT", "idle", "rings", 1)) == 1
    assert workerd.call("CONTRACT", "idle", "get", "rung_in") > before
    assert workerd.call("CONTRACT", "idle", "get", "rung_as") == "idle"


class Upstream:
    """A server on loopback that counts concurrent requests."""

    def __init__(self) -> None:
        self.url = ""
        self.released = threading.Event()
        self.at_once_max = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
            if self._at_once == 6:
                self.released.set()
        try:
            self._respond(handler)
        finally:
            with self._lock:
                self._at_once -= 1

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length", "0"))
        body = handler.rfile.read(size) if size else b"hello"
        headers: dict[str, str] = {"X-Test": "Yes"}
        status, path = 200, urlsplit(handler.path).path
        if path == "/moved":
            status, headers["Location"] = 302, "/elsewhere"
        if path in {"/hang", "/six"}:
            self.released.wait(20)  # until the test ends, or six requests wait
        if path == "/large":
            body = b"x" * 100_000
        if path == "/zipped":
            body, headers["Content-Encoding"] = gzip.compress(b"small" * 10), "gzip"
        if path == "/request":
            body = f"{handler.command} {handler.headers['user-agent']} {handler.headers['x-key']}".encode()
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving(Upstream()) as running:
        yield running


@contextmanager
def serving(upstream: Upstream) -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            upstream.respond(self)

        do_POST = do_GET  # noqa: N815 - as above

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        upstream.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield upstream
        finally:
            upstream.released.set()
            server.shutdown()


def fetched(workerd: Workerd, url: str, **options: Any) -> Any:
    return workerd.call("CONTRACT", "fetcher", "fetched", url, options)


def test_fetch_returns_status_headers_and_body(workerd: Workerd, upstream: Upstream) -> None:
    """Lower-case header names, no redirects followed, decompressed bodies, and our User-Agent."""
    status, headers, body = fetched(workerd, f"{upstream.url}/plain")
    assert (status, headers["x-test"], body) == (200, "Yes", "hello")
    status, headers, _ = fetched(workerd, f"{upstream.url}/moved")
    assert (status, headers["location"]) == (302, "/elsewhere")
    assert fetched(workerd, f"{upstream.url}/zipped")[2] == "small" * 10
    request = fetched(workerd, f"{upstream.url}/request", method="POST", headers={"X-Key": "a"})[2]
    assert request.startswith("POST tocsin/")
    assert request.endswith(" a")
    echo = workerd.call("CONTRACT", "fetcher", "fetched", f"{upstream.url}/echo", {"method": "POST"}, "é")
    assert echo[2] == "é"


def test_fetch_without_a_response_raises_without_secrets(workerd: Workerd, upstream: Upstream) -> None:
    """No response, a body over the limit, a closed port. No error contains the query."""
    silent = fetched(workerd, f"{upstream.url}/hang?key=secret", timeout_s=0.1)
    large = fetched(workerd, f"{upstream.url}/large?key=secret", body_max=1_000)
    closed = fetched(workerd, "http://127.0.0.1:9/?key=secret")
    assert silent == f"FetchTimeout: GET {upstream.url}/hang: no complete response within 0.1 s"
    assert large == f"FetchTooLarge: GET {upstream.url}/large: the body is larger than 1000 bytes"
    assert closed.startswith("FetchFailed: GET http://127.0.0.1:9/: ")
    assert "secret" not in closed
    assert fetched(workerd, "ftp://x/").startswith("UsageError: fetch needs an absolute http or https URL")


def test_no_more_than_six_connections_are_open_at_once(workerd: Workerd, upstream: Upstream) -> None:
    """Cloudflare's limit for one invocation. We keep to it: the seventh waits here."""
    ended = workerd.call("CONTRACT", "fetcher", "fetched_at_once", f"{upstream.url}/six", 20)
    assert ended == {"answered": 20}
    assert upstream.at_once_max == 6


def test_an_invocation_stops_before_its_subrequests_are_used_up(workerd: Workerd, upstream: Upstream) -> None:
    """The next fetch ends the run, with 200 left to store its work. The next invocation continues."""
    ended = workerd.call("CONTRACT", "fetcher", "fetched_at_once", f"{upstream.url}/plain", 53)
    assert ended == {"answered": 250 - 200, "RunStopped": 3}
    assert fetched(workerd, f"{upstream.url}/plain")[0] == 200


def test_calls_to_db_and_kv_are_subrequests_too(workerd: Workerd, upstream: Upstream) -> None:
    """Each counts as one, and a batch is one call."""
    ended = workerd.call("CONTRACT", "fetcher", "fetched_after_stores", f"{upstream.url}/plain", 53)
    assert ended == {"answered": 250 - 200 - 20, "RunStopped": 23}
