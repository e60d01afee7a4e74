"""The capital that agents used: for each token, the largest net amount that they had given at any time.

It is kept per agent with the position up to which the agent's swaps were read in chain order, so a new swap costs one
step. A swap that arrives late, is withdrawn, or no longer counts lies below that position. Then the agent's swaps are
read again from the first. Excessive swaps and swaps with a token that does not count are left out, as in all other
figures of the board.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from holdfast.types import Database, DBResult, Row, Statement
from tocsin.sql import read_queries

SQL = read_queries(__file__)

START = (-1, -1, "")
TOGETHER = 200  # agents whose swaps are read in one call
READ_MIN = 50  # swaps of each


@dataclass(frozen=True, slots=True)
class Trader:
    """An agent: the wallets whose swaps count, and the tokens in those swaps that do not."""

    agent_id: int
    wallets: tuple[str, ...]  # sorted
    left_out: tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class AgentOutlays:
    """How far an agent's swaps were read, and the resulting amounts."""

    trader: Trader
    position: tuple[int, int, str] = START  # of the last swap that was read
    net: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[str, int] = field(default_factory=dict)
    is_complete: bool = False
    version: int = 0

    def given(self, swaps: Iterable[Row]) -> "AgentOutlays":
        """Return the outlays after further swaps, in chain order."""
        net, peaks, position = dict(self.net), dict(self.peaks), self.position
        for swap in swaps:
            position = (swap["block_height"], swap["tx_index"], swap["txid"])
            token_in, token_out = swap["token_in"], swap["token_out"]
            if token_in in self.trader.left_out or token_out in self.trader.left_out:
                continue
            net[token_in] = net.get(token_in, 0) + int(swap["amount_in"])
            net[token_out] = net.get(token_out, 0) - int(swap["amount_out"])
            if net[token_in] > peaks.get(token_in, 0):
                peaks[token_in] = net[token_in]
        return replace(self, position=position, net=net, peaks=peaks)


async def capital(
    db: Database, traders: Sequence[Trader], swaps_max: int = 0, known: "KnownOutlays | None" = None
) -> dict[int, Mapping[str, int]]:
    """Return the largest net amount given, by token, for each agent whose swaps were all read.

    With `swaps_max` it first reads the swaps that are new since the last time, at most about that many. `known` is the
    stored data, if the caller has already read it.
    """
    known = known or await _known(db)
    behind = known.behind(traders)
    if swaps_max and await _follow(db, traders, known, behind, swaps_max):
        known = await _known(db)
        behind = known.behind(traders)
    not_current = {trader.agent_id for trader in behind}
    return {
        trader.agent_id: _amounts(known.states[trader.agent_id]["peaks"])
        for trader in traders
        if trader.agent_id not in not_current
    }


@dataclass(frozen=True, slots=True)
class KnownOutlays:
    """The stored outlays by agent, and the changes since by wallet."""

    states: Mapping[int, Row]
    due: Mapping[str, Row]

    @classmethod
    def statements(cls, db: Database) -> list[Statement]:
        return [db.prepare(SQL["outlays"]), db.prepare(SQL["outlays_due"])]

    @classmethod
    def of(cls, states: DBResult, due: DBResult) -> "KnownOutlays":
        return cls({row["agent_id"]: row for row in states.results}, {row["sender"]: row for row in due.results})

    def behind(self, traders: Iterable[Trader]) -> list[Trader]:
        """Return the traders with unread swaps."""
        return [trader for trader in traders if not self._is_current(trader)]

    def _is_current(self, trader: Trader) -> bool:
        row = self.states.get(trader.agent_id)
        return (
            row is not None
            and bool(row["is_complete"])
            and _is_of(row, trader)
            and (not self.due or self.due.keys().isdisjoint(trader.wallets))
        )


async def _known(db: Database) -> KnownOutlays:
    return KnownOutlays.of(*await db.batch(KnownOutlays.statements(db)))


