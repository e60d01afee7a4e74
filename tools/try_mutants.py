"""Try deliberate bugs: the patches of `tools/mutants`, one at a time, in a copy of the tree, with tests that must fail.

    make mutants                      all of them; exits with 1 if one survives
    make mutants ONLY=alarm JOBS=2    those whose name contains a text, two at a time

A patch begins with the promise that it breaks (`Breaks:`) and the tests that must fail (`Tests:`). A patch that no
longer applies is reported and passed over: update it, or delete it if its code is gone.

The developer's own files are never changed. First all tests run in a copy without a bug and must pass.
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

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "tools" / "mutants"
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=reproducible")
TEST_S = 60  # after which a test counts as hanging
RUN_S = 240  # after which a whole run counts as hanging
BASELINE_S = 1_800
FAILED = re.compile(r"^(?:FAILED|ERROR) ((?:tests|packages)/.+?)(?: - (.*))?$", re.MULTILINE)
CAUGHT, SURVIVES, DOES_NOT_APPLY = "caught by", "SURVIVES", "no longer applies"

_times = count(1)


@dataclass(frozen=True, slots=True)
class Bug:
    """A patch. `tests` are files or node ids, of which one must fail."""

    patch: Path
    breaks: str
    tests: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that the patch changes."""
        return tuple(re.findall(r"^\+\+\+ b/(.+?)\s*$", self.patch.read_text(), re.MULTILINE))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a bug, with the first test that failed."""

    bug: Bug
    how: str
    caught_by: str = ""

    def __str__(self) -> str:
        return f"{self.bug.patch.stem}: {self.how} {self.caught_by}".rstrip() + f"  ({self.bug.breaks})"


def bug_of(patch: Path) -> Bug:
    head = dict(re.findall(r"^(Breaks|Tests): (.+)$", patch.read_text(), re.MULTILINE))
    return Bug(patch, head["Breaks"], tuple(head["Tests"].split()))


def copy_tree(target: Path) -> None:
    """Copy all files that belong to the project, including uncommitted changes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def source_path(tree: Path) -> str:
    """Return the PYTHONPATH of a tree; it comes before the installed packages, which are the developer's tree."""
    return os.pathsep.join(map(str, (tree / "src", *sorted(tree.glob("packages/*/src")))))


def first_failure(tree: Path, tests: Iterable[str], limit_s: float) -> str | None:
    """Run these tests in a tree. Return the first that fails, or None."""
    environment = {**os.environ, "PYTHONPATH": source_path(tree), "REQUIRE_ALL": "1"}  # a skipped test catches nothing
    with subprocess.Popen(
        [sys.executable, *PYTEST, f"--timeout={TEST_S}", *tests],
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
    failed = FAILED.search(output)
    return failed[1] if failed else f"pytest itself, with exit status {process.returncode}: {output[-300:]}"


def try_bug(tree: Path, bug: Bug) -> Outcome:
    """Put the bug into the tree, run its tests, and remove it again."""
    applied = subprocess.run(
        ["git", "apply", "--recount", str(bug.patch)],
        cwd=tree,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        capture_output=True,
        check=False,
    )
    missing = [test for test in bug.tests if not (tree / test.partition("::")[0]).exists()]
    if applied.returncode or missing:
        return Outcome(bug, DOES_NOT_APPLY)
    try:
        _touch(tree, bug)
        caught_by = first_failure(tree, bug.tests, RUN_S)
    finally:
        for name in bug.changed:
            shutil.copyfile(ROOT / name, tree / name)
        _touch(tree, bug)
    return Outcome(bug, SURVIVES) if caught_by is None else Outcome(bug, CAUGHT, caught_by)


def _touch(tree: Path, bug: Bug) -> None:
    """Give the changed files a unique time: Python recognizes outdated bytecode by size and whole second."""
    newer = int(time.time()) + next(_times)
    for name in bug.changed:
        os.utime(tree / name, (newer, newer))


def try_all(bugs: Sequence[Bug], home: Path, jobs: int) -> Iterator[Outcome]:
    """Try the bugs in as many trees as there are jobs, one bug per tree at a time."""
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copy_tree(home / f"tree-{number}")
        trees.put(home / f"tree-{number}")

    def in_a_tree(bug: Bug) -> Outcome:
        tree = trees.get()
        try:
            return try_bug(tree, bug)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(in_a_tree, bugs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Try every deliberate bug.")
    parser.add_argument("--only", default="", help="only bugs whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="number of bugs to try at a time")
    options = parser.parse_args()
    bugs = [bug_of(patch) for patch in sorted(PATCHES.glob("*.patch")) if options.only in patch.stem]
    if not bugs:
        sys.exit(f"no patch in tools/mutants has {options.only!r} in its name")
    with tempfile.TemporaryDirectory(prefix="tocsin-mutants-") as name:
        home = Path(name)
        copy_tree(home / "baseline")
        tests = sorted({test for bug in bugs for test in bug.tests if (ROOT / test.partition("::")[0]).exists()})
        failed = first_failure(home / "baseline", tests, BASELINE_S)
        if failed is not None:
            sys.exit(f"a test fails without any bug: {failed}")
        outcomes = []
        for outcome in try_all(bugs, home, options.jobs):
            outcomes.append(outcome)
            print(outcome, flush=True)
    caught, survives, stale = (
        [outcome for outcome in outcomes if outcome.how == how] for how in (CAUGHT, SURVIVES, DOES_NOT_APPLY)
    )
    print(f"{len(caught)} caught, {len(survives)} survive, {len(stale)} no longer apply")
    for outcome in (*survives, *stale):
        print(outcome)
    return 1 if survives else 0


if __name__ == "__main__":
    sys.exit(main())
