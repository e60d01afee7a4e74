"""Measure submissions while greedy clients submit as fast as they can: how many honest ones are refused in a month.

python bench/measure_lane.py [--days 30]

It runs in virtual time, with the real budget (Hiro's plan of 20 calls a second, 500 a minute and 150,000 a month), the
real lane and 0.2 s per call. 30 honest clients submit 144 trades a day, each of which costs them a call; the scheduler
makes 40 calls every 15 minutes. The figures are reproducible.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from holdfast.testing.virtual_time import run_virtual
from support.submitters import LaneFigures, LaneWorld, addresses

KINDS = ("none", "one address", "ten addresses", "a hundred addresses", "a /48")


async def month(kind: str, days: float, *, shares: bool) -> LaneFigures:
    return await LaneWorld(shares=shares).run(addresses(kind), days)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=30.0)
    days = parser.parse_args().days
    table = Table(
        "greedy clients", "honest submissions", "refused", "greedy ones looked up", "calls for submissions",
        "fewest left", "scheduler's calls", "of them refused",
    )  # fmt: skip
    rows = [(kind, True) for kind in KINDS] + [("one address", False)]
    for kind, shares in rows:
        figures = run_virtual(month(kind, days, shares=shares), real_threads=True)
        table.add_row(
            kind if shares else f"{kind}, without shares",
            f"{figures.honest:,}",
            f"{figures.honest_refused:,} ({figures.honest_refused / figures.honest:.1%})",
            f"{figures.greedy_asked:,}",
            f"{figures.request_calls:,}",
            f"{figures.left_min:,.0f}",
            f"{figures.task_calls:,}",
            f"{figures.task_refused:,}",
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
