"""Run the tests of a mutated line in a forked child of a pytest process that has collected everything."""

import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tools.mutation.apply import CannotApply, apply, functions_by_code
from tools.mutation.generate import Mutant
from tools.mutation.recorded import (
    ROOT,
    RUNTIME,
    SERVICE,
    Recording,
    Uses,
    digest,
    is_current,
    name_of,
    place_of,
    sources,
    statement_lines,
)
from tools.mutation.results import KILLED, NOT_TRIED, SURVIVED, UNTESTED, Results

MEMORY_MAX = 6 * 1024**3  # of address space: a mutant that never ends may also allocate without end
CPU_MIN_S = 3  # a mutant gets this plus three times what its tests needed
FRESH_TESTS_MAX = 100
CANNOT_APPLY = 42  # an exit code
WALL_FACTOR = 6  # processor time is what counts; this ends a child that waits forever


@dataclass(slots=True)
class Child:
    pid: int
    reader: int
    path: Path
    mutant: Mutant
    until: float


class MutationRun:
    """A pytest plugin that runs the tests for each mutant instead of once."""

    def __init__(
        self,
        mutants: dict[Path, list[Mutant]],
        results: dict[Path, Results],
        again: bool,
        processes: int,
        seconds_max: float,
    ) -> None:
        self._results = results
        self._processes = processes
        self._seconds_max = seconds_max
        self._queue = [
            (path, mutant)
            for path, found in mutants.items()
            for mutant in found
            if (known := results[path].of(mutant)) is None or (again and known[0] in {SURVIVED, UNTESTED})
        ]
        self._recording = Recording()
        self._report_to: int | None = None
        self._texts: list[tuple[str, set[str]]] = []  # the text of each test file, and its tests
        self._failed_plain: list[str] = []  # without a mutant: they show nothing about one

    def pytest_collection(self) -> None:
        """Do not shrink failing examples, and use the same examples for each mutant."""
        from hypothesis import Phase, settings  # pytest warns about what is imported before its own plugin

        plain = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutation", deadline=None, phases=plain, database=None, derandomize=True, max_examples=30
        )
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._report_to is not None:
            os.write(self._report_to, report.nodeid.encode())
            os._exit(1)
        if report.failed:
            self._failed_plain.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not self._queue:
            return True
        self._record(session.items)
        self._try_all(session.items)
        return True

    def _record(self, items: Sequence[pytest.Item]) -> None:
        """Run each test file once to record which lines its tests run, unless that is known."""
        files: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.path].append(item)
        stale = [path for path in files if not is_current(path, (item.nodeid for item in files[path]))]
        for number, path in enumerate(stale, 1):
            print(f"recording {number} of {len(stale)}: {path.relative_to(ROOT)}", flush=True)
            child = os.fork()
            if child == 0:
                _in_child(record_file, path, files[path], self._failed_plain)
            os.waitpid(child, 0)
            shutil.rmtree(_directory(child), ignore_errors=True)
        for path, of_file in files.items():
            if place_of(path).exists():
                self._recording.add(place_of(path))
            self._texts.append((path.read_text(), {item.nodeid for item in of_file}))

    def _try_all(self, items: Sequence[pytest.Item]) -> None:
        by_id = {item.nodeid: item for item in items}
        uses = Uses(sources())
        functions = functions_by_code()
        killers = {path: results.killers() for path, results in self._results.items()}
        running: list[Child] = []
        started = time.monotonic()
        done = 0
        while self._queue or running:
            while self._queue and len(running) < self._processes:
                path, mutant = self._queue.pop(0)
                chosen = self._tests_for(path, mutant, uses, killers[path])
                tests = [by_id[each] for each in chosen if each in by_id]
                if not tests:
                    self._results[path].keep(mutant, UNTESTED, "")
                    continue
                running.append(self._start(path, mutant, tests, functions))
            for child in _finished(running):
                running.remove(child)
                outcome, by = _outcome(child)
                self._results[child.path].keep(child.mutant, outcome, by)
                killers[child.path][by] += outcome == KILLED
                done += 1
                if done % 50 == 0:
                    print(f"{done} done, {len(self._queue)} left, {time.monotonic() - started:.0f} s", flush=True)

    def _tests_for(self, path: Path, mutant: Mutant, uses: Uses, killers: Counter[str]) -> list[str]:
        """Tests that run the line or, for a constant, a line that uses it. Quick ones and likely killers first."""
        name = name_of(path)
        known = self._recording.tests
        found: set[str] = set()
        for places in (
            {(name, mutant.line)},
            {(name, line) for line in statement_lines(path, mutant.line)},
            uses.of(path, mutant.line),
        ):
            for other, line in places:
                found |= known.get(other, {}).get(line, set())
            if found:
                break
        found |= self._naming(path, uses.names_at(path, mutant.line))
        seconds = self._recording.seconds
        ordered = sorted(found, key=lambda test: (seconds.get(test, 1) + 0.001) / (1 + killers[test]))
        chosen, left = [], self._seconds_max
        for test in ordered:
            chosen.append(test)
            left -= seconds.get(test, 1)
            if left < 0:
                break
        return chosen

    def _naming(self, path: Path, names: set[str]) -> set[str]:
        """Tests of the files that name this module and one of its constants: they may check only its value."""
        found: set[str] = set()
        for text, tests in self._texts if names else ():
            if path.stem in text and any(re.search(rf"\b{name}\b", text) for name in names):
                found |= tests - self._recording.failed
        return found

    def _start(self, path: Path, mutant: Mutant, tests: list[pytest.Item], functions: Any) -> Child:
        cpu = CPU_MIN_S + 3 * sum(self._recording.seconds.get(test.nodeid, 1) for test in tests)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._report_to = writer
            _in_child(run_mutant, path, mutant, tests, functions, writer, int(cpu))
        os.close(writer)
        return Child(pid, reader, path, mutant, time.monotonic() + WALL_FACTOR * cpu)


