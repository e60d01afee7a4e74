"""The pages' files as HTTP serves them, and the redirects to them."""

from pathlib import Path

import pytest

from support.asgi import Answer
from support.world import tocsin_in
from tocsin.web.pages import MEDIA_TYPES, STATIC
from tocsin.web.response import SECURITY_HEADERS

STYLE = "/static/style.css"


async def fetched(directory: Path, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
    async with tocsin_in(directory) as made:
        answer = await made.ask(path, method=method, headers=headers)
    assert {name: answer.headers[name.decode()].encode() for name, _ in SECURITY_HEADERS} == dict(SECURITY_HEADERS)
    return answer


@pytest.mark.slow
async def test_every_file_is_served(tmp_path: Path) -> None:
    """Byte for byte, with its media type; a file of an unknown kind would be missing without an error."""
    files = [path for path in STATIC.rglob("*") if path.is_file() and path.name != "leaderboard.html"]
    async with tocsin_in(tmp_path, reads_per_minute=0) as made:
        for file in files:
            path = f"/static/{file.relative_to(STATIC)}" if file.suffix != ".html" else f"/{file.stem}"
            answer = await made.ask(path)

            assert (answer.status, answer.body) == (200, file.read_bytes()), path
            assert answer.headers["content-type"] == MEDIA_TYPES[file.suffix]
    assert len(files) > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/static/nope.js", 404, "not_found"),
        ("GET", "/static/", 404, "not_found"),
        ("GET", "/static", 404, "not_found"),
        ("GET", "/static/../pages.py", 404, "not_found"),
        ("GET", "/static/%2e%2e/pages.py", 404, "not_found"),
        ("GET", "/static/js/%00", 404, "not_found"),
        ("GET", f"/static/{'x' * 5000}", 404, "not_found"),
        ("GET", "/static/leaderboard.html", 404, "not_found"),
        ("POST", STYLE, 405, "method_not_allowed"),
        ("PUT", "/leaderboard", 405, "method_not_allowed"),
        ("DELETE", "/", 405, "method_not_allowed"),
    ],
)
async def test_errors_have_the_shape_of_all_errors(
    tmp_path: Path, method: str, path: str, status: int, code: str
) -> None:
    """A missing file and a wrong method are reported as everywhere."""
    answer = await fetched(tmp_path, path, method)

    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert (answer.json()["code"], answer.json()["retryable"]) == (code, False)
    assert answer.json()["error"]
    assert answer.headers.get("allow") == ("GET, HEAD" if status == 405 else None)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/leaderboard", STYLE])
@pytest.mark.parametrize("range_", ["bytes=0-5", "bytes=5-x", "bytes=999999-", "lines=1", ""])
async def test_a_range_is_ignored(tmp_path: Path, path: str, range_: str) -> None:
    """Files are small: whatever range is asked for, the whole file is sent."""
    whole = await fetched(tmp_path, path)
    answer = await fetched(tmp_path, path, headers={"Range": range_})

    assert (answer.status, answer.headers, answer.body) == (200, whole.headers, whole.body)
    assert int(answer.headers["content-length"]) == len(answer.body) > 1000


async def test_a_known_version_is_not_sent_again(tmp_path: Path) -> None:
    """A file is revalidated each time, and sent when it has changed."""
    whole = await fetched(tmp_path, STYLE)
    known = await fetched(tmp_path, STYLE, headers={"If-None-Match": f'"other", W/{whole.headers["etag"]}'})
    other = await fetched(tmp_path, STYLE, headers={"If-None-Match": '"other"'})

    assert whole.headers["cache-control"] == known.headers["cache-control"] == "no-cache"
    assert (known.status, known.body) == (304, b"")
    assert (other.status, other.body) == (200, whole.body)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/", "/leaderboard"),
        ("/?q=falcon", "/leaderboard?q=falcon"),
        ("/leaderboard/", "/leaderboard"),
        ("/leaderboard/?sort=pnl&agent=SP1", "/leaderboard?sort=pnl&agent=SP1"),
        ("/console/", "/console"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_redirects_lead_to_the_pages(tmp_path: Path, path: str, location: str, method: str) -> None:
    """A redirect within the site that keeps the query; no Host header can lead elsewhere."""
    answer = await fetched(tmp_path, path, method, {"Host": "evil.test"})

    assert (answer.status, answer.headers["location"]) == (307, location)
