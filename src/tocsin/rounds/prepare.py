"""Prepares the result of a round before its grace is over, so that it is available a moment after.

After the end, only swaps that are found late change a round. So everything is copied, scored and written to the file
ahead of time, in small steps, without being visible. Capturing the round then keeps the copy of the swaps, and
finalizing it writes the little that is left. If anything has changed, both start over as if nothing had been prepared.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from heapq import merge
from itertools import islice

from tocsin.bindings import Database
from tocsin.rounds import preparation_store
from tocsin.rounds.capture import (
    GAUGE,
    INTO_SWAPS,
    live_inputs,
    prepared_inputs,
    prices_of_end,
    small_copies,
    traded_in,
)
from tocsin.rounds.finalize import PART, basis_of, parts_with_pauses, write_parts
from tocsin.rounds.preparation_store import IS_UNDER_WAY, Preparation
from tocsin.rounds.round_file import PART_BYTES, pieces
from tocsin.rounds.round_store import compact, iso_time, ms_of
from tocsin.rounds.scoring import scoring
from tocsin.rounds.small_steps import collector_paused, free, with_pauses
from tocsin.shapes.round_views import RoundRow
from tocsin.shapes.rounds import RoundInputs

ATTEMPTS_IN_A_ROW = 6  # for one version of a result; then at longer and longer intervals
INTERVAL_MAX_MS = 3_600_000
SORTED_AT_ONCE = 10_000
COPIED_AT_ONCE = 5_000  # swaps; Cloudflare limits the calls of a run
# No block has a longer number, so no part grows when the real number is written.
ANY_BLOCK = 2**53 - 1

_CLEAR_SWAPS = f"""
DELETE FROM competition_round_swaps WHERE round_id = ?1 AND txid > ?3 AND txid <= ?4 AND {IS_UNDER_WAY}"""
_COPY_SWAPS = f"""
{INTO_SWAPS} swaps s WHERE s.txid IN (SELECT value FROM json_each(?3)) AND {IS_UNDER_WAY} ORDER BY s.txid"""
_ABOVE_ALL = "1x"  # all transaction ids begin with 0x
_PREPARED_PART = PART.format(
    """status IN ('open', 'closed') AND EXISTS (SELECT 1 FROM competition_round_preparations
    WHERE round_id = ?1 AND version = ?2 AND begun_at = ?5 AND state = 'begun')"""
)


async def is_prepared(
    db: Database, round_: RoundRow, found: Preparation | None, allowlist_version: str
) -> bool:
    """Return whether a capture now would accept the preparation."""
    if found is None or found.state != "ready":
        return False
    inputs = await live_inputs(
        db,
        round_.rules,
        await prices_of_end(db, round_.rules, {*found.tokens, GAUGE}),
        allowlist_version=allowlist_version,
        complete_until_block=None,
        with_swaps=False,
    )
    return await basis_of(inputs) == found.basis


def is_due(found: Preparation | None, now: int) -> bool:
    """Return whether to try now, given earlier attempts: constant changes must not keep the processor busy."""
    if found is None or found.attempts < ATTEMPTS_IN_A_ROW:
        return True
    exponent = min(found.attempts - ATTEMPTS_IN_A_ROW + 1, 10)
    since_ms = now - ms_of(found.begun_at)
    return not 0 <= since_ms < min(INTERVAL_MAX_MS, 60_000 * 2**exponent)


async def prepare(
    db: Database, round_: RoundRow, allowlist_version: str, now: int, checkpoint: Callable[[], None]
) -> bool:
    """Prepare the result of a round that is over; False if the round changed in the meantime.

    Everything that may change is read after the preparation begins, when triggers note changes.
    """
    at = iso_time(now)
    if not (await preparation_store.begin(db, round_, at).run()).meta.changes:
        return False
    tokens = await traded_in(db, round_.rules)
    prices = await prices_of_end(db, round_.rules, {*tokens, GAUGE})
    await db.batch(await small_copies(db, round_.rules, prices, at, IS_UNDER_WAY))
    checkpoint()
    with collector_paused():
        recorded = replace(round_, allowlist_version=allowlist_version, complete_until_block=ANY_BLOCK)
        inputs = await prepared_inputs(db, recorded, checkpoint)
        if not await _copy_swaps(db, (round_.round_id, at), inputs, checkpoint):
            return False
        outcome = await with_pauses(scoring(inputs), checkpoint)
        parts = await parts_with_pauses(inputs, outcome, checkpoint)
        basis = await basis_of(inputs)
        await free(inputs.swaps)
    await write_parts(db, round_, dict(enumerate(parts)), checkpoint, _PREPARED_PART, at)
    texts = pieces(compact(outcome.to_json()), PART_BYTES)
    statements = preparation_store.make_ready(db, round_, at, len(parts), tokens, basis, texts)
    return (await db.batch(statements))[-1].meta.changes > 0


async def _copy_swaps(
    db: Database, mine: tuple[str, str], inputs: RoundInputs, checkpoint: Callable[[], None]
) -> bool:
    """Replace the copy of the swaps page by page, in the order of the key; False if the preparation is outdated."""
    last = ""
    async for txids in _sorted_pages([swap.txid for swap in inputs.swaps]):
        cleared = db.prepare(_CLEAR_SWAPS).bind(*mine, last, txids[-1])
        copied = db.prepare(_COPY_SWAPS).bind(*mine, json.dumps(txids))
        if not (await db.batch([cleared, copied]))[1].meta.changes:
            return False
        last = txids[-1]
        checkpoint()
    await db.prepare(_CLEAR_SWAPS).bind(*mine, last, _ABOVE_ALL).run()
    return True


async def _sorted_pages(txids: Collection[str]) -> AsyncIterator[list[str]]:
    """Sort ids a page at a time. Sorting a million at once would block other work."""
    rest, runs = iter(txids), []
    while run := sorted(islice(rest, SORTED_AT_ONCE)):
        runs.append(run)
        await asyncio.sleep(0)
    in_order = merge(*runs)
    while page := list(islice(in_order, COPIED_AT_ONCE)):
        yield page
