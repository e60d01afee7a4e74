"""Decides who may control the simulator: a caller on this machine who sends JSON and, in the demo, the admin key.

A web page open on this machine must not control it. A page cannot send JSON to another origin without a preflight
request, and if its own host name points to 127.0.0.1, that name is still in the Host header.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.requests import ClientDisconnect, Request

BODY_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class ControlRefusal:
    """Why a request is refused."""

    status: int
    code: str
    sentence: str


def refusal_of(request: Request, is_key: Callable[[str], bool] | None) -> ControlRefusal | None:
    """Return why this request must not control the simulator, or None. Without `is_key`, no key is required."""
    if not _is_local(request.client.host if request.client else "") or not _is_local(_host_of(request)):
        return ControlRefusal(
            403,
            "not_local",
            "The simulator can be controlled only from this machine, at an address such as 127.0.0.1 or localhost.",
        )
    if is_key is not None and not is_key(request.headers.get("x-admin-key", "")):
        return ControlRefusal(401, "unauthorised", "Send the value of ADMIN_KEY in the header X-Admin-Key.")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and media_type != "application/json":
        return ControlRefusal(
            415, "unsupported_media_type", "Send JSON, with the header Content-Type: application/json."
        )
    return None


async def body_of(request: Request) -> bytes | None:
    """Return the body; None if it is too large."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_MAX:
                return None
    except ClientDisconnect:
        return None
    return body


def _host_of(request: Request) -> str:
    """The name in the Host header, without the port."""
    host = request.headers.get("host", "")
    return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]


def _is_local(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
