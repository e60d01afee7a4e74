"""What the platform must know about SQL text: its first word, its statements, its sense without its looks."""

import re
import sqlite3
from collections.abc import Iterator

from tocsin.errors import UsageError

# What SQLite skips before a statement: white space, a byte order mark, comments. The group is atomic and
# its repetitions possessive, so that no text, however odd, makes the match slow.
_SKIPPED = r"(?>[\s\ufeff]++|--[^\n]*+|/\*.*?(?:\*/|\Z))"
_FIRST_WORDS = re.compile(rf"{_SKIPPED}*+([a-z]+)(?:{_SKIPPED}++([a-z_]+))?", re.DOTALL | re.IGNORECASE)
_TOKEN = re.compile(
    rf"(?P<skipped>{_SKIPPED})|(?P<text>x?'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])|(?P<word>[\w$]+)|(?P<sign><=|>=|<>|!=|==|\|\||.)',
    re.DOTALL | re.IGNORECASE,
)

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


def split(script: str) -> list[str]:
    """The statements of a script. SQLite itself says where one ends, so triggers stay whole."""
    statements: list[str] = []
    rest = ""
    for piece in script.split(";"):
        rest += piece
        if sqlite3.complete_statement(rest + ";"):
            statements.append(rest.strip())
            rest = ""
        else:
            rest += ";"
    statements.append(rest.removesuffix(";").strip())
    return [statement for statement in statements if first_word(statement)]


def _tokens(sql: str) -> Iterator[str]:
    for found in _TOKEN.finditer(sql):
        if found["text"]:
            yield found["text"]
        elif found["quoted"]:
            yield found["quoted"][1:-1].lower()
        elif not found["skipped"]:
            yield found[0].lower()


def plain(sql: str) -> list[str]:
    """A CREATE statement without comments, case, quotes and layout: its head, then a line per item."""
    lines = [""]
    depth = 0
    for word in _tokens(sql):
        depth += (word == "(") - (word == ")")
        opens_or_divides = word in {"(", ","} and depth == 1
        if opens_or_divides:
            lines.append("")
        elif word == ")" and depth == 0:
            lines.append(")")
        else:
            lines[-1] += f" {word}"
    return [line.strip() for line in lines if line.strip()]
