"""Prepares a value to leave the process: as JSON, bounded, and without the secrets of the settings.

Everything for the log stream and the log service passes through one `Redactor`. Callers need not know
which field is secret.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.bindings import JSON
from tocsin.secret_forms import forms_of, pattern_of

MASK = "[redacted]"
TEXT_MAX = 8_000  # characters per text; a whole page of an upstream does not belong in a line
ITEMS_MAX = 200  # per list or dict
DEPTH_MAX = 8


class Redactor:
    """Converts any value to JSON and masks the secrets, plain, percent-encoded or escaped as in JSON."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these secrets from now on, in addition to the known ones."""
        self._secrets |= set(secrets)
        self._secret = pattern_of(forms_of(self._secrets))

    def __call__(self, value: object, depth: int = 0) -> JSON:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and (not isinstance(value, float) or math.isfinite(value)):
            text = str(value)
            return value if self._secret.search(text) is None else self.text(text)
        if depth < DEPTH_MAX:
            if isinstance(value, Mapping):
                items = list(value.items())[:ITEMS_MAX]
                return {self.text(_as_text(key)): self(item, depth + 1) for key, item in items}
            if isinstance(value, list | tuple | set | frozenset):
                return [self(item, depth + 1) for item in list(value)[:ITEMS_MAX]]
        return self.text(_as_text(value))

    def fields(self, fields: Mapping[str, Any]) -> dict[str, JSON]:
        """The fields of a log line."""
        clean = self(fields)
        assert isinstance(clean, dict)
        return clean

    def text(self, text: str) -> str:
        # Mask before cutting: a cut inside a secret would leave its first part.
        clean = self._secret.sub(MASK, text)
        return clean if len(clean) <= TEXT_MAX else f"{clean[:TEXT_MAX]}… and {len(clean) - TEXT_MAX} more"


def _as_text(value: object) -> str:
    """Any object as text. Never raises: a log line about a failure must not fail itself."""
    try:
        if isinstance(value, BaseException):
            return f"{type(value).__name__}: {value}"
        if isinstance(value, bytes):
            return value.decode(errors="backslashreplace")
        return str(value)
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ raises
        return f"<{type(value).__name__} that cannot be shown>"
