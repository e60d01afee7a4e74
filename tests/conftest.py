"""Async tests run in virtual time: `async def test_...` waits for hours in milliseconds."""

import inspect

import pytest

from support.virtual_time import run_virtual


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run_virtual(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
