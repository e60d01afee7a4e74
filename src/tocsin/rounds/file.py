"""The file of a round: all inputs of its result, and the result, as reproducible bytes. Pure.

It consists of JSON lines. Each line is an array that begins with its kind, in the canonical form of RFC 8785: keys in
order, no spaces, UTF-8. The kinds, and the lines of each kind, are in a fixed order. The last line has the SHA-256
digest of all bytes before it. `docs/round-file.md` describes every kind. The reader accepts exactly what is written
here; `recount` computes the result again and compares.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from sys import intern
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.errors import RoundFileError
from tocsin.rounds.accounts import check_price, check_rules
from tocsin.rounds.round import (
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
from tocsin.rounds.score import CHAIN_ORDER, score
from tocsin.shape import SnakeShape
from tocsin.swaps.values import SwapWorth, check_worth

T = TypeVar("T")
Named: TypeAlias = dict[str, dict[str, JSON]]

FORMAT = "tocsin-round/1"
PART_BYTES = 500_000  # a row of D1 holds a little more

NAME = r"[ !#-\[\]-~]+"  # printable ASCII that JSON does not escape
DIGEST_LINE = re.compile(r'\["digest","sha256","([0-9a-f]{64})"\]')

_INTEGER_MAX = 2**63 - 1
_NUMBER = r"(0|[1-9][0-9]{0,15})"
_AMOUNT = r'"([1-9][0-9]{0,39})"'
_SWAP_LINE = re.compile(
    rf'\["swap","(0x[0-9a-f]{{64}})","({NAME})","({NAME})","({NAME})","({NAME})",{_AMOUNT},"({NAME})",{_AMOUNT},'
    rf'{_NUMBER},{_NUMBER},{_NUMBER},"(agent|cron|chainhook)"\]'
)

encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Header(SnakeShape):
    """The first line. `counts` has the number of lines of each kind."""

    format: str
    rules: RoundRules
    allowlist_version: str
    complete_until_block: int | None
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of line, and the key that its lines are sorted by. No two lines of a kind have the same key."""

    shape: type[Any]
    key: Callable[[Any], Any]
    check: Callable[[Any], None] | None = None


KINDS = {
    "agent": Kind(RoundAgent, attrgetter("stx_address")),
    "price": Kind(RoundPrice, attrgetter("token_id"), check_price),
    "swap": Kind(RoundSwap, CHAIN_ORDER),
    "excess": Kind(SwapWorth, attrgetter("txid"), check_worth),
    "refusal": Kind(RoundRefusal, attrgetter("burn_block_time", "txid")),
    "decision": Kind(
        FlagDecision,
        lambda made: (
            *(made.erc8004_agent_id, made.decided_at, made.kind or "", made.decision),
            *(made.reason, made.decided_by),
        ),
    ),
    "result": Kind(AgentResult, attrgetter("rank")),
    "reward": Kind(RoundReward, lambda reward: CATEGORIES.index(reward.category)),
    "flag": Kind(AgentFlag, attrgetter("erc8004_agent_id", "kind", "reason", "txids")),
}
_PLACES = {name: place for place, name in enumerate(KINDS)}
_SHAPES: tuple[Any, ...] = (Header, RoundRules, *(kind.shape for kind in KINDS.values() if kind.shape is not RoundSwap))
_TYPES = {
    shape: {name: hint for name, hint in get_type_hints(shape).items() if name in shape.__dataclass_fields__}
    for shape in _SHAPES
}


def file_lines(inputs: RoundInputs, outcome: RoundOutcome, *, in_order: bool = False) -> Iterator[str]:
    """Yield the file line by line, without the line feeds. `in_order`: the swaps are already in chain order."""
    digest = hashlib.sha256()
    for line in _lines_before_digest(inputs, outcome, in_order=in_order):
        digest.update(f"{line}\n".encode())
        yield line
    yield digest_line(digest.hexdigest())


def parts_of(lines: Iterable[str], size_max: int = PART_BYTES) -> Iterator[str]:
    """Yield the file in parts of whole lines, of at most `size_max` bytes if each line is shorter."""
    part: list[str] = []
    size = 0
    for line in lines:
        text = f"{line}\n"
        length = len(text.encode())
        if part and size + length > size_max:
            yield "".join(part)
            part, size = [], 0
        part.append(text)
        size += length
    yield "".join(part)


