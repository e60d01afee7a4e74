"""What all tests share. Async tests run in virtual time: `async def test_...` waits for hours in milliseconds."""

import functools
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast_testing.plugin import files_in_memory

if TYPE_CHECKING:
    from support.workerd import Workerd

# A worker takes one file after the other. Long files come first, so that none is left to one worker at the end.
LONG_FIRST = (
    "simulation",
    "pages/test_page_quality.py",
    "service/test_feed_service.py",
    "cloudflare/test_scheduler_on_workerd.py",
    "cloudflare/test_site_on_workerd.py",
    "cloudflare/test_wrangler.py",
    "cloudflare",
    "pages",
    "service",
    "prices/test_scheduled.py",
    "commands/test_cli.py",
    "swaps/test_feed.py",
    "swaps",
    "conformance",
    "commands",
)
ON_A_RUNTIME = {"browser", "workerd", "story", "site", "both", "assets"}  # fixtures that start one


def pytest_configure() -> None:
    files_in_memory()
    gc.disable()  # until everything is collected: it stays


@pytest.fixture(scope="session")
def workerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Workerd"]:
    """The real runtime with our Worker in it and the simulator as its upstreams, once per session."""
    from support.processes import (
        running_simulator,
    )  # only here: the process that distributes the tests needs none of it
    from support.workerd import require_workerd, running

    require_workerd()
    with running_simulator() as settings, running(tmp_path_factory.mktemp("workerd"), settings) as made:
        made.migrate()
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark inherently slow tests, and put long files first."""
    for item in items:
        if ON_A_RUNTIME.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _place(item.path))


@functools.cache
def _place(file: Path) -> int:
    below_tests = file.parts[::-1].index("tests" if "tests" in file.parts else "examples")
    path = Path(*file.parts[-below_tests:])
    places = (n for n, prefix in enumerate(LONG_FIRST) if path.is_relative_to(prefix))
    return next(places, len(LONG_FIRST))


def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection: they stay, and scanning them would slow each test."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason for which tests were skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} skipped. {reason}", yellow=True)
