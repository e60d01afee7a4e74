"""Both pages against the real service and the simulator, as separate processes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import PHONE, audit, watched_page
from support.pages_driver import (
    ROWS,
    events,
    names,
    open_agent,
    open_board,
    open_console,
    panel,
    row_of,
    said,
    sort_by,
    state,
    task_card,
    verdict,
)
from support.processes import ADMIN_KEY, ServiceProcess, ask, import_agents, root_of, running, running_simulator, until

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, str]]:
    with running_simulator(wallets=8) as settings:
        yield settings


def make_data(directory: Path, upstreams: dict[str, str]) -> Path:
    """A data directory with the simulator's agents; the first has a hostile name."""
    with urlopen(f"{root_of(upstreams)}/_agents", timeout=30) as answer:
        agents = [json.loads(line) for line in answer.read().decode().splitlines()]
    agents[0] |= {"display_name": HOSTILE, "bns_name": '"><svg onload=alert(2)>.btc'}
    import_agents(directory / "data", "".join(json.dumps(agent) + "\n" for agent in agents))
    return directory / "data"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, upstreams: dict[str, str]) -> Iterator[ServiceProcess]:
    """One service for all tests that let it run. Each leaves it without a pause."""
    data_dir = make_data(tmp_path_factory.mktemp("shared"), upstreams)
    with running(ServiceProcess(data_dir, **upstreams)) as process:
        until(lambda: process.status()["lastTeneroResult"] and process.status()["lastSweepResult"] and board(process))
        yield process


@pytest.fixture
def page(browser: Browser, service: ServiceProcess) -> Iterator[Page]:
    with watched_page(browser, service.url) as page:
        yield page


def board(service: ServiceProcess) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ask(f"{service.url}/api/competition/leaderboard?limit=200")[1]["rows"]
    return rows


def trade(upstreams: dict[str, str], service: ServiceProcess, address: str, count: int) -> None:
    """New swaps on chain, and a sweep that finds them."""
    ask(f"{root_of(upstreams)}/_control/swap", body={"wallet": address, "count": count})
    ask(f"{root_of(upstreams)}/_control/mine", body={})
    key = {"X-Admin-Key": ADMIN_KEY}
    ask(f"{service.url}/api/admin/scheduler?action=refresh&task=sweep", headers=key, body={})


def test_the_board_sorts_searches_and_drills_down(page: Page, service: ServiceProcess) -> None:
    """The page shows what the API returns; an agent's panel has its trades; a hostile name is text."""
    open_board(page)
    rows = board(service)
    for sort, name in (("volume", "volumeUsd"), ("pnl", "pnlUsd"), ("trades", "tradeCount")):
        sort_by(page, sort)
        best = max(rows, key=lambda row: row[name] or 0)
        expect(page.locator(ROWS).first).to_have_attribute("data-key", best["stxAddress"])

    page.get_by_role("searchbox").fill("alert(1)")
    expect(page.locator(ROWS)).to_have_count(1)
    assert names(page) == [HOSTILE]
    (hostile,) = [row for row in rows if row["displayName"] == HOSTILE]
    shown = open_agent(page, hostile["stxAddress"])
    expect(shown.locator(".trades li").first).to_be_visible()
    expect(shown.get_by_role("link").first).to_have_attribute("href", re.compile("^https://explorer"))
    assert audit(page) == []


def test_a_new_swap_arrives_on_the_open_board(page: Page, service: ServiceProcess, upstreams: dict[str, str]) -> None:
    """Swapped, mined, swept: the next update shows it in the row, without a reload."""
    page.clock.install()
    open_board(page)
    address = board(service)[-1]["stxAddress"]
    trade(upstreams, service, address, 3)
    after = next(row["tradeCount"] for row in board(service) if row["stxAddress"] == address)
    page.clock.fast_forward(31_000)

    expect(row_of(page, address).locator(".trades")).to_have_text(str(after))


