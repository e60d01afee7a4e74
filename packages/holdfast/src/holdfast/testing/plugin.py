"""The plugin for pytest: the fixture `objects`, and virtual time for the async tests that use it.

Other async tests belong to other plugins, unless the option `holdfast_virtual_time` of the ini file is set. Everything
is imported when it is first needed: the plugin is loaded in every run of pytest where holdfast is installed.
"""

import inspect
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from holdfast.testing import VirtualObjects


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_virtual_time", "run every async test in virtual time", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    marker = "holdfast(seed=0, start='2026-05-13T19:30Z', sync=False, real_threads=False): how virtual time runs"
    config.addinivalue_line("markers", marker)


@pytest.fixture
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "VirtualObjects":
    """Objects in virtual time, on an empty directory."""
    from holdfast.local import sqlite_file
    from holdfast.testing import VirtualObjects

    options = _options(request.node)
    monkeypatch.setattr(sqlite_file, "SYNCS", options.pop("sync", False))
    options.pop("real_threads", None)
    return VirtualObjects(tmp_path / "objects", **options)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test, found = pyfuncitem.obj, pyfuncitem.funcargs.get("objects")  # a fixture of this name may be another one
    opened = cast("VirtualObjects", found) if type(found).__module__ == "holdfast.testing" else None
    if opened is None and not pyfuncitem.config.getini("holdfast_virtual_time"):
        return None
    if opened is not None and not inspect.iscoroutinefunction(test):
        test = inspect.unwrap(test)  # pytest-asyncio has wrapped it to run on a loop of its own
    if not inspect.iscoroutinefunction(test):
        assert opened is None, "a test with the fixture `objects` must be an `async def`"
        return None
    from holdfast.testing.virtual_time import run_virtual

    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def run() -> None:
        async with opened or nullcontext():
            await test(**arguments)

    run_virtual(run(), real_threads=_options(pyfuncitem).get("real_threads", False))
    return True


def _options(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("holdfast")
    return {} if marker is None else dict(marker.kwargs)
