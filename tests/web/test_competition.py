"""The competition's routes: what agents send, what they and the visitors see, and what clients of aibtc.com rely on."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import START_MS
from holdfast.types import Database, DBResult, Statement
from stacks_simulator.addresses import address_of
from stacks_simulator.faults import SimulatedFault
from support.asgi import ask
from support.competition import as_rows
from support.competition_site import TRADES, CompetitionSite, competition_site
from support.pages_world import sample_row
from support.statuses import HEALTHY, scheduler_status, task_status
from support.world import Tocsin, tocsin_in
from tocsin.board import history as agent_days
from tocsin.board.board import DIRECTIONS, SORTS, publish
from tocsin.board.history import CURVES_KEY
from tocsin.board.types import AgentCurve, Curves
from tocsin.prices.store import STATIC_TOKENS, price_key, publish_tokens
from tocsin.scheduler.health import HealthSnapshot
from tocsin.scheduler.types import Completeness, Progress, TaskStatus
from tocsin.swaps.proof import SWITCHED_OFF
from tocsin.swaps.rules import MEANINGS, Code
from tocsin.swaps.types import SubmitAnswer
from tocsin.web.competition import ProofReader
from tocsin.web.limits import BODY_MAX

BOARD = "/api/competition/leaderboard"
HISTORY = "/api/competition/history"
API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
UNKNOWN = "0x" + "ab" * 32


async def test_a_trade_is_new_once_and_then_known(contest: CompetitionSite) -> None:
    """200 with its row the first time, 409 with the same row after; the agent's list and counts have it."""
    tx = contest.chain.swap(contest.chain.wallets[0])
    contest.chain.mine()
    before = (await contest.get(f"/api/competition/status?address={tx.sender}")).json()
    first = await contest.submit(tx.tx_id.upper().replace("0X", ""))
    again = await contest.submit(f" {tx.tx_id}\n")  # blanks are ignored
    listed = (await contest.get(f"{TRADES}?address={tx.sender}")).json()
    counts = (await contest.get(f"/api/competition/status?address={tx.sender}")).json()

    assert (first.status, again.status) == (200, 409)
    assert (before["registered"], before["trade_count"]) == (True, 0)
    assert first.json()["source"] == "agent"
    assert first.headers["cache-control"] == "no-store"
    assert again.json()["code"] == "txid_already_verified"
    assert again.json()["existing_row"] == first.json()
    assert listed == {"trades": [first.json()], "next_cursor": None}
    assert (counts["registered"], counts["trade_count"]) == (True, 1)
    assert await contest.world.rows() == as_rows(contest.simulator.truth())


async def test_a_trade_that_is_not_there_yet_may_be_sent_again(contest: CompetitionSite) -> None:
    """Unknown is 404, in the mempool 202, and both are retryable."""
    chain = contest.chain
    pending = chain.swap(chain.wallets[0], wait_ms=None)
    hopeless = chain.swap(chain.strangers[0], wait_ms=None)
    unknown, waiting = await contest.submit(UNKNOWN), await contest.submit(pending.tx_id)
    would_not_count = (await contest.submit(hopeless.tx_id)).json()

    assert (unknown.status, unknown.json()["code"]) == (404, "tx_not_found")
    assert (waiting.status, waiting.json()["code"]) == (202, "pending")
    assert waiting.json()["accepted"] is True
    assert "error" not in waiting.json()
    assert (would_not_count["accepted"], would_not_count["code"]) == (False, "pending")
    assert "the sender is not a registered agent" in would_not_count["note"]
    assert (await contest.stored())["candidates"] == 1
    assert unknown.json()["retryable"]
    assert "in a minute" in unknown.json()["error"]
    assert waiting.json()["retryable"]
    assert unknown.headers["retry-after"] == "60"
    assert waiting.headers["retry-after"] == "5"
    assert (await contest.stored())["swaps"] == 0


async def test_a_trade_that_does_not_count_is_refused_with_its_reason(contest: CompetitionSite) -> None:
    """A stranger's swap is 422: the code, a sentence with the fix, and the reason."""
    chain = contest.chain
    tx = chain.swap(chain.strangers[0])
    chain.mine()
    answer = await contest.submit(tx.tx_id)

    assert answer.status == 422
    assert answer.json() == {
        "error": MEANINGS[Code.SENDER_NOT_REGISTERED].sentence,
        "code": "sender_not_registered",
        "reason": "the sender is not a registered agent",
        "retryable": False,
    }


