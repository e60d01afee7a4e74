"""One Chromium for all tests of the pages, and pages that report their own errors."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from support.missing import NPM, require
from support.patience import PATIENCE_S

ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--renderer-process-limit=1",  # pages of one context share a process
    "--enable-features=NetworkServiceInProcess2",  # each of the many small files costs less
]
# The headless shell comes first: it has the same engine, but no window and no profile. With those, a new context and
# its first page take a second longer.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parents[1] / "pages" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
HAS_ANOTHER_CLOCK = "[Date.now, setTimeout].some((it) => !String(it).includes('[native code]'))"
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


def executable() -> str:
    """Return where Chromium is, or should be."""
    wanted = [name] if (name := os.environ.get("CHROMIUM")) else [*NAMES, "/usr/bin/chromium"]
    return next(filter(None, map(shutil.which, wanted)), wanted[-1])


@contextlib.contextmanager
def chromium(*, optimized: bool = False) -> Iterator[Browser]:
    """Open Chromium. While it is open, this thread has a running event loop: no `async def` test may run in it.

    Not `optimized`: optimizing scripts takes longer than running them in a test.
    """
    expect.set_options(timeout=PATIENCE_S * 1000)
    arguments = ARGUMENTS if optimized else [*ARGUMENTS, "--js-flags=--no-opt"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=arguments, timeout=PATIENCE_S * 1000)
        yield browser
        browser.close()


class Watch:
    """Records what no page may do: script errors, policy violations, requests to other origins."""

    def __init__(self, page: Page, origin: str) -> None:
        self.offences: list[str] = []
        self.urls: list[str] = []
        self._origin = urlsplit(origin).netloc
        page.on("pageerror", lambda error: self.offences.append(f"script error: {error}"))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        # The browser reports failed requests; many tests of the pages cause them.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.offences.append(f"console {message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        self.urls.append(request.url)
        if urlsplit(request.url).netloc != self._origin:
            self.offences.append(f"request to another origin: {request.url}")


@contextlib.contextmanager
def watched_page(browser: Browser, origin: str, **options: Any) -> Iterator[Page]:
    """Open a page with its own context; it must not do anything that `Watch` reports."""
    context = _new_context(browser, origin, **options)
    page = context.new_page()
    watch = Watch(page, origin)
    yield page
    context.close()
    assert watch.offences == [], watch.offences


def _new_context(browser: Browser, origin: str, **options: Any) -> BrowserContext:
    context = browser.new_context(viewport=WIDE, base_url=origin, **{"timezone_id": "UTC", **options})
    context.set_default_timeout(PATIENCE_S * 1000)
    return context


class SharedContext:
    """One context for the pages of many tests: opening a page in a new one takes 40 % more CPU time.

    Each test has a new page, without data and files of earlier tests. A page that installs another clock leaves it
    in its context, so the next page gets a new context. A test that changes its context in another way needs its
    own: `watched_page`.
    """

    def __init__(self, browser: Browser, origin: str) -> None:
        self._browser = browser
        self._origin = origin
        self._open()

    def _open(self) -> None:
        self._context = _new_context(self._browser, self._origin)
        self._blank = self._context.new_page()  # keeps the process of the pages alive
        self._devtools = self._context.new_cdp_session(self._blank)

    def close(self) -> None:
        self._context.close()

    @contextlib.contextmanager
    def watched_page(self) -> Iterator[Page]:
        """Open a page that must not do anything that `Watch` reports."""
        page = self._context.new_page()
        watch = Watch(page, self._origin)
        yield page
        if page.is_closed() or page.evaluate(HAS_ANOTHER_CLOCK):
            self._context.close()
            self._open()
        else:
            self._clean()
        assert watch.offences == [], watch.offences

    def _clean(self) -> None:
        for page in self._context.pages:
            if page is not self._blank:
                page.close()
        self._devtools.send("Storage.clearDataForOrigin", {"origin": self._origin, "storageTypes": "all"})
        self._devtools.send("Network.clearBrowserCache")


def audit(page: Page, *rules: str) -> list[str]:
    """Return what axe-core finds wrong, by rule and element; all rules if none are named.

    It waits for animations that end: the colors of a panel that fades in have too little contrast.
    """
    require(AXE.exists(), NPM)
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE.read_text())
    violations: list[str] = page.evaluate(
        """async (rules) => {
             const ends = ({effect}) => Number.isFinite(effect.getComputedTiming().endTime);
             await Promise.allSettled(document.getAnimations().filter(ends).map(({finished}) => finished));
             const runOnly = rules.length ? {runOnly: rules} : {};
             const {violations} = await axe.run(document, {resultTypes: ["violations"], ...runOnly});
             const words = ({html, failureSummary}) => `${html} ${failureSummary}`;
             return violations.flatMap(({id, nodes}) => nodes.map((node) => `${id}: ${words(node)}`));
           }""",
        rules,
    )
    return violations
