"""Take screenshots of both pages in every state, for the documentation and for review before a merge.

The two that the documentation shows go to docs/screenshots, all others to build/screenshots.
"""

import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize

from support.browser import PHONE, WIDE, chromium, watched_page
from support.page_states import STATES, State, agent, board, console, pausing
from support.pages_server import World, serving_pages

ROOT = Path(__file__).parents[1]
SHOWN = ROOT / "docs" / "screenshots"
OTHERS = ROOT / "build" / "screenshots"
AGENTS = 240
LOOKS: dict[str, tuple[ViewportSize, str]] = {
    "shown": ({"width": 1120, "height": 760}, "light"),
    "shown-dark": ({"width": 1120, "height": 840}, "dark"),
    "light": (WIDE, "light"),
    "dark": (WIDE, "dark"),
    "phone": (PHONE, "light"),
    "phone-dark": (PHONE, "dark"),
    "very-wide": ({"width": 2560, "height": 1300}, "light"),
}


def picture(browser: Browser, state: State, look: str, path: Path, *, whole: bool) -> None:
    viewport, scheme = LOOKS[look]
    world = World.sample(AGENTS)
    with (
        serving_pages(world) as server,
        watched_page(browser, server.url, color_scheme=scheme, reduced_motion="reduce") as page,
    ):
        page.set_viewport_size(viewport)
        state(page, world)
        settle(page)
        page.screenshot(path=path, full_page=whole)
        for answered in world.held.values():
            answered.set()
    print(path.relative_to(ROOT))


def settle(page: Page) -> None:
    """Wait for the frames that show what the page has received so far."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def main() -> int:
    for folder in (SHOWN, OTHERS):
        folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        picture(browser, board, "shown", SHOWN / "leaderboard.png", whole=False)
        picture(browser, console, "shown-dark", SHOWN / "console.png", whole=False)
        for state in STATES:
            for look in ("light", "dark", "phone", "phone-dark", "very-wide"):
                whole = state not in {board, agent, pausing}
                picture(browser, state, look, OTHERS / f"{state.__name__}-{look}.png", whole=whole)
    return 0


if __name__ == "__main__":
    sys.exit(main())
