"""What clients of aibtc.com rely on: the shapes, the lenient queries and the descriptions that the site publishes.

The rows of docs/coming-from-aibtc.md. `tests/cloudflare/test_same_bytes.py` has the same requests on both platforms.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.errors import StoreUnavailable
from stacks_simulator.addresses import address_of
from support.asgi import ask
from support.competition_site import competition_site
from support.scripted_scheduler import scene
from tocsin.web.app import create_app

TRADES, BOARD = "/api/competition/trades", "/api/competition/leaderboard"
SBTC_CONTRACT = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token"


async def test_the_allow_list_has_the_published_shape(tmp_path: Path) -> None:
    """A list of entries that can be searched by `contract_id`, and the number of contracts of each protocol."""
    async with competition_site(tmp_path) as made:
        body = (await made.get("/api/competition/allowlist")).json()

    entry = next(entry for entry in body["entries"] if entry["contract_id"].endswith(".xyk-swap-helper-v-1-3"))
    assert set(entry) == {"contract_id", "functions", "protocol"}
    assert "swap-helper-a" in entry["functions"]
    assert body["protocols"] == {"bitflow": 40}
    assert (body["total_contracts"], body["total_functions"]) == (40, 139)
    assert set(body) == {
        "entries", "total_contracts", "total_functions", "provider_address", "protocols", "version",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("route", ["trades", "status", "allowlist", "tracked-tokens", "leaderboard", "cron"])
async def test_every_public_competition_route_describes_itself(route: str, tmp_path: Path) -> None:
    """Agents request `?docs=1` first."""
    async with competition_site(tmp_path) as made:
        answer = await made.get(f"/api/competition/{route}?docs=1")

    body = answer.json()
    assert answer.status == 200
    assert body["route"] == f"/api/competition/{route}"
    assert "GET" in {method["method"] for method in body["methods"]}
    assert body["openapi"] == "/api/openapi.json"


async def test_the_description_has_what_an_agent_needs(tmp_path: Path) -> None:
    async with competition_site(tmp_path) as made:
        body = (await made.get(f"{TRADES}?docs=1")).json()

    by_method: dict[str, Any] = {method["method"]: method for method in body["methods"]}
    assert {parameter["name"] for parameter in by_method["GET"]["parameters"]} == {"address", "limit", "cursor"}
    assert set(by_method["POST"]["bodyExample"]) == {"txid"}
    assert {"200", "202", "404", "409", "422"} <= set(by_method["POST"]["responses"])


@pytest.mark.slow
async def test_the_document_is_at_the_sites_path_too(tmp_path: Path) -> None:
    async with competition_site(tmp_path) as made:
        ours, sites = await made.get("/openapi.json"), await made.get("/api/openapi.json")

    assert sites.status == 200
    assert sites.body == ours.body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "rows"),
    [("500", 3), ("0", 1), ("2.5", 2), ("", 3), ("-7", 1), ("9" * 500, 3), (" 2 ", 2), ("2x", 2), ("+1e9", 1)],
)
async def test_a_limit_is_moved_to_the_nearest_that_there_is(limit: str, rows: int, tmp_path: Path) -> None:
    """`arc … list --limit 500` and an MCP client's 2.5 are answered."""
    async with competition_site(tmp_path) as made:
        chain = made.world.simulator.chain
        wallet = chain.wallets[0]
        for tx in chain.burst(wallet, 3):
            chain.mine()
            assert (await made.submit(tx.tx_id)).status == 200
        query = f"limit={quote(limit)}&cursor="
        answer = await made.get(f"{TRADES}?address={wallet.address}&{query}")
        board = await made.get(f"{BOARD}?{query}")

    assert (answer.status, len(answer.json()["trades"])) == (200, rows)
    assert (board.status, len(board.json()["rows"])) == (200, 1)


async def test_blanks_around_an_id_are_ignored(tmp_path: Path) -> None:
    async with competition_site(tmp_path) as made:
        chain = made.world.simulator.chain
        tx = chain.swap(chain.wallets[0])
        chain.mine()
        answer = await made.submit(f" {tx.tx_id}\n")

    assert (answer.status, answer.json()["txid"]) == (200, tx.tx_id)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (f"{BOARD}?address={address_of('deployer')}&limit=1", "address"),
        (f"{TRADES}?address={address_of('deployer')}&sort=pnl", "sort"),
        ("/api/competition/allowlist?token=stx", "token"),
        ("/api/prices?address=SP1", "address"),
    ],
)
async def test_a_parameter_that_would_change_the_meaning_is_refused(target: str, named: str, tmp_path: Path) -> None:
    """The first of the board is not the answer to a question about an agent."""
    async with competition_site(tmp_path) as made:
        answer = await made.get(target)

    assert (answer.status, answer.json()["code"]) == (400, "unknown_parameter")
    assert f"no parameter {named}." in answer.json()["error"]


async def test_other_parameters_are_ignored(tmp_path: Path) -> None:
    """Such as those that caches and trackers add."""
    async with competition_site(tmp_path) as made:
        chain = made.world.simulator.chain
        for wallet in chain.wallets[:2]:
            swap = chain.swap(wallet)
            chain.mine()
            await made.submit(swap.tx_id)
        for query, rows in (("limit=1&sort=latest", 1), ("limit=1", 1), ("", 2)):
            plain = await made.get(f"{BOARD}?{query}")
            ignored = await made.get(f"{BOARD}?utm_source=x&{query}&_=1&fbclid=limit%3D7")

            assert (ignored.status, ignored.body, ignored.headers) == (200, plain.body, plain.headers)
            assert len(ignored.json()["rows"]) == rows


@pytest.mark.parametrize("query", ["tokens=", "tokens=,", ""])
async def test_no_tokens_are_all_tokens(query: str, tmp_path: Path) -> None:
    async with scene(tmp_path) as made:
        answer = await ask(create_app(made.site), f"/api/prices?{query}")

    assert answer.status == 200
    assert "stx" in {*answer.json()["prices"], *answer.json()["missing"]}


async def test_a_contract_stands_for_its_only_token(tmp_path: Path) -> None:
    """The refusal of a malformed id says that a contract can be given, so it must find the price."""
    async with scene(tmp_path) as made:
        app = create_app(made.site)
        one = (await ask(app, f"/api/prices?token={SBTC_CONTRACT}")).json()
        some = (await ask(app, f"/api/prices?tokens=stx,{SBTC_CONTRACT}")).json()

    assert one["tokenId"] == f"{SBTC_CONTRACT}::sbtc-token"
    assert [*some["prices"], *some["missing"]] == ["stx", f"{SBTC_CONTRACT}::sbtc-token"]


async def test_an_unknown_transaction_may_be_sent_again_when_the_sentence_says(tmp_path: Path) -> None:
    async with competition_site(tmp_path) as made:
        answer = await made.submit("0x" + "ab" * 32)

    assert "in a minute" in answer.json()["error"]
    assert answer.headers["retry-after"] == "60"


async def test_an_unavailable_database_has_the_sites_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's clients compare `error` with this word and wait `retry_after` seconds."""

    async def unavailable(*_: Any) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr("tocsin.swaps.trades.trade_counts", unavailable)
    async with competition_site(tmp_path) as made:
        answer = await made.get(f"/api/competition/status?address={address_of('deployer')}")

    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.json() == {
        "error": "transient_d1_unavailable",
        "code": "store_unavailable",
        "retryable": True,
        "message": "The store cannot be used right now: try again soon.",
        "retry_after": 5,
    }
