"""What is the real runtime's own: eviction, and its fetch."""

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
    """After ten idle seconds its memory is gone; the ring finds a new instance with name and entries."""
    before = workerd.call("CONTRACT", "idle", "constructed_at")
    workerd.call("CONTRACT", "idle", "script", 11_500)
    workerd.call("CONTRACT", "awake", "wait", 12.0)
    assert len(workerd.call("CONTRACT", "idle", "rings", 1)) == 1
    assert workerd.call("CONTRACT", "idle", "get", "rung_in") > before
    assert workerd.call("CONTRACT", "idle", "get", "rung_as") == "idle"


class Upstream:
    """A server on loopback that remembers how many asked at once."""

    def __init__(self) -> None:
        self.url = ""
        self.released = threading.Event()
        self.at_once_max = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
            if self._at_once == 6:
                self.released.set()
        try:
            self._answer(handler)
        finally:
            with self._lock:
                self._at_once -= 1

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length", "0"))
        body = handler.rfile.read(size) if size else b"hello"
        headers: dict[str, str] = {"X-Test": "Yes"}
        status, path = 200, urlsplit(handler.path).path
        if path == "/moved":
            status, headers["Location"] = 302, "/elsewhere"
        if path in {"/hang", "/six"}:
            self.released.wait(20)  # until the test is over, or six are waiting
        if path == "/large":
            body = b"x" * 100_000
        if path == "/zipped":
            body, headers["Content-Encoding"] = gzip.compress(b"small" * 10), "gzip"
        if path == "/told":
            body = f"{handler.command} {handler.headers['user-agent']} {handler.headers['x-key']}".encode()
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving(Upstream()) as made:
        yield made


@contextmanager
def serving(made: Upstream) -> Iterator[Upstream]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made.answer(self)

        do_POST = do_GET  # noqa: N815 - as above

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            made.released.set()
            server.shutdown()


def fetched(workerd: Workerd, url: str, **options: Any) -> Any:
    return workerd.call("CONTRACT", "fetcher", "fetched", url, options)


def test_fetch_answers_status_headers_and_body(workerd: Workerd, upstream: Upstream) -> None:
    """Header names are lower-case, redirects are answers, bodies come unpacked, and we say who we are."""
    status, headers, body = fetched(workerd, f"{upstream.url}/plain")
    assert (status, headers["x-test"], body) == (200, "Yes", "hello")
    status, headers, _ = fetched(workerd, f"{upstream.url}/moved")
    assert (status, headers["location"]) == (302, "/elsewhere")
    assert fetched(workerd, f"{upstream.url}/zipped")[2] == "small" * 10
    told = fetched(workerd, f"{upstream.url}/told", method="POST", headers={"X-Key": "a"})[2]
    assert told.startswith("POST tocsin/")
    assert told.endswith(" a")
    post = ("CONTRACT", "fetcher", "fetched", f"{upstream.url}/echo", {"method": "POST"}, "é")
    assert workerd.call(*post)[2] == "é"


def test_fetch_without_an_answer_has_a_class_and_no_secret(workerd: Workerd, upstream: Upstream) -> None:
    """Silence, a body over the cap, a port where nobody listens; the query is in no error."""
    silent = fetched(workerd, f"{upstream.url}/hang?key=secret", timeout_s=0.1)
    large = fetched(workerd, f"{upstream.url}/large?key=secret", body_max=1_000)
    nobody = fetched(workerd, "http://127.0.0.1:9/?key=secret")
    assert silent == f"FetchTimeout: GET {upstream.url}/hang: no complete response within 0.1 s"
    assert large == f"FetchTooLarge: GET {upstream.url}/large: the body is larger than 1000 bytes"
    assert nobody.startswith("FetchFailed: GET http://127.0.0.1:9/: ")
    assert "secret" not in nobody
    assert fetched(workerd, "ftp://x/").startswith("UsageError: fetch needs an absolute http or https URL")


def test_no_more_than_six_connections_are_open_at_once(workerd: Workerd, upstream: Upstream) -> None:
    """Cloudflare's limit for one invocation, kept by us: the seventh waits here."""
    ended = workerd.call("CONTRACT", "fetcher", "fetched_at_once", f"{upstream.url}/six", 20)
    assert ended == {"answered": 20}
    assert upstream.at_once_max == 6


def test_an_invocation_stops_before_its_subrequests_are_used_up(workerd: Workerd, upstream: Upstream) -> None:
    """What is over ends the run, with 200 left for what it must write down; the next invocation goes on."""
    ended = workerd.call("CONTRACT", "fetcher", "fetched_at_once", f"{upstream.url}/plain", 53)
    assert ended == {"answered": 250 - 200, "RunStopped": 3}
    assert fetched(workerd, f"{upstream.url}/plain")[0] == 200


def test_calls_to_db_and_kv_are_subrequests_too(workerd: Workerd, upstream: Upstream) -> None:
    """Each takes one of the invocation's, and a batch is one call."""
    ended = workerd.call("CONTRACT", "fetcher", "fetched_after_stores", f"{upstream.url}/plain", 53)
    assert ended == {"answered": 250 - 200 - 20, "RunStopped": 23}
