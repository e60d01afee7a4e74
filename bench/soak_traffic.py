"""The traffic of `make soak`: requests of visitors, agents and operators, and abuse.

Every valid request has a list of expected statuses. Any other status counts as an error.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import aiohttp

CONNECTIONS = 32
ADDRESSES = 10_000
SILENT = 50
WATCHERS = 4
UNREAD = 50
STREAMS = 210  # one /48 may have 200
GREEDY = "203.0.113.99"  # one client that ignores every limit
FLOODER = "203.0.113.98"
PATIENCE = aiohttp.ClientTimeout(total=30)


@dataclass(frozen=True, slots=True)
class Target:
    """The address of the service, and the data it knows."""

    host: str
    port: int
    admin_key: str
    senders: Sequence[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass(slots=True)
class Tally:
    """Counts of requests and responses."""

    requests: Counter[str] = field(default_factory=Counter)
    limited: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    abuse: Counter[str] = field(default_factory=Counter)
    wrong_abuse: Counter[str] = field(default_factory=Counter)


Ask: TypeAlias = tuple[str, str, frozenset[int], dict[str, str], bytes | None]


class Traffic:
    """All clients of one soak. `run` returns when `until` has passed."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self.tally = Tally()
        self._stop = asyncio.Event()
        self._kinds: dict[Callable[[], Ask], int] = {
            lambda: self._get("/api/prices"): 30,
            self._board: 20,
            self._of_an_agent: 24,
            self._page: 6,
            lambda: self._get("/healthz"): 6,
            lambda: self._get("/readyz", 200, 503): 3,
            lambda: self._get("/metrics"): 3,
            self._operator: 3,
            self._submission: 5,
        }

    async def run(self, seconds: float) -> Tally:
        abusers: Sequence[Callable[[], Awaitable[None]]] = (
            self._long_head,
            self._slow_head,
            self._endless_body,
            self._garbage,
            self._greedy,
            self._trailers,
            self._pipelined,
            self._unread,
            self._flood,
            self._streams,
            self._pictures,
        )
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._visitor())
            for abuser in abusers:
                group.create_task(self._again_and_again(abuser))
            for _ in range(WATCHERS):
                group.create_task(self._again_and_again(self._watch))
            group.create_task(self._again_and_again(self._silence))
            await asyncio.sleep(seconds)
            self._stop.set()
        return self.tally

    async def _again_and_again(self, act: Callable[[], Awaitable[None]]) -> None:
        while not self._stop.is_set():
            try:
                await act()
            except (OSError, aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError):
                self.tally.abuse["closed by the service"] += 1
            await asyncio.sleep(0.2)

    async def _visitor(self) -> None:
        """Send all kinds of valid requests over a connection that is kept open."""
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(self._target.url, connector=connector, timeout=PATIENCE) as session:
            while not self._stop.is_set():
                method, path, expected, headers, body = self._pick()
                name = f"{method} {path.partition('?')[0]}"
                self.tally.requests[name] += 1
                try:
                    async with session.request(
                        method, path, headers=headers | self._from_anywhere(), data=body
                    ) as response:
                        await response.read()
                        if response.status not in expected:
                            self.tally.errors[f"{name}: {response.status}"] += 1
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.tally.errors[f"{name}: {type(error).__name__}"] += 1
                await asyncio.sleep(self._random.random() * 0.1)

    def _from_anywhere(self) -> dict[str, str]:
        number = self._random.randrange(ADDRESSES)
        address = f"10.{number >> 8}.{number & 255}.7" if number % 4 else f"2001:db8:{number:x}::1"
        return {"X-Forwarded-For": address}

    def _pick(self) -> Ask:
        """A request of a random kind, according to the weights."""
        [make] = self._random.choices(list(self._kinds), list(self._kinds.values()))
        return make()

    def _get(self, path: str, *expected: int, **headers: str) -> Ask:
        return "GET", path, frozenset(expected or {200}), headers, None

    def _board(self) -> Ask:
        sort = self._random.choice(["trades", "volume", "pnl", "latest"])
        return self._get(
            f"/api/competition/leaderboard?sort={sort}&limit={self._random.randint(1, 200)}&x={self._random.random()}"
        )

    def _of_an_agent(self) -> Ask:
        kind = self._random.choice(["status", "trades"])
        return self._get(f"/api/competition/{kind}?address={self._random.choice(self._target.senders)}")

    def _page(self) -> Ask:
        return self._get(self._random.choice(["/leaderboard", "/console", "/api/docs", "/openapi.json"]))

    def _operator(self) -> Ask:
        return self._get("/api/admin/scheduler", **{"X-Admin-Key": self._target.admin_key})

    def _submission(self) -> Ask:
        """A submission of an unknown transaction: 404, or the lane to Hiro is used up, or Hiro has a fault."""
        body = json.dumps({"txid": f"{self._random.getrandbits(256):064x}"}).encode()
        return "POST", "/api/competition/trades", frozenset({404, 429, 502, 503}), {}, body

    # Abuse

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._target.host, self._target.port)

    async def _long_head(self) -> None:
        """Send endless headers: 431, and the connection is closed."""
        reader, writer = await self._connect()
        try:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            for number in range(2_000):
                writer.write(b"X-%d: %s\r\n" % (number, b"a" * 500))
                if number % 100 == 0:
                    await writer.drain()
                if reader.at_eof() or writer.is_closing():
                    break
            self._count("a head of 1 MB", await self._status_line(reader), {"431", ""})
        finally:
            writer.close()

    async def _slow_head(self) -> None:
        """Send a byte a second: 408 after ten seconds."""
        reader, writer = await self._connect()
        try:
            for byte in b"GET /healthz HTTP/1.1\r\n":
                writer.write(bytes([byte]))
                await asyncio.wait([asyncio.create_task(self._stop.wait())], timeout=1)
                if self._stop.is_set() or reader.at_eof():
                    break
            if not self._stop.is_set():
                self._count("a slow head", await self._status_line(reader), {"408", ""})
        finally:
            writer.close()

    async def _endless_body(self) -> None:
        """Send a body that is refused; the service must not read it endlessly."""
        reader, writer = await self._connect()
        try:
            head = "POST /api/competition/trades HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}X-Forwarded-For: {GREEDY}\r\nContent-Length: 50000000\r\n\r\n".encode())
            for _ in range(20):
                writer.write(b" " * 100_000)
                await writer.drain()
                if reader.at_eof() or writer.is_closing():
                    break
            self._count("a body of 50 MB", await self._status_line(reader), {"413", "429", ""})
        finally:
            writer.close()

    async def _garbage(self) -> None:
        reader, writer = await self._connect()
        try:
            writer.write(self._random.randbytes(self._random.randint(1, 4_000)) + b"\r\n\r\n")
            self._count("garbage", await self._status_line(reader), {"400", "431", "408", ""})
        finally:
            writer.close()

    async def _greedy(self) -> None:
        """One client that guesses keys and sends random queries, deep JSON and pushes without the secret."""
        headers = {"X-Forwarded-For": GREEDY}
        guess = {**headers, "X-Admin-Key": f"guess-{self._random.random()}"}
        deep = b"[" * 50_000
        asks: Sequence[tuple[str, str, dict[str, str], bytes | None, set[int]]] = (
            ("GET", "/api/admin/scheduler", guess, None, {401, 429}),
            ("POST", "/api/admin/scheduler?action=pause&for=1h", guess, None, {401, 429}),
            ("GET", f"/api/competition/leaderboard?limit=200&x={self._random.random()}", headers, None, {200, 429}),
            ("POST", "/api/competition/trades", headers, deep, {400, 429}),
            ("POST", "/api/chainhook", headers, b"{}", {401, 429, 503}),
            ("GET", "/api/prices?tokens=" + "x," * 5_000, headers, None, {400, 429}),
            ("GET", "/" + "%2e%2e/" * 50 + "etc/passwd", headers, None, {404, 429}),
        )
        async with aiohttp.ClientSession(self._target.url, timeout=PATIENCE) as session:
            for method, path, sent, body, expected in asks:
                async with session.request(method, path, headers=sent, data=body) as response:
                    await response.read()
                    self.tally.limited += response.status == 429
                    self._count("a greedy client", str(response.status), {str(status) for status in expected})

    async def _trailers(self) -> None:
        """Send endless trailers after a chunked body: the connection is cut."""
        _, writer = await self._connect()
        try:
            head = f"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {GREEDY}\r\nTransfer-Encoding: chunked\r\n"
            writer.write(f"{head}\r\n2\r\n{{}}\r\n0\r\n".encode())
            for _ in range(100):
                writer.write(b"a: b\r\n" * 10_000)
                await writer.drain()
            self._count("trailers", "all of them were read", {"cut"})
        except ConnectionError:
            self._count("trailers", "cut", {"cut"})
        finally:
            writer.close()

    async def _pipelined(self) -> None:
        """Send a thousand requests at once: the connection is cut."""
        reader, writer = await self._connect()
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {GREEDY}\r\n\r\n".encode() * 1_000)
            async with asyncio.timeout(20):
                answers = await reader.read()
            self._count("pipelined", "too many answers" if answers.count(b"HTTP/1.1") > 17 else "cut", {"cut"})
        except ConnectionError:
            self._count("pipelined", "cut", {"cut"})
        finally:
            writer.close()

    async def _unread(self) -> None:
        """Ask for large files and read nothing; the service cuts the connections, or drops them for others."""
        opened = [await self._connect() for _ in range(UNREAD)]
        try:
            for _, writer in opened:
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport
                ask = f"GET /openapi.json HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {self._one_site()}\r\n\r\n"
                writer.write(ask.encode() * 10)
            await asyncio.wait([asyncio.create_task(self._stop.wait())], timeout=5)
            self._count("unread answers", "", {""})
        finally:
            for _, writer in opened:
                writer.transport.abort()

    async def _flood(self) -> None:
        """One client that asks for expensive paths as fast as it can."""
        headers = {"X-Forwarded-For": FLOODER}
        async with aiohttp.ClientSession(self._target.url, timeout=PATIENCE) as session:

            async def one(path: str) -> None:
                async with session.head(path, headers=headers) as response:
                    self.tally.limited += response.status == 429
                    self._count("a flood", str(response.status), {"200", "429"})

            await asyncio.gather(*(one(path) for path in ("/openapi.json", "/metrics") for _ in range(50)))

    async def _streams(self) -> None:
        """Open public streams from many networks of one IPv6 /48, and leave after a few seconds."""
        opened = []
        try:
            for number in range(STREAMS):
                reader, writer = await self._connect()
                head = f"GET /api/competition/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: {number}\r\n"
                writer.write(f"{head}X-Forwarded-For: {self._one_site()}\r\n\r\n".encode())
                opened.append((reader, writer))
            for reader, _ in opened:
                self._count("streams of one /48", await self._status_line(reader), {"200", "429"})
            await asyncio.wait([asyncio.create_task(self._stop.wait())], timeout=5)
        finally:
            for _, writer in opened:
                writer.close()

    def _one_site(self) -> str:
        return f"2001:db8:ffff:{self._random.randrange(100):x}::1"

    async def _pictures(self) -> None:
        """Ask for many pictures at once."""
        headers = {"X-Forwarded-For": self._one_site()}
        async with aiohttp.ClientSession(self._target.url, timeout=PATIENCE) as session:

            async def one(address: str) -> None:
                async with session.get(f"/agents/{address}/card.png", headers=headers) as response:
                    await response.read()
                    self._count("pictures", str(response.status), {"200", "429"})

            await asyncio.gather(*(one(self._random.choice(self._target.senders)) for _ in range(40)))

    async def _silence(self) -> None:
        """Open sockets that send nothing; the service closes them."""
        opened = [await self._connect() for _ in range(SILENT)]
        try:
            async with asyncio.timeout(20):
                await asyncio.gather(*[reader.read() for reader, _ in opened])
            self._count("silent sockets", "", {""})
        except TimeoutError:
            self._count("silent sockets", "still open after 20 s", {""})
        finally:
            for _, writer in opened:
                writer.close()

    async def _watch(self) -> None:
        """Read an event stream for a few seconds, like an operator's console."""
        headers = {"X-Admin-Key": self._target.admin_key}
        async with (
            aiohttp.ClientSession(self._target.url) as session,
            session.get("/api/admin/scheduler/events", headers=headers) as response,
        ):
            self._count("watchers", str(response.status), {"200"})
            with_end = asyncio.get_running_loop().time() + self._random.uniform(0.5, 5)
            try:
                async with asyncio.timeout_at(with_end):
                    async for _ in response.content:
                        pass
            except TimeoutError:
                pass

    async def _status_line(self, reader: asyncio.StreamReader) -> str:
        """The status, or nothing if the connection was closed without one."""
        try:
            async with asyncio.timeout(20):
                line = await reader.readline()
        except (ConnectionError, ValueError):
            return ""
        words = line.split()
        return words[1].decode(errors="replace") if len(words) > 1 else ""

    def _count(self, kind: str, outcome: str, expected: set[str]) -> None:
        self.tally.abuse[kind] += 1
        if outcome not in expected:
            self.tally.wrong_abuse[f"{kind}: {outcome}"] += 1
