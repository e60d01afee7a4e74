"""Reads agents and claims from a D1 export: SQL written by `wrangler d1 export` or SQLite's own `.dump`. Pure.

Nothing in the file is executed. It is split into tokens while it is read, and only two kinds of statements are used:
CREATE TABLE for the order of columns, INSERT for rows of the two tables. Everything else is skipped. So a hostile
export can at worst be refused, and a long one needs no more memory than its longest token. Values are literals, or one
of the three functions that exports use to write line ends.

Running the export in a scratch SQLite database would not be simpler: the stream must be split into statements first,
which takes the same tokenizer, and the line number of each row would be lost.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tocsin.competition.agent_rows import COLUMNS, TABLES, ImportRow, RowError, Table

TOKEN_MAX = 4_000_000  # characters; D1 holds text of up to 2 MB
TEXT_MAX = 2_000_000  # of a value that a function returns
COLUMNS_MAX = 100  # D1's own limit
DEPTH_MAX = 8

_TOKEN = re.compile(
    r"(?P<skipped>[\s\ufeff]++|--[^\n]*+|/\*.*?\*/)"
    r"|[xX]'(?P<blob>[0-9a-fA-F]*+)'|'(?P<text>(?:[^']++|'')*+)'"
    r'|"(?P<quoted>(?:[^"]++|"")*+)"|`(?P<ticked>[^`]*+)`|\[(?P<bracketed>[^\]]*+)\]'
    r"""|(?P<open>[xX]?'|"|`|\[|/\*)"""
    r"|(?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)|(?P<word>[^\W\d][\w$]*+)|(?P<sign>.)",
    re.DOTALL,
)
_NAMES = {"quoted", "ticked", "bracketed"}
_NO_COLUMN = {"PRIMARY", "FOREIGN", "UNIQUE", "CHECK", "CONSTRAINT"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4})|(\\))")


class Token(NamedTuple):
    """`kind` is text, blob, name, number, word (`text` in upper case), sign, or end."""

    kind: str
    text: str
    line: int