async def test_an_upstream_that_fails_is_not_the_agents_fault(contest: CompetitionSite) -> None:
    """502, retryable, with a time to wait; nothing is stored."""
    simulator = contest.world.simulator
    tx = simulator.chain.swap(simulator.chain.wallets[0])
    simulator.chain.mine()
    simulator.faults.add(SimulatedFault(kind="status", upstream="hiro"))
    answer = await contest.submit(tx.tx_id)

    assert (answer.status, answer.json()["code"]) == (502, "tx_fetch_failed")
    assert answer.json()["reason"] == "Hiro: unavailable"  # neither our settings nor our upstream's URL
    assert int(answer.headers["retry-after"]) >= 1
    assert await contest.stored() == {"swaps": 0, "refusals": 0, "candidates": 0}


VALID = b'{"txid": "' + UNKNOWN.encode() + b'"}'
FOREIGN = {"origin": "https://elsewhere.test"}
BODIES: list[tuple[Any, dict[str, str], int, str]] = [
    (b"", {}, 400, "malformed_body"),
    (b"{", {}, 400, "malformed_body"),
    (b"\xff\xfe{}", {}, 400, "malformed_body"),
    (b'{"txid": NaN}', {}, 400, "malformed_body"),
    (b"[" * 50_000, {}, 400, "malformed_body"),
    (VALID, {**FOREIGN, "content-type": "text/plain"}, 415, "unsupported_media_type"),
    (VALID, {**FOREIGN, "content-type": ""}, 415, "unsupported_media_type"),
    (b"txid=1", {"content-type": "application/x-www-form-urlencoded"}, 400, "malformed_body"),
    (b" " * (BODY_MAX + 1), {}, 413, "body_too_large"),
    (b" " * 10_000_000, {}, 413, "body_too_large"),
    ([], {}, 400, "malformed_txid"),
    (None, {}, 400, "malformed_txid"),
    ({}, {}, 400, "malformed_txid"),
    ({"txid": 7}, {}, 400, "malformed_txid"),
    ({"txid": ""}, {}, 400, "malformed_txid"),
    ({"txid": "0x" + "g" * 64}, {}, 400, "malformed_txid"),
    ({"txid": UNKNOWN[:30] + " " + UNKNOWN[30:]}, {}, 400, "malformed_txid"),
    ({"txid": UNKNOWN + "0"}, {}, 400, "malformed_txid"),
    ({"txid": "0" * 100}, {}, 400, "malformed_txid"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "headers", "status", "code"), BODIES, ids=range(len(BODIES)))
async def test_a_bad_body_is_explained_and_stores_nothing(
    body: Any, headers: dict[str, str], status: int, code: str, contest: CompetitionSite
) -> None:
    """A documented 4xx; the chain is not asked and no row is written."""
    answer = await contest.post(TRADES, body, {"content-type": "application/json", **headers})

    assert (answer.status, answer.json()["code"]) == (status, code)
    assert answer.json()["retryable"] is False
    assert contest.world.calls() == 0
    assert await contest.stored() == {"swaps": 0, "refusals": 0, "candidates": 0}
    assert f"`{code}`" in API_PAGE.read_text()


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_program_needs_no_media_type(media_type: str, contest: CompetitionSite) -> None:
    """Curl sends a form's type by itself. Only a browser sends Origin, and then the type must be JSON."""
    answer = await contest.post(TRADES, VALID, {"content-type": media_type})
    by_page = await contest.post(TRADES, VALID, {**FOREIGN, "content-type": "application/json; charset=utf-8"})

    assert (answer.status, answer.json()["code"]) == (404, "tx_not_found")
    assert (by_page.status, by_page.json()["code"]) == (404, "tx_not_found")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (f"{TRADES}?address=", "address must be a Stacks mainnet address"),
        (f"{TRADES}?address=SP%00", "address must be a Stacks mainnet address"),
        (f"{TRADES}?address={address_of('deployer')}&limit=x9", "limit is a number"),
        (f"{TRADES}?address={address_of('deployer')}&limit=many", "limit is a number"),
        (f"{TRADES}?address={address_of('deployer')}&limit=%D9%A3", "limit is a number"),
        (f"{TRADES}?address={address_of('deployer')}&cursor=x", "cursor must be next_cursor"),
        ("/api/competition/status?address=ST1", "address must be a Stacks mainnet address"),
        (f"{BOARD}?sort=name", "sort is one of"),
        (f"{BOARD}?dir=up", "dir is asc or desc"),
        (f"{BOARD}?cursor=%00", "cursor must be next of the previous page"),
        (f"{HISTORY}?address=SP1", "address must be a Stacks mainnet address"),
        (HISTORY, "address must be a Stacks mainnet address"),
        (f"{HISTORY}?address={address_of('deployer')}&period=1y", "period is one of 24h, 7d, 30d, 90d, all"),
    ],
)
async def test_a_bad_query_is_explained(target: str, sentence: str, contest: CompetitionSite) -> None:
    """400, and the sentence names what is accepted."""
    answer = await contest.get(target)

    assert (answer.status, answer.json()["code"]) == (400, "bad_request")
    assert sentence in answer.json()["error"]


