"""The console against the real service and the simulator, as processes of their own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import audit, watched_page
from support.pages_driver import events, open_console, said, task_card, verdict
from support.processes import ADMIN_KEY, ServiceProcess, running, until
from support.simulator_process import running_simulator

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, str]]:
    with running_simulator() as settings:
        yield settings


@pytest.fixture
def service(tmp_path: Path, upstreams: dict[str, str]) -> Iterator[ServiceProcess]:
    with running(ServiceProcess(tmp_path, **upstreams)) as process:
        until(lambda: process.status()["lastTeneroResult"])
        yield process


@pytest.fixture
def page(browser: Browser, service: ServiceProcess) -> Iterator[Page]:
    with watched_page(browser, service.url) as page:
        yield page


def test_refresh_pause_and_resume_end_to_end(page: Page, service: ServiceProcess) -> None:
    """Every action reaches the scheduler, and the console shows what it came to."""
    open_console(page, ADMIN_KEY)
    expect(verdict(page)).to_have_text("Alive")
    card = task_card(page, "Token prices")
    card.get_by_role("button", name="Refresh now").click()
    expect(card.get_by_role("status")).to_contain_text(re.compile(r"done in .* \(run \d+\)"))
    assert service.runs("tenero")[0]["trigger"] == "refresh"
    expect(events(page).filter(has_text="started by refresh")).to_have_count(1)
    expect(page.locator("#lanes rect")).to_have_count(len(service.runs()))
    expect(page.locator("#prices li").first).to_contain_text("just now")

    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name=re.compile("^Pause until")).click()
    expect(verdict(page)).to_have_text("Paused")
    assert service.status()["pausedUntil"] is not None
    page.get_by_role("button", name="Resume").click()
    expect(said(page)).to_contain_text("Resumed")
    expect(verdict(page)).to_have_text("Alive")
    assert service.status()["pausedUntil"] is None
    assert audit(page) == []


def test_the_service_is_killed_and_started_again(
    browser: Browser, tmp_path: Path, upstreams: dict[str, str]
) -> None:
    """The open console says that it is disconnected, and is live again when the service is."""
    with running(ServiceProcess(tmp_path, **upstreams)) as first:
        port = first.url.rpartition(":")[2]
        with watched_page(browser, first.url) as page:
            open_console(page, ADMIN_KEY)
            first.kill()
            expect(verdict(page)).to_have_text("Disconnected")
            with running(ServiceProcess(tmp_path, **upstreams, TOCSIN_PORT=port)):
                page.get_by_role("button", name="Try now").click()
                expect(verdict(page)).to_have_text("Alive")
                expect(page.locator("#link")).to_have_text("live")
