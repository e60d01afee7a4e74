"""Runs the web application on the runtime's requests, as uvicorn does on the local platform.

The SDK's own adapter reads a whole body before the application can refuse it, does not pass on the client's
address, and ends an incomplete response as if it were complete. Here a body is read in pieces as the
application asks for them, and an incomplete response is aborted.
"""

import asyncio
from typing import Any
from urllib.parse import unquote, urlsplit

from pyodide.ffi import JsException, create_proxy
from starlette.types import ASGIApp, Message, Scope

from holdfast.cloudflare import javascript
from holdfast.cloudflare.objects import keep_alive

BODYLESS = frozenset({101, 204, 205, 304})  # JavaScript's Response allows no body with these
CLIENT_HEADER = b"cf-connecting-ip"  # Cloudflare sets it itself; a client cannot


async def respond(app: ASGIApp, request: Any, ctx: Any) -> Any:
    """The application's response as a JavaScript Response. A stream continues after this has returned."""
    exchange = _Exchange(javascript.unwrap(request, "js_object"))
    keep_alive(ctx, exchange.run(app))
    return await exchange.response


class _Exchange:
    """One request and its response."""

    def __init__(self, request: Any) -> None:
        self.response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._request = request
        self._reader: Any = None
        self._body_read = False
        self._start: Message = {}
        self._writer: Any = None

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(scope_of(self._request), self._receive, self._send)
            assert self.response.done(), "the application sent no response"
        except Exception as error:  # noqa: BLE001 - the application has logged it; the client must see a failure
            if not self.response.done():
                self.response.set_exception(error)
            elif self._writer is not None:
                self._writer.abort("the response is incomplete").catch(lambda _: None)

    async def _receive(self) -> Message:
        if self._body_read:
            await self._client_gone()
            return {"type": "http.disconnect"}
        if self._reader is None and javascript.kind(self._request.body) != "missing":
            self._reader = self._request.body.getReader()
        piece = None if self._reader is None else await self._reader.read()
        if piece is None or piece.done:
            self._body_read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": piece.value.to_bytes(), "more_body": True}

    async def _client_gone(self) -> None:
        """Wait until the client disconnects. A write alone does not show it: it would wait forever.

        Needs the compatibility flag `enable_request_signal`.
        """
        gone = asyncio.Event()
        listener = create_proxy(lambda _event: gone.set())
        self._request.signal.addEventListener("abort", listener)
        try:
            await gone.wait()
        finally:
            self._request.signal.removeEventListener("abort", listener)
            listener.destroy()

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._writer is not None:
            await self._write(body, more=more)
        elif more:
            stream = javascript.js.TransformStream.new()
            self._writer = stream.writable.getWriter()
            self.response.set_result(self._to_response(stream.readable))
            await self._write(body, more=True)
        else:
            bare = self._start["status"] in BODYLESS or self._request.method == "HEAD"
            self.response.set_result(self._to_response(None if bare else javascript.buffer(body)))

    async def _write(self, body: bytes, *, more: bool) -> None:
        try:
            if body:
                await self._writer.write(javascript.buffer(body))
            if not more:
                await self._writer.close()
        except JsException as error:
            # In ASGI, OSError means that the client has disconnected.
            raise OSError(str(error.message)) from None

    def _to_response(self, body: Any) -> Any:
        headers = javascript.js.Headers.new()
        for name, value in self._start["headers"]:
            headers.append(name.decode("latin-1"), value.decode("latin-1"))
        options = javascript.options({"status": self._start["status"], "headers": headers})
        return javascript.js.Response.new(javascript.parse("null") if body is None else body, options)


def scope_of(request: Any) -> Scope:
    """The ASGI scope of a request."""
    url = urlsplit(str(request.url))
    pairs = javascript.to_json(javascript.js.Array.from_(request.headers))
    headers = [(name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in pairs]
    client = next((value.decode("latin-1") for name, value in headers if name == CLIENT_HEADER), None)
    return {
        "type": "http",
        # With 2.3 a streaming response also waits for `http.disconnect`.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": str(request.method),
        "scheme": url.scheme,
        "path": unquote(url.path),
        "raw_path": url.path.encode("ascii", "replace"),
        "query_string": url.query.encode("ascii", "replace"),
        "root_path": "",
        "headers": headers,
        "client": None if client is None else (client, 0),
        "server": (url.hostname or "", url.port),
    }
