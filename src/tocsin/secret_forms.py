"""The forms in which a secret may appear in a text, in upper or lower case.

Plain, percent-encoded, escaped as in JSON, in hexadecimal digits, reversed, and in base64, also as a part of a longer
text that was encoded, such as `user:key`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

ENCODED_MIN = 8  # characters of a secret; encodings of shorter ones are parts of ordinary words


def forms_of(secrets: Iterable[str]) -> list[str]:
    """Every form of every secret, longest first, because one may be a prefix of another."""
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    return sorted(forms, key=len, reverse=True)


def pattern_of(forms: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of the forms; if several match at one position, the first one given."""
    return re.compile("|".join(map(re.escape, forms)) or r"(?!)", re.IGNORECASE)


def _forms(secret: str) -> Iterator[str]:
    yield from (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    if len(secret) >= ENCODED_MIN:
        yield secret[::-1]
        raw = secret.encode()
        yield raw.hex()
        for before in range(3):  # how many bytes of a group of three come before the secret
            encoded = b64encode(bytes(before) + raw).decode()
            # Only the characters that depend on nothing but the secret.
            whole = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
            yield from (whole, whole.replace("+", "-").replace("/", "_"))