def _in_child(function: Any, *arguments: Any) -> None:
    """Run the child's work and end the process, whatever happens."""
    code = 3
    try:
        os.setpgid(0, 0)
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            if "MUTATION_DEBUG" not in os.environ:
                os.dup2(nowhere.fileno(), 2)
        code = function(*arguments)
    except BaseException:  # noqa: BLE001  # a mutant may do anything
        if "MUTATION_DEBUG" in os.environ:
            import traceback

            traceback.print_exc()
    finally:
        os._exit(code)


def _directory(pid: int) -> Path:
    return Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"mutation-{pid}"


def _own_directory(item: pytest.Item) -> None:
    """Children must not share or clean up each other's files."""
    factory = item.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001
    factory._given_basetemp = _directory(os.getpid())  # noqa: SLF001
    factory._basetemp = None  # noqa: SLF001


def record_file(path: Path, items: Sequence[pytest.Item], failed: list[str]) -> int:
    import coverage

    _own_directory(items[0])
    measured = coverage.Coverage(data_file=None, include=[f"{SERVICE}/*", f"{RUNTIME}/*"], config_file=False)
    seconds = {}
    measured.start()
    for item, following in zip(items, [*items[1:], None], strict=True):
        measured.switch_context(item.nodeid)
        before = time.process_time()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = round(time.process_time() - before, 3)
    measured.stop()
    data = measured.get_data()
    lines = {}
    for file in sorted(data.measured_files()):
        found = {
            line: sorted(test for test in tests if test and test not in failed)
            for line, tests in data.contexts_by_lineno(file).items()
        }
        lines[name_of(Path(file))] = (digest(Path(file)), found)
    place = place_of(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    kept = {"digest": digest(path), "seconds": seconds, "lines": lines, "failed": failed}
    place.write_text(json.dumps(kept))
    return 0


def run_mutant(path: Path, mutant: Mutant, tests: list[pytest.Item], functions: Any, writer: int, cpu: int) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 60))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    name = module_of(path)
    try:
        by_value = apply(importlib.import_module(name), path.read_text(), mutant.source, functions)
    except CannotApply:
        return CANNOT_APPLY
    except Exception as error:  # noqa: BLE001  # the module can no longer be imported: every test would notice
        os.write(writer, f"import: {type(error).__name__}".encode())
        return 1
    _own_directory(tests[0])
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    if by_value:
        _run_afresh(name, mutant, tests, writer, cpu)
    return 0


def module_of(path: Path) -> str:
    [root] = [source.parent for source in (SERVICE, RUNTIME) if path.is_relative_to(source)]
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _run_afresh(name: str, mutant: Mutant, tests: list[pytest.Item], writer: int, cpu: int) -> None:
    """Continue as a new interpreter that imports the mutant."""
    file = _directory(os.getpid()) / "mutant"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(mutant.source)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu + 30, cpu + 35))
    os.set_inheritable(writer, True)  # until it ends
    chosen = [test.nodeid for test in tests[:FRESH_TESTS_MAX]]
    os.execv(sys.executable, [sys.executable, "-m", "tools.mutation.fresh", name, str(file), *chosen])


def _finished(running: list[Child]) -> list[Child]:
    """Children that closed their end of the pipe, or whose time is up."""
    readers = {child.reader: child for child in running}
    ready, _, _ = select.select(list(readers), [], [], 1.0)
    late = [child for child in running if time.monotonic() > child.until]
    return list({id(child): child for child in (*(readers[each] for each in ready), *late)}.values())


def _outcome(child: Child) -> tuple[str, str]:
    late = time.monotonic() > child.until
    if late:
        os.killpg(child.pid, signal.SIGKILL)
    by = os.read(child.reader, 4096).decode()
    os.close(child.reader)
    _, status = os.waitpid(child.pid, 0)
    shutil.rmtree(_directory(child.pid), ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    if late or code < 0:
        return KILLED, "timeout" if late or code in {-signal.SIGXCPU, -signal.SIGKILL} else f"signal {-code}"
    if code == CANNOT_APPLY:
        return NOT_TRIED, ""
    if code == 0:
        return SURVIVED, ""
    return KILLED, by or "ended"
