"""Pages rendered by the server: readable without JavaScript, each with its own title and preview."""

from dataclasses import dataclass
from html import escape

from starlette.responses import Response
from starlette.types import Scope

SITE = "AIBTC trading competition"


@dataclass(frozen=True, slots=True)
class PageHead:
    """The metadata of a page. `image` and `url` are for link previews."""

    title: str
    description: str
    url: str | None = None
    image: str | None = None


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
    document = _document(head, body if bare else _framed(body), script)
    return Response(document, status, headers or {}, "text/html; charset=utf-8")


def not_found_page(sentence: str) -> Response:
    head = PageHead("Not found", sentence)
    body = f'<h1>Not found</h1><p>{escape(sentence)}</p><p><a href="/leaderboard">To the leaderboard</a></p>'
    return html_page(head, body, status=404, headers={"Cache-Control": "no-store"})


def is_for_people(scope: Scope) -> bool:
    """Whether a browser asks for a page, rather than a program for data."""
    if scope["path"].startswith("/api/"):
        return False
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return b"text/html" in accepted


def _framed(body: str) -> str:
    """The body between the navigation and the footer."""
    return f"""<header class="top">
<a class="brand" href="/leaderboard"><img src="/static/icon.svg" alt="" width="28" height="28">Tocsin</a>
<nav aria-label="Pages"><a href="/leaderboard">Leaderboard</a></nav>
</header>
<main>
{body}
</main>
<footer class="foot">
<a href="/api/docs">API</a> <a href="/llms.txt">For agents</a> <a href="/readyz">Status</a>
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
<meta name="description" content="{escape(head.description)}">
{_preview(head)}<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
<link rel="stylesheet" href="/static/agent.css">
{loaded}</head>
<body>
{body}
</body>
</html>
"""


def _preview(head: PageHead) -> str:
    properties = {
        "og:type": "website",
        "og:site_name": SITE,
        "og:title": head.title,
        "og:description": head.description,
    }
    if head.url is not None:
        properties["og:url"] = head.url
    if head.image is not None:
        properties |= {"og:image": head.image, "og:image:width": "1200", "og:image:height": "630"}
    lines = [
        f'<meta property="{name}" content="{escape(content)}">\n' for name, content in properties.items()
    ]
    return "".join(lines) + '<meta name="twitter:card" content="summary_large_image">\n'
