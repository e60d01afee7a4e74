"""Who may control the simulator: a caller on this machine, with JSON, the key, and bounded numbers."""

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette

from stacks_simulator.http_app import simulator_app
from stacks_simulator.simulator import Simulator
from support.simulated import HandClock, quiet_simulator


async def ask(
    app: Starlette,
    target: str,
    *,
    method: str = "GET",
    body: bytes = b"",
    client: str = "127.0.0.1",
    host: str = "127.0.0.1:8787",
    media_type: str = "application/json",
) -> tuple[int, Any]:
    """The status and the JSON of the answer to a request of this client."""
    headers = [(b"host", host.encode()), (b"content-type", media_type.encode())]
    scope = {"type": "http", "method": method, "path": target, "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "client": (client, 4711), "root_path": "", "http_version": "1.1"}, receive, send)
    return sent[0]["status"], json.loads(b"".join(message["body"] for message in sent[1:]))


async def command(app: Starlette, name: str, values: Any, **options: str) -> tuple[int, Any]:
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    return await ask(app, f"/_control/{name}", method="POST", body=body, **options)


def made() -> tuple[Simulator, Starlette]:
    simulator = quiet_simulator(HandClock())
    return simulator, simulator_app(simulator, asyncio.Event())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("explode", {}),
        ("mine", {"now": True}),
        ("mine", []),
        ("reorg", {"depth": "deep"}),
        ("reorg", {"fate": "fun"}),
        ("swap", {"wallet": 99}),
        ("swap", {"kind": "sideways"}),
        ("limits", {"upstream": "moon"}),
        ("limits", {"upstream": "hiro", "keyed": {"hour": 3}}),
        ("price", {"token": "none"}),
        ("price", {"token": "stx", "quoting": "loud"}),
        ("switch", {"network_list": "hidden"}),
        ("switch", {"list_lag_ms": "long"}),
        ("fault", {}),
        ("fault", {"kind": "explode"}),
        ("fault", {"kind": "hang", "when": 3}),
        ("fault", {"kind": "hang", "times": "3"}),
        ("fault", {"kind": "hang", "seconds": "long"}),
        ("swap", {"wallet": 0, "count": 1_001}),
        ("swap", {"wallet": 0, "count": 0}),
        ("swap", {"wallet": 0, "count": -1}),
        ("swap", {"wallet": 0, "count": 10**30}),
        ("swap", {"wallet": 0, "amount_in": "9" * 41}),
        ("swap", {"wallet": 0, "amount_in": "-5"}),
        ("reorg", {"depth": 10**9}),
        ("limits", {"upstream": "hiro", "spend": 10**10}),
        ("limits", {"upstream": "hiro", "keyed": {"minute": -1}}),
        ("switch", {"index_lag_ms": 10**12}),
        ("switch", {"omitted_share": 1.5}),
        ("price", {"token": "stx", "usd": -1}),
        ("fault", {"kind": "huge", "size": 2**40}),
        ("fault", {"kind": "delay", "seconds": 1e9}),
        ("fault", {"kind": "status", "status": 7}),
        ("fault", {"kind": "status", "status": 503.5}),
        ("fault", {"kind": "status", "body": 5}),
        ("fault", {"kind": "status", "extra_headers": {"a": 1}}),
        ("fault", b'{"kind": "delay", "seconds": NaN}'),
        ("price", b'{"token": "stx", "usd": Infinity}'),
        ("mine", b"[" * 50_000),
    ],
)
async def test_a_wrong_command_is_refused(name: str, values: Any) -> None:
    """Unknown names and types, counts and sizes without bound: the sentence names what is accepted."""
    simulator, app = made()
    status, refusal = await command(app, name, values)

    assert (status, refusal["code"], refusal["retryable"]) == (400, "bad_command", False)
    assert len(refusal["error"]) > 20
    assert len(simulator.chain.transactions) == 0
    assert simulator.faults.active == []


async def test_faults_and_bodies_have_a_bound() -> None:
    """A hundred faults at once, and 64 KiB for a command."""
    simulator, app = made()
    statuses = [(await command(app, "fault", {"kind": "hang"}))[0] for _ in range(101)]
    status, refusal = await command(app, "mine", b" " * 70_000)

    assert statuses == [200] * 100 + [400]
    assert len(simulator.faults.active) == 100
    assert (status, refusal["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    "sent", ["application/x-www-form-urlencoded", "text/plain", "text/plain; charset=application/json", ""]
)
async def test_only_json_is_taken(sent: str) -> None:
    """Requests that a page of another site can send without a preflight are refused."""
    simulator, app = made()
    status, refusal = await command(app, "swap", {"wallet": 0, "count": 1}, media_type=sent)

    assert (status, refusal["code"]) == (415, "unsupported_media_type")
    assert len(simulator.chain.transactions) == 0


@pytest.mark.parametrize(
    ("host", "client", "status"),
    [
        ("127.0.0.1:8787", "127.0.0.1", 200),
        ("localhost", "127.0.0.1", 200),
        ("[::1]:8787", "::1", 200),
        ("127.0.0.1", "::ffff:127.0.0.1", 200),
        ("evil.example:8787", "127.0.0.1", 403),
        ("127.0.0.1.evil.example", "127.0.0.1", 403),
        ("localhost.evil.example", "127.0.0.1", 403),
        ("", "127.0.0.1", 403),
        ("127.0.0.1:8787", "192.0.2.7", 403),
    ],
)
async def test_only_this_machine_is_heard(host: str, client: str, status: int) -> None:
    """By the address of the caller and by the name that it used: a name may point to 127.0.0.1."""
    _, app = made()
    posted, _ = await command(app, "mine", {}, client=client, host=host)
    read, _ = await ask(app, "/_control", client=client, host=host)

    assert (posted, read) == (status, status)
