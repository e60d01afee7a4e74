"""Where a page ended, as an opaque string that callers send back. Pure."""

import base64
import binascii
import json

from tocsin.bindings import JSON

LENGTH_MAX = 400
PATTERN = "^([A-Za-z0-9_-]{4,400})?$"  # an empty one counts as absent


def write(value: JSON) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(cursor: str) -> JSON:
    """Return the encoded value; None for anything else that a caller may send."""
    value: JSON = None
    try:
        padded = cursor[:LENGTH_MAX] + "=" * (-len(cursor) % 4)
        value = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        return None
    return value
