"""The pages that people look at: static files, fed only by our own API.

Each file is a route of its own and is read once, so errors have the same shape as everywhere else.
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
    """The two pages, their files, and redirects to them."""
    pages = [Route(f"/{name}", _Read(_File(STATIC / f"{name}.html"))) for name in PAGES]
    parts = [
        Route(f"/static/{path.relative_to(STATIC).as_posix()}", _Read(_File(path)))
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES and path.suffix != ".html"
    ]
    return [*pages, *parts, *redirects()]


def redirects() -> list[BaseRoute]:
    """From the bare host, and from a page with a trailing slash."""
    targets = {"/": f"/{PAGES[0]}"} | {f"/{name}/": f"/{name}" for name in PAGES}
    return [Route(path, _Read(_Redirect(target))) for path, target in targets.items()]


class _Read:
    """Accepts GET and HEAD only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            sentence = f"This path takes GET and HEAD, not {scope['method'][:20]}."
            raise RequestRefused(405, "method_not_allowed", sentence, headers={"Allow": "GET, HEAD"})
        await self._app(scope, receive, send)


class _File:
    """A file that clients revalidate: scripts and styles must be of the same version as their page."""

    def __init__(self, path: Path) -> None:
        body = path.read_bytes()
        self._etag = etag_of(body)
        headers = {REVALIDATED[0].decode(): REVALIDATED[1].decode(), "ETag": self._etag.decode()}
        self._complete = Response(body, 200, headers, MEDIA_TYPES[path.suffix])
        self._unchanged = Response(status_code=304, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = dict(scope["headers"]).get(b"if-none-match", b"")
        response = self._unchanged if is_known(known, self._etag) else self._complete
        await response(scope, receive, send)


class _Redirect:
    """Redirects to a path of ours with the same query, whatever the Host header says."""

    def __init__(self, target: str) -> None:
        self._target = target

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        await RedirectResponse(f"{self._target}?{query}" if query else self._target)(scope, receive, send)
