"""Compare Tocsin with a model of the reference over the same simulated month, with the same faults: make month.

python bench/reference_month.py --days 30 --seed 1

The same seed gives the same table. Each service has its own process; thirty days take about ten minutes of CPU time for
each. A run of thirty days writes its figures into docs/reference-month.md; a shorter one only prints them.
"""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages/holdfast/tests"))

from month_incidents import month_of_incidents
from month_lookups import with_lookups
from month_report import INCIDENT_HEAD, incident_rows, table, write_docs
from month_services import MonthOutcome, live_through

from holdfast.testing.virtual_time import run_virtual

FULL_DAYS = 30
MEMORY = Path("/dev/shm")


def one_service(name: str, days: float, seed: int) -> MonthOutcome:
    """Run the month of one service in this process."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as scratch:
        return run_virtual(live_through(name, Path(scratch), month_of_incidents(), days=days, seed=seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=FULL_DAYS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lookups", type=int, default=0, help="a site's look-ups a day: Tocsin only, prints only")
    options = parser.parse_args()
    if not 0.5 <= options.days <= 365:
        parser.error("--days is 0.5 to 365")
    if options.lookups:
        with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as scratch:
            month = with_lookups(Path(scratch), days=options.days, seed=options.seed, per_day=options.lookups)
            shown = Table(f"{options.days:g} days, seed {options.seed}", f"{options.lookups:,} look-ups a day")
            for line in run_virtual(month):
                shown.add_row(*line)
        Console(width=150).print(shown)
        return
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        names = ("Tocsin", "the reference")
        futures = [pool.submit(one_service, name, options.days, options.seed) for name in names]
        ours, reference = [future.result() for future in futures]
    incidents = month_of_incidents()
    console = Console(width=150)
    figures = Table(f"{options.days:g} days, seed {options.seed}", "Tocsin", "the reference (model)", "goal")
    for row in table(ours, reference):
        figures.add_row(*row)
    by_incident = Table(*INCIDENT_HEAD, title="Tocsin / the reference, on the days of each incident")
    for each in incident_rows(ours, reference, incidents):
        by_incident.add_row(*each)
    console.print(figures, by_incident)
    if options.days == FULL_DAYS:
        write_docs(ours, reference, incidents, options.seed)
        console.print("docs/reference-month.md and its plot are updated")


if __name__ == "__main__":
    main()
