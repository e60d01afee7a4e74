"""Async tests run in virtual time: `async def test_...` waits for hours in milliseconds."""

import inspect
from collections.abc import Iterator

import pytest
from _pytest.nodeid import NodeId
from hypothesis import settings

from support.simulator_process import running_simulator
from support.virtual_time import run_virtual
from support.workerd import Workerd, require_workerd, running

# How long an example takes depends on the machine, and on what else it does.
settings.register_profile("tocsin", deadline=None)
settings.load_profile("tocsin")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run_virtual(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def workerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workerd]:
    """The real runtime with our Worker in it and the simulator as its upstreams, once per session."""
    require_workerd()
    with (
        running_simulator() as settings,
        running(tmp_path_factory.mktemp("workerd"), settings) as made,
    ):
        made.migrate()
        yield made


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share a runtime go to one worker, so that it is started once."""
    for item in items:
        for shared in {"workerd", "story", "site", "both", "assets"}.intersection(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.xdist_group(shared))
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and config.getoption("loadgroup", default=False):
            # xdist 3.8 writes the group into a field that pytest 9.2 no longer reads: groups had no effect.
            name = f"{item.nodeid.removesuffix(f'@{mark.args[0]}')}@{mark.args[0]}"
            item._id = NodeId.parse(name)
