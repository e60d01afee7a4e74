"""A real browser on another origin: it reads prices and the board, and the admin routes refuse it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.web_thread import served_in_thread
from support.world import ADMIN_KEY

FETCH = """async ([url, options]) => {
  try {
    const response = await fetch(url, options);
    return [response.status, (await response.text()).slice(0, 100), response.headers.get("etag")];
  } catch (error) {
    return [0, String(error), null];
  }
}"""


class EmptyPage(BaseHTTPRequestHandler):
    """A site of somebody else."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>Elsewhere</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def test_another_site_reads_what_is_public_and_nothing_else(browser: Browser, tmp_path: Path, elsewhere: str) -> None:
    with served_in_thread(tmp_path) as running:
        look(browser, f"http://127.0.0.1:{running.port}", elsewhere)


def look(browser: Browser, url: str, elsewhere: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(elsewhere)

    def fetch(path: str, **options: object) -> list[object]:
        answer: list[object] = page.evaluate(FETCH, [f"{url}{path}", options])
        return answer

    prices, board = fetch("/api/prices"), fetch("/api/competition/leaderboard?limit=5")
    etag = str(prices[2])
    again = fetch("/api/prices", headers={"If-None-Match": etag})  # needs a preflight
    key = {"X-Admin-Key": ADMIN_KEY}
    closed = [
        fetch("/api/admin/scheduler", headers=key),
        fetch("/api/admin/scheduler?action=resume", method="POST", headers=key),
        fetch("/api/competition/cron", method="POST", headers={"X-Cron-Secret": "x"}),
        fetch("/api/competition/trades", method="POST", body="{}", headers={"Content-Type": "application/json"}),
        fetch("/metrics"),
    ]
    form = fetch("/api/competition/trades", method="POST", body="{}")  # a simple request: sent, but refused
    context.close()

    assert (prices[0], board[0]) == (200, 200)
    assert str(prices[1]).startswith('{"prices":')
    assert etag.strip("W/").startswith('"')
    assert again[0] in {200, 304}
    assert {answer[0] for answer in closed} == {0}
    assert form[0] == 0
