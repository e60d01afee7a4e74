"""What the scheduler under test does: the real refresh of prices, and a sweep that only writes a row."""

from collections.abc import Sequence
from dataclasses import replace

from tocsin.scheduler.task import Outcome, Task, TaskContext
from tocsin.settings import Settings
from tocsin.tasks.refresh_prices import PriceOptions, refresh_prices

TRADED = "CREATE TABLE IF NOT EXISTS token_totals (token TEXT PRIMARY KEY NOT NULL, trades INTEGER NOT NULL)"
CREATE = "CREATE TABLE IF NOT EXISTS sweeps (id INTEGER PRIMARY KEY, started_at INTEGER NOT NULL)"


async def sweep(context: TaskContext) -> Outcome:
    while await context.kv.get("hold") is not None:  # a test wants to see it running
        await context.clock.sleep(0.05)
    insert = context.db.prepare("INSERT INTO sweeps (started_at) VALUES (?)").bind(context.started_at)
    _, inserted = await context.db.batch([context.db.prepare(CREATE), insert])
    return Outcome({"scanned": 1, "inserted": inserted.meta.changes})


def tasks(settings: Settings) -> Sequence[Task]:
    prices = refresh_prices(PriceOptions(cadence_ms=settings.tenero_cadence, slice_ms=settings.tenero_slice))

    async def on_a_bare_database(context: TaskContext) -> Outcome:
        await context.db.prepare(TRADED).run()
        return await prices.run(context)

    return (
        replace(prices, run=on_a_bare_database),
        Task("sweep", "hiro", settings.sweep_cadence, settings.sweep_slice, 0.0, sweep),
    )
