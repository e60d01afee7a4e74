"""The forms in which a secret may come back in a text: plain, percent-encoded, or escaped as in JSON."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus


def forms_of(secrets: Iterable[str]) -> list[str]:
    """Every form of every secret, the longest first: one may be a prefix of another."""
    forms = {
        form
        for secret in secrets
        if secret
        for form in (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    }
    return sorted(forms, key=len, reverse=True)


def pattern_of(forms: Iterable[str]) -> re.Pattern[str]:
    """Finds any of the forms; of several at one place the first that was given."""
    return re.compile("|".join(map(re.escape, forms)) or r"(?!)")
