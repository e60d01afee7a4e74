"""Limits the calls of submissions to Hiro: shares of the request lane, gathered calls, and remembered answers.

A client that submits at full speed uses up only its own share. An id that Hiro does not know is remembered for a
minute: asking for it again costs nothing.

This state lives as long as the process; after a restart every client begins with a full share.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import ceil

from tocsin.budget.limiter import Lane
from tocsin.competition.client_shares import ClientShares
from tocsin.competition.gathered_lookup import GatheredLookup, Lookup
from tocsin.errors import ShareUsed
from tocsin.scheduler.work_context import WorkContext
from tocsin.upstream.hiro import HiroClient

NOT_FOUND_S = 60.0
NOT_FOUND_MAX = 10_000  # remembered at once


class SubmissionLane:
    """Handles all submissions of one object. A client is given by its networks; an operator has none and no share."""

    def __init__(self) -> None:
        self._shares = ClientShares()
        self._lookups = GatheredLookup()
        self._not_found: OrderedDict[str, float] = OrderedDict()  # until when

    def not_found_s(self, context: WorkContext, txid: str) -> float:
        """Return for how long it is still remembered that Hiro does not know this transaction."""
        return max(0.0, self._not_found.get(txid, 0.0) - context.clock.monotonic())

    def check(self, context: WorkContext, client: Sequence[str]) -> None:
        """Refuse a client that has used up its share. Raises `ShareUsed`."""
        calls_left = context.upstream("hiro", HiroClient).client.calls_left(Lane.REQUEST)
        wait_s = self._shares.wait_s(client, calls_left, context.clock.monotonic())
        if wait_s > 0:
            raise ShareUsed(ceil(wait_s))

    def charge(self, context: WorkContext, client: Sequence[str], calls: float) -> None:
        """Count calls for a client; a negative number gives some back."""
        self._shares.charge(client, calls, context.clock.monotonic())

    async def find(self, context: WorkContext, txid: str, client: Sequence[str]) -> Lookup:
        """Ask Hiro, together with others, and remember ids that it does not know. Raises `ShareUsed` or `NoAnswer`."""
        self.check(context, client)
        self.charge(context, client, 1)  # until the real cost is known: many may ask at once
        lookup = await self._lookups.find(context, txid, lambda cost: self.charge(context, client, cost - 1))
        if lookup.readable and lookup.found is None:
            self._not_found[txid] = context.clock.monotonic() + NOT_FOUND_S
            while len(self._not_found) > NOT_FOUND_MAX:
                self._not_found.popitem(last=False)
        return lookup
