"""The simulator over HTTP: the same replies and faults over a real socket on loopback, and the commands."""

import asyncio
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from holdfast.errors import StartError
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import Clock
from stacks_simulator.faults import BadTimes, SimulatedFault
from stacks_simulator.hiro_hooks import HOOK_UUID
from stacks_simulator.serve import SimulatorAddress, serving
from stacks_simulator.simulator import Simulator
from support.simulated import HandClock, ask, quiet_simulator


class Caller:
    """An HTTP client for a running simulator."""

    def __init__(self, simulator: Simulator, address: SimulatorAddress, session: aiohttp.ClientSession) -> None:
        self.simulator, self.address, self._session = simulator, address, session

    async def get(self, url: str, timeout_s: float = 8.0) -> tuple[int, dict[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return response.status, headers, await response.read()

    async def tip(self, timeout_s: float = 8.0) -> tuple[int, dict[str, str], bytes]:
        return await self.get(f"{self.address.hiro}/extended", timeout_s)

    async def control(self, command: str, **values: Any) -> tuple[int, Any]:
        async with self._session.post(f"{self.address.root}/_control/{command}", json=values) as response:
            return response.status, await response.json()


@asynccontextmanager
async def calling(clock: Clock | None = None) -> AsyncIterator[Caller]:
    simulator = quiet_simulator(clock or VirtualClock())
    async with serving(simulator) as address, aiohttp.ClientSession() as session:
        yield Caller(simulator, address, session)


async def first_request(simulator: Simulator) -> None:
    """Wait until the first request has come in."""
    while not simulator.requests:
        await simulator.clock.sleep(0.01)


async def test_replies_are_the_same_over_http() -> None:
    """Status, headers and bytes below the two base URLs are those of the in-process simulator."""
    async with calling() as caller:
        chain = caller.simulator.chain
        tx = chain.swap(kind="multibin")
        chain.mine()
        path = f"/extended/v1/tx/{tx.tx_id}?event_limit=100"

        status, headers, body = await caller.get(caller.address.hiro + path)
        reply = ask(caller.simulator, path)

        assert (status, body) == (reply.status, reply.body)
        names = {name for name in reply.headers if name != "cf-ray" and "remaining" not in name}
        assert {name: headers[name] for name in names} == {name: reply.headers[name] for name in names}
        assert set(reply.headers) <= set(headers)
        status, _, body = await caller.get(f"{caller.address.tenero}/v1/stacks/tokens?limit=3")
        assert (status, len(json.loads(body)["data"]["rows"])) == (200, 3)


async def test_a_redirect_points_below_the_mount_of_the_upstream() -> None:
    """The location can be followed as it is."""
    async with calling() as caller:
        tx = caller.simulator.chain.swap()
        status, headers, _ = await caller.get(f"{caller.address.hiro}/extended/v1/tx/{tx.tx_id[2:]}")

        assert (status, headers["location"]) == (302, f"/hiro/extended/v1/tx/{tx.tx_id}")
        status, _, _ = await caller.get(caller.address.root + headers["location"])
        assert status == 200


async def test_a_hook_can_be_read_and_enabled_over_http() -> None:
    """With a key, at the path of the documentation and at that of Hiro's client; a command interrupts it."""
    key = {"x-api-key": "a-key"}
    async with calling() as caller, aiohttp.ClientSession(headers=key) as session:
        url = f"{caller.address.hiro}/chainhooks/me/{HOOK_UUID}"
        _, state = await caller.control("switch", hook="interrupted")
        async with session.get(url.replace("/me", "/v1/me")) as response:
            before = (await response.json())["status"]
        async with session.patch(f"{url}/enabled", json={"enabled": True}) as response:
            assert (response.status, await response.read()) == (204, b"")
        async with session.get(url) as response:
            after = (await response.json())["status"]
        async with session.patch(f"{url}/enabled", data=b"nonsense") as response:
            assert response.status == 400
        async with session.get(f"{url}/enabled") as response:
            assert response.status == 404
        assert (await caller.get(url))[0] == 401
        assert (await caller.control("switch", hook="asleep"))[0] == 400

    assert state["hook"] == "interrupted"
    assert (before["status"], before["enabled"]) == ("interrupted", False)
    assert (after["status"], after["enabled"]) == ("streaming", True)


async def test_a_304_has_no_body_over_http() -> None:
    """A 304 is empty, and the connection can be used again."""
    async with calling() as caller, aiohttp.ClientSession() as session:
        _, headers, _ = await caller.tip()
        url = f"{caller.address.hiro}/extended"
        async with session.get(url, headers={"If-None-Match": headers["etag"]}) as response:
            assert (response.status, await response.read()) == (304, b"")
        assert (await caller.tip())[0] == 200


async def test_a_hang_over_http() -> None:
    """The socket sends nothing until the caller gives up."""
    async with calling() as caller:
        caller.simulator.faults.add(SimulatedFault(kind="hang", times=1))

        with pytest.raises(asyncio.TimeoutError):
            await caller.tip(timeout_s=3.0)
        assert (await caller.tip())[0] == 200


async def test_the_server_stops_while_a_caller_hangs() -> None:
    """A hanging request is cut when the server stops; it does not delay the stop."""
    async with aiohttp.ClientSession() as session:
        simulator = quiet_simulator(VirtualClock())
        simulator.faults.add(SimulatedFault(kind="hang"))
        async with serving(simulator) as address:
            hanging = asyncio.create_task(Caller(simulator, address, session).tip(timeout_s=600.0))
            await first_request(simulator)

        with pytest.raises(aiohttp.ClientConnectionError):
            await hanging


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slow", "delay"])
async def test_slow_replies_over_http(kind: Any) -> None:
    """A slow body begins at once and ends late; a delayed reply begins late."""
    async with calling() as caller, aiohttp.ClientSession() as session:
        caller.simulator.faults.add(SimulatedFault(kind=kind, seconds=6.0))
        loop = asyncio.get_running_loop()
        began = loop.time()

        async with session.get(f"{caller.address.hiro}/extended") as response:
            started_s = loop.time() - began
            body = await response.read()

        assert json.loads(body)["status"] == "ready"
        assert (started_s > 5.9) is (kind == "delay")
        assert loop.time() - began > 5.9


@pytest.mark.parametrize(
    ("kind", "error"), [("cut", aiohttp.ServerDisconnectedError), ("cut_body", aiohttp.ClientPayloadError)]
)
async def test_cut_connections_over_http(kind: Any, error: type[Exception]) -> None:
    """The connection really breaks, before the status line or within the body; the next request works."""
    async with calling() as caller:
        caller.simulator.faults.add(SimulatedFault(kind=kind, times=2))  # the client may retry once by itself

        with pytest.raises((error, aiohttp.ClientOSError)):
            await caller.tip()
        caller.simulator.faults.clear()
        assert (await caller.tip())[0] == 200


async def test_a_huge_body_comes_without_its_length() -> None:
    """There is no Content-Length; a reader that stops at its limit has read no more than that."""
    async with calling() as caller, aiohttp.ClientSession() as session:
        caller.simulator.faults.add(SimulatedFault(kind="huge", size=50_000_000))

        async with session.get(f"{caller.address.hiro}/extended") as response:
            assert "content-length" not in response.headers
            part = await response.content.readexactly(300_000)
        assert json.loads(part.decode())["status"] == "ready"


async def test_wrong_bodies_over_http() -> None:
    """Truncated bodies, HTML and values of other types are complete HTTP responses."""
    async with calling() as caller:
        for kind in ("truncated", "wrong_json", "wrong_types"):
            caller.simulator.faults.add(SimulatedFault(kind=kind, times=1))
            status, _, body = await caller.tip()
            assert (status, len(body) > 0) == (200, True)


async def test_commands_control_the_simulator() -> None:
    """Faults, switches, limits, prices and the chain itself can be changed over HTTP."""
    async with calling(HandClock()) as caller:  # the chain does not advance between two commands
        chain = caller.simulator.chain

        assert (await caller.control("fault", kind="status", status=502, times=1))[0] == 200
        assert (await caller.tip())[0] == 502
        caller.simulator.faults.schedule = BadTimes(seed=1)
        assert (await caller.control("limits", upstream="hiro", keyed={"month": 9}))[1]["otherPlans"] == ["hiro"]
        calm = (await caller.control("calm"))[1]
        assert (calm["badTimes"], calm["otherPlans"]) == (False, [])
        _, state = await caller.control("switch", etag_stuck=True, index_lag_ms=5)
        assert (state["etagStuck"], state["keysIgnored"], state["indexLagMs"]) == (True, False, 5)
        _, state = await caller.control("switch", network_list="gone", omitted_share=0.25, list_lag_ms=7)
        assert (state["networkList"], state["omittedShare"], state["listLagMs"]) == ("gone", 0.25, 7)
        assert (await caller.control("switch", keys_ignored=False))[1] == state  # what is not named stays
        assert (await caller.get(f"{caller.address.hiro}/extended/v3/transactions"))[0] == 410
        await caller.control("price", token="stx", usd=3.5, quoting="text")
        _, _, body = await caller.get(f"{caller.address.tenero}/v1/stacks/tokens/stx")
        assert json.loads(body)["data"]["price_usd"] == "3.5"
        await caller.control("price", token="stx", liquidity=12.5, volume=None)
        _, _, body = await caller.get(f"{caller.address.tenero}/v1/stacks/tokens/stx")
        row = json.loads(body)["data"]
        assert (row["total_liquidity_usd"], row["metrics"]["volume_1d_usd"]) == (12.5, None)

        _, swaps = await caller.control("swap", wallet=1, kind="refund", count=26)
        _, block = await caller.control("mine")
        assert len(swaps["txids"]) == 26
        assert block == swaps
        assert len(chain.truth()) == 26
        await caller.control("reorg", depth=1, fate="vanished")
        assert chain.truth() == []
        assert chain.transactions[swaps["txids"][0]].state == "vanished"
        _, big = await caller.control("swap", amount_in="18446744073709551617")
        await caller.control("mine")
        assert [(row.txid, row.amount_in) for row in chain.truth()] == [(big["txids"][0], 2**64 + 1)]

        await caller.control("limits", upstream="hiro", anonymous={"minute": 1}, spend=1)
        assert (await caller.tip())[0] == 429


async def test_the_truth_the_agents_and_the_state_can_be_read() -> None:
    """The truth has exact amounts, and the agents are in the import format."""
    async with calling() as caller:
        chain = caller.simulator.chain
        chain.swap(chain.wallets[0], "huge")
        chain.mine()

        _, _, truth = await caller.get(f"{caller.address.root}/_truth")
        _, _, agents = await caller.get(f"{caller.address.root}/_agents")
        _, _, state = await caller.get(f"{caller.address.root}/_control")

        (row,) = json.loads(truth)["swaps"]
        assert row == chain.truth()[0].as_json()
        assert int(row["amount_in"]) > 2**63
        lines = [json.loads(line) for line in agents.decode().splitlines()]
        assert [line["stx_address"] for line in lines] == [wallet.address for wallet in chain.wallets]
        assert lines[0]["claim"] == {"status": "verified"}
        assert json.loads(state)["transactions"] == 1


async def test_a_port_in_use_is_an_error_with_the_fix() -> None:
    """The error for a port in use says how to get a free one."""
    async with calling() as caller:
        port = int(caller.address.root.rsplit(":", 1)[1])
        with pytest.raises(StartError, match="another port: --port; 0 for any"):
            async with serving(caller.simulator, port=port):
                pass


@pytest.mark.slow
def test_it_runs_alone() -> None:
    """`python -m stacks_simulator` prints its base URLs and serves until it is stopped."""
    command = [sys.executable, "-m", "stacks_simulator", "--port=0", "--wallets=5", "--history-hours=0.2"]
    with subprocess.Popen([*command, "--speed=60", "--bad-times"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            urls = dict(process.stdout.readline().strip().split("=", 1) for _ in range(5))
            with urllib.request.urlopen(urls["control"]) as response:
                state = json.load(response)
        finally:
            process.terminate()

    assert process.returncode == 0
    assert (state["speed"], state["badTimes"], state["transactions"] > 0) == (60.0, True, True)
    assert set(urls) == {"HIRO_API_URL", "TENERO_API_URL", "control", "truth", "agents"}


def test_a_port_in_use_ends_it_with_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "stacks_simulator", f"--port={taken.getsockname()[1]}", "--wallets=1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert done.stderr.startswith("cannot listen on 127.0.0.1:")
