"""Asks Hiro for transactions that several submitters wait for: up to twenty in one call.

The first is requested at once. Those that arrive within a second of it are gathered and requested together, so there
is about one call a second, however many submit. Each waiter gets its own answer and pays an equal part of the cost.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tocsin.budget.call_session import request_session
from tocsin.chain_model import TransactionWithEvents
from tocsin.errors import ObjectReset
from tocsin.scheduler.work_context import WorkContext
from tocsin.upstream.answer import value_or_raise
from tocsin.upstream.hiro import EVENTS_TXIDS_MAX, HiroClient

GATHER_S = 1.0


@dataclass(frozen=True, slots=True)
class Lookup:
    """Hiro's answer about one transaction, and this waiter's part of the calls.

    Not `readable`: Hiro sent a row that cannot be understood.
    """

    found: TransactionWithEvents | None
    readable: bool
    cost: float


@dataclass(slots=True, eq=False)
class _Waiter:
    """A job that waits for a transaction; `cost` is its part of the calls, even if these failed."""

    txid: str
    lookup: "asyncio.Future[Lookup]"
    cost: float = 0.0


class GatheredLookup:
    """Gathers the lookups of all request jobs of one object."""

    def __init__(self) -> None:
        self._waiting: list[_Waiter] = []
        self._gathering: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._asked_at_s = -GATHER_S

    async def find(self, context: WorkContext, txid: str, pay: Callable[[float], None]) -> Lookup:
        """Return Hiro's answer or raise `NoAnswer`. Either way `pay` is called with this waiter's part of the calls."""
        waiter = _Waiter(txid, asyncio.get_running_loop().create_future())
        waiter.lookup.add_done_callback(_retrieved)
        self._waiting.append(waiter)
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._gather(context))
        try:
            return await waiter.lookup
        finally:
            pay(waiter.cost)

    async def _gather(self, context: WorkContext) -> None:
        """Wait until a second after the last call, then ask for everything that has arrived since."""
        try:
            wait_s = self._asked_at_s + GATHER_S - context.clock.monotonic()
            if 0 < wait_s <= GATHER_S:
                await context.clock.sleep(wait_s)
        except asyncio.CancelledError:
            _fail(self._take(), ObjectReset("the object was reset before it asked Hiro"))
            raise
        self._asked_at_s = context.clock.monotonic()
        waiting = self._take()
        txids = list(dict.fromkeys(waiter.txid for waiter in waiting))
        for at in range(0, len(txids), EVENTS_TXIDS_MAX):
            group = txids[at : at + EVENTS_TXIDS_MAX]
            asked = asyncio.create_task(
                self._ask(context, group, [waiter for waiter in waiting if waiter.txid in group])
            )
            self._asking.add(asked)
            asked.add_done_callback(self._asking.discard)

    def _take(self) -> list[_Waiter]:
        waiting, self._waiting, self._gathering = self._waiting, [], None
        return [waiter for waiter in waiting if not waiter.lookup.done()]

    async def _ask(self, context: WorkContext, txids: Sequence[str], waiters: Sequence[_Waiter]) -> None:
        session = request_session(context.logger)
        try:
            answer = await context.upstream("hiro", HiroClient).transactions_with_events(txids, session)
            found = value_or_raise(answer) or {}
        except Exception as error:  # noqa: BLE001 - each waiter raises it
            _settle(waiters, session.calls)
            _fail(waiters, error)
        except asyncio.CancelledError:
            _fail(waiters, ObjectReset("the object was reset while it asked Hiro"))
            raise
        else:
            _settle(waiters, session.calls)
            for waiter in waiters:
                if not waiter.lookup.done():
                    waiter.lookup.set_result(
                        Lookup(found.get(waiter.txid), waiter.txid in found, waiter.cost)
                    )


def _settle(waiters: Sequence[_Waiter], calls: int) -> None:
    for waiter in waiters:
        waiter.cost = calls / len(waiters)


def _fail(waiters: Sequence[_Waiter], error: Exception) -> None:
    for waiter in waiters:
        if not waiter.lookup.done():
            waiter.lookup.set_exception(error)


def _retrieved(lookup: "asyncio.Future[Lookup]") -> None:
    """Mark the error as retrieved, so a waiter that is gone does not cause a warning."""
    if not lookup.cancelled():
        lookup.exception()
