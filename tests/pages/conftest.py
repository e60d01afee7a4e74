"""A browser for all tests in here, a scripted service for each."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from support.browser import chromium, watched_page
from support.pages_server import PagesServer, World, serving_pages


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def world() -> World:
    return World.sample()


@pytest.fixture
def server(world: World) -> Iterator[PagesServer]:
    with serving_pages(world) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: PagesServer) -> Iterator[Page]:
    with watched_page(browser, server.url) as page:
        yield page
