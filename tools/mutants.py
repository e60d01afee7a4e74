"""Try every deliberate bug of `tests/mutants`: one at a time, in a copy of the tree, with the tests that must catch it.

    make mutants                      all of them; exits with 1 if one survives or no longer applies
    make mutants ONLY=alarm JOBS=2    those whose name contains a text, two at a time
    make mutants DOCS=1               write the table in docs/guarantees.md and run nothing

The developer's own files are never changed. First all tests run in a copy without a bug and must pass. Then they run
with bugs that break everything, which must be caught: this proves that the tests import the copy.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from mutants.all_bugs import BUGS, PAGE, page_with_table
from mutants.bug import SOURCE, Bug

ROOT = Path(__file__).parents[1]
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=reproducible")
TEST_S = 60  # after which a test counts as hanging
RUN_S = 240  # after which a whole run counts as hanging
BASELINE_S = 1_800
FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - (.*))?$", re.MULTILINE)
# The first breaks the tests' own process, the second only the processes that they start.
BREAK_EVERYTHING = tuple(
    Bug(
        name=f"everything is broken in {file}",
        file=file,
        old=old,
        new=f'raise RuntimeError("broken on purpose")\n{old}',
        origin="this script",
        breaks="The tests import the copy",
        tests=(test,),
    )
    for file, old, test in (
        ("__init__.py", '__version__ = "', "test_stacks_address.py"),
        (
            "__main__.py",
            "from tocsin.cli import main\n",
            "service/test_service_process.py::test_a_wrong_setting_stops_the_start_with_its_fix",
        ),
    )
)

_times = count(1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a bug: the test that caught it, or why none did."""

    bug: Bug
    caught_by: str | None
    seconds: float
    problem: str = ""

    def line(self) -> str:
        """A row of the table."""
        how = f"caught by {self.caught_by}" if self.caught_by else self.problem or "SURVIVES"
        bug = self.bug
        return f"{bug.name} | {bug.breaks} | {bug.origin} | {how} | {self.seconds:.0f} s"


def copy_tree(target: Path) -> None:
    """Copy all files that belong to the project, including uncommitted changes."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_tests(tree: Path, tests: Iterable[str], limit_s: float, *, report_all: bool = False) -> str | None:
    """Run these tests in a tree. Returns None if they pass, else the first failed test, or all failed tests."""
    command = [sys.executable, *PYTEST, f"--timeout={TEST_S}", *(f"tests/{test}" for test in tests)]
    if report_all:
        command.remove("-x")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),  # before the installed package, the developer's tree
        "TOCSIN_REQUIRE_ALL": "1",  # a skipped test catches nothing
    }
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"a timeout: the tests did not end within {limit_s:.0f} s"
    if process.returncode == 0:
        return None
    failed = [
        f"{test} (timeout)" if "Timeout" in rest else test for test, rest in FAILED.findall(output)
    ] or [f"pytest itself, with exit status {process.returncode}: {output[-300:]}"]
    return "\n  ".join(failed) if report_all else failed[0]


def try_bug(tree: Path, bug: Bug, tests: Sequence[str]) -> Outcome:
    """Put the bug into the tree, run its tests, and remove it again."""
    path, began = bug.path(tree), time.monotonic()
    text = path.read_text()
    try:
        _write(path, bug.applied(text))
    except (ValueError, SyntaxError) as error:
        return Outcome(bug, None, 0.0, str(error))
    try:
        caught_by = run_tests(tree, tests or bug.tests, RUN_S, report_all=bool(tests))
    finally:
        _write(path, text)
    return Outcome(bug, caught_by, time.monotonic() - began)


def _write(path: Path, text: str) -> None:
    """Write the file with a unique time: Python recognises outdated bytecode by size and whole second."""
    path.write_text(text)
    newer = int(time.time()) + next(_times)
    os.utime(path, (newer, newer))


def try_all(bugs: Sequence[Bug], tests: Sequence[str], home: Path, jobs: int) -> Iterator[Outcome]:
    """Try the bugs in as many trees as there are jobs, one bug per tree at a time."""
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copy_tree(home / f"tree-{number}")
        trees.put(home / f"tree-{number}")

    def in_a_tree(bug: Bug) -> Outcome:
        tree = trees.get()
        try:
            return try_bug(tree, bug, tests)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(in_a_tree, bugs)


def check_baseline(bugs: Sequence[Bug], home: Path) -> str | None:
    """Check that all tests pass without a bug, and none with a bug that breaks everything. Returns the problem."""
    tree = home / "baseline"
    copy_tree(tree)
    tests = sorted({test for bug in bugs for test in bug.tests})
    failed = run_tests(tree, tests, BASELINE_S)
    if failed is not None:
        return f"a test fails without any bug: {failed}"
    for bug in BREAK_EVERYTHING:
        if run_tests(tree, bug.tests, RUN_S) is not None or try_bug(tree, bug, ()).caught_by is None:
            return f"{bug.name}, which no test catches: the tests do not import {SOURCE} of the copy"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Try every deliberate bug.")
    parser.add_argument("--only", default="", help="only bugs whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="number of bugs to try at a time")
    parser.add_argument("--tests", nargs="*", default=(), help="tests to run instead of those of the bugs")
    parser.add_argument("--write-docs", action="store_true", help=f"write the table in {PAGE}, run nothing")
    options = parser.parse_args()
    if options.write_docs:
        page = ROOT / PAGE
        page.write_text(page_with_table(page.read_text()))
        return 0
    bugs = [bug for bug in BUGS if options.only in bug.name]
    if not bugs:
        print(f"no bug has {options.only!r} in its name")
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tocsin-mutants-") as name:
        home = Path(name)
        problem = None if options.tests else check_baseline(bugs, home)
        if problem is not None:
            print(problem)
            return 1
        outcomes = []
        print("bug | promise that it breaks | where it comes from | caught by | time")
        for outcome in try_all(bugs, options.tests, home, options.jobs):
            outcomes.append(outcome)
            print(outcome.line(), flush=True)
    survivors = [outcome for outcome in outcomes if outcome.caught_by is None]
    caught = len(outcomes) - len(survivors)
    print(f"{caught} of {len(outcomes)} bugs were caught, in {time.monotonic() - began:.0f} s")
    for outcome in survivors:
        print(outcome.line())
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
