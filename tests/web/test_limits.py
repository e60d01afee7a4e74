"""What one client may do in a minute: reads, posts, wrong keys; a client is an address, an IPv6 /64, and its /48."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from holdfast.testing.virtual_time import VirtualClock
from holdfast_testing.captured_log import CapturedLog
from support.asgi import Answer, ask, open_server
from support.world import ADMIN_KEY, KEY, Tocsin, named_keys, tocsin_in
from tocsin.errors import RequestRefused
from tocsin.settings import AccessKey, Settings
from tocsin.web import limits as request_limits
from tocsin.web.app import ErrorMiddleware
from tocsin.web.deps import Process
from tocsin.web.limits import ClientLimits, ClientRateLimit, networks_of
from tocsin.web.route import Access, Operation, authorize, routes_of

DOC = Operation("POST", "/it", "it", "It.")


async def echo(request: Request) -> ASGIApp:
    return Response(await request.body())


async def test_posts_are_limited_per_client_and_minute() -> None:
    """A burst is fine, more is a 429 with the time to wait; other clients are not affected."""
    clock = VirtualClock()
    (route,) = routes_of([(DOC, echo)], ClientLimits(3, clock, CapturedLog()))
    app = ErrorMiddleware(route, CapturedLog())
    statuses = [(await ask(app, "/it", method="POST")).status for _ in range(3)]
    refused = await ask(app, "/it", method="POST")
    other = await ask(app, "/it", method="POST", client="192.0.2.2")
    await clock.sleep(float(refused.headers["retry-after"]))
    again = [(await ask(app, "/it", method="POST")).status for _ in range(2)]

    assert statuses == [200, 200, 200]
    assert (refused.status, refused.json()["code"]) == (429, "too_many_requests")
    assert refused.json()["retryable"] is True
    assert other.status == 200
    assert again == [200, 429]


async def test_a_client_that_guesses_is_refused_before_its_key_is_compared() -> None:
    """Ten wrong keys a minute, then not even the right one; other clients are not affected, and the log says it."""
    clock, log = VirtualClock(), CapturedLog()

    def authorized(request: Request, access: Access) -> AccessKey:
        return authorize(request, access, Settings(cron_secret=named_keys("right")), log)

    limits = ClientLimits(3, clock, log, key_of=authorized)
    (route,) = routes_of([(replace(DOC, access="cron"), echo)], limits)
    app = ErrorMiddleware(route, CapturedLog())

    async def send(key: str, client: str = "192.0.2.1") -> int:
        return (await ask(app, "/it", method="POST", headers={"X-Cron-Secret": key}, client=client)).status

    before = [await send("right") for _ in range(20)]
    guesses = [await send("wrong") for _ in range(12)]
    right = await send("right")
    other = await send("right", "192.0.2.2")
    await clock.sleep(60)
    later = await send("right")

    assert before == [200] * 20
    assert guesses == [401] * 10 + [429, 429]
    assert (right, other, later) == (429, 200, 200)
    assert [line["client"] for line in log.named("auth.refused")] == ["192.0.2.1"]


async def test_a_client_that_keeps_coming_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others come meanwhile: of a bounded number, those that were idle longest are forgotten."""
    monkeypatch.setattr(request_limits, "CLIENTS_MAX", 10)
    limiter, allowed = ClientRateLimit(1, VirtualClock()), []
    for number in range(50):
        allowed.append(limiter.allows(("192.0.2.1",)))
        assert limiter.allows((f"10.0.0.{number}",))

    assert allowed == [True] + [False] * 49
    assert [*limiter._left] == [*(f"10.0.0.{number}" for number in range(41, 49)), "192.0.2.1", "10.0.0.49"]


async def test_wrong_keys_are_reported_once_a_minute() -> None:
    """Even if they come all the time; each report has the number since the one before."""
    clock, log = VirtualClock(), CapturedLog()
    limits = ClientLimits(0, clock, log)
    for _ in range(25):
        limits.wrong_key(("192.0.2.1",), "/x")
        await clock.sleep(10)

    assert [line["count"] for line in log.named("auth.refused")] == [1, 6, 6, 6, 6]


@pytest.mark.parametrize(
    ("host", "networks"),
    [
        ("192.0.2.7", ("192.0.2.7",)),
        ("2001:db8:1:2:3:4:5:6", ("2001:db8:1:2::/64", "2001:db8:1::/48")),
        ("::ffff:192.0.2.7", ("192.0.2.7",)),
        ("testclient", ("testclient",)),
    ],
)
def test_a_client_is_an_address_or_a_network(host: str, networks: tuple[str, ...]) -> None:
    """In IPv6 one household has a whole /64 to post from, and one organization a whole /48."""
    assert networks_of({"client": (host, 1)}) == networks
    assert networks_of({"client": None}) == ("unknown",)


