"""Keys in headers: compared in constant time, and refused as long as none is configured."""

from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest

from starlette.requests import Request

from tocsin.errors import RequestRefused


def require_key(request: Request, header: str, key: str | None, setting: str) -> None:
    """Refuses the request unless its header holds the key."""
    if not key:
        raise _switched_off(setting)
    given = request.headers.get(header, "")
    # Digests have one length, so that not even the key's is told.
    if not compare_digest(_digest(given), _digest(key)):
        sentence = f"Send the key that {setting} holds in the header {header}."
        raise RequestRefused(401, "unauthorised", sentence)


def require_secret(request: Request, secrets: Sequence[str], setting: str) -> None:
    """Refuses the request unless it bears one of the secrets: two are valid while one replaces the other."""
    if not secrets:
        raise _switched_off(setting)
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        given = request.headers.get("x-chainhook-consumer-secret", "")
    if not any(compare_digest(_digest(given.strip()), _digest(secret)) for secret in secrets):
        sentence = f"Send the secret that {setting} holds: Authorization: Bearer SECRET."
        raise RequestRefused(401, "unauthorised", sentence)


def _switched_off(setting: str) -> RequestRefused:
    sentence = f"This route is switched off: set {setting} and start the service again."
    return RequestRefused(503, "key_not_configured", sentence, headers={"Retry-After": "60"})


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
