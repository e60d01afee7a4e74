"""gzip: for what is larger than a packet, once for each cached response, with a correct Vary and ETag."""

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest

from support.asgi import Answer, ask
from support.scripted_scheduler import scene
from tocsin.web.app import create_app
from tocsin.web.pages import page_routes
from tocsin.web.response import CompressedBodies, PreparedResponse, accepts_gzip

GZIP = {"accept-encoding": "gzip, deflate, br"}


def unzipped(answer: Answer) -> bytes:
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-length"] == str(len(answer.body))
    return gzip.decompress(answer.body)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/openapi.json", "/api/docs", "/api/competition/allowlist", "/leaderboard"])
async def test_what_is_large_is_compressed_for_those_who_accept_it(path: str, tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        app = create_app(made.with_site(compress=True), page_routes())
        plain, zipped = await ask(app, path), await ask(app, path, headers=GZIP)

    assert "content-encoding" not in plain.headers
    assert unzipped(zipped) == plain.body
    assert len(zipped.body) < len(plain.body) / 2
    assert plain.headers["vary"].lower() == zipped.headers["vary"].lower() == "accept-encoding"


async def test_what_fits_into_a_packet_is_not(tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        app = create_app(made.with_site(compress=True))
        for path in ("/healthz", "/api/prices", "/nothing"):
            assert "content-encoding" not in (await ask(app, path, headers=GZIP)).headers


@pytest.mark.slow
async def test_where_the_platform_compresses_we_do_not(tmp_path: Path) -> None:
    """Cloudflare does it at its edge, and would pay for ours with the Worker's time."""
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), "/openapi.json", headers=GZIP)

    assert "content-encoding" not in answer.headers


def test_compressed_bodies_are_kept_in_bounded_memory() -> None:
    """The most recently requested ones; a large one is compressed each time."""
    bodies = CompressedBodies(bytes_max=3_500, body_bytes_max=2_000)
    first, second, third = (bytes([number]) * 1_000 for number in range(3))
    kept = [bodies.compressed(each) for each in (first, second, third)]
    again = bodies.compressed(first)
    bodies.compressed(b"4" * 1_000)
    sizes = bodies.bytes_kept
    bodies.compressed(b"5" * 2_001)

    assert again is kept[0]
    assert bodies.compressed(first) is kept[0]
    assert bodies.compressed(second) is not kept[1]
    assert [gzip.decompress(each) for each in kept] == [first, second, third]
    assert sizes <= 3_500
    assert bodies.bytes_kept <= 3_500


def test_a_prepared_response_keeps_its_body_only_as_long_as_it_lives() -> None:
    """Every new board is another body: hundreds of them must not stay in memory."""
    tracemalloc.start()
    try:
        for number in range(100):
            body = random.Random(number).randbytes(100_000)
            PreparedResponse(body, "text/plain", compress=True).form_for([(b"accept-encoding", b"gzip")])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 2_000_000


def large(**options: bool) -> PreparedResponse:
    return PreparedResponse(b"x" * 5_000, "text/plain", compress=options.get("compress", True))


def headers_of(response: PreparedResponse, **headers: str) -> tuple[int, dict[bytes, bytes]]:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    start = response.form_for(sent).start
    return start["status"], dict(start["headers"])


def test_both_forms_are_revalidated_by_either_etag() -> None:
    """They are the same content: the ETag of the compressed form is the weak one."""
    response = large()
    _, plain = headers_of(response)
    _, zipped = headers_of(response, accept_encoding="gzip")

    assert zipped[b"etag"] == b"W/" + plain[b"etag"]
    for etag in (plain[b"etag"], zipped[b"etag"]):
        for encoding, expected in (("gzip", zipped[b"etag"]), ("identity", plain[b"etag"])):
            status, headers = headers_of(response, if_none_match=etag.decode(), accept_encoding=encoding)
            assert (status, headers[b"etag"], headers[b"vary"]) == (304, expected, b"accept-encoding")
            assert b"content-encoding" not in headers


def test_it_is_compressed_once() -> None:
    response = large()
    first, second = (response.form_for([(b"accept-encoding", b"gzip")]) for _ in range(2))

    assert first is second
    assert gzip.decompress(first.body["body"]) == b"x" * 5_000


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (b"gzip", True),
        (b"deflate, gzip;q=0.5, br", True),
        (b"GZIP", True),
        (b"*", True),
        (b"*;q=0, gzip", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0, *", False),
        (b"identity", False),
        (b"x-gzip", False),
        (b"gzip;q=nonsense", False),
        (b"", False),
        (b"\xff\xfe", False),
    ],
)
def test_accept_encoding_is_read_by_its_rules(header: bytes, *, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
