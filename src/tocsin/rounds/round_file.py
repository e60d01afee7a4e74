"""The file of a round: all that its result was computed from, and the result, as bytes that can be made again. Pure.

JSON lines. Each line is an array that begins with its kind, in the one spelling of RFC 8785: keys in order, no spaces,
UTF-8. Kinds come in a fixed order, and the lines of a kind too. The last line has the SHA-256 digest of all bytes
before it. `docs/round-file.md` describes every kind.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tocsin.errors import RoundFileError, UsageError
from tocsin.rounds.scoring import CHAIN_ORDER
from tocsin.rounds.token_values import check_price, check_rules
from tocsin.shapes.rounds import (
    CATEGORIES,
    AgentFlag,
    AgentResult,
    FlagDecision,
    RoundAgent,
    RoundInputs,
    RoundOutcome,
    RoundPrice,
    RoundRefusal,
    RoundReward,
    RoundRules,
    RoundSwap,
)

T = TypeVar("T")

FORMAT = "tocsin-round/1"
PART_BYTES = 500_000  # a row of D1 holds a little more

_BLOCK = 1_000  # lines that are hashed at once
_INTEGER_MAX = 2**63 - 1
_NAME = r"[ !#-\[\]-~]+"  # printable ASCII that JSON does not escape
_NUMBER = r"(0|[1-9][0-9]{0,15})"
_AMOUNT = r'"([1-9][0-9]{0,39})"'
_SWAP_LINE = re.compile(
    rf'\["swap","(0x[0-9a-f]{{64}})","({_NAME})","({_NAME})","({_NAME})","({_NAME})",{_AMOUNT},"({_NAME})",{_AMOUNT},'
    rf'{_NUMBER},{_NUMBER},{_NUMBER},"(agent|cron|chainhook)"\]'
)
_DIGEST_LINE = re.compile(r'\["digest","sha256","([0-9a-f]{64})"\]')

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class RoundFile:
    """A file that is whole: in the one form, and with the digest that it states."""

    inputs: RoundInputs
    outcome: RoundOutcome
    digest: str  # SHA-256, hex


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of line, and what puts its lines in order. No two lines of a kind have the same key."""

    name: str
    shape: type[Any]
    key: Callable[[Any], Any]
    check: Callable[[Any], None] = lambda _value: None


KINDS = (
    Kind("agent", RoundAgent, lambda agent: agent.stx_address),
    Kind("price", RoundPrice, lambda price: price.token_id, check_price),
    Kind("swap", RoundSwap, CHAIN_ORDER),
    Kind("refusal", RoundRefusal, lambda refusal: (refusal.burn_block_time, refusal.txid)),
    Kind(
        "decision",
        FlagDecision,
        lambda made: (
            *(made.erc8004_agent_id, made.decided_at, made.kind or "", made.decision),
            *(made.reason, made.decided_by),
        ),
    ),
    Kind("result", AgentResult, lambda result: result.rank),
    Kind("reward", RoundReward, lambda reward: CATEGORIES.index(reward.category)),
    Kind("flag", AgentFlag, lambda flag: (flag.erc8004_agent_id, flag.kind, flag.reason, flag.txids)),
)

_SHAPES: tuple[Any, ...] = (RoundRules, *(kind.shape for kind in KINDS if kind.shape is not RoundSwap))
_TYPES = {
    shape: {name: hint for name, hint in get_type_hints(shape).items() if name in shape.__dataclass_fields__}
    for shape in _SHAPES
}


# Writing


def file_lines(inputs: RoundInputs, outcome: RoundOutcome) -> Iterator[str]:
    """The file, line by line. Each ends with a line feed, which is left out here. The last one has the digest."""
    digest, lines = hashlib.sha256(), _lines_before_digest(inputs, outcome)
    while block := list(islice(lines, _BLOCK)):
        digest.update(_ended(block).encode())
        yield from block
    yield _line(["digest", "sha256", digest.hexdigest()])


