"""The size of the record, for the metrics: swaps, and transactions that wait to be verified."""

from dataclasses import dataclass

from tocsin.bindings import Database

# From totals: one row per agent, however many swaps there are.
_SWAPS = "SELECT coalesce(sum(trades), 0) AS swaps FROM sender_totals"
_QUEUE = "SELECT count(*) AS length, min(added_at) AS oldest_at FROM candidates"


@dataclass(frozen=True, slots=True)
class RecordSize:
    """`queue_oldest_at` is when the oldest waiting transaction was queued (unix ms); None when none waits."""

    swaps: int
    queue_length: int
    queue_oldest_at: int | None


async def record_size(db: Database) -> RecordSize:
    swaps, queue = await db.batch([db.prepare(_SWAPS), db.prepare(_QUEUE)])
    waiting = queue.results[0]
    return RecordSize(swaps.results[0]["swaps"], waiting["length"], waiting["oldest_at"])
