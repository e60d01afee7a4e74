"""The block up to which the record is proven complete, for the board and the console; cached for a few seconds."""

from collections.abc import Collection

from tocsin.competition.proven_block import completeness
from tocsin.errors import BindingMissing, StoreError
from tocsin.shapes.completeness import Completeness
from tocsin.web.deps import WebDeps

PROOF_AGE_S = 5.0
NO_SCHEDULER = Completeness(None, None, None, "the scheduler does not answer")
NO_DATABASE = Completeness(None, None, None, "the database does not answer")


class ProofReader:
    """Asks the database. Without an answer, nothing is proven."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._read_at_s = -PROOF_AGE_S
        self._feed_runs = False
        self._proof = NO_DATABASE

    async def read(self, tasks: Collection[str] | None) -> Completeness:
        """`tasks` are those of the scheduler; None when it does not answer."""
        if tasks is None:
            return NO_SCHEDULER
        now_s, feed_runs = self._deps.clock.monotonic(), "feed" in tasks
        if now_s - self._read_at_s < PROOF_AGE_S and feed_runs == self._feed_runs:
            return self._proof
        try:
            self._proof = await completeness(self._deps.db, self._deps.rules, feed_runs=feed_runs)
        except (StoreError, BindingMissing):
            return NO_DATABASE
        self._read_at_s, self._feed_runs = now_s, feed_runs
        return self._proof
