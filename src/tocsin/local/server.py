"""The HTTP server: uvicorn on the loop of the service, with limits on connections and on what a client may send.

A process without free descriptors cannot open its own files. So the number of connections is limited to the process's
descriptors less a reserve, and one client may have only a part of them.

A head may have 64 KiB and must be complete within ten seconds; otherwise the connection is closed. After the head, only
the body counts: of everything else (blank lines, sizes and extensions of chunks, trailers) 64 KiB and eight bytes for
each byte of the body are read. At most 16 requests wait for their turn.

If a body has not arrived completely when its response is complete, the rest is read for a while, because many clients
send everything before they read anything. Then the connection is cut, because a body may be endless; at once if it
comes in tiny chunks. It is also cut if its client stops reading.

When the server stops, a connection that waits for a request stays open for a moment, because a request that is already
on its way would be lost. Each response then ends its connection.
"""

import asyncio
import json
import resource
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, Literal, TypeAlias

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast.errors import StartError
from tocsin.web.limits import BUSY, STUCK, WAITING, Place, Places, client_networks
from tocsin.web.response import SEND_COMPLETE

RESERVE = 256  # descriptors for stores, upstreams and log
TOTAL_MAX = 10_000
TOTAL_MIN = 64
SHARE = 4  # one client may have a quarter of all connections,
SHARE_MAX = 256  # but not more than this: the loop serves all that are ready before it looks again
SHARES_PER_SITE = 2  # one IPv6 /48 may have twice as many
DESCRIPTORS_WANTED = 65_536
HEAD_BYTES_MAX = 64 * 1024
HEAD_WAIT_S = 10.0
BYTES_PER_BODY_BYTE = 9  # a chunk of one byte has six
PIPELINED_MAX = 16  # requests of one connection that wait for their turn
WRITE_WAIT_S = 30.0
WRITE_BYTES_MIN = 16 * 1024  # that a client must read in this time, or all
DRAIN_S = 5.0  # for the rest of a body whose response is complete
DRAIN_BYTES_MAX = 16 * 1024 * 1024
DRAINED_PER_BODY_BYTE = 2  # nobody waits for the rest, and to parse many tiny chunks would hold up everybody
NOWHERE: deque[tuple[bytes, bytes]] = deque(maxlen=0)
LAST_REQUEST_S = 0.5  # for a request that is on its way when the server stops
GRACE_S = 3  # for requests under way when the process stops
ANSWER_S = 1  # for their responses, when that time is over
BACKLOG = 1024
ACCEPTED_AT_ONCE = 16  # libuv accepts one connection per socket in each round of the loop


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as the system allows it, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft


def connections_max(descriptors: int) -> int:
    """How many connections there may be with this many descriptors."""
    return max(TOTAL_MIN, min(TOTAL_MAX, descriptors - RESERVE))


