"""Reads the file of a round. It must be exactly as `round_file.py` writes it. Pure."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tocsin.errors import RoundFileError, UsageError
from tocsin.rounds.round_file import DIGEST_LINE, EXCESS, FORMAT, KINDS, NAME, SWAP, Kind, encode, line_of
from tocsin.rounds.token_values import check_rules
from tocsin.shapes.rounds import RoundInputs, RoundOutcome, RoundRules, RoundSwap

T = TypeVar("T")

_INTEGER_MAX = 2**63 - 1
_NUMBER = r"(0|[1-9][0-9]{0,15})"
_AMOUNT = r'"([1-9][0-9]{0,39})"'
_SWAP_LINE = re.compile(
    rf'\["swap","(0x[0-9a-f]{{64}})","({NAME})","({NAME})","({NAME})","({NAME})",{_AMOUNT},"({NAME})",{_AMOUNT},'
    rf'{_NUMBER},{_NUMBER},{_NUMBER},"(agent|cron|chainhook)"\]'
)
_SHAPES: tuple[Any, ...] = (RoundRules, *(kind.shape for kind in KINDS if kind is not SWAP))
_TYPES = {
    shape: {name: hint for name, hint in get_type_hints(shape).items() if name in shape.__dataclass_fields__}
    for shape in _SHAPES
}


@dataclass(frozen=True, slots=True)
class RoundFile:
    """A complete file: in canonical form, and with the digest that it states."""

    inputs: RoundInputs
    outcome: RoundOutcome
    digest: str  # SHA-256, hex


def read_round_file(lines: Iterable[str]) -> RoundFile:
    """Read a file written by `file_lines`; anything else raises `RoundFileError` with its line.

    It does not check that the results follow from the inputs: `tocsin recount` does.
    """
    reader = _Reader()
    for line in lines:
        reader.take(line)
    return reader.finished()


@dataclass(slots=True)
class _Reader:
    """Reads one line after the other."""

    number: int = 0
    place: int = -1  # of the kind that is read, in KINDS; -1 is before the header
    header: dict[str, Any] = field(default_factory=dict)
    found: dict[str, list[Any]] = field(default_factory=lambda: {kind.name: [] for kind in KINDS})
    last_key: Any = None
    digest: str = ""
    hashed: Any = field(default_factory=hashlib.sha256)
    txids: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> None:
        self.number += 1
        if self.digest:
            raise self._wrong("the digest is the last line, and this one comes after it")
        swap = _SWAP_LINE.fullmatch(line)
        if swap is not None:
            self._take_swap(swap)
        else:
            self._take_other(line)
        if not self.digest:
            self.hashed.update(f"{line}\n".encode())

    def finished(self) -> RoundFile:
        if not self.digest:
            raise RoundFileError(self.number + 1, "the digest is missing: the file was cut off")
        found, header = self.found, self.header
        return RoundFile(
            RoundInputs(
                header["rules"],
                header["allowlist_version"],
                header["complete_until_block"],
                *(found[name] for name in ("agent", "price", "swap", "refusal", "decision", EXCESS.name)),
            ),
            RoundOutcome(found["result"], found["reward"], found["flag"]),
            self.digest,
        )

    def _take_swap(self, match: re.Match[str]) -> None:
        txid, sender, contract, function, token_in, given, token_out, got, at, height, index, source = (
            match.groups()
        )
        if txid in self.txids:
            raise self._wrong("this transaction appears twice")
        self.txids.add(txid)
        names = self.names  # a million swaps share few names: each is kept once
        swap = (
            *(txid, names.setdefault(sender, sender), names.setdefault(contract, contract)),
            *(names.setdefault(function, function), names.setdefault(token_in, token_in), given),
            *(names.setdefault(token_out, token_out), got, int(at), int(height), int(index)),
            names.setdefault(source, source),
        )
        self._take_value(SWAP, RoundSwap._make(swap))

    def _take_other(self, line: str) -> None:
        kind, *values = self._parsed(line)
        if kind == "header":
            self._take_header(values[0])
        elif not self.header:
            raise self._wrong(f"the first line is the header, not {_shown(kind)}")
        elif kind == "digest":
            self._take_digest(line)
        elif kind == "swap":
            raise self._wrong("a swap is not as docs/round-file.md describes it")
        else:
            known = next((known for known in KINDS if known.name == kind), None)
            if known is None:
                raise self._wrong(f"there is no kind {_shown(kind)}")
            self._take_value(known, self._shape(known.shape, values[0]))

    def _parsed(self, line: str) -> list[Any]:
        try:
            value = json.loads(line)
            canonical = line_of(value)
            canonical.encode()
        except (ValueError, RecursionError):  # including invalid Unicode
            raise self._wrong("the line is not JSON") from None
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise self._wrong("a line is an array that begins with its kind")
        if value[0] not in {"swap", "digest"} and len(value) != 2:
            raise self._wrong(f"a line of the kind {_shown(value[0])} has two elements")
        if canonical != line:
            raise self._wrong("the bytes are not those of canonical JSON (RFC 8785)")
        return value

    def _take_header(self, value: object) -> None:
        if self.header:
            raise self._wrong("there is only one header")
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise self._wrong(f"the format is not {FORMAT}: another version of Tocsin may read it")
        expected = {"format", "rules", "allowlist_version", "complete_until_block", "counts"}
        if value.keys() != expected or not isinstance(value["counts"], dict):
            raise self._wrong(f"the header has the fields {', '.join(sorted(expected))}")
        counted = {EXCESS.name: 0, **value["counts"]}
        if counted.keys() != self.found.keys() or not _fits(counted, dict[str, int]):
            raise self._wrong(f"counts has a number for each of {', '.join(self.found)}")
        if value["counts"].get(EXCESS.name) == 0:
            raise self._wrong(f"counts has no {EXCESS.name} if there is none")
        if not _fits(value["allowlist_version"], str) or not _fits(value["complete_until_block"], int | None):
            raise self._wrong("allowlist_version is text, complete_until_block a number or null")
        rules = self._shape(RoundRules, value["rules"])
        self._checked(check_rules, rules)
        self.header = {**value, "rules": rules, "counts": counted}

    def _take_value(self, kind: Kind, value: object) -> None:
        place = KINDS.index(kind) if self.place < 0 or KINDS[self.place] is not kind else self.place
        if place < self.place or not self.header:
            after = KINDS[self.place].name if self.header else ""
            raise self._wrong(
                f"{_shown(kind.name)} comes before {_shown(after)}"
                if after
                else "the first line is the header"
            )
        if kind.check is not None:
            self._checked(kind.check, value)
        key = kind.key(value)
        if place == self.place and not self.last_key < key:
            raise self._wrong(
                f"this {kind.name} appears twice"
                if self.last_key == key
                else f"this {kind.name} is out of order"
            )
        self.place, self.last_key = place, key
        self.found[kind.name].append(value)

    def _take_digest(self, line: str) -> None:
        stated = DIGEST_LINE.fullmatch(line)
        if stated is None:
            raise self._wrong("the digest is SHA-256 as 64 hex digits")
        for name, count in self.header["counts"].items():
            if count != len(self.found[name]):
                raise self._wrong(
                    f"the header counts {count} lines of the kind {_shown(name)}, the file has {len(self.found[name])}"
                )
        if stated[1] != self.hashed.hexdigest():
            raise self._wrong(f"the bytes of the file do not have this digest, but {self.hashed.hexdigest()}")
        self.digest = stated[1]

    def _shape(self, shape: type[T], value: object) -> T:
        hints = _TYPES[shape]
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise self._wrong(f"the fields are {', '.join(sorted(hints))}")
        for name, hint in hints.items():
            if not _fits(value[name], hint):
                raise self._wrong(f"{name} cannot be {_shown(value[name])}")
        return shape(**value)

    def _checked(self, check: Callable[[Any], None], value: object) -> None:
        try:
            check(value)
        except UsageError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, what: str) -> RoundFileError:
        return RoundFileError(self.number, what)


def _fits(value: object, hint: object) -> bool:
    """Return whether a JSON value has exactly this type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if hint is int:
        return type(value) is int and abs(value) <= _INTEGER_MAX
    return type(value) is hint


def _shown(value: object) -> str:
    return f"{encode(value):.60}"