def lines_of(text: str) -> list[str]:
    """Return the lines of a whole file."""
    *lines, rest = text.split("\n")
    if rest:
        raise RoundFileError("the last line does not end: the file was cut off")
    return lines


def stated_digest(parts: Sequence[str]) -> str:
    """Return the digest at the end of a file, whole or in parts."""
    found = DIGEST_LINE.fullmatch(parts[-1][:-1].rpartition("\n")[2]) if parts else None
    if found is None:
        raise RoundFileError("the file does not end with its digest: it was cut off")
    return found[1]


def digest_line(digest: str) -> str:
    return encode(["digest", "sha256", digest])


def _lines_before_digest(inputs: RoundInputs, outcome: RoundOutcome, *, in_order: bool) -> Iterator[str]:
    listed: dict[str, Sequence[Any]] = {
        "agent": inputs.agents,
        "price": inputs.prices,
        "swap": inputs.swaps,
        "excess": inputs.excesses,
        "refusal": inputs.refusals,
        "decision": inputs.decisions,
        "result": outcome.results,
        "reward": outcome.rewards,
        "flag": outcome.flags,
    }
    of_all = (inputs.rules, inputs.allowlist_version, inputs.complete_until_block)
    yield encode(["header", Header(FORMAT, *of_all, _counts(listed)).to_json()])
    for name, kind in KINDS.items():
        values = listed[name]
        for value in values if name == "swap" and in_order else sorted(values, key=kind.key):
            yield _swap_line(value) if name == "swap" else encode([name, value.to_json()])


