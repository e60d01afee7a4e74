"""One connection: uvicorn's, with limits on what a client may send before there is a complete request.

A head may have 64 KiB and must be complete within ten seconds; otherwise the connection is closed. If a body has not
arrived completely when its response is complete, the rest is read for a while, because many clients send everything
before they read anything. Then the connection is cut, because a body may be endless.

When the server stops, a connection that waits for a request stays open for a moment, because a request that is already
on its way would be lost. Each response then ends its connection.
"""

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tocsin.bindings import SEND_COMPLETE
from tocsin.platform.local.http.connections import Connections, Place

HEAD_BYTES_MAX = 64 * 1024
HEAD_WAIT_S = 10.0
DRAIN_S = 5.0  # for the rest of a body whose response is complete
DRAIN_BYTES_MAX = 16 * 1024 * 1024
LAST_REQUEST_S = 0.5  # for a request that is on its way when the server stops


@dataclass(frozen=True, slots=True)
class EarlyRefusal:
    """A response that is sent before there is a request, so the application cannot format it."""

    status: str
    code: str
    sentence: str
    retryable: bool = False

    def response(self) -> bytes:
        shown = {"error": self.sentence, "code": self.code, "retryable": self.retryable}
        body = json.dumps(shown, separators=(",", ":"))
        head = f"HTTP/1.1 {self.status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode("ascii")


MALFORMED = EarlyRefusal(
    "400 Bad Request",
    "malformed_request",
    "This is not an HTTP request: check method, path and headers.",
)
HEAD_TOO_LARGE = EarlyRefusal(
    "431 Request Header Fields Too Large",
    "head_too_large",
    "The path and headers of a request may have 64 KiB together.",
)
HEAD_TOO_SLOW = EarlyRefusal(
    "408 Request Timeout",
    "head_too_slow",
    "The headers did not arrive within 10 s: send the request again.",
    retryable=True,
)
TOO_MANY = EarlyRefusal(
    "503 Service Unavailable",
    "too_many_connections",
    "Too many connections are open: close some, or try again in a few seconds.",
    retryable=True,
)


class HttpProtocol(HttpToolsProtocol):
    """A connection with limits, which refuses with the same JSON as every other error."""

    def __init__(self, *args: Any, places: Connections, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **options)
        self._places = places
        self._place: Place | None = None
        self._head_open = True
        self._head_bytes = 0
        self._newest_bytes = 0  # in the newest piece that arrived
        self._head_timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._drain_timer: asyncio.TimerHandle | None = None
        self._drain_left = 0
        self._stop_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        host = self.client[0] if self.client else "unknown"
        self._place = self._places.open(host, self._drop)
        if self._place is None:
            self._refuse(TOO_MANY)
        else:
            self._await_head()
            if self._places.stopping:  # it was accepted just before the server stopped
                self.shutdown()

    def shutdown(self) -> None:
        """Handle the stop of the server."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._stop_timer = self.loop.call_later(LAST_REQUEST_S, self.transport.close)
        else:
            cycle.keep_alive = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_draining()
        self._keep_open()
        if self._place is not None:
            self._places.closed(self._place)
            self._place = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._drain_timer is not None:
            self._drain_left -= len(data)
            if self._drain_left < 0:
                self._cut()
                return
        cycle: RequestResponseCycle | None = self.cycle
        after_a_body = self._drain_timer is not None or (cycle is not None and cycle.more_body)
        self._newest_bytes = len(data)
        super().data_received(data)
        if self._head_open and not after_a_body and not self._refused:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open, self._head_bytes = True, 0
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._stop_waiting()
        if self._refused:
            return
        if self._head_bytes + self._newest_bytes > HEAD_BYTES_MAX and self._head_size() > HEAD_BYTES_MAX:
            self._refuse(HEAD_TOO_LARGE)
            return
        if self._place is not None:
            self._places.busy(self._place)
        super().on_headers_complete()
        if self.cycle is not None:  # its task has not started yet
            extensions: dict[str, Any] = {SEND_COMPLETE: partial(_send_complete, self.cycle)}
            self.scope["extensions"] = extensions
        if self._places.stopping:
            self._keep_open()
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_draining()
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.cycle.more_body and not self.transport.is_closing():
            self._drain_left = DRAIN_BYTES_MAX
            self._drain_timer = self.loop.call_later(DRAIN_S, self._cut)
        super().on_response_complete()
        if self._place is not None and not self.pipeline:
            self._places.waits(self._place)

    def send_400_response(self, _msg: str) -> None:
        self._refuse(MALFORMED)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_WAIT_S, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        """Answer a client that sent a part of a head; one that sent nothing gets no answer."""
        self._head_timer = None
        if self._head_bytes:
            self._refuse(HEAD_TOO_SLOW)
        else:
            self.transport.close()

    def _stop_draining(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None

    def _keep_open(self) -> None:
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None

    def _cut(self) -> None:
        self._refused = True
        self._stop_draining()
        self.transport.abort()

    def _drop(self) -> None:
        """Close this connection: there are too many, and it has waited longest."""
        self._place = None
        self._stop_waiting()
        self.transport.abort()

    def _refuse(self, refusal: EarlyRefusal) -> None:
        self._refused = True
        self._stop_waiting()
        self.transport.write(refusal.response())
        self.transport.close()


def _send_complete(cycle: RequestResponseCycle, status_line: bytes, rest: bytes) -> bool:
    """A `SendComplete`: one write instead of two, and no bytes are joined twice."""
    flow = cycle.flow
    if cycle.response_started or cycle.disconnected or flow.write_paused or not cycle.keep_alive:
        return False
    cycle.response_started = cycle.response_complete = True
    usual = [b"%b: %b\r\n" % header for header in cycle.default_headers]
    cycle.transport.write(b"".join((status_line, *usual, rest)))
    cycle.message_event.set()
    cycle.on_response()
    return True
