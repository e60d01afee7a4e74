"""SQL: whose statements are whose, and which values can be bound."""

import math
import re
from typing import TypeAlias

from tocsin.errors import UsageError, ValueRefused

Value: TypeAlias = str | int | float | bytes | None

INT_MAX = 2**63 - 1  # what SQLite holds

# What SQLite skips before a statement: white space, a byte order mark, comments. The group is atomic and
# its repetitions possessive, so that no text, however odd, makes the match slow.
SKIPPED = r"(?>[\s\ufeff]++|--[^\n]*+|/\*.*?(?:\*/|\Z))"
_FIRST_WORDS = re.compile(rf"{SKIPPED}*+([a-z]+)(?:{SKIPPED}++([a-z_]+))?", re.DOTALL | re.IGNORECASE)

# The platform owns transactions, files and connection settings: D1 refuses these statements too.
_OWNED = frozenset(
    ["BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "VACUUM"]
)
_ALLOWED_PRAGMAS = frozenset(
    [
        "defer_foreign_keys",
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "optimize",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
    ]
)


def first_word(sql: str) -> str:
    """The statement's verb in upper case, or "" when there is none."""
    found = _FIRST_WORDS.match(sql)
    return found[1].upper() if found else ""


def refuse_owned(sql: str) -> None:
    """Raise for a statement that would take transactions or settings out of the platform's hands."""
    found = _FIRST_WORDS.match(sql)
    if found is None:
        return
    verb, second = found[1].upper(), (found[2] or "").lower()
    if verb in _OWNED:
        raise UsageError(f"{verb} is the platform's own: what must be atomic is one batch([...])")
    if verb == "PRAGMA" and second not in _ALLOWED_PRAGMAS:
        raise UsageError(
            f"PRAGMA {second} is not available; these are: {', '.join(sorted(_ALLOWED_PRAGMAS))}"
        )


def storable(value: Value, number: int) -> Value:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX:
        raise ValueRefused(f"bind: value {number} is an integer of more than 64 bits: bind amounts as text")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueRefused(
            f"bind: value {number} is {value}, which SQLite and D1 would store as something else"
        )
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueRefused(
                f"bind: value {number} is text with half a character (a lone surrogate)"
            ) from error
    if value is not None and not isinstance(value, str | int | float | bytes):
        raise ValueRefused(
            f"bind: value {number} is a {type(value).__name__}; bind text, int, float, bytes, bool or None"
        )
    return value
