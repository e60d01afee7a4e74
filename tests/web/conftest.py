"""Fixtures that open Tocsin on the loop of the test."""

import functools
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from support.competition_site import CompetitionSite, competition_site
from support.world import FAILING, Tocsin, tocsin_in


@pytest.fixture
def made(tmp_path: Path) -> AbstractAsyncContextManager[Tocsin]:
    return tocsin_in(tmp_path)


@pytest.fixture
def failing(tmp_path: Path) -> AbstractAsyncContextManager[Tocsin]:
    """The scheduler's object does not answer."""
    return tocsin_in(tmp_path, stub=FAILING)


@pytest.fixture
def contest(tmp_path: Path) -> AbstractAsyncContextManager[CompetitionSite]:
    return competition_site(tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Give a test what its context managers yield."""
    test = pyfuncitem.obj

    @functools.wraps(test)
    async def opened(**arguments: Any) -> None:
        async with AsyncExitStack() as stack:
            for name, argument in arguments.items():
                if isinstance(argument, AbstractAsyncContextManager):
                    arguments[name] = await stack.enter_async_context(argument)
            await test(**arguments)

    if any(isinstance(each, AbstractAsyncContextManager) for each in pyfuncitem.funcargs.values()):
        pyfuncitem.obj = opened
