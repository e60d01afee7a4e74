"""Keys in headers: compared in constant time, and refused while none is configured."""

from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest

from starlette.requests import Request

from tocsin.errors import RequestRefused


def require_key(request: Request, header: str, key: str | None, setting: str) -> None:
    """Refuses the request unless its header holds the key."""
    if not key:
        raise _switched_off(setting)
    sent = request.headers.get(header, "")
    # Digests have one length, so that not even the key's length is revealed.
    if not compare_digest(_digest(sent), _digest(key)):
        sentence = f"Send the value of {setting} in the header {header}."
        raise RequestRefused(401, "unauthorised", sentence)


def require_secret(request: Request, secrets: Sequence[str], setting: str) -> None:
    """Refuses the request unless it has one of the secrets: two are valid while one replaces the other."""
    if not secrets:
        raise _switched_off(setting)
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        sent = request.headers.get("x-chainhook-consumer-secret", "")
    if not any(compare_digest(_digest(sent.strip()), _digest(secret)) for secret in secrets):
        sentence = f"Send the value of {setting}: Authorization: Bearer SECRET."
        raise RequestRefused(401, "unauthorised", sentence)


def _switched_off(setting: str) -> RequestRefused:
    sentence = f"This route is switched off: set {setting} and start the service again."
    return RequestRefused(503, "key_not_configured", sentence, headers={"Retry-After": "60"})


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
