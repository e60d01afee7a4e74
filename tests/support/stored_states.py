"""The state of a scheduler that each release stores, in `tests/data/states`.

A file has the entries of one object, key to value. Once a release is published, its file never changes. To write the
file of this release: `PYTHONPATH=tests:packages/holdfast/tests python -m support.stored_states`.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from holdfast.testing.virtual_time import run_virtual
from holdfast.types import JSON
from support.scheduler import MINUTE, Job, scheduler
from support.scripted_fetch import Request, ScriptedFetch, response
from tocsin import __version__
from tocsin.fetch import FetchResponse
from tocsin.scheduler.task import TaskContext, TaskResult
from tocsin.upstream.answer import Limited
from tocsin.upstream.budget import Quota
from tocsin.upstream.hiro import HiroClient
from tocsin.upstream.tenero import TeneroClient

STATES = Path(__file__).parents[1] / "data" / "states"
QUOTAS = {"hiro": Quota(20, 50, 150_000), "tenero": Quota(None, 100, 50_000)}


def stored_state(release: str = __version__) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads((STATES / f"{release}.json").read_text())
    return entries


async def refresh_prices(context: TaskContext) -> TaskResult:
    """One call; a 429 is a failure that holds the task back."""
    tenero = context.upstream("tenero", TeneroClient)
    answer = await tenero.fetch_token_price_usd("stx", context.logger, context.session)
    counters: dict[str, JSON] = {"calls": context.session.calls, "rateLimitRemaining": {"minute": None}}
    if isinstance(answer, Limited):
        return TaskResult(counters, answer.reason, answer.until, "Limited")
    return TaskResult(counters)


async def sweep_slowly(context: TaskContext) -> TaskResult:
    """Do more units of work than fit into the slice."""
    hiro = context.upstream("hiro", HiroClient)
    for done in range(100):
        context.checkpoint()
        await hiro.principal_transactions(f"SP{done}", context.session)
        context.progress(done + 1, 100, scanned=done + 1, rejectionReasons={"tx_failed": done})
        await context.clock.sleep(10)
    raise AssertionError("not reached")


def jobs() -> tuple[Job, Job]:
    prices = Job("tenero", 5 * MINUTE, run=refresh_prices)
    return prices, Job("sweep", 10 * MINUTE, slice_ms=MINUTE, upstream="hiro", run=sweep_slowly)


async def write_state(directory: Path) -> dict[str, Any]:
    """Store what this release stores: runs of every outcome, one under way, a pause, a back-off, two budgets."""
    price = response({"data": {"address": "stx", "price_usd": 1, "decimals": 6}})
    limited = response({}, status=429, headers={"retry-after": "100"})
    no_rows = response({"total": 0, "limit": 50, "cursor": {"next": None}, "results": []})
    prices = iter([price, limited])

    async def reply(request: Request) -> FetchResponse:
        if "tenero" not in request.url:
            return no_rows
        await asyncio.sleep(0 if (answer := next(prices, None)) else 3_600)
        return answer or price

    async with scheduler(directory, *jobs(), fetch=ScriptedFetch(reply), quotas=QUOTAS) as made:
        await asyncio.sleep(10 * 60 + 2)  # tenero: ok, failed, under way; sweep: partial, under way
        await made.client().pause_until(made.clock.now() + 120 * MINUTE)
        await asyncio.sleep(13)  # sweep: stopped at its checkpoint
        made.reset()
        await made.client().status()  # tenero: interrupted, and to be run again
        under_way = made.stub().refresh_now("sweep")
        await asyncio.sleep(5)
        entries = made.entries()
    await asyncio.gather(under_way, return_exceptions=True)
    return entries


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        entries = run_virtual(write_state(Path(directory)))
    (STATES / f"{__version__}.json").write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