async def test_every_code_is_documented_with_its_status() -> None:
    """docs/api.md has each code in the row of its status."""
    rows = API_PAGE.read_text().splitlines()
    for code, meaning in MEANINGS.items():
        if meaning.status == 500:  # our own defect: it has no input that leads to it
            continue
        assert any(row.startswith(f"| {meaning.status} |") and f"`{code}`" in row for row in rows), code


async def traded(made: CompetitionSite) -> None:
    chain = made.chain
    for number, wallet in enumerate(chain.wallets):
        sent = [chain.swap(wallet) for _ in range(number + 1)]
        chain.mine()
        for tx in sent:
            assert (await made.submit(tx.tx_id)).status == 200


async def test_the_board_is_ranked_priced_and_paged(contest: CompetitionSite) -> None:
    """The greatest P&L first; the next page continues; prices have a date; an unchanged board is a 304."""
    await traded(contest)
    whole = await contest.get(BOARD)
    first = (await contest.get(f"{BOARD}?limit=2")).json()
    second = (await contest.get(f"{BOARD}?limit=2&cursor={first['next']}")).json()
    await contest.world.clock.sleep(2)
    unchanged = await contest.get(BOARD, **{"if-none-match": whole.headers["etag"]})
    rows = whole.json()["rows"]

    gains = [row["pnlUsd"] for row in rows]
    assert (gains, [row["rank"] for row in rows]) == (sorted(gains, reverse=True), [1, 2, 3])
    assert first["rows"] + second["rows"] == rows
    assert (whole.json()["next"], second["next"]) == (None, None)
    assert all(row["volumeUsd"] > 0 and row["unpricedTokens"] == [] for row in rows)
    assert whole.json()["pricesAsOf"] <= whole.json()["asOf"]
    assert (unchanged.status, unchanged.body) == (304, b"")


SWAP = """
INSERT INTO swaps (
  txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height, block_hash, tx_index, source, allowlist_version, recorded_at
) VALUES (?, ?, 'c', 'f', 'stx', '1', ?, '99999999999', 1000000000000000, 1, '0x', 0, 'cron', 'v', 1)"""


async def test_what_older_releases_stored_does_not_take_a_route_down(contest: CompetitionSite) -> None:
    """A price of 1e-300 in KV counts as none, and a swap in the year 31690708 is one row among the others."""
    wallet = contest.chain.wallets[0].address
    await contest.db.prepare(SWAP).bind(UNKNOWN, wallet, STATIC_TOKENS[1]).run()
    entry = {"priceUsd": 1e-300, "decimals": 6, "fetchedAt": contest.world.clock.now()}
    await contest.kv.put(price_key("stx"), json.dumps(entry))
    await traded(contest)
    boards = [await contest.get(f"{BOARD}?sort={sort}&dir={way}") for sort in SORTS for way in DIRECTIONS]
    listed = [await contest.get(f"{TRADES}?address={wallet}&limit=1")]
    listed.append(await contest.get(f"{TRADES}?address={wallet}&cursor={listed[0].json()['next_cursor']}"))
    others = [
        await contest.get(f"/api/competition/status?address={wallet}"),
        await contest.get("/api/prices"),
        await contest.get("/api/prices?tokens=stx"),
    ]

    assert [answer.status for answer in [*boards, *listed, *others]] == [200] * 13
    assert all(len(board.json()["rows"]) == 3 for board in boards)
    assert all("stx" in row["unpricedTokens"] for row in boards[0].json()["rows"])
    assert [trade["txid"] == UNKNOWN for answer in listed for trade in answer.json()["trades"]] == [True, False]


