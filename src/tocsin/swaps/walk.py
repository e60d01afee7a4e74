"""Reads a principal's list back to where it was read before: pure decisions, and the marks that store them.

A mark's anchor is a transaction in its block. A block's hash fixes everything before it, so while the anchor is found
where it was, nothing up to it has changed. This one rule covers gaps, floods of dust, and reorgs of any depth. The part
above the anchor is read on every visit. If the anchor is gone, the mark is void, and the list is read back to the start
of the campaign. To keep that rare, only a transaction deep in the chain becomes an anchor.

A long walk is stored page by page: the gap records where it began and how far it came.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from holdfast.types import Database, Row, Statement
from tocsin.stacks import Page, Transaction

FAILURES_MAX = 5  # in a row, after which a wallet's visits are no longer urgent
DEEP_BLOCKS = 100  # about 8 minutes; a deeper reorg costs a long walk, not a swap
CONTRACTS_PER_WALLET = 3  # contracts' lists are worth more, but wallets must not wait forever
DAY_MS = 86_400_000
MONTH_MS = 30 * DAY_MS
TURN_LOOKS = 400  # looks at the network's list between two turns of a contract
TURNS_PER_DAY_MAX = 44
TURN_LISTS_MAX = 2  # in one sweep
SWEEPS_PER_WALLET = 24  # a wallet's list has its turn in one of this many sweeps
DEEP_S = 1_800  # by burn block time, if nothing newer shows how deep a block is

Position: TypeAlias = tuple[int, int]  # height, index in the block

ABOVE_ALL: Position = (2**53 - 1, 0)
BELOW_ALL: Position = (-1, 0)

_LOAD = "SELECT * FROM marks"
_LOAD_OF = "SELECT * FROM marks WHERE principal IN (SELECT value FROM json_each(?))"
_SAVE = """
INSERT INTO marks (principal, rules, anchor_json, gap_json, walked_at, tried_at, failures)
VALUES (?, ?, ?, ?, ?, ?, 0)
ON CONFLICT (principal) DO UPDATE SET rules = excluded.rules, anchor_json = excluded.anchor_json,
  gap_json = excluded.gap_json, walked_at = excluded.walked_at, tried_at = excluded.tried_at, failures = 0"""
_FAILED = """
INSERT INTO marks (principal, rules, failures, tried_at) VALUES (?, ?, ?, ?)
ON CONFLICT (principal) DO UPDATE SET failures = failures + excluded.failures, tried_at = excluded.tried_at"""
_READ_TIMES = "SELECT principal, walked_at FROM marks WHERE principal IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A transaction of a list, in its block."""

    txid: str
    block_hash: str
    height: int
    tx_index: int

    @property
    def position(self) -> Position:
        return (self.height, self.tx_index)


@dataclass(frozen=True, slots=True)
class Gap:
    """A walk under way: it began above `top`, at `begun_at`, and has reached `bottom`; `cursor` continues it."""

    cursor: str
    bottom: Position
    top: Anchor | None
    begun_at: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a list was read. `tried_at` is when it was last requested.

    `walked_at` is when the newest completed walk began: it may not have shown newer transactions.
    """

    anchor: Anchor | None = None
    gap: Gap | None = None
    walked_at: int | None = None
    failures: int = 0
    tried_at: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a page: new rows, the stretch of the chain that it covers, and the mark after it."""

    fresh: tuple[Transaction, ...]
    above: Position  # the stretch starts after this
    below: Position  # and ends before this
    mark: Mark
    done: bool


def step(mark: Mark, page: Page[Transaction], *, start_s: int, tip: int, now: int) -> Step:
    """Process one page. `mark` is the one after the previous page, `tip` the greatest height seen anywhere."""
    anchor, gap = mark.anchor, mark.gap
    top = gap.top if gap else None
    begun_at = gap.begun_at if gap else now
    fresh: list[Transaction] = []
    done = page.next_cursor is None
    above = BELOW_ALL
    for row in page.items:
        place = anchor_at(row)
        if place == anchor:
            done, above = True, place.position
            break
        if row.mined is not None and row.mined.burn_block_time < start_s:
            done = True
            break
        if anchor is not None and place.position <= anchor.position:
            anchor = None  # it should have appeared by now: a reorg removed it
        if top is None and is_deep(row, tip, now):
            top = place
        fresh.append(row)
    below = gap.bottom if gap else ABOVE_ALL
    if done:
        kept = anchor if above != BELOW_ALL else None
        return Step(tuple(fresh), above, below, Mark(top or kept, None, begun_at, tried_at=now), done=True)
    assert page.next_cursor is not None
    bottom = anchor_at(page.items[-1]).position if page.items else below
    return Step(
        tuple(fresh),
        (bottom[0], bottom[1] - 1),  # the last row itself is part of the stretch
        below,
        replace(mark, anchor=anchor, gap=Gap(page.next_cursor, bottom, top, begun_at), tried_at=now),
        done=False,
    )


def is_deep(row: Transaction, tip: int, now: int) -> bool:
    """Return whether a transaction is deep enough to become an anchor."""
    mined = row.mined
    assert mined is not None, "lists hold mined transactions only"
    return mined.height <= tip - DEEP_BLOCKS or mined.burn_block_time <= now // 1000 - DEEP_S


def anchor_at(row: Transaction) -> Anchor:
    assert row.mined is not None, "lists hold mined transactions only"
    return Anchor(row.tx_id, row.mined.block_hash, row.mined.height, row.mined.tx_index)


