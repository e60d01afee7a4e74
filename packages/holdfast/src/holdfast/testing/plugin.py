"""The plugin for pytest: the fixture `objects`, and virtual time for the async tests that use it.

Other async tests belong to other plugins, unless the option `holdfast_virtual_time` of the ini file is set. Everything
is imported when it is first needed: the plugin is loaded in every run of pytest where holdfast is installed.
"""

import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from holdfast.testing import VirtualObjects


class Options(NamedTuple):
    """What `@pytest.mark.holdfast(...)` may set."""

    seed: int = 0
    start: str | None = None
    sync: bool = False
    real_threads: bool = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_virtual_time", "run every async test in virtual time", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    marker = "holdfast(seed=0, start='2026-05-13T19:30Z', sync=False, real_threads=False): how virtual time runs"
    config.addinivalue_line("markers", marker)


@pytest.fixture
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "VirtualObjects":
    """Objects in virtual time, on an empty directory."""
    from datetime import datetime

    from holdfast.local import sqlite_file
    from holdfast.testing import VirtualObjects
    from holdfast.testing.virtual_time import START_MS

    options = _options(request.node)
    monkeypatch.setattr(sqlite_file, "SYNCS", options.sync)
    start_ms = START_MS if options.start is None else int(datetime.fromisoformat(options.start).timestamp() * 1000)
    return VirtualObjects(tmp_path / "objects", seed=options.seed, start_ms=start_ms)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test, opened = pyfuncitem.obj, _opened(pyfuncitem)
    if opened is not None and not inspect.iscoroutinefunction(test):
        test = inspect.unwrap(test)  # pytest-asyncio has wrapped it to run on a loop of its own
        if not inspect.iscoroutinefunction(test):
            pytest.fail("a test with the fixture `objects` must be an `async def`", pytrace=False)
    if not inspect.iscoroutinefunction(test) or (
        opened is None and not pyfuncitem.config.getini("holdfast_virtual_time")
    ):
        return None
    from holdfast.testing.virtual_time import run_virtual

    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    run_virtual(_run(test, arguments, opened), real_threads=_options(pyfuncitem).real_threads)
    return True


async def _run(
    test: Callable[..., Coroutine[Any, Any, None]], arguments: dict[str, Any], opened: "VirtualObjects | None"
) -> None:
    if opened is None:
        await test(**arguments)
    else:
        async with opened:
            await test(**arguments)


def _opened(item: pytest.Function) -> "VirtualObjects | None":
    """The objects of the test, unless its fixture of this name is another one."""
    found = item.funcargs.get("objects")
    if found is None:
        return None
    from holdfast.testing import VirtualObjects

    return found if isinstance(found, VirtualObjects) else None


def _options(item: pytest.Item) -> Options:
    marker = item.get_closest_marker("holdfast")
    return Options() if marker is None else Options(*marker.args, **marker.kwargs)