class _Unreadable(Exception):
    """The rest of the file cannot be understood."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def read_export(chunks: Iterable[str]) -> Iterator[ImportRow | RowError]:
    """Yield the rows of `agents` and `claims`, unchecked. If the file cannot be parsed, the last item is an error."""
    try:
        yield from _Export(_Tokens(chunks)).rows()
    except _Unreadable as error:
        yield RowError(error.line, str(error))


class _Tokens:
    """Splits text that arrives in pieces. A token is complete when something follows it or the text has ended."""

    def __init__(self, chunks: Iterable[str]) -> None:
        self._chunks = iter(chunks)
        self._rest = ""
        self._at = 0
        self._ended = False
        self._line = 1
        self._ahead: Token | None = None

    def peek(self) -> Token:
        if self._ahead is None:
            self._ahead = self._next()
        return self._ahead

    def take(self) -> Token:
        token = self.peek()
        self._ahead = None
        return token

    def _next(self) -> Token:
        while True:
            found = _TOKEN.match(self._rest, self._at)
            if found is None or found["open"] or found.end() == len(self._rest):
                if self._read_on():
                    continue
                if found is None:
                    return Token("end", "", self._line)
                if found["open"]:
                    raise _Unreadable(
                        self._line, f"the text that begins here with {found['open']} has no end"
                    )
            line = self._line
            self._line += found[0].count("\n")
            self._at = found.end()
            if found.lastgroup != "skipped":
                return _token(found, line)

    def _read_on(self) -> bool:
        if self._ended:
            return False
        if len(self._rest) - self._at > TOKEN_MAX:
            raise _Unreadable(self._line, f"the text that begins here is longer than {TOKEN_MAX} characters")
        piece = next(self._chunks, "")
        self._ended = piece == ""
        self._rest = self._rest[self._at :] + piece
        self._at = 0
        return True


def _token(found: re.Match[str], line: int) -> Token:
    kind = found.lastgroup or "sign"
    text = found[kind]
    if kind in _NAMES:
        return Token("name", text.replace('""', '"') if kind == "quoted" else text, line)
    if kind == "text":
        text = text.replace("''", "'")
    return Token(kind, text.upper() if kind == "word" else text, line)


class _Export:
    """The statements of an export."""

    def __init__(self, tokens: _Tokens) -> None:
        self._tokens = tokens
        self._columns: dict[Table, list[str]] = {}

    def rows(self) -> Iterator[ImportRow | RowError]:
        while (token := self._tokens.take()).kind != "end":
            match token.kind, token.text:
                case "word", "CREATE":
                    self._create()
                case "word", "INSERT" | "REPLACE":
                    yield from self._insert()
                case "sign", ";":
                    pass
                case _:
                    self._skip()

    def _skip(self) -> None:
        """Skip to the end of a statement."""
        while not self._at_end():
            self._tokens.take()

    def _at_end(self) -> bool:
        token = self._tokens.peek()
        return token.kind == "end" or (token.kind, token.text) == ("sign", ";")

    def _create(self) -> None:
        while self._took("TEMP", "TEMPORARY"):
            pass
        if self._took("TRIGGER"):
            self._skip_trigger()
        elif self._took("TABLE"):
            while self._took("IF", "NOT", "EXISTS"):
                pass
            table = self._table()
            if table is not None and self._signed("("):
                self._columns[table] = self._defined()
        self._skip()

    def _skip_trigger(self) -> None:
        """Skip a trigger. Its body has statements of its own; it ends with `; END ;`."""
        before = ""
        while self._tokens.peek().kind != "end":
            token = self._tokens.take()
            if before == ";" and (token.kind, token.text) == ("word", "END") and self._at_end():
                return
            before = token.text if token.kind == "sign" else ""

    def _defined(self) -> list[str]:
        """Read the columns of a CREATE TABLE, after its opening parenthesis."""
        names: list[str] = []
        depth, is_first = 1, True
        while depth > 0 and not self._at_end():
            token = self._tokens.take()
            if is_first and not (token.kind == "word" and token.text in _NO_COLUMN):
                names.append(token.text.lower())
            depth += (token.kind == "sign") * ((token.text == "(") - (token.text == ")"))
            is_first = (token.kind, token.text, depth) == ("sign", ",", 1)
            self._bounded(names, token)
        return names

    def _insert(self) -> Iterator[ImportRow | RowError]:
        while self._took("OR", "INTO", "IGNORE", "REPLACE", "ABORT", "FAIL", "ROLLBACK"):
            pass
        where = self._tokens.peek()
        table = self._table()
        if table is None:
            self._skip()
            return
        columns = self._listed() if self._signed("(") else self._columns.get(table)
        if columns is None:
            raise _Unreadable(
                where.line, f"the columns of {table} are not known: export it together with its schema"
            )
        if not self._took("VALUES"):
            raise _Unreadable(where.line, f"rows for {table} without VALUES are not understood")
        while True:
            yield self._row(table, columns)
            if not self._signed(","):
                break
        if not self._at_end():
            raise self._unexpected("; after VALUES (…)")

    def _listed(self) -> list[str]:
        """Read the columns that an INSERT names, after its opening parenthesis."""
        names: list[str] = []
        while True:
            token = self._tokens.take()
            names.append(token.text.lower())
            self._bounded(names, token)
            if not self._signed(","):
                break
        self._expect(")")
        return names

    def _row(self, table: Table, columns: list[str]) -> ImportRow:
        """Build a row. Columns that Tocsin does not have are left out: the site may have added some."""
        self._expect("(")
        line = self._tokens.peek().line
        values: list[Any] = [self._value()]
        while self._signed(","):
            values.append(self._value())
            self._bounded(values, self._tokens.peek())
        self._expect(")")
        if len(values) != len(columns):
            raise _Unreadable(line, f"{len(values)} values for the {len(columns)} columns of {table}")
        known = COLUMNS[table]
        return ImportRow(
            table, line, {name: value for name, value in zip(columns, values, strict=True) if name in known}
        )

    def _value(self, depth: int = 0) -> Any:  # noqa: ANN401 - a blob is no JSON; the check of its row refuses it
        token = self._tokens.take()
        match token.kind, token.text:
            case "text", text:
                return text
            case "blob", digits:
                return bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
            case "number", digits:
                return _number(digits)
            case "sign", ("-" | "+") as sign if self._tokens.peek().kind == "number":
                value = _number(self._tokens.take().text)
                return -value if sign == "-" else value
            case "word", "NULL":
                return None
            case "word", name if depth < DEPTH_MAX and self._signed("("):
                return self._called(name, token.line, depth)
            case _:
                raise _Unreadable(token.line, f"expected a value, found {token.text[:40]!r}")

    def _called(self, name: str, line: int, depth: int) -> str:
        arguments = [self._value(depth + 1)]
        while self._signed(",") and len(arguments) < 3:
            arguments.append(self._value(depth + 1))
        self._expect(")")
        match name, arguments:
            case "CHAR", [int(number)] if 0 < number < 0x110000:
                return chr(number)
            case "UNISTR", [str(text)]:
                return _ESCAPE.sub(_unescaped, text)
            case "REPLACE", [str(text), str(old), str(new)] if old:
                if len(text) + text.count(old) * len(new) <= TEXT_MAX:
                    return text.replace(old, new)
        raise _Unreadable(line, f"the value {name.lower()[:40]}(…) is not understood")

    def _table(self) -> Table | None:
        """Return one of our two tables if its name comes next."""
        name = self._tokens.take().text.lower()
        if name == "main" and self._signed("."):
            name = self._tokens.take().text.lower()
        return next((table for table in TABLES if table == name), None)

    def _took(self, *words: str) -> bool:
        token = self._tokens.peek()
        if token.kind != "word" or token.text not in words:
            return False
        self._tokens.take()
        return True

    def _signed(self, sign: str) -> bool:
        if self._tokens.peek()[:2] != ("sign", sign):
            return False
        self._tokens.take()
        return True

    def _expect(self, sign: str) -> None:
        if not self._signed(sign):
            raise self._unexpected(sign)

    def _unexpected(self, expected: str) -> _Unreadable:
        found = self._tokens.peek()
        return _Unreadable(found.line, f"expected {expected}, found {found.text[:40]!r}")

    def _bounded(self, items: list[Any], token: Token) -> None:
        if len(items) > COLUMNS_MAX:
            raise _Unreadable(token.line, f"a table of more than {COLUMNS_MAX} columns")


def _number(digits: str) -> int | float:
    return int(digits) if digits.isdecimal() and len(digits) <= 40 else float(digits)


def _unescaped(found: re.Match[str]) -> str:
    if found[5]:
        return "\\"
    code = int(next(digits for digits in found.groups() if digits), 16)
    return chr(code) if code < 0x110000 else "\0"  # NUL is refused where text is checked
