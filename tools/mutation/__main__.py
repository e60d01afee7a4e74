"""Check whether the tests would notice a bug: change one operator, number or statement at a time and run its tests.

    python -m tools.mutation upstream [--module budget] [--sample 200 --seed 1] [--again] [--report]

`make mutation PACKAGE=upstream MODULE=budget` sets it up. Results are kept in `.mutation/`: an interrupted run
continues where it stopped, and a mutant is tried again only if its module changed, or with `--again` if it survived.
"""

import argparse
import os
import random
import sys
from pathlib import Path

import pytest
from tools.mutation.generate import Mutant, mutants_of
from tools.mutation.recorded import KEPT, ROOT, RUNTIME, SERVICE
from tools.mutation.results import Results, show
from tools.mutation.runner import MutationRun

# Only tests that run in this process: a process that a test starts does not contain the mutant.
TESTS = {
    "board": ("tests/board", "tests/history", "tests/competition", "tests/web"),
    "holdfast": ("packages/holdfast/tests", "tests/local", "tests/contract", "tests/conformance"),
    "local": ("tests/local",),
    "prices": ("tests/prices", "tests/tasks"),
    "rounds": ("tests/rounds",),
    "scheduler": ("tests/scheduler",),
    "swaps": ("tests/swaps", "tests/competition", "tests/web"),
    "upstream": ("tests/upstream", "tests/budget", "tests/tasks"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", help="holdfast, or a room of src/tocsin such as upstream")
    parser.add_argument("--module", action="append", help="one module of the package, such as budget; may be repeated")
    parser.add_argument("--sample", type=int, help="try only this many mutants of the package, chosen with --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="try survivors again, after the tests have changed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10, help="run at most this many seconds of tests for a mutant")
    parser.add_argument("--slow", action="store_true", help="also run tests that are marked slow")
    parser.add_argument("--tests", action="append", help="files or directories, instead of the package's own")
    parser.add_argument("--report", action="store_true", help="print the stored results and run nothing")
    options = parser.parse_args()
    if options.package not in TESTS:
        sys.exit(f"packages are {', '.join(TESTS)}")
    paths = modules(options.package, options.module)
    if not paths:
        sys.exit(f"{options.package} has no such module")
    os.chdir(ROOT)
    mutants = {path: mutants_of(path) for path in paths}
    if options.sample:
        mutants = drawn(mutants, options.sample, options.seed)
    results = {path: Results(path) for path in paths}
    if not options.report:
        run = MutationRun(mutants, results, options.again, options.processes, options.seconds)
        tests = options.tests or [name for name in TESTS[options.package] if (ROOT / name).exists()]
        code = tests_with(run, tests, slow=options.slow)
        if code:
            return code
    show(mutants, results)
    return 0


def modules(package: str, names: list[str] | None) -> list[Path]:
    paths = sorted((RUNTIME if package == "holdfast" else SERVICE / package).rglob("*.py"))
    return [path for path in paths if not names or path.stem in names]


def drawn(mutants: dict[Path, list[Mutant]], size: int, seed: int) -> dict[Path, list[Mutant]]:
    every = [(path, mutant) for path, found in mutants.items() for mutant in found]
    chosen = random.Random(seed).sample(every, min(size, len(every)))
    return {path: [mutant for of, mutant in chosen if of == path] for path in mutants}


def tests_with(run: MutationRun, tests: list[str], *, slow: bool) -> int:
    """Collect the tests once; the run then takes over from pytest."""
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(KEPT / "hypothesis")
    arguments = [
        *tests,
        *([] if slow else ["-m", "not slow"]),
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-s",
        "-q",
    ]
    return int(pytest.main([*arguments, "--hypothesis-seed=1", "--no-header"], plugins=[run]))


if __name__ == "__main__":
    sys.exit(main())
