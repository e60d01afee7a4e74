"""The pages: static files that get their data from our own API only.

Each file is a route of its own and is read once, so errors have the same shape as everywhere else.
"""

from pathlib import Path

from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tocsin.errors import RequestRefused
from tocsin.web.prepared_response import PreparedResponse
from tocsin.web.security import PAGES, REVALIDATED

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_routes() -> list[BaseRoute]:
    """The two pages, their files, and redirects to them."""
    pages = [Route(f"/{name}", ReadOnly(_file(STATIC / f"{name}.html"))) for name in PAGES]
    parts = [
        Route(f"/static/{path.relative_to(STATIC).as_posix()}", ReadOnly(_file(path)))
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES and path.suffix != ".html"
    ]
    return [*pages, *parts, *redirects()]


def redirects() -> list[BaseRoute]:
    """From the bare host, and from a page with a trailing slash."""
    targets = {"/": f"/{PAGES[0]}"} | {f"/{name}/": f"/{name}" for name in PAGES}
    return [Route(path, ReadOnly(_Redirect(target))) for path, target in targets.items()]


class ReadOnly:
    """Accepts GET and HEAD only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            sentence = f"This path takes GET and HEAD, not {scope['method'][:20]}."
            raise RequestRefused(405, "method_not_allowed", sentence, headers={"Allow": "GET, HEAD"})
        await self._app(scope, receive, send)


def _file(path: Path) -> ASGIApp:
    """A file that clients revalidate: scripts and styles must have the same version as their page."""
    return PreparedResponse(path.read_bytes(), MEDIA_TYPES[path.suffix], [REVALIDATED], compress=True)


class _Redirect:
    """Redirects to a path of ours with the same query, whatever the Host header is."""

    def __init__(self, target: str) -> None:
        self._target = target

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        await RedirectResponse(f"{self._target}?{query}" if query else self._target)(scope, receive, send)
