"""Keys in headers: compared in constant time, and refused as long as none is configured."""

from hashlib import sha256
from hmac import compare_digest

from starlette.requests import Request

from tocsin.errors import RequestRefused


def require_key(request: Request, header: str, key: str | None, setting: str) -> None:
    """Refuses the request unless its header holds the key."""
    if not key:
        sentence = f"This route is switched off: set {setting} and start the service again."
        raise RequestRefused(503, "key_not_configured", sentence, headers={"Retry-After": "60"})
    given = request.headers.get(header, "")
    # Digests have one length, so that not even the key's is told.
    if not compare_digest(_digest(given), _digest(key)):
        sentence = f"Send the key that {setting} holds in the header {header}."
        raise RequestRefused(401, "unauthorised", sentence)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
