"""The Model Context Protocol, message by message. `make mcp` tries it with the protocol's own client."""

from typing import Any

import pytest

from stacks_simulator.faults import SimulatedFault
from support.competition_site import TRADES, CompetitionSite

MCP = "/mcp"


async def call(made: CompetitionSite, method: str, **parameters: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": parameters}
    answer = await made.post(MCP, message)
    assert (answer.status, answer.json()["id"]) == (200, 7)
    return answer.json()


async def use(made: CompetitionSite, tool: str, **arguments: str) -> Any:
    """A tool's result; its text says the same as its content."""
    result = (await call(made, "tools/call", name=tool, arguments=arguments))["result"]
    assert [part["type"] for part in result["content"]] == ["text"]
    return result


async def test_a_client_is_introduced_and_told_the_tools(contest: CompetitionSite) -> None:
    """The version that it asked for if we speak it; every tool has a description and a schema."""
    introduced = (await call(contest, "initialize", protocolVersion="2025-06-18"))["result"]
    newer = (await call(contest, "initialize", protocolVersion="2099-01-01"))["result"]
    noted = [
        await contest.post(MCP, {"jsonrpc": "2.0", **message})
        for message in ({"method": "notifications/initialized"}, {"id": 1, "result": {}})
    ]
    tools = (await call(contest, "tools/list"))["result"]["tools"]

    assert introduced["protocolVersion"] == "2025-06-18"
    assert newer["protocolVersion"] == "2025-11-25"
    assert "allow-list" in introduced["instructions"]
    assert [(answer.status, answer.body) for answer in noted] == [(202, b"")] * 2
    assert [tool["name"] for tool in tools] == [
        *("status", "rank", "leaderboard", "rounds", "prices", "submit", "explain", "allow_list")
    ]
    assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)
    assert [tool["name"] for tool in tools if not tool["annotations"]["readOnlyHint"]] == ["submit"]


async def test_the_tools_answer_as_the_routes_do(contest: CompetitionSite) -> None:
    """A swap is explained, submitted and counted, and the list knows its contract."""
    chain = contest.chain
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    before = await use(contest, "explain", txid=tx.tx_id)
    submitted = await use(contest, "submit", txid=tx.tx_id)
    explained = await use(contest, "explain", txid=tx.tx_id)
    ranked = await use(contest, "rank", address=tx.sender)
    status = await use(contest, "status")
    contract = submitted["structuredContent"]["trade"]["contract_id"]
    listed = await use(contest, "allow_list", contract_id=contract)
    unlisted = await use(contest, "allow_list", contract_id=contract, function_name="rug-pull")
    unknown = await use(contest, "allow_list", contract_id="SP1.unknown")
    everything = await use(contest, "allow_list")
    board = await use(contest, "leaderboard", sort="trades", limit="1")
    rounds = await use(contest, "rounds")
    absent = await use(contest, "rounds", roundId="week-9")
    prices = await use(contest, "prices", tokens="stx")
    wrong = await use(contest, "leaderboard", period="year")

    assert before["structuredContent"]["known_from"] == "chain"
    assert explained["structuredContent"]["known_from"] == "record"
    assert ranked["structuredContent"] == (await contest.get(f"/api/competition/agents/{tx.sender}")).json()
    assert ranked["structuredContent"]["ranks"]["pnl"] == 1
    assert status["structuredContent"]["service"]["ready"] is True
    assert listed["structuredContent"]["allowed"] is True
    assert unlisted["structuredContent"]["allowed"] is False
    assert unknown["structuredContent"] == {"contract_id": "SP1.unknown", "allowed": False, "functions": []}
    assert everything["structuredContent"]["total_contracts"] == 40
    assert board["structuredContent"]["rows"][0]["stxAddress"] == tx.sender
    assert rounds["structuredContent"] == (await contest.get("/api/competition/rounds/current")).json()
    assert (absent["isError"], absent["structuredContent"]["code"]) == (True, "round_not_found")
    assert prices["structuredContent"] == (await contest.get("/api/prices?tokens=stx")).json()
    assert (wrong["isError"], "period is one of" in wrong["structuredContent"]["error"]) == (True, True)


async def test_a_tool_that_fails_says_so_in_its_result(contest: CompetitionSite) -> None:
    """A model can read the sentence and try again; the protocol itself has not failed."""
    wrong = await use(contest, "rank", address="SP1")
    contest.simulator.faults.add(SimulatedFault(kind="status", upstream="hiro"))
    failed = await use(contest, "explain", txid="ab" * 32)

    assert (wrong["isError"], wrong["structuredContent"]["code"]) == (True, "bad_request")
    assert (failed["isError"], failed["structuredContent"]["code"]) == (True, "tx_fetch_failed")
    assert failed["structuredContent"]["retryable"] is True


