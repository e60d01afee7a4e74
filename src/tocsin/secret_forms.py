"""The forms in which a secret may appear in a text: plain, percent-encoded, or escaped as in JSON."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus


def forms_of(secrets: Iterable[str]) -> list[str]:
    """Every form of every secret, longest first, because one may be a prefix of another."""
    forms = {
        form
        for secret in secrets
        if secret
        for form in (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    }
    return sorted(forms, key=len, reverse=True)


def pattern_of(forms: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of the forms; if several match at one position, the first one given."""
    return re.compile("|".join(map(re.escape, forms)) or r"(?!)")
