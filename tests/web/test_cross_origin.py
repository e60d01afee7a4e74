"""Pages of other sites: they may read what is public, and nothing else (CORS)."""

from pathlib import Path

import pytest

from support.asgi import ask
from support.scripted_scheduler import ADMIN_KEY, scene
from tocsin.web.app import create_app

ELSEWHERE = {"origin": "https://elsewhere.test"}
SITE = {"origin": "https://aibtc.com"}
PREFLIGHT = {"access-control-request-method": "GET", "access-control-request-headers": "if-none-match"}
PUBLIC = [
    "/api/prices",
    "/api/competition/leaderboard",
    "/api/competition/allowlist",
    "/api/competition/tracked-tokens",
    "/api/competition/trades",  # refused for lack of an address: the page must be able to read why
    "/api/competition/status",
    "/openapi.json",
    "/api/openapi.json",
]
CLOSED = [
    "/api/admin/scheduler",
    "/api/admin/scheduler/runs",
    "/api/admin/scheduler/audit",
    "/api/chainhook",
    "/metrics",
    "/readyz",
    "/leaderboard",
]


@pytest.mark.slow
@pytest.mark.parametrize("path", PUBLIC)
async def test_any_site_may_read_what_is_public(path: str, tmp_path: Path) -> None:
    """Twice: the second answer comes from the cache. Cookies are never allowed."""
    async with scene(tmp_path) as made:
        app = create_app(made.site)
        answers = [await ask(app, path, headers=ELSEWHERE) for _ in range(2)]
        preflight = await ask(app, path, method="OPTIONS", headers={**ELSEWHERE, **PREFLIGHT})

    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-expose-headers"] == "etag, retry-after"
        assert "access-control-allow-credentials" not in answer.headers
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-methods"] == "GET, HEAD"


@pytest.mark.parametrize("path", CLOSED)
async def test_everything_else_is_closed(path: str, tmp_path: Path) -> None:
    """Even for somebody who has the key: a page of another site must not use it."""
    async with scene(tmp_path) as made:
        app = create_app(made.site)
        headers = {**ELSEWHERE, "X-Admin-Key": ADMIN_KEY}
        answer = await ask(app, path, headers=headers)
        preflight = await ask(app, path, method="OPTIONS", headers={**ELSEWHERE, **PREFLIGHT})

    assert preflight.status in {404, 405}
    for each in (answer, preflight):
        assert not [name for name in each.headers if name.startswith("access-control")]


async def test_a_page_of_another_site_may_not_submit(tmp_path: Path) -> None:
    """The browser asks first, because of the content type, and gets no yes. Without that type it is refused."""
    async with scene(tmp_path) as made:
        app, path = create_app(made.site), "/api/competition/trades"
        headers = {**ELSEWHERE, "access-control-request-method": "POST"}
        preflight = await ask(app, path, method="OPTIONS", headers=headers)
        simple = {**ELSEWHERE, "content-type": "text/plain"}
        posted = await ask(app, path, method="POST", headers=simple, body=b"{}")

    assert (preflight.status, posted.status) == (405, 415)
    for answer in (preflight, posted):
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_sites_can_be_listed(tmp_path: Path) -> None:
    """Then a response differs by origin, and says so to caches."""
    async with scene(tmp_path) as made:
        app = create_app(made.with_site(origins=("https://aibtc.com", "https://www.aibtc.com")))
        for _ in range(2):
            allowed = await ask(app, "/api/prices", headers=SITE)
            other = await ask(app, "/api/prices", headers=ELSEWHERE)
            without = await ask(app, "/api/prices")
            assert allowed.headers["access-control-allow-origin"] == "https://aibtc.com"
            for answer in (other, without):
                assert "access-control-allow-origin" not in answer.headers
            assert {answer.headers["vary"] for answer in (allowed, other, without)} == {"origin"}


async def test_no_site_at_all(tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        app = create_app(made.with_site(origins=()))
        answer = await ask(app, "/api/prices", headers=SITE)
        preflight = await ask(app, "/api/prices", method="OPTIONS", headers={**SITE, **PREFLIGHT})

    assert preflight.status == 405
    assert not [name for name in (*answer.headers, *preflight.headers) if name.startswith("access-control")]