async def test_a_whole_48_has_ten_clients_worth() -> None:
    """Each /64 is a client of its own, up to ten times the limit together; the sentence says which limit it was."""
    limiter = ClientRateLimit(2, VirtualClock())
    taken = 0
    for number in range(20):
        networks = networks_of({"client": (f"2001:db8:0:{number:x}::1", 1)})
        taken += sum(limiter.allows(networks) for _ in range(3))

    assert taken == 20
    with pytest.raises(RequestRefused, match=r"At most 20 posts .* one network \(/48\): wait 3 s"):
        limiter.count(networks_of({"client": ("2001:db8:0:99::1", 1)}))
    limiter.count(networks_of({"client": ("2001:db8:1::1", 1)}))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/prices", "/api/competition/allowlist"])
async def test_reads_are_limited_per_client_and_minute(path: str, tmp_path: Path) -> None:
    """Cached or not: 300 are sent, then it is a 429 with the time to wait; other clients are not affected."""
    async with tocsin_in(tmp_path, reads_per_minute=300, arm=True) as made:
        statuses = [(await made.ask(path)).status for _ in range(300)]
        refused = await made.ask(path)
        head = await made.ask(path, method="HEAD")
        other = await made.ask(path, client="192.0.2.2")
        unlimited = [(await made.ask(each)).status for each in ("/healthz", "/readyz", "/metrics")]

        assert statuses == [200] * 300
        assert (refused.status, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert "At most 300 reads a minute are accepted from one client: wait 1 s." in refused.json()["error"]
        assert (head.status, other.status) == (429, 200)
        assert unlimited == [200, 200, 200]


async def test_a_refused_read_looks_the_same_from_memory_and_from_a_route(tmp_path: Path) -> None:
    """What is sent from memory is refused without routing."""
    async with tocsin_in(tmp_path, reads_per_minute=2) as made:
        await made.ask("/api/prices")  # makes what is kept in memory
        await made.ask("/api/prices")
        refused = [await made.ask(path) for path in ("/api/prices", "/api/competition/allowlist")]

        assert [answer.status for answer in refused] == [429, 429]
        assert refused[0].headers == refused[1].headers
        assert refused[0].body == refused[1].body
        counted = (await made.ask("/metrics")).body.decode()
        assert 'tocsin_http_requests_total{route="/api/prices",status="429"} 1' in counted


@pytest.mark.slow
async def test_zero_means_that_reads_have_no_limit(tmp_path: Path) -> None:
    """For a service behind a proxy that has its own limits."""
    async with tocsin_in(tmp_path, reads_per_minute=0) as made:
        assert {(await made.ask("/api/prices")).status for _ in range(1_000)} == {200}


@pytest.mark.parametrize(("path", "allowed"), [("/api/prices", 1), ("/healthz", 10)])
async def test_the_admin_key_lifts_a_limit_and_cannot_be_guessed_there(tmp_path: Path, path: str, allowed: int) -> None:
    """Over the limit of reads or requests a key is compared: the right one is let through, wrong ones are guesses."""
    async with tocsin_in(tmp_path, reads_per_minute=1) as made:

        async def read(key: str, client: str) -> Answer:
            return await made.ask(path, headers={"X-Admin-Key": key}, client=client)

        right = [(await read(ADMIN_KEY, "192.0.2.1")).status for _ in range(20)]
        guesses = [await read("a wrong key", "192.0.2.2") for _ in range(allowed + 11)]
        after = await read(ADMIN_KEY, "192.0.2.2")

        assert right == [200] * 20
        assert [answer.status for answer in guesses] == [200] * allowed + [429] * 11
        assert "wrong keys" not in guesses[-2].json()["error"]
        assert after.status == 429
        assert "wrong keys" in after.json()["error"]


PATHS = ["/healthz", "/nothing", "/openapi.json", "/llms.txt", "/api/prices/x", "/agents/1", "/metrics", "/"]


async def test_all_requests_of_a_client_are_limited_whatever_the_path(tmp_path: Path) -> None:
    """Ten for each read that it may make; other clients are not affected."""
    async with tocsin_in(tmp_path, reads_per_minute=1) as made:
        paths = [*PATHS, "/healthz", "/readyz"]
        taken = [(await made.ask(path)).status for path in paths]
        refused = [await made.ask(path) for path in paths]
        posted = await made.ask("/mcp", method="POST", body=b"{}")
        other = await made.ask("/healthz", client="192.0.2.2")
        await made.clock.sleep(6)
        later = [(await made.ask("/healthz")).status for _ in range(2)]

        assert 429 not in taken
        assert {answer.status for answer in refused} == {429}
        assert refused[0].json()["error"] == "At most 10 requests a minute are accepted from one client: wait 6 s."
        assert refused[0].headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in refused[0].headers
        assert (posted.status, other.status) == (429, 200)
        assert later == [200, 429]


@pytest.mark.parametrize(("path", "allowed"), [("/api/prices", 1), ("/nothing", 10)])
async def test_a_refusal_comes_after_a_second(path: str, allowed: int, tmp_path: Path) -> None:
    """A client that ignores its limit gets one a second on each connection; other requests do not wait."""
    async with tocsin_in(tmp_path, reads_per_minute=1, process=Process()) as made:
        clock = made.clock
        for _ in range(allowed):
            await made.ask(path, client="192.0.2.9")
        began = clock.monotonic()
        taken = (await made.ask("/healthz")).status
        after_one = clock.monotonic() - began
        refused = (await made.ask(path, client="192.0.2.9")).status

        assert (taken, refused) == (200, 429)
        assert after_one < 0.01
        assert clock.monotonic() - began == pytest.approx(1, abs=0.01)


async def test_a_refused_head_has_no_body(tmp_path: Path) -> None:
    """Over a real connection, which goes on afterwards."""
    async with tocsin_in(tmp_path, reads_per_minute=1) as made, open_server(made.app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\n" * 12)
        heads = [await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) for _ in range(12)]
        writer.close()

        assert [head[9:12] for head in heads] == [b"404"] * 10 + [b"429"] * 2


async def test_a_client_behind_a_proxy_may_have_64_requests_under_way(tmp_path: Path) -> None:
    """A proxy has no limit of its own, but each client that it speaks for has; an end makes room."""
    async with (
        tocsin_in(tmp_path, process=Process()) as made,
        open_server(made.with_deps(posts_per_minute_max=1_000), "127.0.0.1") as server,
    ):

        async def begin(client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            """Send a request whose body does not come."""
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\n"
            writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode())
            return reader, writer

        async def status(client: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\n\r\n".encode())
            line = await asyncio.wait_for(reader.readline(), 5)
            writer.close()
            return line.split()[1].decode()

        server.connections.total_max = 80  # also where few files may be open
        open_ones = [await begin("203.0.113.1") for _ in range(63)]
        await asyncio.sleep(0.2)
        before = await status("203.0.113.1")
        open_ones.append(await begin("203.0.113.1"))
        await asyncio.sleep(0.2)
        refused, other = await status("203.0.113.1"), await status("203.0.113.2")
        open_ones[0][1].write(b"123456789")
        await open_ones[0][0].readline()
        await asyncio.sleep(0.2)
        after = await status("203.0.113.1")
        for _, writer in open_ones:
            writer.close()

        assert (before, refused, other, after) == ("200", "429", "200", "200")


def under_way(limits: ClientLimits, host: str, count: int) -> int:
    """Return how many of so many requests may begin."""
    begun = 0
    for _ in range(count):
        with suppress(RequestRefused):
            limits.begin({"client": (host, 1), "headers": [], "path": "/"})
            begun += 1
    return begun


async def test_a_whole_48_has_ten_clients_worth_of_requests_under_way() -> None:
    """As of everything else."""
    limits = ClientLimits(0, VirtualClock(), CapturedLog(), under_way_max=3)
    begun = [under_way(limits, f"2001:db8:0:{number:x}::1", 4) for number in range(12)]

    assert begun == [3] * 10 + [0, 0]
    assert under_way(limits, "2001:db8:1::1", 4) == 3


async def test_a_request_without_a_key_is_not_a_guess(made: Tocsin) -> None:
    """A page of another site can make an operator's browser send it: the right key still works afterwards."""
    without = [(await made.ask("/api/admin/scheduler")).status for _ in range(15)]
    empty = [(await made.ask("/api/admin/scheduler", headers={"X-Admin-Key": ""})).status for _ in range(15)]
    hooks = [(await made.ask("/api/chainhook", method="POST", body=b"{}")).status for _ in range(15)]
    right = await made.ask("/api/admin/scheduler", headers=KEY)

    assert {*without, *empty, *hooks} == {401}
    assert right.status == 200
    assert made.log.named("auth.refused") == []
