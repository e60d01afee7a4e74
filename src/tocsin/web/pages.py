"""The pages: static files that get their data from our own API only, and the frame of those that the server renders.

Each file is a route of its own and is read once, so errors have the same shape as everywhere else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeAlias

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import UsageError
from tocsin.errors import RequestRefused
from tocsin.web.limits import ClientLimits
from tocsin.web.response import LEVEL, NO_STORE, PACKET_BYTES, PAGES, REVALIDATED, PreparedResponse

PageHandler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SITE = "Tocsin"
SCRIPT = "/static/js/page.js"
AGED = {"Cache-Control": "public, max-age=30"}


def page_routes() -> list[BaseRoute]:
    """The static pages, the files of all pages, and redirects."""
    pages = [Route(f"/{name}", ReadOnly(_file(STATIC / f"{name}.html"))) for name in PAGES]
    parts = [
        Route(f"/static/{path.relative_to(STATIC).as_posix()}", ReadOnly(_file(path)))
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in MEDIA_TYPES and path.suffix != ".html"
    ]
    return [*pages, *parts, *redirects()]


def redirects() -> list[BaseRoute]:
    """From the bare host, and from a page with a trailing slash."""
    targets = {"/": "/leaderboard"} | {f"/{name}/": f"/{name}" for name in ("leaderboard", "rounds", *PAGES)}
    return [_redirect(path, target) for path, target in targets.items()]


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


def counted(path: str, handler: PageHandler, limits: ClientLimits, reads: int = 1, *, compress: bool = False) -> Route:
    """The route of a page that the service renders. It counts as one read of its client, or as several.

    A `UsageError` is a page that was not found: what a visitor sees is always a page.
    """

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        limits.before_read(scope, reads)
        try:
            response = await handler(Request(scope, receive))
        except UsageError as error:
            response = not_found_page(str(error))
        await response(scope, receive, send)

    app = GZipMiddleware(page, minimum_size=PACKET_BYTES, compresslevel=LEVEL) if compress else page
    return Route(path, ReadOnly(app))


def _redirect(path: str, target: str) -> Route:
    """A redirect to a path of ours with the same query, whatever the Host header is."""

    async def redirect(scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        await RedirectResponse(f"{target}?{query}" if query else target)(scope, receive, send)

    return Route(path, ReadOnly(redirect))


@dataclass(frozen=True, slots=True)
class PageHead:
    """The metadata of a page. `url` is for link previews; its picture is below it."""

    title: str
    description: str
    url: str | None = None

    @classmethod
    def of(cls, title: str, description: str, public_url: str | None, path: str) -> "PageHead":
        """Link previews need absolute URLs. The `Host` of a request is anybody's, so it makes none."""
        return cls(title, description, None if public_url is None else f"{public_url}{path}")


def html_page(
    head: PageHead,
    body: str,
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    bare: bool = False,
    script: str | None = None,
) -> Response:
    """A whole page around this HTML body; a `bare` one has no navigation. `script` is optional."""
    document = _document(head, body if bare else _framed(head.title, body), script)
    return Response(document, status, headers or {}, "text/html; charset=utf-8")


def not_found_page(sentence: str) -> Response:
    head = PageHead("Not found", sentence)
    body = f'<h1>Not found</h1><p>{escape(sentence)}</p><p><a href="/leaderboard">To the leaderboard</a></p>'
    return html_page(head, body, status=404, headers=NO_STORE)


def is_for_people(scope: Scope) -> bool:
    """Whether a browser asks for a page, rather than a program for data."""
    if scope["path"].startswith("/api/"):
        return False
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return b"text/html" in accepted


def _framed(title: str, body: str) -> str:
    """The body between the navigation and the footer."""
    current = ' aria-current="page"' if title == "Rounds" else ""
    return f"""<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<a class="brand" href="/leaderboard"><img src="/static/icon.svg" alt="" width="28" height="28">Tocsin</a>
<nav aria-label="Pages"><a href="/leaderboard">Leaderboard</a><a href="/rounds"{current}>Rounds</a></nav>
</header>
<main id="main" tabindex="-1">
{body}
</main>
<footer class="foot">
<a href="/api/docs">API</a> <a href="/llms.txt">For agents</a>
<span>Data: Hiro, Tenero</span>
</footer>"""


def _document(head: PageHead, body: str, script: str | None) -> str:
    loaded = "" if script is None else f'<script type="module" src="{script}"></script>\n'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(head.title)} · Tocsin</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{link_preview(head)}<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
<link rel="stylesheet" href="/static/agent.css">
{loaded}</head>
<body>
{body}
</body>
</html>
"""


def link_preview(head: PageHead) -> str:
    """Its description, and what other sites show of a link to it."""
    properties = {
        "og:type": "website",
        "og:site_name": SITE,
        "og:title": head.title,
        "og:description": head.description,
    }
    if head.url is not None:
        picture = {"og:image": f"{head.url}/card.png", "og:image:width": "1200", "og:image:height": "630"}
        properties |= {"og:url": head.url, **picture}
    lines = [f'<meta name="description" content="{escape(head.description)}">\n']
    lines += [f'<meta property="{name}" content="{escape(content)}">\n' for name, content in properties.items()]
    return "".join(lines) + '<meta name="twitter:card" content="summary_large_image">\n'