@pytest.mark.parametrize(
    ("method", "parameters", "code"),
    [
        ("resources/list", {}, -32601),
        ("tools/call", {"name": "rob"}, -32602),
        ("tools/call", {"name": "rank"}, -32602),
        ("tools/call", {"name": "rank", "arguments": {"address": 7}}, -32602),
    ],
)
async def test_a_message_that_is_wrong_is_an_error_of_the_protocol(
    contest: CompetitionSite, method: str, parameters: Any, code: int
) -> None:
    """With its code and a sentence."""
    error = (await call(contest, method, **parameters))["error"]

    assert (error["code"], error["message"][-1]) == (code, ".")


async def test_only_posts_are_taken_and_a_ping_is_answered(contest: CompetitionSite) -> None:
    """There is no stream to listen to: clients then use posts alone."""
    listened = await contest.get(MCP)
    pong = await call(contest, "ping")

    assert (listened.status, listened.headers["allow"]) == (405, "POST")
    assert pong["result"] == {}


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ([], None),
        ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], None),
        ("ping", None),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 1),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, None),
        ({"jsonrpc": "2.0", "id": 1}, 1),
        ({"jsonrpc": "2.0", "id": "a", "method": 5}, "a"),
    ],
)
async def test_what_is_not_a_message_is_an_error_at_once(contest: CompetitionSite, message: Any, number: Any) -> None:
    """400 and an error of JSON-RPC: a client that got 202 would wait for its answer forever."""
    answer = await contest.post(MCP, message)

    assert (answer.status, answer.json()["id"], answer.json()["error"]["code"]) == (400, number, -32600)
    assert answer.json()["error"]["message"].endswith(".")


async def test_another_version_of_the_protocol_is_refused(contest: CompetitionSite) -> None:
    """One with batches, one that is not known; not while the version is agreed on."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    statuses = {
        version: (await contest.post(MCP, ping, {"mcp-protocol-version": version})).status
        for version in ("2025-11-25", "2025-06-18", "2025-03-26", "1999")
    }
    refused = await contest.post(MCP, ping, {"mcp-protocol-version": "1999"})
    agreed = await contest.post(MCP, hello, {"mcp-protocol-version": "2025-03-26"})

    assert statuses == {"2025-11-25": 200, "2025-06-18": 200, "2025-03-26": 400, "1999": 400}
    assert refused.json()["error"]["code"] == -32600
    assert "2025-11-25" in refused.json()["error"]["message"]
    assert agreed.json()["result"]["protocolVersion"] == "2025-11-25"


async def test_a_submission_that_fails_is_not_called_a_success(contest: CompetitionSite) -> None:
    """With the sentence, the code and whether to try again, as the route says; twice recorded is no failure."""
    chain = contest.chain
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    counted = await use(contest, "submit", txid=tx.tx_id)
    again = await use(contest, "submit", txid=tx.tx_id)
    malformed = await use(contest, "submit", txid="zz")
    unknown = await use(contest, "submit", txid="ab" * 32)
    contest.simulator.faults.add(SimulatedFault(kind="status", upstream="hiro"))
    failed = await use(contest, "submit", txid="cd" * 32)

    assert (counted["isError"], counted["structuredContent"]["code"]) == (False, None)
    assert (again["isError"], again["structuredContent"]["code"]) == (False, "txid_already_verified")
    for result, code, retryable in (
        (malformed, "malformed_txid", False),
        (unknown, "tx_not_found", True),
        (failed, "tx_fetch_failed", True),
    ):
        content = result["structuredContent"]
        assert (result["isError"], content["code"], content["retryable"]) == (True, code, retryable)
        assert content["error"].endswith(".")


async def test_a_tool_counts_for_its_client_as_the_route_does(contest: CompetitionSite) -> None:
    """Submissions share their calls fairly by client, so the client must not be lost on the way."""
    chain = contest.chain
    first, second = (chain.swap(chain.wallets[0]).tx_id for _ in range(2))
    chain.mine()
    await use(contest, "explain", txid=first)
    await contest.get(f"{TRADES}/{second}")
    await use(contest, "submit", txid=first)
    await contest.submit(second)

    clients = [(job, argument["client"]) for job, argument in contest.asked]
    by_tool, by_route = clients[::2], clients[1::2]
    assert by_tool == by_route
    assert len(by_tool) == 2
    assert all(client for _, client in by_tool)
