"""Simulated histories: one by its seed, or many.

make sim SEED=7            the history of this seed; if it breaks a promise: what remains of its events when all
                           that does not matter is left out, and the trace around the violation
make sim DAYS=1000         histories from seed 1 on until so many days are simulated [JOBS=2]
make sim DAYS=60 COVERAGE=1  the branches that no day reached, with `branch_coverage`
make sim EVERY_CALL=1      a short history, once for every call of its storage and every fault of one
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from simulation.every_call import FAULTS, broken_by, short_plan
from simulation.history import Report, run_history
from simulation.long_plan import draw_long_plan
from simulation.plan import Plan, draw_plan
from simulation.shrink import shrunk

HISTORY_DAYS = 6.0
LONG_DAYS = 42.0
LONG_EVERY = 2  # seeds
TRACE_LINES = 40
LINE_WIDTH = 240


def plan_of(seed: int, days: float | None = None) -> Plan:
    """Six bad days, or weeks with fewer troubles."""
    if seed % LONG_EVERY == 0:
        return draw_long_plan(seed, days or LONG_DAYS)
    return draw_plan(seed, days or HISTORY_DAYS)


def history_of(seed: int) -> Report:
    return run_history(plan_of(seed))


def reports(first: int, jobs: int) -> Iterator[Report]:
    """Reports of the seeds from the first on, without end."""
    if jobs == 1:
        seed = first
        while True:
            yield history_of(seed)
            seed += 1
    with ProcessPoolExecutor(jobs) as pool:
        seed = first
        while True:
            yield from pool.map(history_of, range(seed, seed + 4 * jobs))
            seed += 4 * jobs


def run_many(days: float, first: int, jobs: int) -> int:
    began, cpu_began = time.monotonic(), sum(os.times()[:4])
    simulated, histories, happened, broken = 0.0, 0, Counter[str](), []
    for report in islice(reports(first, jobs), 10**6):
        simulated += report.days
        histories += 1
        happened.update(report.happened)
        if report.violations:
            broken.append(report.seed)
            print(f"seed {report.seed}: {report.violations[0]}", flush=True)
        elif histories % 20 == 0:
            print(f"{simulated:,.0f} of {days:,.0f} days, {histories} histories", flush=True)
        if simulated >= days:
            break
    minutes, cpu_minutes = (time.monotonic() - began) / 60, (sum(os.times()[:4]) - cpu_began) / 60
    print(", ".join(f"{count} {what}" for what, count in sorted(happened.items())))
    print(
        f"{simulated:,.0f} days in {histories} histories, {minutes:.1f} minutes;"
        f" {simulated / max(cpu_minutes, 0.001):.0f} days per minute of processor time;"
        f" {len(broken)} broke a promise"
    )
    if broken:
        print(f"make sim SEED={broken[0]} shows the first of them")
    return 1 if broken else 0


def run_one(seed: int, days: float | None) -> int:
    plan = plan_of(seed, days)
    report = run_history(plan)
    print(f"seed {seed}: {report.days:.1f} days, {len(plan.events)} events, {report.counts}")
    print(", ".join(f"{count} {what}" for what, count in sorted(report.happened.items())))
    print(f"trace {report.digest}")
    if not report.violations:
        print("every promise was kept")
        return 0
    broken = report.violations[0]
    print(f"\nBROKEN: {broken}\n\nleaving out what does not matter …", flush=True)
    plan, report = shrunk(plan, broken.name)
    print(f"\n{len(plan.events)} events are enough:")
    for event in plan.events:
        print(f"  {event}")
    print(f"\n{report.violations[0]}\n\nthe trace before it:")
    for line in report.trace[-TRACE_LINES:]:
        print(f"  {line[:LINE_WIDTH]}")
    return 1


def run_every_call() -> int:
    calls = run_history(short_plan()).counts["storage calls before the calm"]
    broken = 0
    for fault in FAULTS:
        found = broken_by(fault, range(calls))
        broken += len(found)
        print(f"{fault}: {calls} histories, {len(found)} broke a promise", flush=True)
        for number, text in found.items():
            print(f"  call {number}: {text}")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one history")
    parser.add_argument("--first", type=int, default=1, help="the first seed of many")
    parser.add_argument("--days", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every-call", action="store_true")
    given = parser.parse_args()
    if given.every_call:
        return run_every_call()
    if given.seed is not None:
        return run_one(given.seed, given.days)
    return run_many(given.days or 100.0, given.first, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
