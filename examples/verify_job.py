"""Verify that a call is Tocsin's: `webhook-id`, `webhook-timestamp` and `webhook-signature` over the exact body."""

import hmac
import time
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256


def verify(headers: Mapping[str, str], body: bytes, secret: str) -> str | None:
    """Return the idempotency key, or None if the call is forged or older than five minutes."""
    message_id, at, sent = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    digest = hmac.new(secret.encode(), f"{message_id}.{at}.".encode() + body, sha256).digest()
    is_ours = hmac.compare_digest(b"v1," + b64encode(digest), sent.encode())
    return message_id if is_ours and abs(time.time() - int(at)) < 300 else None
