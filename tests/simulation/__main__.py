"""python -m simulation: run histories, and report the first that breaks a promise.

make sim SEED=7 DAYS=3     one history
make sim DAYS=1000         many, from seed 1 on, of some days each
"""

import argparse
import sys
import time

from simulation.history import run_history
from simulation.plan import draw_plan


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--usual", action="store_true")
    parser.add_argument("--trace", type=int, default=30)
    parser.add_argument("--width", type=int, default=200)
    arguments = parser.parse_args()
    plan = draw_plan(arguments.seed or 1, arguments.days, usual_cadences=arguments.usual)
    began = time.process_time()
    report = run_history(plan)
    took = time.process_time() - began
    print(report.digest, report.days, "days", f"{took:.1f} s CPU", report.counts)
    print(dict(report.happened))
    for violation in report.violations:
        print(violation)
    if report.violations:
        print("\n".join(line[: arguments.width] for line in report.trace[-arguments.trace :]))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