def parts_of(lines: Iterable[str], size_max: int = PART_BYTES) -> Iterator[str]:
    """The file in parts of at most `size_max` bytes. They end with a line; only a line that is longer is cut."""
    part: list[str] = []
    size = 0
    for line in lines:
        length = 1 + (len(line) if line.isascii() else len(line.encode()))
        if size + length > size_max and part:
            yield _ended(part)
            part, size = [], 0
        if length > size_max:
            yield from _pieces(_ended([line]), size_max)
        else:
            part.append(line)
            size += length
    if part:
        yield _ended(part)


def lines_of(parts: Iterable[str]) -> Iterator[str]:
    """The lines of a file in parts, wherever it was cut."""
    rest = ""
    for part in parts:
        *whole, rest = (rest + part).split("\n")
        yield from whole
    if rest:
        raise RoundFileError(None, "the last line does not end: the file was cut off")


def stated_digest(parts: Sequence[str]) -> str:
    """The digest that a file, whole or in parts, ends with."""
    found = _DIGEST_LINE.fullmatch(parts[-1][:-1].rpartition("\n")[2]) if parts else None
    if found is None:
        raise RoundFileError(None, "the file does not end with its digest: it was cut off")
    return found[1]


def _lines_before_digest(inputs: RoundInputs, outcome: RoundOutcome) -> Iterator[str]:
    listed = _lists(inputs, outcome)
    yield _line(
        [
            "header",
            {
                "format": FORMAT,
                "rules": inputs.rules.to_json(),
                "allowlist_version": inputs.allowlist_version,
                "complete_until_block": inputs.complete_until_block,
                "counts": {name: len(values) for name, values in listed.items()},
            },
        ]
    )
    for kind in KINDS:
        values = sorted(listed[kind.name], key=kind.key)
        if kind.shape is RoundSwap:
            yield from _swap_lines(values)
        else:
            for value in values:
                yield _line([kind.name, value.to_json()])


def _lists(inputs: RoundInputs, outcome: RoundOutcome) -> dict[str, Sequence[Any]]:
    return {
        "agent": inputs.agents,
        "price": inputs.prices,
        "swap": inputs.swaps,
        "refusal": inputs.refusals,
        "decision": inputs.decisions,
        "result": outcome.results,
        "reward": outcome.rewards,
        "flag": outcome.flags,
    }


