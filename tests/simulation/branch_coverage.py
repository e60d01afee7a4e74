"""Measures which branches the simulation alone reaches: `make sim DAYS=100 COVERAGE=1`.

Needs coverage.py, which is in the environment of `make mutation`. All histories run in its own process.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import coverage

PACKAGES = ("board", "prices", "rounds", "scheduler", "swaps", "upstream")
GAPS_SHOWN = 25  # files


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim COVERAGE=1", description=__doc__)
    parser.add_argument("--days", type=float, default=100.0)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    given = parser.parse_args()
    measured = coverage.Coverage(
        data_file=None, branch=True, source_pkgs=[f"tocsin.{name}" for name in PACKAGES], config_file=False
    )
    measured.start()
    from simulation.__main__ import reports_here, run_many  # code that runs on import counts too

    result = run_many(given.days, reports_here(given.first))
    measured.stop()
    with TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        measured.json_report(outfile=str(report))
        _print(json.loads(report.read_text())["files"])
    return result


def _print(files: dict[str, Any]) -> None:
    """Print a line for each package, then the files with the most unreached branches."""
    covered, all_of = defaultdict[str, int](int), defaultdict[str, int](int)
    gaps = []
    for path, file in files.items():
        summary, package = file["summary"], Path(path).parent.name
        covered[package] += summary["covered_branches"]
        all_of[package] += summary["num_branches"]
        missing = [f"{line}->{'exit' if to < 0 else to}" for line, to in file["missing_branches"]]
        if missing:
            gaps.append((len(missing), f"{package}/{Path(path).name}", missing))
    print()
    for package in PACKAGES:
        share = 100 * covered[package] / all_of[package]
        print(f"{package:<12} {share:5.1f} % of {all_of[package]} branches")
    total, reached = sum(all_of.values()), sum(covered.values())
    if not all(covered[package] for package in PACKAGES):
        sys.exit("a package was not reached at all: the histories do not run where coverage.py measures")
    print(f"{'together':<12} {100 * reached / total:5.1f} % of {total} branches\n")
    for count, name, missing in sorted(gaps, reverse=True)[:GAPS_SHOWN]:
        print(f"{count:>4} {name}: {', '.join(missing)}")


if __name__ == "__main__":
    sys.exit(main())