async def test_an_agents_counts_are_read_once_a_second(contest: CompetitionSite) -> None:
    """However many ask, in whatever way they write it: a flood must not reach the database."""
    wallet = contest.chain.wallets[0].address
    asked = f"/api/competition/status?address={wallet}"
    first = await contest.get(asked)
    await contest.world.db.prepare(SWAP).bind(UNKNOWN, wallet, STATIC_TOKENS[1]).run()
    kept = [await contest.get(f"{asked}&x={number}") for number in range(3)]
    await contest.world.clock.sleep(11)
    later = await contest.get(asked)

    assert first.headers["cache-control"] == "public, max-age=10"
    assert [answer.json()["trade_count"] for answer in (first, *kept, later)] == [0, 0, 0, 0, 1]


async def test_a_submitted_trade_is_on_the_board_at_once(contest: CompetitionSite) -> None:
    """The response that is kept for a second is dropped when something was submitted."""
    before = (await contest.get(BOARD)).json()
    await traded(contest)
    after = (await contest.get(BOARD)).json()

    assert before["rows"] == []
    assert len(after["rows"]) == 3


async def test_the_lists_that_agents_read(contest: CompetitionSite) -> None:
    """The allow-list with its version; the tracked tokens, static until a refresh has published more."""
    allowed = (await contest.get("/api/competition/allowlist")).json()
    entry = next(each for each in allowed["entries"] if each["contract_id"].endswith(".xyk-swap-helper-v-1-3"))
    before = (await contest.get("/api/competition/tracked-tokens")).json()
    await publish_tokens(contest.kv, [*STATIC_TOKENS, "SP.more"])
    after = (await contest.get("/api/competition/tracked-tokens")).json()

    assert set(entry) == {"contract_id", "functions", "protocol"}
    assert "swap-helper-a" in entry["functions"]
    assert allowed["protocols"] == {"bitflow": 40}
    assert (allowed["total_contracts"], allowed["total_functions"]) == (40, 139)
    assert set(allowed) == {
        "entries", "total_contracts", "total_functions", "provider_address", "protocols", "version",
    }  # fmt: skip
    assert allowed["version"] == contest.world.rules.allowlist.version
    assert (before["source"], before["tokens"]) == ("static-fallback", list(STATIC_TOKENS))
    assert (after["source"], after["count"]) == ("dynamic", len(STATIC_TOKENS) + 1)
    assert (after["staticCore"], after["maxTracked"]) == (list(STATIC_TOKENS), 50)


async def test_a_submission_that_meets_a_reset_of_the_object_may_try_again(failing: Tocsin) -> None:
    """503, as the API's document has it: `ask` compares the two."""
    answer = await failing.submit("0x" + "12" * 32)

    assert (answer.status, answer.json()["code"], answer.json()["retryable"]) == (503, "scheduler_unavailable", True)
    assert answer.headers["retry-after"] == "5"


AN_HOUR_AGO = START_MS - 3_600_000
DONE, EARLIER = task_status(last_success_at=START_MS), task_status(last_success_at=AN_HOUR_AGO)
PARTIAL = replace(DONE, condition="partial")
NEVER = task_status(last_success_at=None)
RUNNING = Progress(START_MS, 29, 40, 3)


