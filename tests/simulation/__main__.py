"""Simulated histories: one by its seed, or many.

make sim SEED=7            the history of this seed; if it breaks a promise: the smallest set of events that still
                           breaks it, and the trace around the violation
make sim SEED=7 LONG=1     its long history: weeks with fewer faults
make sim DAYS=1000         histories that once broke a promise, then both histories of each seed from 1 on, until that
                           many days are simulated [JOBS=2]
make sim EVERY_CALL=1      a short history, once for every storage call and every fault of a call; with 6, for every
                           sixth call [JOBS=2]
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from simulation.history import Report, run_history
from simulation.plan import Plan, draw_long_plan, draw_plan
from simulation.shrink import FAULTS, broken_by, short_plan, shrunk

HISTORY_DAYS = 6.0
LONG_DAYS = 42.0
# Each found a defect or a mistake of the model: prices that looked too new, code at the input gate that could not be
# closed, candidates stored while the clock was ahead, a clock set during a pause; a list not read from its head after
# the rest of it, a clock set before a stretched slot, a backlog longer than the calm, forgotten missing nonces; lists
# that were not found, damaged curves, a long reboot; a plan that changed while the month was used up.
ONCE_BROKEN, ONCE_BROKEN_LONG = ((110, 130, 131, 1_011, 2_098, 2_106, 2_128), (2_004, 2_002, 2_029, 2_057, 10_202))
FORK = multiprocessing.get_context("fork")  # everything is already imported
TRACE_LINES = 40
LINE_WIDTH = 240


@dataclass(frozen=True, slots=True)
class Named:
    """A history by its name: six bad days, or weeks with fewer faults."""

    seed: int
    long: bool = False

    def plan(self, days: float | None = None) -> Plan:
        if self.long:
            return draw_long_plan(self.seed, days or LONG_DAYS)
        return draw_plan(self.seed, days or HISTORY_DAYS)

    def __str__(self) -> str:
        return f"SEED={self.seed}{' LONG=1' if self.long else ''}"


def names(first: int) -> Iterator[Named]:
    """Yield names without end."""
    yield from map(Named, ONCE_BROKEN)
    yield from (Named(seed, long=True) for seed in ONCE_BROKEN_LONG)
    for seed in count(first):
        yield Named(seed)
        yield Named(seed, long=True)


def reports(first: int, jobs: int) -> Generator[tuple[Named, Report], None, None]:
    """Yield reports of the histories as they end, indefinitely. Each runs in a process of its own."""
    left, running = names(first), dict[Connection, BaseProcess]()
    try:
        while True:
            while len(running) < jobs:
                result, end = FORK.Pipe(duplex=False)
                running[result] = FORK.Process(target=_report, args=(next(left), end))
                running[result].start()
                end.close()
            for ended in wait(list(running)):
                assert isinstance(ended, Connection)
                yield ended.recv()
                running.pop(ended).join()
    finally:
        for process in running.values():
            process.kill()
            process.join()


def _report(name: Named, end: Connection) -> None:
    """Run one history in its own process, whose end makes garbage collection unnecessary."""
    gc.disable()
    end.send((name, run_history(name.plan(), collect=False)))


def run_many(days: float, first: int, jobs: int) -> int:
    began, cpu_began = time.monotonic(), sum(os.times()[:4])
    simulated, histories, happened, broken = 0.0, 0, Counter[str](), list[Named]()
    missing: dict[str, tuple[float, str]] = {}
    with closing(reports(first, jobs)) as reported:  # which ends the histories that still run: their time counts
        for name, report in reported:
            simulated += report.days
            histories += 1
            happened.update(report.happened)
            for state, cadences in report.longest_missing.items():
                missing[state] = max(missing.get(state, (0.0, "")), (cadences, str(name)))
            if report.violations:
                broken.append(name)
                print(f"{name}: {report.violations[0]}", flush=True)
            elif histories % 20 == 0:
                print(f"{simulated:,.0f} of {days:,.0f} days, {histories} histories", flush=True)
            if simulated >= days:
                break
    minutes, cpu_minutes = (time.monotonic() - began) / 60, (sum(os.times()[:4]) - cpu_began) / 60
    print(", ".join(f"{count} {what}" for what, count in sorted(happened.items())))
    for state, (cadences, seed) in sorted(missing.items()):
        print(f"the longest time that a swap was missing in state {state}: {cadences:.2f} cadences ({seed})")
    print(
        f"{simulated:,.0f} days in {histories} histories, {minutes:.1f} minutes;"
        f" {simulated / max(cpu_minutes, 0.001):.0f} days per minute of processor time;"
        f" {len(broken)} broke a promise"
    )
    if broken:
        print(f"make sim {broken[0]} shows the first of them")
    return 1 if broken else 0


def run_one(name: Named, days: float | None) -> int:
    plan = name.plan(days)
    report = run_history(plan)
    print(f"{name}: {report.days:.1f} days, {len(plan.events)} events, {report.counts}")
    print(", ".join(f"{count} {what}" for what, count in sorted(report.happened.items())))
    print(f"trace {report.digest}")
    print(f"cadences that a swap was missing: {report.longest_missing}")
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


def run_every_call(step: int, jobs: int) -> int:
    calls = run_history(short_plan()).counts["storage calls before the calm"]
    numbers, broken = range(0, calls, step), 0
    with ProcessPoolExecutor(jobs) as pool:
        for fault in FAULTS:
            found = pool.map(partial(broken_by, fault), ([number] for number in numbers), chunksize=8)
            texts = {number: text for each in found for number, text in each.items()}
            broken += len(texts)
            print(f"{fault}: {len(numbers)} histories, {len(texts)} broke a promise", flush=True)
            for number, text in texts.items():
                print(f"  call {number}: {text}")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one history")
    parser.add_argument("--first", type=int, default=1, help="the first seed of many")
    parser.add_argument("--days", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="its long history")
    parser.add_argument("--every-call", type=int, metavar="N", help="every N-th call of the storage")
    given = parser.parse_args()
    if given.every_call:
        return run_every_call(given.every_call, given.jobs)
    if given.seed is not None:
        return run_one(Named(given.seed, given.long), given.days)
    return run_many(given.days or 100.0, given.first, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
