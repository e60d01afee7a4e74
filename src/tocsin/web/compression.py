"""Compresses large responses that are made for one request; a `PreparedResponse` is compressed once for all."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin.web.prepared_response import PACKET_BYTES, accepts_gzip, zipped

STREAM = b"text/event-stream"


class Compressing:
    """An app whose responses of one piece are compressed for clients that accept it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                if dict(message["headers"]).get(b"content-type", b"").startswith(STREAM):
                    await send(message)
                else:
                    start = message
                return
            if start is not None:
                if not message.get("more_body", False) and len(message.get("body", b"")) > PACKET_BYTES:
                    start, message = _compressed(start, message, scope)
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_compressed)


def _compressed(start: Message, message: Message, scope: Scope) -> tuple[Message, Message]:
    """The two messages, smaller if the client accepts that. Caches are told in any case."""
    headers = [*start["headers"], (b"vary", b"accept-encoding")]
    body: bytes = message["body"]
    if scope["method"] != "HEAD" and accepts_gzip(dict(scope["headers"]).get(b"accept-encoding", b"")):
        body = zipped(body)
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        headers += [(b"content-length", str(len(body)).encode()), (b"content-encoding", b"gzip")]
    return {**start, "headers": headers}, {**message, "body": body}
