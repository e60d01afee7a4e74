"""Keys in headers: compared in constant time with all configured keys, and refused while none is configured."""

from collections.abc import Sequence

from starlette.requests import Request

from tocsin.access_keys import AccessKey, matching_key
from tocsin.errors import RequestRefused


class KeyMissing(RequestRefused):
    """There is no key. That is not a guess: a page of another site can make a visitor's browser send it."""


def require_key(request: Request, header: str, keys: Sequence[AccessKey], setting: str) -> AccessKey:
    """The key in the header; refuses the request if it is none of these."""
    return _found(
        request.headers.get(header, ""), keys, setting, f"Send the value of {setting} in the header {header}."
    )


def require_secret(request: Request, keys: Sequence[AccessKey], setting: str) -> AccessKey:
    """The secret, sent as a bearer token or in Chainhook's header."""
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        sent = request.headers.get("x-chainhook-consumer-secret", "")
    return _found(sent.strip(), keys, setting, f"Send the value of {setting}: Authorization: Bearer SECRET.")


def _found(sent: str, keys: Sequence[AccessKey], setting: str, sentence: str) -> AccessKey:
    if not keys:
        off = f"This route is switched off: set {setting} and restart the service."
        raise RequestRefused(503, "key_not_configured", off, headers={"Retry-After": "60"})
    found = matching_key(sent, keys)
    if found is None:
        raise (RequestRefused if sent else KeyMissing)(401, "unauthorised", sentence)
    return found
