"""What people look at: static pages, fed only by our own API.

Each file is a route of its own, read once: what is not there, a wrong method and a strange header are
answered as everywhere.
"""

from pathlib import Path

from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.errors import RequestRefused
from tocsin.web.respond import etag_of, is_known
from tocsin.web.security import PAGES, REVALIDATED

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def page_routes() -> list[BaseRoute]:
    """The two pages, what they are made of, and the ways to them."""
    pages = [Route(f"/{name}", _Read(_File(STATIC / f"{name}.html"))) for name in PAGES]
    parts = [
        Route(f"/static/{path.relative_to(STATIC).as_posix()}", _Read(_File(path)))
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES and path.suffix != ".html"
    ]
    return [*pages, *parts, *redirects()]


def redirects() -> list[BaseRoute]:
    """Where strangers knock: the bare host, and a page with a slash too many."""
    ways = {"/": f"/{PAGES[0]}"} | {f"/{name}/": f"/{name}" for name in PAGES}
    return [Route(path, _Read(_Way(target))) for path, target in ways.items()]


class _Read:
    """Takes GET and HEAD only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            sentence = f"This path takes GET and HEAD, not {scope['method'][:20]}."
            raise RequestRefused(405, "method_not_allowed", sentence, headers={"Allow": "GET, HEAD"})
        await self._app(scope, receive, send)


class _File:
    """A file of one version: scripts and styles must be of the same one as the page that asks for them."""

    def __init__(self, path: Path) -> None:
        body = path.read_bytes()
        self._etag = etag_of(body)
        headers = {REVALIDATED[0].decode(): REVALIDATED[1].decode(), "ETag": self._etag.decode()}
        self._whole = Response(body, 200, headers, MEDIA_TYPES[path.suffix])
        self._unchanged = Response(status_code=304, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = dict(scope["headers"]).get(b"if-none-match", b"")
        answer = self._unchanged if is_known(asked, self._etag) else self._whole
        await answer(scope, receive, send)


class _Way:
    """Leads to a path of ours with the query that came along, whatever the Host header says."""

    def __init__(self, target: str) -> None:
        self._target = target

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        await RedirectResponse(f"{self._target}?{query}" if query else self._target)(scope, receive, send)