def _counts(listed: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Return the number of lines by kind. A file without excesses is the same as before that kind existed."""
    return {name: len(values) for name, values in listed.items() if values or name != "excess"}


def _swap_line(swap: RoundSwap) -> str:
    line = encode(["swap", *swap])
    if not _SWAP_LINE.fullmatch(line):
        raise UsageError(f"A swap has a name that is not printable ASCII, or another wrong value: {line:.500}")
    return line


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


class _Reader:
    """Reads one line after the other."""

    def __init__(self) -> None:
        self._number = 0
        self._header: Header | None = None
        self._found: dict[str, list[Any]] = {name: [] for name in KINDS}
        self._last: tuple[Any, ...] = (-1,)  # the place of the last line
        self._txids: set[str] = set()
        self._hashed = hashlib.sha256()
        self._digest = ""

    def take(self, line: str) -> None:
        self._number += 1
        if self._digest:
            raise self._wrong("the digest is the last line, and this one comes after it")
        if line.startswith('["header",') != (self._number == 1):
            raise self._wrong("the first line is the header, and no other line is")
        stated = DIGEST_LINE.fullmatch(line)
        if stated is not None:
            self._end(stated[1])
            return
        swap = _SWAP_LINE.fullmatch(line)
        if swap is not None:
            self._put("swap", self._swap(*swap.groups()))
        else:
            self._take_other(line)
        self._hashed.update(f"{line}\n".encode())

    def _take_other(self, line: str) -> None:
        name, value = self._parsed(line)
        if name == "header":
            self._header = self._read_header(value)
        elif name == "swap":
            raise self._wrong("a swap is not as docs/round-file.md describes it")
        elif name in KINDS:
            self._put(name, self._shape(KINDS[name].shape, value))
        else:
            raise self._wrong(f"there is no kind {_shown(name)}")

    def finished(self) -> RoundFile:
        if self._header is None or not self._digest:
            raise RoundFileError(f"line {self._number + 1}: the digest is missing: the file was cut off")
        found, header = self._found, self._header
        inputs = (found[name] for name in ("agent", "price", "swap", "refusal", "decision", "excess"))
        return RoundFile(
            RoundInputs(header.rules, header.allowlist_version, header.complete_until_block, *inputs),
            RoundOutcome(found["result"], found["reward"], found["flag"]),
            self._digest,
        )

    def _parsed(self, line: str) -> tuple[str, object]:
        try:
            parsed = json.loads(line)
            canonical = encode(parsed)
            canonical.encode()
        except (ValueError, RecursionError):  # including invalid Unicode
            raise self._wrong("the line is not JSON") from None
        match parsed:
            case ["swap", *_]:
                return "swap", None
            case [str(name), value]:
                if canonical != line:
                    raise self._wrong("the bytes are not those of canonical JSON (RFC 8785)")
                return name, value
        raise self._wrong("a line is an array of its kind and its value")

    def _read_header(self, value: object) -> Header:
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise self._wrong(f"the format is not {FORMAT}: another version of Tocsin may read it")
        header = self._shape(Header, {**value, "rules": self._shape(RoundRules, value.get("rules"))})
        self._checked(check_rules, header.rules)
        return header

    def _swap(self, txid: str, *others: str) -> RoundSwap:
        if txid in self._txids:
            raise self._wrong("this transaction appears twice")
        self._txids.add(txid)
        sender, contract, function, token_in, given, token_out, received, at, height, index, source = others
        names = (intern(name) for name in (sender, contract, function))  # a million swaps share few names
        sides = (intern(token_in), given, intern(token_out), received)
        return RoundSwap._make((txid, *names, *sides, int(at), int(height), int(index), intern(source)))

    def _put(self, name: str, value: object) -> None:
        kind = KINDS[name]
        if kind.check is not None:
            self._checked(kind.check, value)
        place = (_PLACES[name], kind.key(value))
        if not self._last < place:
            raise self._wrong(f"this {name} appears twice" if self._last == place else f"this {name} is out of order")
        self._last = place
        self._found[name].append(value)

    def _end(self, digest: str) -> None:
        counts = _counts(self._found)
        if self._header is not None and self._header.counts != counts:
            raise self._wrong(f"the header counts other lines than the file has: {counts}")
        if digest != self._hashed.hexdigest():
            raise self._wrong(f"the bytes of the file do not have this digest, but {self._hashed.hexdigest()}")
        self._digest = digest

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
        return RoundFileError(f"line {self._number}: {what}")


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


@dataclass(frozen=True, slots=True)
class RecountDifference(SnakeShape):
    """A value in the file that differs from the one computed from its inputs. Both are JSON text; null: missing."""

    where: str
    in_file: str | None
    counted: str | None


@dataclass(frozen=True, slots=True)
class RecountReport(SnakeShape):
    """The result computed from the inputs of a file, and where the file differs from it."""

    round_id: str
    digest: str
    same: bool
    results: list[AgentResult]
    rewards: list[RoundReward]
    flags: list[AgentFlag]
    differences: list[RecountDifference]


def recount(file: RoundFile) -> RecountReport:
    """Compute the result from the inputs of the file, and report every value of its outcome that differs."""
    counted = score(file.inputs)
    differences = [*_differences(_named_values(file.outcome), _named_values(counted))]
    return RecountReport(
        file.inputs.rules.round_id,
        file.digest,
        not differences,
        counted.results,
        counted.rewards,
        counted.flags,
        differences,
    )


def _named_values(outcome: RoundOutcome) -> Named:
    """Return every result, reward and flag by a name. Of a changed file, several flags may have the same one."""
    results = {f"result of agent {result.erc8004_agent_id}": result.to_json() for result in outcome.results}
    named = results | {f"reward for {reward.category}": reward.to_json() for reward in outcome.rewards}
    for flag in sorted(outcome.flags, key=KINDS["flag"].key):
        name = f"flag {flag.kind} of agent {flag.erc8004_agent_id}"
        number = sum(each == name or each.startswith(f"{name}, no. ") for each in named)
        named[f"{name}, no. {number + 1}" if number else name] = flag.to_json()
    return named


def _differences(in_file: Named, counted: Named) -> Iterator[RecountDifference]:
    for name in {**in_file, **counted}:
        stated, found = in_file.get(name), counted.get(name)
        if stated is None or found is None:
            yield RecountDifference(name, _text(stated), _text(found))
            continue
        for part in stated:
            if stated[part] != found[part]:
                yield RecountDifference(f"{name}, {part}", _text(stated[part]), _text(found[part]))


def _text(value: JSON) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