class Connections(Places):
    """All connections of a server. Trusted proxies have no limit of their own: they speak for many clients."""

    def __init__(self, total_max: int, trusted_proxies: Collection[str] = ()) -> None:
        share = min(SHARE_MAX, max(TOTAL_MIN // 2, total_max // SHARE))
        super().__init__(total_max, share, share * SHARES_PER_SITE)
        self.stopping = False  # the server is stopping: each connection ends with its next response
        self._trusted = [ip_network(proxy, strict=False) for proxy in trusted_proxies]

    def connect(self, host: str, close: Callable[[], None]) -> Place | None:
        """A place for a new connection, which waits for a request; None if there is no room."""
        return self.open(client_networks(host), close, WAITING, is_limited=not self._is_trusted(host))

    def _is_trusted(self, host: str) -> bool:
        if not self._trusted:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._trusted)


def early_refusal(status: str, code: str, sentence: str, *, retryable: bool = False) -> bytes:
    """A response that is sent before there is a request, so the application cannot format it."""
    body = json.dumps({"error": sentence, "code": code, "retryable": retryable}, separators=(",", ":"))
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode("ascii")


MALFORMED = early_refusal(
    "400 Bad Request", "malformed_request", "This is not an HTTP request: check method, path and headers."
)
HEAD_TOO_LARGE = early_refusal(
    "431 Request Header Fields Too Large",
    "head_too_large",
    "The path and headers of a request may have 64 KiB together.",
)
HEAD_TOO_SLOW = early_refusal(
    "408 Request Timeout",
    "head_too_slow",
    "The headers did not arrive within 10 s: send the request again.",
    retryable=True,
)
TOO_MANY = early_refusal(
    "503 Service Unavailable",
    "too_many_connections",
    "Too many connections are open: close some, or try again in a few seconds.",
    retryable=True,
)

_Timer: TypeAlias = Literal["head", "drain", "write", "last request"]


class _Refused(Exception):
    """The connection has ended: what else has arrived is not parsed."""


class HttpProtocol(HttpToolsProtocol):
    """A connection with limits, which refuses with the same JSON as every other error."""

    def __init__(self, *args: Any, places: Connections, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own arguments
        super().__init__(*args, **options)
        self._places = places
        self._place: Place | None = None
        self._answering: RequestResponseCycle | None = None  # `cycle` is the newest one
        self._head_open = False
        self._newest_bytes = 0  # in the newest piece that arrived
        self._received_bytes = 0  # of this head, or after it; negative: the newest piece does not count
        self._body_bytes = 0
        self._refused = False
        self._drain_left = 0
        self._timers: dict[_Timer, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` is called for every byte that is not sent
        host = self.client[0] if self.client else "unknown"
        self._place = self._places.connect(host, self._drop)
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
            self._start_timer("last request", LAST_REQUEST_S, self.transport.close)
        else:
            cycle.keep_alive = False

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._place is not None:
            self._places.closed(self._place)
            self._place = None
        super().connection_lost(exc)
        if self._answering is not None:  # uvicorn tells the newest request only
            self._answering.disconnected = True
            self._answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if "drain" in self._timers:
            self._drain_left -= len(data)
            if self._drain_left < 0:
                self._cut()
                return
        self._unset_keepalive_if_required()
        cycle: RequestResponseCycle | None = self.cycle
        if "head" not in self._timers and (cycle is None or cycle.response_complete):
            self._await_head()
        self._newest_bytes = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # there is no other protocol: the request is answered like any other
        except httptools.HttpParserError:
            if not self._refused:
                self._refuse(MALFORMED)
            return
        self._received_bytes += len(data)
        per_body_byte = DRAINED_PER_BODY_BYTE if "drain" in self._timers else BYTES_PER_BODY_BYTE
        if self._received_bytes > HEAD_BYTES_MAX + per_body_byte * self._body_bytes:
            if self._head_open:
                self._refuse(HEAD_TOO_LARGE)
            else:
                self._cut()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open = True
        self._body_bytes = 0
        self._received_bytes = min(self._received_bytes, 0)
        if "head" not in self._timers:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_timer("head")
        before = max(self._received_bytes, 0)
        if before + self._newest_bytes > HEAD_BYTES_MAX and self._head_size() > HEAD_BYTES_MAX:
            self._refuse(HEAD_TOO_LARGE)
            raise _Refused
        if len(self.pipeline) >= PIPELINED_MAX:
            self._cut()
            raise _Refused
        self._head_open = False
        self._received_bytes = -self._newest_bytes
        super().on_headers_complete()
        self.headers = NOWHERE  # type: ignore[assignment]  # for trailers, which nobody reads
        extensions: dict[str, Any] = {SEND_COMPLETE: partial(_send_complete, self.cycle)}
        self.scope["extensions"] = extensions  # its task has not started yet
        self._mark()
        if self._places.stopping:
            self._stop_timer("last request")
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._received_bytes = -self._newest_bytes
        self._stop_timer("drain")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        answered = self._answering
        if answered is not None and answered.more_body and not self.transport.is_closing():
            self._drain_left = DRAIN_BYTES_MAX
            self._start_timer("drain", DRAIN_S, self._cut)
        super().on_response_complete()
        self._mark()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._mark()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer("write")
        self._mark()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401 - uvicorn's own type
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _mark(self) -> None:
        """Tell how this connection is used. The newest request is the last one that is answered."""
        if self._place is None:
            return
        cycle: RequestResponseCycle | None = self.cycle
        if self.flow.write_paused:
            self._places.mark(self._place, STUCK)
        elif cycle is None or cycle.response_complete:
            self._places.mark(self._place, WAITING)
        else:
            self._places.mark(self._place, BUSY)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _await_head(self) -> None:
        self._start_timer("head", HEAD_WAIT_S, self._head_is_late)

    def _head_is_late(self) -> None:
        """Answer a client that sent a part of a head; one that sent nothing gets no answer."""
        del self._timers["head"]
        if self._head_open:
            self._refuse(HEAD_TOO_SLOW)
        else:
            self.transport.close()

    def _await_reader(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._start_timer("write", WRITE_WAIT_S, self._check_reader, unsent)

    def _check_reader(self, unsent_before: int) -> None:
        if self.transport.get_write_buffer_size() > unsent_before - WRITE_BYTES_MIN:
            self._cut()
        else:
            self._await_reader()

    def _start_timer(self, name: _Timer, seconds: float, action: Callable[..., object], *arguments: object) -> None:
        self._timers[name] = self.loop.call_later(seconds, action, *arguments)

    def _stop_timer(self, name: _Timer) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _cut(self) -> None:
        self._refused = True
        self._stop_timer("drain")
        self.transport.abort()

    def _drop(self) -> None:
        """Close this connection: there are too many, and it has waited longest."""
        self._place = None
        self._stop_timer("head")
        self.transport.abort()

    def _refuse(self, refusal: bytes) -> None:
        self._refused = True
        self._stop_timer("head")
        self.transport.write(refusal)
        self.transport.close()


def _send_complete(cycle: RequestResponseCycle, status: int, content: bytes) -> bool:
    """One write instead of two, and no header is formatted again."""
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
        return False
    cycle.response_started = cycle.response_complete = True
    usual = b"".join(b"%b: %b\r\n" % header for header in cycle.default_headers)
    cycle.transport.write(STATUS_LINE[status] + usual + content)
    cycle.message_event.set()
    cycle.on_response()
    return True


class HttpServer:
    """Listens as soon as it is created, so that the port is known. Serves requests after `start`."""

    def __init__(
        self, host: str, port: int, trusted_proxies: Sequence[str] = (), inherited: Sequence[socket.socket] = ()
    ) -> None:
        """Requests from `trusted_proxies` have the client's address in `X-Forwarded-For`.

        `inherited` sockets already listen and are used instead of host and port. The process that passed them also has
        them open: when this server stops, new connections wait there for its successor.
        """
        self._trusted_proxies = list(trusted_proxies)
        self._sockets = list(inherited) or [listen(host, port)]
        bound_host, bound_port = self._sockets[0].getsockname()[:2]
        self.port: int = bound_port
        host = bound_host if inherited else host
        self.url = f"http://{authority(host, self.port)}"
        self._server: _Server | None = None
        self.connections = Connections(connections_max(raise_descriptor_limit()), trusted_proxies)

    async def start(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            http=partial(HttpProtocol, places=self.connections),  # type: ignore[arg-type]  # it makes one
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=bool(self._trusted_proxies),
            forwarded_allow_ips=self._trusted_proxies,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=GRACE_S + ANSWER_S,
        )
        self._server = _Server(config)
        copies = [each.dup() for each in self._sockets for _ in range(ACCEPTED_AT_ONCE - 1)]
        self._serving = asyncio.create_task(self._server.serve(sockets=[*self._sockets, *copies]))
        await self._server.ready.wait()

    async def stop(self) -> None:
        self.connections.stopping = True
        if self._server is not None:
            self._server.should_exit = True
            with suppress(asyncio.CancelledError):
                await self._serving
        self.close()

    def metrics(self) -> dict[str, float]:
        return {"connections_dropped": self.connections.dropped, "connections_open": self.connections.count}

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class _Server(uvicorn.Server):
    """Has an event for "ready", leaves signals to the service, and lets the application answer when it stops."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cancel requests that are still under way after `GRACE_S`. They can still send a response.

        uvicorn itself would exit immediately after cancelling them.
        """
        timer = asyncio.get_running_loop().call_later(GRACE_S, self._cancel_requests)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _cancel_requests(self) -> None:
        for request in self.server_state.tasks:
            request.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without IPPROTO_TCP asyncio leaves Nagle's algorithm on, which delays every response by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {_bracketed(host)}:{port}: {error.strerror};"
            " another port: --port, or TOCSIN_PORT= with make; 0 for any"
        ) from error
    return listener


def authority(host: str, port: int) -> str:
    """The host and port of a URL under which this machine reaches a server that listens there."""
    address = "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 - compared, not bound
    return f"{_bracketed(address)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