async def load_marks(db: Database, principals: Iterable[str] | None = None) -> dict[str, tuple[str, Mark]]:
    """Return the marks of these principals, by default of all, with the rules under which they were made."""
    asked = db.prepare(_LOAD) if principals is None else db.prepare(_LOAD_OF).bind(json.dumps(list(principals)))
    rows = (await asked.all()).results
    return {row["principal"]: (row["rules"], _mark(row)) for row in rows}


def save_mark(db: Database, principal: str, rules: str, mark: Mark) -> Statement:
    anchor = None if mark.anchor is None else json.dumps(asdict(mark.anchor))
    gap = None if mark.gap is None else json.dumps(asdict(mark.gap))
    return db.prepare(_SAVE).bind(principal, rules, anchor, gap, mark.walked_at, mark.tried_at)


def count_failure(db: Database, principal: str, rules: str, now: int, *, before: int = 0) -> Statement:
    """Add one failure, and those from `before`, which saving a mark has reset in the same run."""
    return db.prepare(_FAILED).bind(principal, rules, before + 1, now)


async def list_ages(db: Database, contracts: Iterable[str]) -> dict[str, int | None]:
    """Return when each contract's list was last read to its end: those never read come first, then the oldest."""
    names = sorted(contracts)
    rows = (await db.prepare(_READ_TIMES).bind(json.dumps(names)).all()).results
    read_at = {row["principal"]: row["walked_at"] for row in rows}
    return {name: read_at.get(name) for name in sorted(names, key=lambda name: read_at.get(name) or 0)}


def _mark(row: Row) -> Mark:
    anchor = None if row["anchor_json"] is None else Anchor(**json.loads(row["anchor_json"]))
    gap = None
    if row["gap_json"] is not None:
        value = json.loads(row["gap_json"])
        top = None if value["top"] is None else Anchor(**value["top"])
        gap = Gap(value["cursor"], (value["bottom"][0], value["bottom"][1]), top, value.get("begun_at"))
    return Mark(anchor, gap, row["walked_at"], row["failures"], row["tried_at"])


def reading_order(contracts: Iterable[str], wallets: Sequence[str], marks: Mapping[str, Mark]) -> list[str]:
    """Return the lists of a sweep. If calls run out in the middle, the next sweep begins with those that got none.

    Contracts are in the order in which they were last requested, and every fourth list is a wallet's.
    """
    left = list(wallets)
    order: list[str] = []
    for number, contract in enumerate(sorted(contracts, key=lambda name: (_tried_at(marks, name), name)), 1):
        order.append(contract)
        if number % CONTRACTS_PER_WALLET == 0 and left:
            order.append(left.pop(0))
    return order + left


def turn_period(contracts: int, feed_ms: int) -> int:
    """Return how often each contract's list has its turn while the feed finds the swaps.

    That is once a day; less often if the network's list is read rarely or there are many contracts, because the proof
    must cost less than what it proves.
    """
    return max(DAY_MS, TURN_LOOKS * feed_ms, contracts * DAY_MS // TURNS_PER_DAY_MAX)


def due_contracts(
    contracts: Iterable[str], marks: Mapping[str, Mark], since: int, *, now: int, period_ms: int
) -> tuple[str, ...]:
    """Return contracts whose lists were not read to the end since then; if there are none, those whose turn has come.

    Each has its own time in the period. Those requested longest ago come first, so a list that always fails does not
    take the turns of the others.
    """
    read_at = {contract: marks.get(contract, Mark()).walked_at or 0 for contract in sorted(contracts)}
    due = tuple(contract for contract in read_at if read_at[contract] < since)
    if due:
        return due
    times = (number * period_ms // len(read_at) for number in range(len(read_at)))
    waiting = [
        contract
        for (contract, at), time in zip(read_at.items(), times, strict=True)
        if (at - time) // period_ms < (now - time) // period_ms
    ]
    return tuple(sorted(waiting, key=lambda contract: (_tried_at(marks, contract), contract))[:TURN_LISTS_MAX])


def _tried_at(marks: Mapping[str, Mark], principal: str) -> int:
    return marks.get(principal, Mark()).tried_at or 0


@dataclass(frozen=True, slots=True)
class Visits:
    """The wallets that a sweep visits: the urgent ones, and the next part of the daily pass."""

    urgent: tuple[str, ...]
    daily_pass: tuple[str, ...]
    ends_pass: bool


def choose_visits(
    wallets: Sequence[str], marks: Mapping[str, Mark], cursor: str | None, *, urgent_max: int, pass_share: int
) -> Visits:
    """Choose the wallets to visit. Those never read to the end, and those whose last visit failed, are urgent.

    `wallets` is in order. A wallet that keeps failing waits for the daily pass, so it does not delay others.
    """
    urgent = [wallet for wallet in wallets if _is_urgent(marks.get(wallet, Mark()))]
    urgent.sort(key=lambda wallet: marks.get(wallet, Mark()).failures)
    left = [wallet for wallet in wallets if cursor is None or wallet > cursor] or wallets
    return Visits(tuple(urgent[:urgent_max]), tuple(left[:pass_share]), len(left) <= pass_share)


def _is_urgent(mark: Mark) -> bool:
    return mark.failures < FAILURES_MAX and (mark.walked_at is None or mark.failures > 0)
