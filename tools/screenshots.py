"""Take screenshots of the pages: those of a demo for the documentation, and every state for review before a merge.

The documentation's go to docs/screenshots, all others to build/screenshots.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, ViewportSize, expect

from support.browser import PHONE, WIDE, chromium, watched_page
from support.page_states import STATES, State, agent, board, pausing
from support.pages_driver import ROWS, open_board, open_console
from support.pages_server import World, serving_pages

ROOT = Path(__file__).parents[1]
SHOWN = ROOT / "docs" / "screenshots"
OTHERS = ROOT / "build" / "screenshots"
AGENTS = 240
DEMO_RUNS = 12  # so that the console has something to show
LOOKS: dict[str, tuple[ViewportSize, str]] = {
    "light": (WIDE, "light"),
    "dark": (WIDE, "dark"),
    "phone": (PHONE, "light"),
    "phone-dark": (PHONE, "dark"),
    "very-wide": ({"width": 2560, "height": 1300}, "light"),
}


@contextmanager
def demo(key: str) -> Iterator[str]:
    """Run a demo and yield its URL once a round has its result and all prices are known."""
    with (
        TemporaryDirectory() as directory,
        subprocess.Popen(
            [sys.executable, "-m", "tocsin", "serve", "--demo", "--port=0", f"--data-dir={directory}"],
            env={**os.environ, "ADMIN_KEY": key},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        url, ended, is_final = "", 0, False
        for line in process.stdout:
            entry = json.loads(line)
            url = entry.get("url", url) if entry["event"] == "service.started" else url
            ended += entry["event"] == "run.ended"
            is_final |= entry["event"] == "round.finalized"
            is_priced = is_final and entry["event"] == "run.ended" and entry["task"] == "tenero"
            if ended >= DEMO_RUNS and is_priced:
                break
        yield url
        process.terminate()
        process.stdout.read()


def take_documented(browser: Browser) -> None:
    """Take the pictures that the documentation shows, of a demo."""
    key = secrets.token_urlsafe()
    with demo(key) as url:
        with watched_page(browser, url, color_scheme="light", reduced_motion="reduce") as page:
            page.set_viewport_size({"width": 1120, "height": 760})
            open_board(page)
            expect(page.locator(ROWS).first).to_be_visible()
            save(page, SHOWN / "leaderboard.png")
        with watched_page(browser, url, color_scheme="dark", reduced_motion="reduce") as page:
            page.set_viewport_size({"width": 1120, "height": 840})
            open_console(page, key)
            expect(page.locator("#lanes rect").first).to_be_visible()
            save(page, SHOWN / "console.png")


def save(page: Page, path: Path, *, whole: bool = False) -> None:
    settle(page)
    page.screenshot(path=path, full_page=whole)
    print(path.relative_to(ROOT))


def picture(browser: Browser, state: State, look: str, path: Path, *, whole: bool) -> None:
    viewport, scheme = LOOKS[look]
    world = World.sample(AGENTS)
    with (
        serving_pages(world) as server,
        watched_page(browser, server.url, color_scheme=scheme, reduced_motion="reduce") as page,
    ):
        page.set_viewport_size(viewport)
        state(page, world)
        save(page, path, whole=whole)
        for answered in world.held.values():
            answered.set()


def settle(page: Page) -> None:
    """Wait for the frames that show what the page has received so far."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def main() -> int:
    for folder in (SHOWN, OTHERS):
        folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        take_documented(browser)
        if "--documented" in sys.argv:
            return 0
        for state in STATES:
            for look in ("light", "dark", "phone", "phone-dark", "very-wide"):
                whole = state not in {board, agent, pausing}
                picture(browser, state, look, OTHERS / f"{state.__name__}-{look}.png", whole=whole)
    return 0


if __name__ == "__main__":
    sys.exit(main())
