"""The actions of visitors and operators on the pages. They work with any service at the page's base URL."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

MINUS, NONE = "\u2212", "\u2013"  # as the pages write them
BOARD = "#board"
ROWS = "#rows tr"


def stop_time(page: Page) -> None:
    """Let a minute pass at once; then the page does nothing by itself until `page.clock.resume()`.

    Call `page.clock.install()` before opening the page.
    """
    page.clock.pause_at(page.evaluate("Date.now() / 1000") + 60)


def press(button: Locator) -> None:
    """Click at once, even if the button has just been hidden."""
    button.dispatch_event("click")


def ask_module(page: Page, module: str, expression: str, argument: Any = None) -> Any:
    """Evaluate an expression over a module's exports (`m`) and an argument (`a`)."""
    return page.evaluate(
        f"async (a) => {{ const m = await import('/static/js/{module}.js'); return {expression}; }}", argument
    )


# A visitor at the leaderboard


def open_board(page: Page, query: str = "") -> None:
    page.goto(f"/leaderboard{query}")
    expect(page.locator("body")).to_have_attribute("data-phase", "shown")


def names(page: Page) -> list[str]:
    return page.locator(f"{ROWS} td.agent a").all_inner_texts()


def column(page: Page, name: str) -> list[str]:
    return page.locator(f"{ROWS} td.{name}").all_inner_texts()


def sort_by(page: Page, sort: str) -> None:
    page.locator(f"{BOARD} thead [data-sort={sort}]").click()


def row_of(page: Page, address: str) -> Locator:
    return page.locator(f"#rows tr[data-key='{address}']")


def state(page: Page) -> Locator:
    """The line that shows whether the board is live."""
    return page.locator("#state")


def open_agent(page: Page, address: str) -> Locator:
    row_of(page, address).locator("a").click()
    return panel(page)


def panel(page: Page) -> Locator:
    shown = page.locator("#panel[open]")
    expect(shown).to_be_visible()
    return shown


# An operator at the console


def open_console(page: Page, key: str) -> None:
    page.goto("/console")
    enter_key(page, key)
    expect(page.locator("#desk")).to_be_visible()
    expect(page.locator("#link")).to_have_text("live")


def enter_key(page: Page, key: str) -> None:
    page.get_by_label("Admin key").fill(key)
    page.get_by_role("button", name="Open the console").click()


def verdict(page: Page) -> Locator:
    return page.locator("#verdict-title")


def task_card(page: Page, title: str) -> Locator:
    return page.get_by_role("article", name=title)


def said(page: Page) -> Locator:
    """The result of the last action on the whole scheduler."""
    return page.locator("#message")


def events(page: Page) -> Locator:
    return page.locator("#events li")
