"""Fetch: one HTTP exchange, which requests can be sent, how an error names one, and what it costs on Cloudflare."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from holdfast.errors import UsageError
from holdfast.subrequests import RESERVED_FOR_STORES, current_invocation
from tocsin.errors import RunStopped

# None of these can contain a line break, which would end a line of the request.
_URL = re.compile(r"https?://[!-~]+")
_METHOD = re.compile(r"[A-Z]+")
_HEADER = re.compile(r"[^\0-\x1f\x7f]*")


def check_request(url: str, method: str, headers: Mapping[str, str]) -> None:
    try:
        sendable = _URL.fullmatch(url) and urlsplit(url).hostname and (urlsplit(url).port or True)
    except ValueError:
        sendable = False
    if not sendable:
        raise UsageError("fetch needs an absolute http or https URL, percent-encoded")
    if not _METHOD.fullmatch(method):
        raise UsageError("fetch needs a method in upper case")
    for name, value in headers.items():
        if not _HEADER.fullmatch(f"{name}{value}"):
            raise UsageError(f"fetch: the header {name!r} contains a control character")


def without_secrets(url: str) -> str:
    """Origin and path. A query or a user part may hold a key, and errors are logged."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def lower_case(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of a response by their lower-case names; repeated ones are joined."""
    joined: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        joined[lower] = f"{joined[lower]}, {value}" if lower in joined else value
    return joined


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A complete response. Header names are lower-case; redirects are not followed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetch(Protocol):
    """One HTTP exchange. Raises `FetchTimeout`, `FetchTooLarge` or `FetchFailed`; never retries."""

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse: ...


def spend_on_fetch() -> None:
    """On Cloudflare, count a fetch. When most of the limit is used, end the run like a pause.

    Its work is kept, and the next ring continues. The rest of the limit is for storing that work.
    """
    account = current_invocation()
    if account is None:
        return
    if account.spent >= account.limit - RESERVED_FOR_STORES:
        spent = f"{account.spent} of {account.limit} subrequests of this invocation are used"
        raise RunStopped(f"{spent}; the next invocation continues", outcome="partial")
    account.spent += 1