def _ended(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _line(value: Any) -> str:
    return _encode(value)


class _Quoted(dict[str, str]):
    """Names in quotes. Many swaps have few names, so each is looked at once."""

    def __missing__(self, name: str) -> str:
        if not re.fullmatch(_NAME, name):
            raise UsageError(f"A swap has the name {name[:60]!r}, which is not printable ASCII.")
        quoted = self[name] = f'"{name}"'
        return quoted


def _swap_lines(swaps: Iterable[RoundSwap]) -> Iterator[str]:
    """As `_line` writes them, in a fraction of the time. The database accepts only txids and amounts that fit."""
    q = _Quoted()
    for txid, sender, contract, function, token_in, given, token_out, got, at, height, index, source in swaps:
        yield (
            f'["swap","{txid}",{q[sender]},{q[contract]},{q[function]},{q[token_in]},"{given}",{q[token_out]},"{got}",'
            f'{at},{height},{index},"{source}"]'
        )


def _pieces(line: str, size_max: int) -> Iterator[str]:
    """A long line cut between characters, each of which has at most four bytes."""
    length = size_max if line.isascii() else size_max // 4
    for start in range(0, len(line), length):
        yield line[start : start + length]


# Reading


def read_round_file(lines: Iterable[str]) -> RoundFile:
    """Read a file that is as `file_lines` writes it; anything else raises `RoundFileError` with its line.

    Whether the results follow from the inputs is another question: `tocsin recount` answers it.
    """
    reader = _Reader()
    for line in lines:
        reader.take(line)
    return reader.finished()


@dataclass(slots=True)
class _Reader:
    """Takes one line after the other."""

    number: int = 0
    place: int = -1  # of the kind that is read, in KINDS; -1 is before the header
    header: dict[str, Any] = field(default_factory=dict)
    found: dict[str, list[Any]] = field(default_factory=lambda: {kind.name: [] for kind in KINDS})
    last_key: Any = None
    digest: str = ""
    hashed: Any = field(default_factory=hashlib.sha256)
    txids: set[str] = field(default_factory=set)

    def take(self, line: str) -> None:
        self.number += 1
        if self.digest:
            raise self._wrong("the digest is the last line, and this one comes after it")
        swap = _SWAP_LINE.fullmatch(line)
        if swap is not None:
            self._take_value(KINDS[2], _swap(swap))
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
                *(found[name] for name in ("agent", "price", "swap", "refusal", "decision")),
            ),
            RoundOutcome(found["result"], found["reward"], found["flag"]),
            self.digest,
        )

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
            canonical = _line(value)
            canonical.encode()
        except (ValueError, RecursionError):  # also what is no Unicode text
            raise self._wrong("the line is not JSON") from None
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise self._wrong("a line is an array that begins with its kind")
        if value[0] not in {"swap", "digest"} and len(value) != 2:
            raise self._wrong(f"a line of the kind {_shown(value[0])} has two elements")
        if canonical != line:
            raise self._wrong("the bytes are not those of canonical JSON (RFC 8785)")
        return value

    def _take_header(self, value: Any) -> None:
        if self.header:
            raise self._wrong("there is only one header")
        counts = dict.fromkeys(self.found, int)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise self._wrong(f"the format is not {FORMAT}: another version of Tocsin may read it")
        expected = {"format", "rules", "allowlist_version", "complete_until_block", "counts"}
        if value.keys() != expected or not isinstance(value["counts"], dict):
            raise self._wrong(f"the header has the fields {', '.join(sorted(expected))}")
        if value["counts"].keys() != counts.keys() or not _fits(value["counts"], dict[str, int]):
            raise self._wrong(f"counts has a number for each of {', '.join(counts)}")
        if not _fits(value["allowlist_version"], str) or not _fits(value["complete_until_block"], int | None):
            raise self._wrong("allowlist_version is text, complete_until_block a number or null")
        rules = self._shape(RoundRules, value["rules"])
        self._checked(check_rules, rules)
        self.header = {**value, "rules": rules}

    def _take_value(self, kind: Kind, value: Any) -> None:
        place = KINDS.index(kind) if self.place < 0 or KINDS[self.place] is not kind else self.place
        if place < self.place or not self.header:
            after = KINDS[self.place].name if self.header else ""
            raise self._wrong(
                f"{_shown(kind.name)} comes before {_shown(after)}"
                if after
                else "the first line is the header"
            )
        self._checked(kind.check, value)
        key = kind.key(value)
        if place == self.place and not self.last_key < key:
            raise self._wrong(
                f"this {kind.name} is there twice"
                if self.last_key == key
                else f"this {kind.name} is not in its order"
            )
        if kind.shape is RoundSwap:
            if value.txid in self.txids:
                raise self._wrong("this transaction is there twice")
            self.txids.add(value.txid)
        self.place, self.last_key = place, key
        self.found[kind.name].append(value)

    def _take_digest(self, line: str) -> None:
        stated = _DIGEST_LINE.fullmatch(line)
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

    def _shape(self, shape: type[T], value: Any) -> T:
        hints = _TYPES[shape]
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise self._wrong(f"the fields are {', '.join(sorted(hints))}")
        for name, hint in hints.items():
            if not _fits(value[name], hint):
                raise self._wrong(f"{name} cannot be {_shown(value[name])}")
        return shape(**value)

    def _checked(self, check: Callable[[Any], None], value: Any) -> None:
        try:
            check(value)
        except UsageError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, what: str) -> RoundFileError:
        return RoundFileError(self.number, what)


def _swap(match: re.Match[str]) -> RoundSwap:
    *texts, at, height, index, source = match.groups()
    return RoundSwap._make((*texts, int(at), int(height), int(index), source))


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is exactly of this type."""
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


def _shown(value: Any) -> str:
    return f"{_encode(value):.60}"
