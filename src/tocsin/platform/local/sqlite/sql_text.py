"""SQL text: the statements of a script, and a CREATE statement in a form that can be compared."""

import re
import sqlite3
from collections.abc import Iterator
from functools import lru_cache

from tocsin.platform.shared.sql_rules import SKIPPED, first_word

PLAIN_CACHED = 256  # a file's statements are mostly those of its migrations

_TOKEN = re.compile(
    rf"(?P<skipped>{SKIPPED}+)|(?P<text>x?'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])|(?P<word>[\w$]+)|(?P<sign><=|>=|<>|!=|==|\|\||.)',
    re.DOTALL | re.IGNORECASE,
)


def split(script: str) -> list[str]:
    """The statements of a script. SQLite itself decides where one ends, so triggers stay whole."""
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
    for match in _TOKEN.finditer(sql):
        if match["text"]:
            yield match["text"]
        elif match["quoted"]:
            yield match["quoted"][1:-1].lower()
        elif not match["skipped"]:
            yield match[0].lower()


@lru_cache(PLAIN_CACHED)
def plain(sql: str) -> tuple[str, ...]:
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
    return tuple(line.strip() for line in lines if line.strip())


def after_all_with(prefix: str) -> str | bytes:
    """The least upper bound of all names with this prefix. UTF-8 sorts like code points."""
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return b""  # SQLite sorts any blob after any text
    last = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if last == 0xD800 else last)  # valid text has no surrogates