def test_both_pages_on_a_phone(page: Page) -> None:
    """Nothing is cut off, everything can be reached, and an audit finds nothing."""
    page.set_viewport_size(PHONE)
    open_board(page)
    page.locator(f"{ROWS} a").first.click()
    expect(panel(page).locator(".trades li").first).to_be_visible()
    assert audit(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    open_console(page, ADMIN_KEY)
    expect(verdict(page)).to_have_text("Ready")
    assert audit(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_the_figures_of_an_agent_fit_on_a_small_phone(page: Page, service: ServiceProcess) -> None:
    """Up to a million dollars: no figure is broken into two lines."""
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/agents/{board(service)[0]['stxAddress']}")
    expect(page.locator(".tiles dd").first).to_be_visible()
    lines = """cells => cells.map(cell => {
        cell.textContent = "+$123,456.78";
        const text = document.createRange();
        text.selectNodeContents(cell);
        return text.getClientRects().length;
    })"""
    assert set(page.locator(".tiles dd").evaluate_all(lines)) == {1}


@pytest.mark.parametrize("path", ["/agents/{}", "/agents/{}/card", "/rounds", "/nowhere", "/api/docs"])
def test_a_page_that_the_server_renders_is_accessible(page: Page, service: ServiceProcess, path: str) -> None:
    """On a phone and a very wide screen, in light and dark; nothing is cut off."""
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(path.format(board(service)[0]["stxAddress"]))
    for width in (360, 1440, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width != 1440:
            assert audit(page) == []
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert audit(page, "color-contrast") == []


def test_the_board_needs_no_javascript(browser: Browser, service: ServiceProcess) -> None:
    """The first agents, best first, with links to their pages; nothing says that it loads."""
    with watched_page(browser, service.url, java_script_enabled=False) as page:
        page.goto("/leaderboard")
        expect(page.locator(ROWS)).to_have_count(min(25, len(board(service))))
        expect(state(page)).to_contain_text("As of")
        expect(page.get_by_role("searchbox")).to_be_hidden()
        page.locator(f"{ROWS} a").first.click()
        expect(page).to_have_url(re.compile("/agents/SP"))


def test_the_scripts_take_the_rows_over(browser: Browser, service: ServiceProcess) -> None:
    """What the service wrote is what the scripts would write: no value changes but the ages."""
    with watched_page(browser, service.url) as page:
        page.route("**/api/**", lambda route: route.abort())
        page.goto("/leaderboard")
        read = """() => [...document.querySelectorAll("#rows tr")].map((row) =>
            [...row.cells].slice(0, -1).map((cell) => cell.innerText).join(" | "))"""
        written = page.evaluate(read)
        page.unroute("**/api/**")
        page.reload()
        expect(state(page)).to_have_attribute("data-mood", "live")

        assert len(written) == min(25, len(board(service)))
        assert page.evaluate(read) == written


def test_an_agents_page_needs_no_javascript(browser: Browser, service: ServiceProcess) -> None:
    """Name, rank, trades with links and a title of its own."""
    row, *others = board(service)
    with watched_page(browser, service.url, java_script_enabled=False) as page:
        page.goto(f"/agents/{row['stxAddress']}")
        places = [place for place, other in enumerate(board(service), 1) if other["stxAddress"] == row["stxAddress"]]
        expect(page.get_by_role("heading", level=1)).to_have_text(row["displayName"])
        expect(page).to_have_title(re.compile(re.escape(row["displayName"])))
        # The first, unless the board has changed since.
        rank = re.compile(rf"^({'|'.join(map(str, {1, *places}))}) of {1 + len(others)}$")
        expect(page.get_by_text(rank)).to_be_visible()
        links = page.locator("ol.flows a[href^='https://explorer.hiro.so/txid/0x']")
        expect(links).to_have_count(min(20, row["tradeCount"]))
        expect(page.get_by_role("button", name="Copy link")).to_be_hidden()


def test_refresh_pause_and_resume_end_to_end(page: Page, service: ServiceProcess) -> None:
    """Every action reaches the scheduler, and the console shows its result."""
    open_console(page, ADMIN_KEY)
    expect(verdict(page)).to_have_text("Ready")
    card = task_card(page, "Token prices")
    card.get_by_role("button", name="Refresh now").click()
    expect(card.get_by_role("status")).to_contain_text(re.compile(r"done in .* \(run \d+\)"))
    assert service.runs("tenero")[0]["trigger"] == "refresh"
    expect(events(page).filter(has_text="Token prices").filter(has_text="started by refresh")).to_have_count(1)
    expect(page.locator("#lanes rect")).to_have_count(len(service.runs()))
    expect(page.locator("#prices li", has_text=re.compile(r"just now|ago")).first).to_be_visible()

    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name=re.compile("^Pause until")).click()
    expect(verdict(page)).to_have_text("Paused")
    assert service.status()["pausedUntil"] is not None
    page.get_by_role("button", name="Resume").click()
    expect(said(page)).to_contain_text("Resumed")
    expect(verdict(page)).to_have_text("Ready")
    assert service.status()["pausedUntil"] is None
    assert audit(page) == []
