"""Keys in headers: compared in constant time with all configured keys, and refused while none is configured."""

from collections.abc import Sequence

from starlette.requests import Request

from tocsin.access_keys import AccessKey, matching_key
from tocsin.errors import RequestRefused


def require_key(request: Request, header: str, keys: Sequence[AccessKey], setting: str) -> AccessKey:
    """The key in the header; refuses the request if it is none of these."""
    found = _found(request.headers.get(header, ""), keys, setting)
    if found is None:
        raise _unauthorised(f"Send the value of {setting} in the header {header}.")
    return found


def require_secret(request: Request, keys: Sequence[AccessKey], setting: str) -> AccessKey:
    """The secret, sent as a bearer token or in Chainhook's header."""
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        sent = request.headers.get("x-chainhook-consumer-secret", "")
    found = _found(sent.strip(), keys, setting)
    if found is None:
        raise _unauthorised(f"Send the value of {setting}: Authorization: Bearer SECRET.")
    return found


def _found(sent: str, keys: Sequence[AccessKey], setting: str) -> AccessKey | None:
    if not keys:
        sentence = f"This route is switched off: set {setting} and restart the service."
        raise RequestRefused(503, "key_not_configured", sentence, headers={"Retry-After": "60"})
    return matching_key(sent, keys)


def _unauthorised(sentence: str) -> RequestRefused:
    return RequestRefused(401, "unauthorised", sentence)
