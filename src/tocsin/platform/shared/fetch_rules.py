"""Fetch: which requests can be sent, and how an error names one."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from tocsin.errors import UsageError

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
