"""A browser and a scripted service for all tests in this directory; each test has its own world."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from support.browser import SharedContext, chromium, executable
from support.missing import CHROMIUM, require
from support.pages_server import PagesServer, World, serving_pages


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    require(Path(executable()).exists(), CHROMIUM)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def shared_server() -> Iterator[PagesServer]:
    with serving_pages(World()) as server:
        yield server


@pytest.fixture
def world() -> World:
    return World.sample()


@pytest.fixture
def server(shared_server: PagesServer, world: World) -> Iterator[PagesServer]:
    shared_server.world = world
    yield shared_server
    world.release()
    if not shared_server.running:
        shared_server.start()


@pytest.fixture(scope="package")
def shared_context(browser: Browser, shared_server: PagesServer) -> Iterator[SharedContext]:
    context = SharedContext(browser, shared_server.url)
    yield context
    context.close()


@pytest.fixture
def page(shared_context: SharedContext, server: PagesServer) -> Iterator[Page]:
    with shared_context.watched_page() as page:
        yield page