async def _follow(
    db: Database, traders: Sequence[Trader], known: KnownOutlays, behind: Sequence[Trader], swaps_max: int
) -> bool:
    """Read unread swaps; return whether something changed. The rest waits for the next time.

    Every agent's next swaps are read before more of any one agent's, so agents with many do not delay the others.
    """
    left = swaps_max
    waiting = [
        _Target(trader, [known.due[wallet] for wallet in trader.wallets if wallet in known.due]) for trader in behind
    ]
    while waiting and left > 0:
        now, waiting = waiting[:TOGETHER], waiting[TOGETHER:]
        limit = max(READ_MIN, left // (4 * len(now)))  # no agent takes all of it
        unfinished, read = await _read_on(db, now, limit)
        waiting += unfinished
        left -= max(read, READ_MIN)  # a call itself has a cost
    strangers = set(known.due)
    for trader in traders if strangers else ():
        strangers.difference_update(trader.wallets)
    if strangers:  # when they become traders, all their swaps are read, unless some were before
        await db.prepare(SQL["forget_outlays_due"]).bind(json.dumps(sorted(strangers))).run()
    return bool(behind)


@dataclass(frozen=True, slots=True)
class _Target:
    """An agent whose swaps are to be read, and the changes among them."""

    trader: Trader
    changes: Sequence[Row]


async def _read_on(db: Database, targets: Sequence[_Target], limit: int) -> tuple[list[_Target], int]:
    """Read up to `limit` swaps of each agent; return the agents that have more, and how many swaps were read."""
    asked = json.dumps([target.trader.agent_id for target in targets])
    rows = {row["agent_id"]: row for row in (await db.prepare(SQL["outlays_of"]).bind(asked).all()).results}
    states = [_resumed(rows.get(target.trader.agent_id), target) for target in targets]
    swaps = await _swaps_after(db, states, limit)
    statements: list[Statement] = []
    unfinished: list[_Target] = []
    for target, state, found in zip(targets, states, swaps, strict=True):
        is_complete = len(found) < limit
        grown = replace(state.given(found), is_complete=is_complete, version=state.version + 1)
        statements += _written(db, grown, target.changes)
        unfinished += [] if is_complete else [_Target(target.trader, [])]
    await db.batch(statements)
    return unfinished, sum(len(found) for found in swaps)


async def _swaps_after(db: Database, states: Sequence[AgentOutlays], limit: int) -> list[list[Row]]:
    """Return the next swaps of each agent, from all its wallets, in chain order."""
    wallets = [(number, wallet) for number, state in enumerate(states) for wallet in state.trader.wallets]
    parts = await db.batch(
        [db.prepare(SQL["swaps_after"]).bind(wallet, *states[number].position, limit) for number, wallet in wallets]
    )
    swaps: list[list[Row]] = [[] for _ in states]
    for (number, _), part in zip(wallets, parts, strict=True):
        swaps[number] += part.results
    for found in swaps:
        found.sort(key=lambda swap: (swap["block_height"], swap["tx_index"], swap["txid"]))
    return [found[:limit] for found in swaps]


def _written(db: Database, state: AgentOutlays, changes: Sequence[Row]) -> list[Statement]:
    trader, net = state.trader, _text(state.net)
    write = db.prepare(SQL["save_outlays"]).bind(
        trader.agent_id,
        " ".join(trader.wallets),
        " ".join(trader.left_out),
        _text(state.peaks),
        net,
        *state.position,
        int(state.is_complete),
        state.version,
    )
    mine = (trader.agent_id, state.version, net)
    return [write, *(db.prepare(SQL["outlays_done"]).bind(row["sender"], row["changes"], *mine) for row in changes)]


def _resumed(row: Row | None, target: _Target) -> AgentOutlays:
    """Return where to continue: after the last swap read, or from the first if the stored data is outdated."""
    trader, changes = target.trader, target.changes
    if row is None:
        return AgentOutlays(trader)
    version = int(row["version"])
    first_change = min(((change["block_height"], change["tx_index"]) for change in changes), default=None)
    if not _is_of(row, trader) or (first_change and first_change <= (row["block_height"], row["tx_index"])):
        return AgentOutlays(trader, version=version)
    position = (row["block_height"], row["tx_index"], row["txid"])
    return AgentOutlays(trader, position, _amounts(row["net"]), _amounts(row["peaks"]), version=version)


def _is_of(row: Row, trader: Trader) -> bool:
    """Return whether the row was computed for these wallets and tokens."""
    return bool(row["wallets"] == " ".join(trader.wallets) and row["left_out"] == " ".join(trader.left_out))


def _text(amounts: Mapping[str, int]) -> str:
    return json.dumps(dict(sorted(amounts.items())), separators=(",", ":"))


@lru_cache(maxsize=2048)  # most are the same in every run; no caller changes the returned value
def _amounts(text: str) -> Mapping[str, int]:
    found: dict[str, int] = json.loads(text)
    return found