@pytest.mark.parametrize(
    ("feed", "way", "sweep", "swept_at", "is_complete"),
    [
        (None, "network", DONE, START_MS, True),
        (None, "network", PARTIAL, START_MS, False),
        (None, "network", replace(NEVER, running=RUNNING), None, False),
        (None, "network", replace(DONE, running=RUNNING), START_MS, True),
        (DONE, "network", EARLIER, START_MS, True),
        (EARLIER, "network", DONE, START_MS, True),
        (DONE, "wallets", EARLIER, AN_HOUR_AGO, True),
        (NEVER, "network", EARLIER, AN_HOUR_AGO, True),
        (DONE, "network", NEVER, None, False),
        (PARTIAL, "network", DONE, START_MS, False),
        (DONE, "network", PARTIAL, START_MS, False),
    ],
)
async def test_the_board_says_until_when_it_has_all_swaps(
    feed: TaskStatus | None,
    way: str,
    sweep: TaskStatus,
    swept_at: int | None,
    is_complete: bool,
    contest: CompetitionSite,
) -> None:
    """By the newer of feed and sweep; a feed that does not follow the network's list shows nothing new.

    Either may find what the other did not. Before the first complete sweep: how far it is.
    """
    status = scheduler_status(tasks={"sweep": sweep} if feed is None else {"feed": feed, "sweep": sweep})
    status = replace(status, last_result={**status.last_result, "feed": {"way": way}})

    async def health() -> HealthSnapshot:
        return replace(HEALTHY, status=status)

    contest.with_deps(health=health)
    board = (await contest.get(BOARD)).json()

    first = None if swept_at or not sweep.running else {"done": 29, "total": 40}
    assert (board["sweptAt"], board["sweepComplete"], board["firstSweep"]) == (swept_at, is_complete, first)


async def test_a_client_that_has_the_board_learns_that_the_service_is_not_ready(contest: CompetitionSite) -> None:
    """In an outage nothing else on the board changes: its ETag does."""
    snapshot = HEALTHY

    async def health() -> HealthSnapshot:
        return snapshot

    app = contest.with_deps(health=health)
    first = await ask(app, BOARD)
    known = {"If-None-Match": first.headers["etag"]}
    await contest.clock.sleep(2)
    unchanged = await ask(app, BOARD, headers=known)
    snapshot = replace(HEALTHY, store_error="the disk is full")
    await contest.clock.sleep(2)
    changed = await ask(app, BOARD, headers=known)

    assert (first.json()["service"]["ready"], unchanged.status) == (True, 304)
    assert (changed.status, changed.json()["service"]["ready"]) == (200, False)
    assert changed.json()["rows"] == first.json()["rows"]


