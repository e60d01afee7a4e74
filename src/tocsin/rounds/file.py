"""The file of a round: all inputs of its result, and the result, as reproducible bytes. Pure.

It consists of JSON lines. Each line is an array that begins with its kind, in the canonical form of RFC 8785: keys in
order, no spaces, UTF-8. The kinds, and the lines of each kind, are in a fixed order. The last line has the SHA-256
digest of all bytes before it. `docs/round-file.md` describes every kind. The reader accepts exactly what is written
here; `recount` computes the result again and compares.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
LINE_MAX = 16_000_000  # characters; the longest lines are flags with their transactions

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
class Kind:
    """A kind of line, and the key that its lines are sorted by. No two lines of a kind have the same key."""

    name: str
    shape: type[Any]
    key: Callable[[Any], Any]
    check: Callable[[Any], None] | None = None


SWAP = Kind("swap", RoundSwap, CHAIN_ORDER)
# A file without such lines does not count them: it is the same as before this kind existed.
EXCESS = Kind("excess", SwapWorth, lambda worth: worth.txid, check_worth)
KINDS = (
    Kind("agent", RoundAgent, lambda agent: agent.stx_address),
    Kind("price", RoundPrice, lambda price: price.token_id, check_price),
    SWAP,
    EXCESS,
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
_SHAPES: tuple[Any, ...] = (RoundRules, *(kind.shape for kind in KINDS if kind is not SWAP))
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
    """Yield the file in parts of at most `size_max` bytes. Parts end at a line end; only a longer line is cut."""
    part: list[str] = []
    size = 0
    for line in lines:
        text = f"{line}\n"
        length = len(text.encode())
        if size + length > size_max and part:
            yield "".join(part)
            part, size = [], 0
        if length > size_max:
            yield from pieces(text, size_max)
        else:
            part.append(text)
            size += length
    if part:
        yield "".join(part)


def lines_of(parts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a file in parts, wherever it was cut."""
    begun: list[str] = []  # the pieces of a line that has not ended
    for part in parts:
        first, *others = part.split("\n")
        begun.append(first)
        if sum(map(len, begun)) > LINE_MAX:
            raise RoundFileError(None, f"a line has more than {LINE_MAX:,} characters")
        if others:
            yield "".join(begun)
            *whole, last = others
            yield from whole
            begun = [last]
    if any(begun):
        raise RoundFileError(None, "the last line does not end: the file was cut off")


def stated_digest(parts: Sequence[str]) -> str:
    """Return the digest at the end of a file, whole or in parts."""
    found = DIGEST_LINE.fullmatch(parts[-1][:-1].rpartition("\n")[2]) if parts else None
    if found is None:
        raise RoundFileError(None, "the file does not end with its digest: it was cut off")
    return found[1]


def digest_line(digest: str) -> str:
    return encode(["digest", "sha256", digest])


def _lines_before_digest(inputs: RoundInputs, outcome: RoundOutcome, *, in_order: bool) -> Iterator[str]:
    listed: dict[str, Sequence[Any]] = {
        "agent": inputs.agents,
        "price": inputs.prices,
        "swap": inputs.swaps,
        EXCESS.name: inputs.excesses,
        "refusal": inputs.refusals,
        "decision": inputs.decisions,
        "result": outcome.results,
        "reward": outcome.rewards,
        "flag": outcome.flags,
    }
    header = {
        "format": FORMAT,
        "rules": inputs.rules.to_json(),
        "allowlist_version": inputs.allowlist_version,
        "complete_until_block": inputs.complete_until_block,
        "counts": {name: len(values) for name, values in listed.items() if values or name != EXCESS.name},
    }
    yield encode(["header", header])
    for kind in KINDS:
        values = listed[kind.name]
        for value in values if kind is SWAP and in_order else sorted(values, key=kind.key):
            yield _swap_line(value) if kind is SWAP else encode([kind.name, value.to_json()])


def _swap_line(swap: RoundSwap) -> str:
    line = encode(["swap", *swap])
    if not _SWAP_LINE.fullmatch(line):
        raise UsageError(f"A swap has a name that is not printable ASCII, or another wrong value: {line:.500}")
    return line


def pieces(line: str, size_max: int) -> Iterator[str]:
    """Cut a long text between characters, each of which has at most four bytes."""
    length = size_max if line.isascii() else size_max // 4
    for start in range(0, len(line), length):
        yield line[start : start + length]


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
        txid, sender, contract, function, token_in, given, token_out, got, at, height, index, source = match.groups()
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
            canonical = encode(value)
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
                f"{_shown(kind.name)} comes before {_shown(after)}" if after else "the first line is the header"
            )
        if kind.check is not None:
            self._checked(kind.check, value)
        key = kind.key(value)
        if place == self.place and not self.last_key < key:
            raise self._wrong(
                f"this {kind.name} appears twice" if self.last_key == key else f"this {kind.name} is out of order"
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
    """Return every result, reward and flag by a name."""
    results = {f"result of agent {result.erc8004_agent_id}": result.to_json() for result in outcome.results}
    rewards = {f"reward for {reward.category}": reward.to_json() for reward in outcome.rewards}
    return {**results, **rewards, **dict(_named_flags(outcome.flags))}


def _named_flags(flags: Iterable[AgentFlag]) -> Iterator[tuple[str, dict[str, JSON]]]:
    seen: Counter[tuple[int, str]] = Counter()
    for flag in sorted(flags, key=lambda flag: (flag.erc8004_agent_id, flag.kind, flag.reason, flag.txids)):
        seen[flag.erc8004_agent_id, flag.kind] += 1
        number = seen[flag.erc8004_agent_id, flag.kind]
        name = f"flag {flag.kind} of agent {flag.erc8004_agent_id}"
        yield name if number == 1 else f"{name}, no. {number}", flag.to_json()


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
