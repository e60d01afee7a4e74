"""A scheduler's status, runs and budgets as its object tells them, for the console."""

from random import Random
from typing import Any

from support.pages_world import DAY, HOUR, MINUTE, Json

TASKS = {
    "tenero": (5 * MINUTE, 2 * MINUTE, "tenero", "prices move; five minutes is fresh enough for a board"),
    "sweep": (15 * MINUTE, 10 * MINUTE, "hiro", "a swap shows up within a quarter of an hour"),
}


def sample_status(now: int) -> Json:
    tenero, sweep = now - 2 * MINUTE - 11_000, now - 8 * MINUTE
    return {
        "name": "v1",
        "active": True,
        "now": now,
        "nextAlarmAt": now + 2 * MINUTE + 49_000,
        "pausedUntil": None,
        "pauseMaxMs": 30 * DAY,
        "lastTeneroRunAt": tenero,
        "lastTeneroResult": {"startedAt": tenero, "durationMs": 1840, **prices_result()},
        "lastSweepRunAt": sweep,
        "lastSweepResult": {"startedAt": sweep, "durationMs": 41_200, **sweep_result(Random(1))},
        "consecutiveFailures": {"tenero": 0, "sweep": 0},
        "nextRunAfter": {"tenero": None, "sweep": None},
        "tasks": {
            "tenero": _task("tenero", now + 2 * MINUTE + 49_000, tenero + 1840),
            "sweep": _task("sweep", now + 7 * MINUTE, sweep + 41_200),
        },
        "budgets": {
            "tenero": budget(now, minute=(6, 100), month=(7_420, 50_000)),
            "hiro": budget(now, minute=(48, 500), month=(61_950, 150_000)),
        },
    }


def _task(name: str, due: int, success: int) -> Json:
    cadence, slice_ms, upstream, why = TASKS[name]
    return {
        "enabled": True,
        "upstream": upstream,
        "cadenceMs": cadence,
        "effectiveCadenceMs": cadence,
        "cadenceReason": "as configured: the plan allows it",
        "cadenceWhy": why,
        "sliceMs": slice_ms,
        "nextDueAt": due,
        "running": None,
        "lastSuccessAt": success,
        "lastError": None,
        "missedSlots": 0,
        "overdue": False,
        "blind": False,
    }


def budget(now: int, *, minute: tuple[int, int], month: tuple[int, int]) -> Json:
    plan = {"second": None, "minute": minute[1], "month": month[1], "requestShare": 0.1}
    return {
        "plan": plan,
        "limits": plan,
        "spent": {"second": 0, "minute": minute[0], "month": month[0], "monthByOthers": 0},
        "left": {"month": month[1] - month[0]},
        "told": {"minuteRemaining": minute[1] - minute[0], "monthRemaining": None, "anonymous": False},
        "monthEndsAt": now + 16 * DAY,
        "closedUntil": None,
        "inFlight": 0,
        "waiting": {"task": 0, "request": 0},
    }


def prices_result() -> Json:
    return {
        "tokensAttempted": 13,
        "succeeded": 13,
        "failed": 0,
        "rateLimitRemaining": {"minute": 94, "month": 42_580},
    }


def sweep_result(random: Random) -> Json:
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
        "rejectionReasons": {code: n for code, n in reasons.items() if n},
        "failedWallets": 0,
        "cursor": None,
    }


def sample_runs(now: int, seed: int = 3) -> list[Json]:
    """A day of runs, newest first; some of them failed."""
    random = Random(seed)
    found: list[Json] = []
    for name, (cadence, slice_ms, *_) in TASKS.items():
        started = now - (now % cadence)
        while started > now - DAY + MINUTE:  # none that turns a day old while a test looks
            outage = name == "tenero" and 9 * HOUR < now - started < 10 * HOUR
            found.append(_run(random, name, started, slice_ms, outage=outage))
            started -= cadence
    found.sort(key=lambda run: -int(run["startedAt"]))
    for number, run in enumerate(found):
        run["id"] = 4000 - number
    return found


def _run(random: Random, name: str, started: int, slice_ms: int, *, outage: bool) -> Json:
    duration = int(random.lognormvariate(7.4 if name == "tenero" else 10.5, 0.35))
    failed = outage or random.random() < 0.015
    error: Any = None
    if failed:
        duration = min(slice_ms, duration * 4)
        error = {"class": "Limited", "message": "the upstream asked us to wait (429)"}
    result = prices_result() if name == "tenero" else sweep_result(random)
    return {
        "id": 0,
        "task": name,
        "trigger": "alarm",
        "slotAt": started,
        "missedSlots": 0,
        "startedAt": started,
        "endedAt": started + duration,
        "durationMs": duration,
        "outcome": "failed" if failed else "ok",
        "result": {} if failed else result,
        "error": error,
    }