class FailingDatabase:
    """A database that does not answer for a while."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.fails = False

    def prepare(self, sql: str) -> Statement:
        if self.fails:
            raise StoreUnavailable("not now")
        return self._db.prepare(sql)

    async def batch(self, statements: Sequence[Statement]) -> list[DBResult]:
        return await self._db.batch(statements)


async def test_nothing_is_proven_while_the_database_does_not_answer(contest: CompetitionSite) -> None:
    """A proof is kept for five seconds, and not shown afterwards; without the scheduler there is none at all."""
    db = FailingDatabase(contest.db)
    proof = ProofReader(replace(contest.deps, db=db))
    proven = await proof.read(["feed"])
    db.fails = True
    await contest.clock.sleep(4.9)
    kept, alone = await proof.read(["feed"]), await proof.read(None)
    await contest.clock.sleep(0.2)
    failed = [await proof.read(["feed"]) for _ in range(2)]
    db.fails = False
    again = await proof.read(["feed"])

    assert proven.obstacle != "the database does not answer"
    assert kept == again == proven
    assert alone == Completeness(None, None, None, "the scheduler does not answer")
    assert failed == [Completeness(None, None, None, "the database does not answer")] * 2


async def test_a_retry_is_not_asked_for_too_early(tmp_path: Path) -> None:
    """Seconds are rounded up: a client that comes back a moment too early is refused again."""
    answer = SubmitAnswer(429, Code.TOO_MANY_REQUESTS, "Wait.", "", retryable=True, retry_at=START_MS + 1_001)

    class Limited:
        """In the place of the object."""

        async def run_job(self, _job: str, _argument: Any) -> Any:
            return answer.to_json()

    async with tocsin_in(tmp_path, stub=Limited()) as made:
        refused = await made.submit(f"0x{1:064x}")

    assert (refused.status, refused.headers["retry-after"]) == (429, "2")


async def test_without_a_round_its_board_is_empty_and_not_final(contest: CompetitionSite) -> None:
    """Final would mean that a round has ended with nobody in it."""
    board = (await contest.get(f"{BOARD}?period=round")).json()

    assert (board["rows"], board["final"], board["round"]) == ([], False, None)


async def test_a_proof_ends_when_the_feed_is_switched_off(contest: CompetitionSite) -> None:
    """At once, although a proof is kept for five seconds; and it is back when the feed is."""
    proof = ProofReader(contest.deps)
    on, off, again = await proof.read(["feed"]), await proof.read([]), await proof.read(["feed"])

    assert off == Completeness(None, None, None, SWITCHED_OFF)
    assert on == again != off


@pytest.mark.slow
@pytest.mark.parametrize("route", ["trades", "status", "allowlist", "tracked-tokens", "leaderboard", "cron"])
async def test_every_public_competition_route_describes_itself(route: str, contest: CompetitionSite) -> None:
    """Agents request `?docs=1` first."""
    answer = await contest.get(f"/api/competition/{route}?docs=1")

    body = answer.json()
    assert answer.status == 200
    assert body["route"] == f"/api/competition/{route}"
    assert "GET" in {method["method"] for method in body["methods"]}
    assert body["openapi"] == "/api/openapi.json"


async def test_the_description_has_what_an_agent_needs(contest: CompetitionSite) -> None:
    body = (await contest.get(f"{TRADES}?docs=1")).json()

    by_method: dict[str, Any] = {method["method"]: method for method in body["methods"]}
    assert {parameter["name"] for parameter in by_method["GET"]["parameters"]} == {"address", "limit", "cursor"}
    assert set(by_method["POST"]["bodyExample"]) == {"txid"}
    assert {"200", "202", "404", "409", "422"} <= set(by_method["POST"]["responses"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "rows"),
    [("500", 3), ("0", 1), ("2.5", 2), ("", 3), ("-7", 1), ("9" * 500, 3), (" 2 ", 2), ("2x", 2), ("+1e9", 1)],
)
async def test_a_limit_is_moved_to_the_nearest_that_there_is(limit: str, rows: int, contest: CompetitionSite) -> None:
    """`arc … list --limit 500` and an MCP client's 2.5 are answered."""
    chain = contest.chain
    wallet = chain.wallets[0]
    for tx in chain.burst(wallet, 3):
        chain.mine()
        assert (await contest.submit(tx.tx_id)).status == 200
    query = f"limit={quote(limit)}&cursor="
    answer = await contest.get(f"{TRADES}?address={wallet.address}&{query}")
    board = await contest.get(f"{BOARD}?{query}")

    assert (answer.status, len(answer.json()["trades"])) == (200, rows)
    assert (board.status, len(board.json()["rows"])) == (200, 1)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (f"{BOARD}?address={address_of('deployer')}&limit=1", "address"),
        (f"{TRADES}?address={address_of('deployer')}&sort=pnl", "sort"),
        ("/api/competition/allowlist?token=stx", "token"),
        ("/api/prices?address=SP1", "address"),
    ],
)
async def test_a_parameter_that_would_change_the_meaning_is_refused(
    target: str, named: str, contest: CompetitionSite
) -> None:
    """The first of the board is not the answer to a question about an agent."""
    answer = await contest.get(target)

    assert (answer.status, answer.json()["code"]) == (400, "unknown_parameter")
    assert f"no parameter {named}." in answer.json()["error"]


async def test_other_parameters_are_ignored(contest: CompetitionSite) -> None:
    """Such as those that caches and trackers add."""
    chain = contest.chain
    for wallet in chain.wallets[:2]:
        await contest.trade(wallet)
    for query, rows in (("limit=1&sort=latest", 1), ("limit=1", 1), ("", 2)):
        plain = await contest.get(f"{BOARD}?{query}")
        ignored = await contest.get(f"{BOARD}?utm_source=x&{query}&_=1&fbclid=limit%3D7")

        assert (ignored.status, ignored.body, ignored.headers) == (200, plain.body, plain.headers)
        assert len(ignored.json()["rows"]) == rows


