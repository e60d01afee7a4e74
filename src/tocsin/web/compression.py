"""Compresses large responses that are made for one request; a `PreparedResponse` is compressed only once."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin.web.prepared_response import PACKET_BYTES, accepts_gzip, zipped

STREAM = b"text/event-stream"
KEPT_BYTES_MAX = 2_000_000  # of bodies and their compressed forms, such as the OpenAPI document
BODY_BYTES_MAX = 400_000  # a larger one is not kept


class CompressedBodies:
    """The most recently requested bodies and their compressed forms, in bounded memory."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._body_bytes_max = body_bytes_max
        self._kept: dict[bytes, bytes] = {}
        self.bytes_kept = 0

    def compressed(self, body: bytes) -> bytes:
        """The compressed body, which is kept if it is not too large."""
        if len(body) > self._body_bytes_max:
            return zipped(body)
        made = self._kept.pop(body, None)
        if made is None:
            made = zipped(body)
            self.bytes_kept += len(body) + len(made)
        self._kept[body] = made
        while self.bytes_kept > self._bytes_max:
            oldest = next(iter(self._kept))
            self.bytes_kept -= len(oldest) + len(self._kept.pop(oldest))
        return made


class Compressing:
    """An app whose responses of one piece are compressed for clients that accept it."""

    def __init__(self, app: ASGIApp, bodies: CompressedBodies) -> None:
        self._app = app
        self._bodies = bodies

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
                    start, message = _compressed(start, message, scope, self._bodies)
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_compressed)


def _compressed(
    start: Message, message: Message, scope: Scope, bodies: CompressedBodies
) -> tuple[Message, Message]:
    """The two messages, compressed if the client accepts that. `Vary` is set in any case, for caches."""
    headers = [*start["headers"], (b"vary", b"accept-encoding")]
    body: bytes = message["body"]
    if scope["method"] != "HEAD" and accepts_gzip(dict(scope["headers"]).get(b"accept-encoding", b"")):
        body = bodies.compressed(body)
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        headers += [(b"content-length", str(len(body)).encode()), (b"content-encoding", b"gzip")]
    return {**start, "headers": headers}, {**message, "body": body}
