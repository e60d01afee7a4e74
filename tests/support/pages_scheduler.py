"""A scheduler's status and runs for the console, as the JSON of the service's own shapes."""

from dataclasses import replace
from functools import lru_cache
from random import Random

from support.pages_world import Json
from support.statuses import DAY, HOUR, MINUTE, budget_status, run_record, scheduler_status, task_status
from tocsin.scheduler.types import RunError, RunRecord, TaskStatus
from tocsin.shape import FreeForm
from tocsin.swaps.feed import EMPTY_RESULT
from tocsin.upstream.budget import BudgetForecast

TASKS = {
    "tenero": task_status(title="Token prices", slice_ms=2 * MINUTE),
    "feed": task_status(
        title="Transaction feed",
        upstream="hiro",
        cadence_ms=MINUTE,
        effective_cadence_ms=MINUTE,
        cadence_why="a swap is on the board within a minute of its block",
        slice_ms=50_000,
    ),
    "sweep": task_status(
        title="Swap sweep",
        upstream="hiro",
        cadence_ms=15 * MINUTE,
        effective_cadence_ms=15 * MINUTE,
        cadence_why="a swap shows up within a quarter of an hour",
        slice_ms=10 * MINUTE,
    ),
}


def sample_status(now: int) -> Json:
    """Three tasks on time, with budgets in the middle of their month."""
    tenero, feed, sweep = now - 2 * MINUTE - 11_000, now - 11_000, now - 8 * MINUTE
    month_ends_at = now + 16 * DAY
    return scheduler_status(
        now=now,
        next_alarm_at=now + 49_000,
        pause_max_ms=30 * DAY,
        consecutive_failures=dict.fromkeys(TASKS, 0),
        next_run_after=dict.fromkeys(TASKS),
        tasks={
            "tenero": _task("tenero", now + 2 * MINUTE + 49_000, tenero + 1840),
            "feed": _task("feed", now + 49_000, feed + 240),
            "sweep": _task("sweep", now + 7 * MINUTE, sweep + 41_200),
        },
        budgets={
            "tenero": budget_status(
                minute=(6, 100),
                month=(7_420, 50_000),
                month_ends_at=month_ends_at,
                forecast=BudgetForecast(now - DAY, 530, 15_900, None),
            ),
            "hiro": budget_status(
                minute=(48, 500),
                month=(61_950, 150_000),
                month_ends_at=month_ends_at,
                forecast=BudgetForecast(now - DAY, 4_425, 132_750, None),
            ),
        },
        last_run_at={"tenero": tenero, "feed": feed, "sweep": sweep},
        last_result={
            "tenero": {"startedAt": tenero, "durationMs": 1840, **prices_result()},
            "feed": {"startedAt": feed, "durationMs": 240, **feed_result(0)},
            "sweep": {"startedAt": sweep, "durationMs": 41_200, **sweep_result(Random(1))},
        },
    ).to_json()


def _task(name: str, due: int, success: int) -> TaskStatus:
    return replace(TASKS[name], next_due_at=due, last_success_at=success)


def prices_result() -> FreeForm:
    return {"tokensAttempted": 13, "succeeded": 13, "failed": 0, "rateLimitRemaining": {"minute": 94, "month": 42_580}}


def sweep_result(random: Random) -> FreeForm:
    found = random.randrange(2, 14)
    reasons = {"contract_not_allowlisted": random.randrange(4), "sender_not_registered": random.randrange(2)}
    if random.random() < 0.2:
        reasons["tx_failed"] = 1
    return {
        "scanned": 100,
        "found": found,
        "inserted": found // 3,
        "alreadyKnown": found - found // 3,
        "pending": 0,
        "rejected": sum(reasons.values()),
        "rejectionReasons": {code: count for code, count in reasons.items() if count},
        "failedWallets": 0,
        "cursor": None,
    }


def feed_result(found: int) -> FreeForm:
    about: FreeForm = {"reason": "the network's 12,000 transactions a day are 336 calls"}
    counts: FreeForm = {"pages": 1, "transactions": 9, "found": found, "inserted": found}
    return {**EMPTY_RESULT, **about, **counts, "completeUntilBlock": 7_912_345, "transactionsPerDay": 12_000}


def sample_runs(now: int, seed: int = 3) -> list[Json]:
    """A day of runs, newest first; some of them failed."""
    return [{**run, "result": dict(run["result"])} for run in _runs_until(now - now % MINUTE, seed)]


@lru_cache(maxsize=2)
def _runs_until(now: int, seed: int) -> list[Json]:
    """Build the runs, cached: they stay the same for a minute, and building them takes longer than most tests."""
    random = Random(seed)
    runs: list[RunRecord] = []
    for name, task in TASKS.items():
        started = now - (now % task.cadence_ms)
        while started > now - DAY + 2 * MINUTE:  # no run becomes a day old during a test
            outage = name == "tenero" and 3 * HOUR < now - started < 4 * HOUR
            runs.append(_run(random, name, started, outage=outage))
            started -= task.cadence_ms
    runs.sort(key=lambda run: -run.started_at)
    return [replace(run, id=4000 - number).to_json() for number, run in enumerate(runs)]


def _run(random: Random, name: str, started: int, *, outage: bool) -> RunRecord:
    duration = int(random.lognormvariate({"tenero": 7.4, "feed": 5.5}.get(name, 10.5), 0.35))
    failed = outage or random.random() < 0.015
    result = prices_result() if name == "tenero" else sweep_result(random)
    if name == "feed":
        result = feed_result(random.randrange(3))
    if failed:
        duration = min(TASKS[name].slice_ms, duration * 4)
    late = started // MINUTE % 17 + (400 if failed else 0)
    return run_record(
        slot_at=started - late,
        task=name,
        started_at=started,
        ended_at=started + duration,
        duration_ms=duration,
        outcome="failed" if failed else "ok",
        result={} if failed else result,
        error=RunError("Limited", "the upstream asked us to wait (429)") if failed else None,
    )
