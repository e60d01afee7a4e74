"""The file of a round: all inputs of its result, and the result, as reproducible bytes. Pure.

It consists of JSON lines. Each line is an array that begins with its kind, in the canonical form of RFC 8785: keys in
order, no spaces, UTF-8. The kinds, and the lines of each kind, are in a fixed order. The last line has the SHA-256
digest of all bytes before it. `docs/round-file.md` describes every kind.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tocsin.errors import RoundFileError, UsageError
from tocsin.rounds.scoring import CHAIN_ORDER
from tocsin.rounds.token_values import check_price
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
    RoundSwap,
)
from tocsin.shapes.swap_excess import SwapWorth, check_worth

FORMAT = "tocsin-round/1"
PART_BYTES = 500_000  # a row of D1 holds a little more
LINE_MAX = 16_000_000  # characters; the longest lines are flags with their transactions

NAME = r"[ !#-\[\]-~]+"  # printable ASCII that JSON does not escape
DIGEST_LINE = re.compile(r'\["digest","sha256","([0-9a-f]{64})"\]')

_BLOCK = 250  # lines that are encoded, hashed and put into a part at once

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


def file_lines(inputs: RoundInputs, outcome: RoundOutcome, *, in_order: bool = False) -> Iterator[str]:
    """Yield the file line by line, without the line feeds. The last line has the digest.

    `in_order`: the swaps are already in chain order.
    """
    digest = hashlib.sha256()
    for block in _blocks_before_digest(inputs, outcome, in_order=in_order):
        digest.update(_ended(block).encode())
        yield from block
    yield digest_line(digest.hexdigest())


def parts_of(lines: Iterable[str], size_max: int = PART_BYTES) -> Iterator[str]:
    """Yield the file in parts of at most `size_max` bytes. Parts end at a line end; only a longer line is cut."""
    part: list[str] = []
    size = 0
    for text in _fitting(iter(lines), size_max):
        length = _size(text)
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


def _fitting(lines: Iterator[str], size_max: int) -> Iterator[str]:
    """Yield blocks of lines that are small compared to a part; larger blocks are split into lines."""
    while block := list(islice(lines, _BLOCK)):
        text = _ended(block)
        if _size(text) <= size_max // 4:
            yield text
        else:
            yield from (_ended([line]) for line in block)


def _size(text: str) -> int:
    """Return the size in bytes."""
    return len(text) if text.isascii() else len(text.encode())


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


def with_block(text: str, complete_until_block: int | None) -> str:
    """Return the first part of a file with another block in its header."""
    line, _, rest = text.partition("\n")
    kind, header = json.loads(line)
    return _ended([line_of([kind, {**header, "complete_until_block": complete_until_block}])]) + rest


def without_digest(text: str) -> str:
    """Return the last part of a file without its last line."""
    return text[: text.rindex('["digest",')]


def digest_line(digest: str) -> str:
    return line_of(["digest", "sha256", digest])


def _blocks_before_digest(
    inputs: RoundInputs, outcome: RoundOutcome, *, in_order: bool
) -> Iterator[list[str]]:
    listed = _lists(inputs, outcome)
    header = {
        "format": FORMAT,
        "rules": inputs.rules.to_json(),
        "allowlist_version": inputs.allowlist_version,
        "complete_until_block": inputs.complete_until_block,
        "counts": {name: len(values) for name, values in listed.items() if values or name != EXCESS.name},
    }
    yield [line_of(["header", header])]
    quoted = _Quoted()
    for kind in KINDS:
        found = listed[kind.name]
        values = iter(found if kind is SWAP and in_order else sorted(found, key=kind.key))
        while block := list(islice(values, _BLOCK)):
            if kind is SWAP:
                yield _swap_lines(block, quoted)
            else:
                yield [line_of([kind.name, value.to_json()]) for value in block]


def _lists(inputs: RoundInputs, outcome: RoundOutcome) -> dict[str, Sequence[Any]]:
    return {
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


def _ended(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def line_of(value: object) -> str:
    return encode(value)


class _Quoted(dict[str, str]):
    """Names in quotes. Many swaps share few names, so each name is checked once."""

    def __missing__(self, name: str) -> str:
        if not re.fullmatch(NAME, name):
            raise UsageError(f"A swap has the name {name[:60]!r}, which is not printable ASCII.")
        quoted = self[name] = f'"{name}"'
        return quoted


def _swap_lines(swaps: Iterable[RoundSwap], q: _Quoted) -> list[str]:
    """Encode swaps like `line_of`, in a fraction of the time. The database accepts only valid txids and amounts."""
    return [
        f'["swap","{txid}",{q[sender]},{q[contract]},{q[function]},{q[token_in]},"{given}",{q[token_out]},"{got}",'
        f'{at},{height},{index},"{source}"]'
        for txid, sender, contract, function, token_in, given, token_out, got, at, height, index, source in swaps
    ]


def pieces(line: str, size_max: int) -> Iterator[str]:
    """Cut a long text between characters, each of which has at most four bytes."""
    length = size_max if line.isascii() else size_max // 4
    for start in range(0, len(line), length):
        yield line[start : start + length]