async def test_an_unavailable_database_has_the_sites_shape(
    contest: CompetitionSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site's clients compare `error` with this word and wait `retry_after` seconds."""

    async def unavailable(*_: Any) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr("tocsin.swaps.trades.trade_counts", unavailable)
    answer = await contest.get(f"/api/competition/status?address={address_of('deployer')}")

    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.json() == {
        "error": "transient_d1_unavailable",
        "code": "store_unavailable",
        "retryable": True,
        "message": "The store cannot be used right now: try again soon.",
        "retry_after": 5,
    }


HOUR_MS = 3_600_000
MINUTE_MS = 60_000


async def test_points_of_a_period_with_their_gaps(tmp_path: Path) -> None:
    """Oldest first, as they were kept; an agent without any has none."""
    async with competition_site(tmp_path, wallets=2) as made:
        one, other = made.chain.wallets
        start = made.world.clock.now()
        row = replace(sample_row(Random(1), 1, start), rank=2, trade_count=4, volume_usd=9.123, pnl_usd=-0.5)
        assert one.erc8004_agent_id is not None
        for hours in (0, 1, 30):
            rows = [replace(row, erc8004_agent_id=one.erc8004_agent_id)]
            await agent_days.append(made.world.db, rows, start + hours * HOUR_MS)
        await made.world.clock.sleep(31 * 3_600)
        day = await made.get(f"{HISTORY}?address={one.address}&period=24h")
        week = await made.get(f"{HISTORY}?address={one.address}")
        everything = await made.get(f"{HISTORY}?address={one.address}&period=all")
        nothing = await made.get(f"{HISTORY}?address={other.address}")
        await made.world.clock.sleep(2)
        unchanged = await made.get(f"{HISTORY}?address={one.address}", **{"if-none-match": week.headers["etag"]})

    assert day.json()["points"] == [
        {
            "at": (start + 30 * HOUR_MS) // MINUTE_MS * MINUTE_MS,
            "rank": 2,
            "tradeCount": 4,
            "volumeUsd": 9.12,
            "pnlUsd": -0.5,
            "pnlAtTradeUsd": None,
        }
    ]
    assert len(week.json()["points"]) == len(everything.json()["points"]) == 3
    assert (week.json()["period"], week.json()["erc8004AgentId"]) == ("7d", one.erc8004_agent_id)
    assert (nothing.status, nothing.json()["points"]) == (200, [])
    assert (week.headers["cache-control"], unchanged.status) == ("public, max-age=60", 304)


async def test_the_curves_of_everybody_are_sent_as_published(tmp_path: Path) -> None:
    """Empty before the first publication; then its bytes, with their ETag, until the next one."""
    async with competition_site(tmp_path, wallets=2) as made:
        now = made.world.clock.now()
        before = await made.get("/api/competition/curves")
        curve = AgentCurve(7, "SP1", None, [None, 1.5])
        await publish(made.kv, Curves(now, now, 2, [curve]), CURVES_KEY)
        published = await made.get("/api/competition/curves")
        known = {"if-none-match": published.headers["etag"]}
        unchanged = await made.get("/api/competition/curves", **known)
        await publish(made.kv, Curves(now + 1, now, 2, [curve]), CURVES_KEY)
        changed = await made.get("/api/competition/curves", **known)

    assert (before.status, before.json()["agents"], before.json()["days"]) == (200, [], 0)
    assert published.json() == {
        "asOf": now,
        "firstDayAt": now,
        "days": 2,
        "agents": [{"erc8004AgentId": 7, "stxAddress": "SP1", "displayName": None, "pnlUsd": [None, 1.5]}],
    }
    assert published.headers["cache-control"] == "public, max-age=60"
    assert (unchanged.status, changed.status) == (304, 200)


@pytest.mark.parametrize("stored", ['["odd"]', "{}", '{"asOf": 1, "agents": [7]}', "not JSON"])
async def test_curves_that_cannot_be_read_are_not_sent(tmp_path: Path, stored: str) -> None:
    """As if none had been published, until the next publication."""
    async with competition_site(tmp_path, wallets=1) as made:
        now = made.world.clock.now()
        await made.kv.put("curves:v1", stored)
        damaged = [await made.get("/api/competition/curves") for _ in range(2)]
        await publish(made.kv, Curves(now, now, 2, [AgentCurve(7, "SP1", None, [None, 1.5])]), CURVES_KEY)
        published = await made.get("/api/competition/curves")

    assert [(answer.status, answer.json()["agents"]) for answer in damaged] == [(200, [])] * 2
    assert len(published.json()["agents"]) == 1
