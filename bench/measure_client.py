"""Calls per second and CPU time per call of the whole client: budget, permits, parsing, log.

It calls a function in this process, and the simulator in another process over loopback. Neither adds latency.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from null_logger import NullLogger

from holdfast.local.clock import SystemClock
from tocsin.fetch import Fetch, FetchResponse
from tocsin.local.fetch import HttpFetch
from tocsin.upstream.answer import Ok
from tocsin.upstream.budget import Budget, Quota
from tocsin.upstream.client import Upstream, UpstreamClient
from tocsin.upstream.hiro import HiroClient, hiro_upstream
from tocsin.upstream.limiter import BudgetLimiter, CallSession, restored_budget, task_session
from tocsin.upstream.tenero import TeneroClient, tenero_upstream

DATA = Path(__file__).parent.parent / "tests" / "data"
TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
WALLET = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
POOL = "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M.stableswap-stx-ststx-v-1-2"
SBTC = b'"SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token"'
WORKERS = 8  # over loopback
IN_PROCESS_URL = "https://up.test"
UNLIMITED_QUOTA = Quota(second=10**9, minute=10**9, month=10**9)


def example(name: str, repeat: int = 1) -> bytes:
    """An example body, with the list in it repeated `repeat` times."""
    body: Any = json.loads((DATA / f"{name}.json").read_text())["body"]
    if "results" in body:
        body["results"] *= repeat
        body["total"] = len(body["results"])
    if "rows" in body.get("data", {}):
        body["data"]["rows"] *= repeat
    return json.dumps(body).encode()


def found_transaction(name: str) -> bytes:
    """An example transaction as `tx/multiple` returns it."""
    return b'{"%s": {"found": true, "result": %s}}' % (TXID.encode(), example(name))


BODIES = {
    "/extended/v1/tx/multiple": found_transaction("hiro/swap_simple_synthetic"),
    f"/extended/v3/principals/{POOL}/transactions": example("hiro/v3_principal_transactions_synthetic", 50),
    f"/extended/v3/principals/{WALLET}/balance-changes": example("hiro/v3_principal_balance_changes_synthetic"),
    "/v1/stacks/tokens/stx": example("tenero/token").replace(SBTC, b'"stx"'),
    "/v1/stacks/tokens": example("tenero/tokens_list_page", 50),
}
HEADERS = {
    "x-ratelimit-limit-stacks-second": "1000000000",
    "x-ratelimit-remaining-stacks-second": "999000000",
    "x-ratelimit-limit-stacks-minute": "1000000000",
    "x-ratelimit-remaining-stacks-minute": "999000000",
    "x-ratelimit-limit-stacks-month": "1000000000",
    "x-ratelimit-remaining-stacks-month": "999000000",
}


async def in_process(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_s: float = 8.0,
    body_max: int = 8 * 1024 * 1024,
) -> FetchResponse:
    """A fetch without latency."""
    del method, headers, body, timeout_s, body_max
    path = url.removeprefix(IN_PROCESS_URL).partition("?")[0]
    return FetchResponse(200, HEADERS, BODIES[path])


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    calls: int
    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        rate, cost_us = self.calls / self.wall_s, self.cpu_s / self.calls * 1e6
        return f"{self.name:<44}{self.calls:>8}{rate:>12,.0f}{cost_us:>14,.0f}"


def client_of(upstream: Upstream, fetch: Fetch) -> UpstreamClient:
    clock = SystemClock()
    saved: list[Budget | None] = [None]

    def save(budget: Budget) -> None:
        saved[0] = budget

    budget = restored_budget(UNLIMITED_QUOTA, None, clock)
    limiter = BudgetLimiter(upstream.name, budget, clock, random.random, NullLogger(), save)
    return UpstreamClient(upstream, fetch, limiter, clock, random.random)


async def measure(name: str, call: Callable[[CallSession], Awaitable[object]], calls: int, workers: int) -> Row:
    """Make the calls, `workers` at a time, and measure wall and CPU time."""
    session = task_session(NullLogger())
    first = await call(session)
    assert isinstance(first, Ok), first

    async def work() -> None:
        for _ in range(calls // workers):
            await call(session)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(workers)))
    return Row(name, calls, time.perf_counter() - wall, time.process_time() - cpu)


async def rows(where: str, fetch: Fetch, root: str, calls: int, workers: int) -> AsyncIterator[Row]:
    simulated = root != IN_PROCESS_URL
    hiro_client = HiroClient(client_of(hiro_upstream(f"{root}/hiro" if simulated else root, "bench"), fetch))
    tenero_client = TeneroClient(client_of(tenero_upstream(f"{root}/tenero" if simulated else root, None), fetch))
    page = await hiro_client.principal_transactions(POOL, task_session(NullLogger()))
    assert isinstance(page, Ok), page
    swap = page.value.items[0]

    async def list_page(session: CallSession) -> object:
        answer = await tenero_client.prices(["stx"], session, pages_max=1, singles_max=0)
        return Ok(answer) if answer.prices else answer

    async def token(session: CallSession) -> object:
        return await tenero_client.fetch_token_price_usd("stx", session.logger, session)

    cases: list[tuple[str, Callable[[CallSession], Awaitable[object]], int]] = [
        ("hiro transaction", lambda session: hiro_client.transactions_with_events([swap.tx_id], session), calls),
        (
            "hiro balance changes",
            lambda session: hiro_client.balance_changes(swap.sender, [swap.tx_id], session),
            calls,
        ),
        ("hiro page of 50", lambda session: hiro_client.principal_transactions(POOL, session), calls // 4),
        ("tenero token", token, calls),
        ("tenero page of 100", list_page, calls // 4),
    ]
    for name, call, count in cases:
        yield await measure(f"{where}: {name}", call, count, workers)


@contextmanager
def simulator() -> Iterator[str]:
    """Run the simulator in its own process, without limits; yields its URL."""
    command = [sys.executable, "-m", "tocsin", "simulate", "--port=0", "--no-limits", "--wallets=50"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().partition("=")[2].removesuffix("/hiro")
    finally:
        process.kill()
        process.wait()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4_000)
    arguments = parser.parse_args()
    print(f"{'call':<44}{'calls':>8}{'calls/s':>12}{'CPU us/call':>14}")
    async for row in rows("in process", in_process, IN_PROCESS_URL, arguments.calls, 1):
        print(row)
    with simulator() as url:
        fetch = HttpFetch()
        try:
            async for row in rows("loopback", fetch, url, arguments.calls // 2, WORKERS):
                print(row)
        finally:
            await fetch.close()


asyncio.run(main())
