"""Security headers of pages and responses. They need no web server of ours: Cloudflare serves files itself."""

from collections.abc import Mapping, Sequence
from typing import Final

RawHeaders = Sequence[tuple[bytes, bytes]]

PAGES: Final = ("leaderboard", "console")
SECURITY_HEADERS: Final[RawHeaders] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
# For a year, browsers use https only. Sent over https only: over http it could be forged.
STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")
PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
REVALIDATED: Final = (b"cache-control", b"no-cache")  # cached, but revalidated: a new version shows at once


def is_https(scope: Mapping[str, object]) -> bool:
    """Whether the client uses https, according to Cloudflare or a trusted proxy (`X-Forwarded-Proto`)."""
    return scope.get("scheme") == "https"


def with_security(headers: RawHeaders, *, https: bool) -> list[tuple[bytes, bytes]]:
    """The headers, plus missing security headers; pages also get a content security policy."""
    names = {name.lower() for name, _ in headers}
    may_be_framed = any(
        name.lower() == b"content-security-policy" and b"frame-ancestors *" in value
        for name, value in headers
    )
    wanted = [
        header for header in SECURITY_HEADERS if not (may_be_framed and header[0] == b"x-frame-options")
    ]
    if https:
        wanted.append(STRICT_TRANSPORT)
    if any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in headers):
        wanted.append((b"content-security-policy", PAGE_POLICY))
    return [*headers, *((name, value) for name, value in wanted if name not in names)]


def static_headers() -> str:
    """The headers for files that Cloudflare serves itself: the text of its `_headers` file."""
    common = [*SECURITY_HEADERS, STRICT_TRANSPORT, REVALIDATED]
    page = [*common, (b"content-security-policy", PAGE_POLICY)]
    rules = {f"/{name}": page for name in PAGES} | {"/static/*": common}
    return "".join(
        f"{path}\n" + "".join(f"  {name.decode()}: {value.decode()}\n" for name, value in headers)
        for path, headers in rules.items()
    )
