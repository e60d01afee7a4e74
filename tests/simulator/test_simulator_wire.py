"""The wire face: the same answers and faults over a real socket on loopback, and the control surface."""

import asyncio
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import signature
from typing import Any

import aiohttp
import pytest

from support.simulated import HandClock, ask, quiet_simulator
from support.virtual_time import VirtualClock
from tocsin.bindings import Clock
from tocsin.cli import simulate
from tocsin.errors import StartError
from tocsin.platform.local.http.http_server import listen
from tocsin.simulator.faults import SimulatedFault
from tocsin.simulator.serve import SimulatorAddress, SimulatorOptions, serving
from tocsin.simulator.simulator import Simulator


class Caller:
    """An HTTP client of a running simulator."""

    def __init__(
        self, simulator: Simulator, address: SimulatorAddress, session: aiohttp.ClientSession
    ) -> None:
        self.simulator, self.address, self._session = simulator, address, session

    async def get(self, url: str, timeout_s: float = 8.0) -> tuple[int, dict[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._session.get(url, timeout=timeout, allow_redirects=False) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, headers, await answer.read()

    async def tip(self, timeout_s: float = 8.0) -> tuple[int, dict[str, str], bytes]:
        return await self.get(f"{self.address.hiro}/extended", timeout_s)

    async def control(self, command: str, **values: Any) -> tuple[int, Any]:
        async with self._session.post(f"{self.address.root}/_control/{command}", json=values) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def calling(clock: Clock | None = None) -> AsyncIterator[Caller]:
    simulator = quiet_simulator(clock or VirtualClock())
    async with serving(simulator) as address, aiohttp.ClientSession() as session:
        yield Caller(simulator, address, session)


async def simulator_saw(simulator: Simulator) -> None:
    """Until the first request has come in."""
    while not simulator.requests:
        await simulator.clock.sleep(0.01)


async def test_the_wire_carries_the_same_answers() -> None:
    """Status, headers and bytes are those of the in-process face, below the two base URLs."""
    async with calling() as caller:
        chain = caller.simulator.chain
        tx = chain.swap(kind="multibin")
        chain.mine()
        path = f"/extended/v1/tx/{tx.tx_id}?event_limit=100"

        status, headers, body = await caller.get(caller.address.hiro + path)
        twin = ask(caller.simulator, path)

        assert (status, body) == (twin.status, twin.body)
        own = {name for name in twin.headers if name != "cf-ray" and "remaining" not in name}
        assert {name: headers[name] for name in own} == {name: twin.headers[name] for name in own}
        assert set(twin.headers) <= set(headers)
        status, _, body = await caller.get(f"{caller.address.tenero}/v1/stacks/tokens?limit=3")
        assert (status, len(json.loads(body)["data"]["rows"])) == (200, 3)


def test_answers_leave_at_once() -> None:
    """The listener is a TCP socket by name: only then asyncio sends small writes without waiting."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def test_a_redirect_leads_to_where_the_upstream_is_mounted() -> None:
    """The location can be followed as it stands."""
    async with calling() as caller:
        tx = caller.simulator.chain.swap()
        status, headers, _ = await caller.get(f"{caller.address.hiro}/extended/v1/tx/{tx.tx_id[2:]}")

        assert (status, headers["location"]) == (302, f"/hiro/extended/v1/tx/{tx.tx_id}")
        status, _, _ = await caller.get(caller.address.root + headers["location"])
        assert status == 200


async def test_an_unchanged_answer_has_no_body_on_the_wire() -> None:
    """304 crosses the wire empty, and the connection goes on."""
    async with calling() as caller, aiohttp.ClientSession() as session:
        _, headers, _ = await caller.tip()
        url = f"{caller.address.hiro}/extended"
        async with session.get(url, headers={"If-None-Match": headers["etag"]}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        assert (await caller.tip())[0] == 200


async def test_a_hang_on_the_wire() -> None:
    """The socket stays silent until the caller gives up."""
    async with calling() as caller:
        caller.simulator.faults.add(SimulatedFault(kind="hang", times=1))

        with pytest.raises(asyncio.TimeoutError):
            await caller.tip(timeout_s=3.0)
        assert (await caller.tip())[0] == 200


async def test_the_server_stops_while_a_caller_hangs() -> None:
    """A hanging request is cut when the server is told to stop; nobody waits for ever."""
    async with aiohttp.ClientSession() as session:
        simulator = quiet_simulator(VirtualClock())
        simulator.faults.add(SimulatedFault(kind="hang"))
        async with serving(simulator) as address:
            hanging = asyncio.create_task(Caller(simulator, address, session).tip(timeout_s=600.0))
            await simulator_saw(simulator)

        with pytest.raises(aiohttp.ClientConnectionError):
            await hanging


@pytest.mark.parametrize("kind", ["slow", "delay"])
async def test_slow_answers_on_the_wire(kind: Any) -> None:
    """A slow body begins at once and ends late; a delayed answer begins late."""
    async with calling() as caller, aiohttp.ClientSession() as session:
        caller.simulator.faults.add(SimulatedFault(kind=kind, seconds=6.0))
        loop = asyncio.get_running_loop()
        began = loop.time()

        async with session.get(f"{caller.address.hiro}/extended") as answer:
            started_s = loop.time() - began
            body = await answer.read()

        assert json.loads(body)["status"] == "ready"
        assert (started_s > 5.9) is (kind == "delay")
        assert loop.time() - began > 5.9


@pytest.mark.parametrize(
    ("kind", "error"), [("cut", aiohttp.ServerDisconnectedError), ("cut_body", aiohttp.ClientPayloadError)]
)
async def test_cut_connections_on_the_wire(kind: Any, error: type[Exception]) -> None:
    """The connection really breaks, before the status line or within the body; the next call is fine."""
    async with calling() as caller:
        caller.simulator.faults.add(
            SimulatedFault(kind=kind, times=2)
        )  # a client may try once more by itself

        with pytest.raises((error, aiohttp.ClientOSError)):
            await caller.tip()
        caller.simulator.faults.clear()
        assert (await caller.tip())[0] == 200


async def test_a_huge_body_comes_unannounced() -> None:
    """There is no length to see it coming; a reader that stops at its cap has read no more than that."""
    async with calling() as caller, aiohttp.ClientSession() as session:
        caller.simulator.faults.add(SimulatedFault(kind="huge", size=50_000_000))

        async with session.get(f"{caller.address.hiro}/extended") as answer:
            assert "content-length" not in answer.headers
            part = await answer.content.readexactly(300_000)
        assert json.loads(part.decode())["status"] == "ready"


async def test_spoiled_bodies_on_the_wire() -> None:
    """Truncated, wrong and retyped bodies are complete HTTP answers."""
    async with calling() as caller:
        for kind in ("truncated", "wrong_json", "wrong_types"):
            caller.simulator.faults.add(SimulatedFault(kind=kind, times=1))
            status, _, body = await caller.tip()
            assert (status, len(body) > 0) == (200, True)


async def test_commands_steer_the_simulator() -> None:
    """Faults, switches, limits, prices and the chain itself are changed over the wire."""
    async with calling(HandClock()) as caller:  # the chain stands still between two commands
        chain = caller.simulator.chain

        assert (await caller.control("fault", kind="status", status=502, times=1))[0] == 200
        assert (await caller.tip())[0] == 502
        assert (await caller.control("bad-times", every_s=60, kinds=["hang"]))[1]["badTimes"] is True
        assert (await caller.control("calm"))[1]["badTimes"] is False
        _, state = await caller.control("switch", deprecated_gone=True, index_lag_ms=5)
        assert (state["deprecatedGone"], state["v3Absent"], state["indexLagMs"]) == (True, False, 5)
        await caller.control("price", token="stx", usd=3.5, quoting="text")
        _, _, body = await caller.get(f"{caller.address.tenero}/v1/stacks/tokens/stx")
        assert json.loads(body)["data"]["price_usd"] == "3.5"

        _, made = await caller.control("swap", wallet=1, kind="refund", count=26)
        _, block = await caller.control("mine")
        assert len(made["txids"]) == 26
        assert block == made
        assert len(chain.truth()) == 26
        await caller.control("reorg", depth=1, fate="vanished")
        assert chain.truth() == []
        assert chain.transactions[made["txids"][0]].state == "vanished"
        _, big = await caller.control("swap", amount_in="18446744073709551617")
        await caller.control("mine")
        assert [(row.txid, row.amount_in) for row in chain.truth()] == [(big["txids"][0], 2**64 + 1)]
        _, floods = await caller.control("dust", count=3)
        _, dropped = await caller.control("drop", txid=floods["txids"][0], status="dropped_too_expensive")
        assert chain.transactions[dropped["txids"][0]].status == "dropped_too_expensive"
        await caller.control("rebroadcast", txid=dropped["txids"][0])
        assert chain.transactions[dropped["txids"][0]].state == "mempool"

        await caller.control("limits", upstream="hiro", anonymous={"minute": 1}, spend=1)
        assert (await caller.tip())[0] == 429


async def test_mistaken_commands_are_refused_with_the_fix() -> None:
    """An unknown command, field, value or body is 400, in the project's one shape of errors."""
    async with calling() as caller:
        mistakes = [
            await caller.control("explode"),
            await caller.control("reorg", depth="deep"),
            await caller.control("reorg", fate="fun"),
            await caller.control("swap", wallet=99),
            await caller.control("swap", kind="sideways"),
            await caller.control("drop", txid="0x1"),
            await caller.control("limits", upstream="moon"),
            await caller.control("limits", upstream="hiro", keyed={"hour": 3}),
            await caller.control("price", token="none"),
            await caller.control("price", token="stx", quoting="loud"),
            await caller.control("bad-times", kinds=["fun"]),
            await caller.control("mine", now=True),
            await caller.control("fault", kind="hang", seconds="long"),
        ]

        for status, body in mistakes:
            assert (status, body["code"], body["retryable"]) == (400, "bad_command", False)
            assert len(body["error"]) > 20


async def test_the_truth_and_the_agents_are_told() -> None:
    """The truth with exact amounts, the agents in the import format, and the state are there to read."""
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


async def test_a_taken_port_is_named() -> None:
    """Starting on a port in use says so, and how to get a free one."""
    async with calling() as caller:
        port = int(caller.address.root.rsplit(":", 1)[1])
        with pytest.raises(StartError, match="another port: --port, 0 for any"):
            async with serving(caller.simulator, port=port):
                pass


def test_the_command_has_the_simulators_defaults() -> None:
    """`tocsin simulate` without options runs what `SimulatorOptions()` describes."""
    defaults = {name: option.default for name, option in signature(simulate).parameters.items()}
    options = SimulatorOptions()

    assert defaults == {name: getattr(options, name) for name in defaults}


def test_it_runs_as_a_command() -> None:
    """`tocsin simulate` prints its base URLs and serves until it is stopped."""
    command = [sys.executable, "-m", "tocsin", "simulate", "--port=0", "--wallets=5", "--history-hours=0.2"]
    with subprocess.Popen(
        [*command, "--speed=60", "--bad-times"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            printed = dict(process.stdout.readline().strip().split("=", 1) for _ in range(5))
            with urllib.request.urlopen(printed["control"]) as answer:
                state = json.load(answer)
        finally:
            process.terminate()

    assert (state["speed"], state["badTimes"], state["transactions"] > 0) == (60.0, True, True)
    assert printed["HIRO_API_URL"].endswith("/hiro")
    assert printed["TENERO_API_URL"].endswith("/tenero")
    assert set(printed) == {"HIRO_API_URL", "TENERO_API_URL", "control", "truth", "agents"}
