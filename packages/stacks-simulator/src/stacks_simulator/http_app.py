"""The simulator over HTTP: both upstreams at one address, with real hangs, slow bodies and cut connections.

`/hiro` and `/tenero` are base URLs; below them the paths are the real ones. `/_control/{command}` takes the
commands of `control.py`. `/_truth` returns the swaps that a perfect sweep would have found, `/_agents` the
registered wallets in the import format. Cutting a connection needs the server of `serve.py`.

Only this machine may control the simulator, with JSON and, in the demo, the admin key. A web page open on this machine
must not: it cannot send JSON to another origin without a preflight request, and if its own host name points to
127.0.0.1, that name is still in the Host header.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from holdfast.errors import UsageError
from stacks_simulator import control
from stacks_simulator.http_messages import UPSTREAM_NAMES, Delivery, SimulatedRequest, UpstreamName
from stacks_simulator.simulator import Simulator
from stacks_simulator.wallets import import_lines

CUT_CONNECTION = "cut_connection"  # the key of the server's function in the scope's state
BODY_BYTES_MAX = 64 * 1024  # of a request
CHUNK_BYTES = 64 * 1024
SLOW_CHUNKS = 20  # the number of pieces of a slow body


def simulator_app(
    simulator: Simulator, closing: asyncio.Event, is_key: Callable[[str], bool] | None = None
) -> Starlette:
    """The ASGI app. Setting `closing` ends hanging requests, so that the server can stop.

    With `is_key`, it can be controlled only with a key.
    """
    control_routes = _ControlRoutes(simulator, is_key)
    return Starlette(
        routes=[
            *(Mount(f"/{upstream}", _UpstreamApp(simulator, upstream, closing)) for upstream in UPSTREAM_NAMES),
            Route("/_control", control_routes.state),
            Route("/_control/{command}", control_routes.command, methods=["POST"]),
            Route("/_truth", control_routes.truth),
            Route("/_agents", control_routes.agents),
        ]
    )


class _UpstreamApp:
    """One upstream as an ASGI app."""

    def __init__(self, simulator: Simulator, upstream: UpstreamName, closing: asyncio.Event) -> None:
        self._simulator = simulator
        self._upstream: UpstreamName = upstream
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = scope["root_path"]
        request = SimulatedRequest(
            scope["method"],
            scope["path"].removeprefix(base),
            scope["query_string"].decode("ascii", "replace"),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            b"" if scope["method"] == "GET" else await _body(receive) or b"",
        )
        delivery = self._simulator.handle(self._upstream, request)
        if delivery.hangs:
            await self._hang(receive)
        await self._sleep(delivery.delay_s)
        if delivery.hangs or delivery.cut_after == 0:
            await _cut(scope, receive)
            return
        await send(_start(delivery, base))
        async for chunk in self._chunks(delivery):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if delivery.cut_after is not None:
            await _cut(scope, receive)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self, delivery: Delivery) -> AsyncIterator[bytes]:
        body = delivery.reply.body[: delivery.cut_after]
        step = max(1, len(body) // SLOW_CHUNKS) if delivery.drip_s else CHUNK_BYTES
        for first in range(0, len(body), step):
            chunk = body[first : first + step]
            await self._sleep(delivery.drip_s * len(chunk) / len(body))
            yield chunk
        for _ in range(0, delivery.padding, CHUNK_BYTES):
            yield b" " * CHUNK_BYTES

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self._simulator.clock.sleep(seconds)

    async def _hang(self, receive: Receive) -> None:
        """Wait until the caller gives up or the server stops."""
        disconnected = asyncio.ensure_future(_disconnected(receive))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({disconnected, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected.cancel()
            closing.cancel()


class _ControlRoutes:
    """The routes that control the simulator and show its state, its truth and its agents."""

    def __init__(self, simulator: Simulator, is_key: Callable[[str], bool] | None) -> None:
        self._simulator = simulator
        self._is_key = is_key

    async def state(self, request: Request) -> Response:
        return refusal(request, self._is_key) or JSONResponse(control.state(self._simulator))

    async def command(self, request: Request) -> Response:
        refused = refusal(request, self._is_key)
        if refused is not None:
            return refused
        body = await _body(request.receive)
        if body is None:
            return _refused(413, "body_too_large", f"A command may have {BODY_BYTES_MAX} bytes at most.")
        try:
            values = json.loads(body or b"{}")
            return JSONResponse(control.run(self._simulator, request.path_params["command"], values))
        except (UsageError, ValueError, RecursionError) as error:
            return _refused(400, "bad_command", str(error))

    async def truth(self, _request: Request) -> Response:
        swaps = [swap.as_json() for swap in self._simulator.truth()]
        return JSONResponse({"asOf": self._simulator.chain.now_ms, "swaps": swaps})

    async def agents(self, _request: Request) -> Response:
        return PlainTextResponse(import_lines(self._simulator.chain.wallets))


def refusal(request: Request, is_key: Callable[[str], bool] | None) -> Response | None:
    """The response if this request must not control the simulator. Without `is_key`, no key is required."""
    if not _is_local(request.client.host if request.client else "") or not _is_local(_host_of(request)):
        sentence = (
            "The simulator can be controlled only from this machine, at an address such as 127.0.0.1 or localhost."
        )
        return _refused(403, "not_local", sentence)
    if is_key is not None and not is_key(request.headers.get("x-admin-key", "")):
        return _refused(401, "unauthorised", "Send the value of ADMIN_KEY in the header X-Admin-Key.")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and media_type != "application/json":
        return _refused(415, "unsupported_media_type", "Send JSON, with the header Content-Type: application/json.")
    return None


def _refused(status: int, code: str, sentence: str) -> Response:
    return JSONResponse({"error": sentence, "code": code, "retryable": False}, status)


def _host_of(request: Request) -> str:
    """The name in the Host header, without the port."""
    host = request.headers.get("host", "")
    return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]


def _is_local(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _start(delivery: Delivery, base: str) -> dict[str, object]:
    headers = dict(delivery.reply.headers)
    if headers.get("location", "").startswith("/"):
        headers["location"] = base + headers["location"]  # paths of an upstream are relative to its mount
    if not delivery.padding:  # a huge body is sent without its length
        headers["content-length"] = str(len(delivery.reply.body))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": delivery.reply.status, "headers": encoded}


async def _cut(scope: Scope, receive: Receive) -> None:
    cut: Callable[[], None] | None = scope.get("state", {}).get(CUT_CONNECTION)
    if cut is None:
        raise RuntimeError("this server cannot cut a connection; run the app with stacks_simulator.serve")
    cut()
    await _disconnected(receive)  # once the server has noticed, it does not report the incomplete response


async def _body(receive: Receive) -> bytes | None:
    """The body; None if it is too large or does not arrive."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] == "http.disconnect" or len(body) > BODY_BYTES_MAX:
            return None
        more = message.get("more_body", False)
    return body


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
