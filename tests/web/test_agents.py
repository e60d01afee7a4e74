"""What programs that take part ask for: themselves, a verdict, everybody's trades, and how to take part."""

import csv
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from stacks_simulator.addresses import address_of
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.tokens import STX, WELSH
from stacks_simulator.wallets import Wallet
from support.competition import register
from support.competition_site import TRADES, CompetitionSite, competition_site
from tocsin.prices.price import NO_FLOORS
from tocsin.prices.store import PricePoint, append
from tocsin.rounds.round import FlagKind, RoundRules
from tocsin.rounds.store import add
from tocsin.swaps.values import value_swaps
from tocsin.upstream.budget import Quota

AGENTS = "/api/competition/agents"
UNKNOWN = "0x" + "ab" * 32
SMALL = Quota(second=100, minute=10_000, month=10_000, is_cap=True)  # 53 calls for the first day's requests


async def test_a_swap_worth_more_than_its_pool_is_shown_with_the_reason(contest: CompetitionSite) -> None:
    """One unit for 10^38 is recorded: the verdict, the lists of trades and the agent's page say why it has no value."""
    chain, db = contest.chain, contest.world.db
    minted = chain.swap(chain.wallets[0], "simple", token_in=STX.id, token_out=WELSH.id, amount_in=1, amount_out=10**38)
    honest = chain.swap(chain.wallets[0], "simple", token_in=STX.id, token_out=WELSH.id)
    chain.mine()
    await db.batch(
        append(
            db,
            [
                PricePoint(token.id, chain.now_ms - 3_600_000, price, 6, "tenero", "250000", "18000")
                for token, price in ((STX, "1"), (WELSH, "0.001"))
            ],
        )
    )
    for tx in (minted, honest):
        await contest.submit(tx.tx_id)
    await value_swaps(db, chain.now_ms, NO_FLOORS)
    received = "100,000,000,000,000,000,000,000,000,000.00"
    reason = f"it received {received} USD, but the token's pools held 250,000.00 USD"
    verdict = (await contest.get(f"{TRADES}/{minted.tx_id}")).json()
    listed = (await contest.get(f"{TRADES}?address={chain.wallets[0].address}")).json()["trades"]
    newest = (await contest.get(TRADES)).json()["trades"]
    page = (await contest.get(f"/agents/{chain.wallets[0].address}")).body.decode()

    assert verdict["status"] == "verified"
    assert verdict["steps"][-1]["detail"].endswith(f"; it has no value: at the prices of its time, {reason}")
    expected = {minted.tx_id: reason, honest.tx_id: None}
    assert {trade["txid"]: trade["excess"] for trade in listed} == expected
    assert {trade["txid"]: trade["excess"] for trade in newest} == expected
    assert page.count("has no value: it received 100,000") == 1


async def test_the_verdict_on_a_recorded_swap_needs_no_call(contest: CompetitionSite) -> None:
    """Every step is shown, with the legs and the row; the spelling of the id does not matter."""
    chain = contest.chain
    tx = await contest.trade(chain.wallets[0], "third_token_fee")
    calls = contest.world.calls()
    asked = len(contest.asked)
    answer = await contest.get(f"{TRADES}/{tx.tx_id[2:].upper()}")
    verdict = answer.json()

    assert (answer.status, verdict["status"], verdict["known_from"]) == (200, "verified", "record")
    assert [step["name"] for step in verdict["steps"]] == [
        "transaction",
        "status",
        "campaign",
        "kind",
        "sender",
        "contract",
        "record",
    ]
    assert all(step["ok"] for step in verdict["steps"])
    assert [leg["role"] for leg in verdict["legs"]] == ["given", "fee", "received"]
    assert verdict["trade"]["txid"] == tx.tx_id
    assert "code" not in verdict
    assert (contest.world.calls(), len(contest.asked)) == (calls, asked)


async def test_a_refused_trade_says_why_and_what_to_do(contest: CompetitionSite) -> None:
    """From the stored refusal, for each kind of reason."""
    chain = contest.chain
    kinds = {
        "abort_by_response": ("tx_failed", "status"),
        "one_sided": ("incomplete_events", "tokens"),
        "off_list_contract": ("contract_not_allowlisted", "contract"),
    }
    for kind, (code, step) in kinds.items():
        tx = await contest.trade(chain.wallets[0], kind)
        verdict = (await contest.get(f"{TRADES}/{tx.tx_id}")).json()

        assert (verdict["status"], verdict["code"]) == ("rejected", code), kind
        assert verdict["known_from"] == "refusal", kind
        failed = [each["name"] for each in verdict["steps"] if not each["ok"]]
        assert failed == [step], kind
        assert verdict["sentence"]


async def test_a_refusal_whose_reason_is_gone_is_no_verdict(contest: CompetitionSite) -> None:
    """The sender lost its identity, traded, and has it again: the trade waits to be verified."""
    chain, db = contest.chain, contest.world.db
    wallet = chain.wallets[0]
    await register(db, [replace(wallet, tier="registered")])
    tx = await contest.trade(wallet)
    refused = (await contest.get(f"{TRADES}/{tx.tx_id}")).json()
    await register(db, [wallet])
    again = (await contest.get(f"{TRADES}/{tx.tx_id}")).json()

    assert (refused["status"], refused["code"]) == ("rejected", "sender_not_genesis")
    assert (again["status"], again["known_from"]) == ("pending", "queue")


async def test_the_chain_is_asked_for_what_is_not_known_and_nothing_is_stored(contest: CompetitionSite) -> None:
    """A swap that nobody submitted, a stranger's, one in the mempool, one that is queued, and one that is not there."""
    chain = contest.chain
    mined, foreign = chain.swap(chain.wallets[0]), chain.swap(chain.strangers[0])
    chain.mine()
    waiting = chain.swap(chain.wallets[1], wait_ms=None)
    verdicts = [(await contest.get(f"{TRADES}/{tx.tx_id}")).json() for tx in (mined, foreign, waiting)]
    stored = await contest.stored()
    await contest.submit(waiting.tx_id)
    queued = (await contest.get(f"{TRADES}/{waiting.tx_id}")).json()
    unknown = await contest.get(f"{TRADES}/{UNKNOWN}")

    assert [(each["status"], each.get("code")) for each in verdicts] == [
        ("verified", None),
        ("rejected", "sender_not_registered"),
        ("pending", "pending"),
    ]
    assert {each["known_from"] for each in verdicts} == {"chain"}
    assert verdicts[0]["swap"]["amount_in"] == str(contest.simulator.truth()[0].amount_in)
    assert stored == {"swaps": 0, "refusals": 0, "candidates": 0}
    assert (queued["status"], queued["known_from"]) == ("pending", "queue")
    assert (unknown.status, unknown.json()["code"], unknown.json()["retryable"]) == (404, "tx_not_found", True)
    assert unknown.headers["retry-after"] == "60"


async def test_a_bad_id_and_a_failing_upstream_are_explained(contest: CompetitionSite) -> None:
    """400 with the form of an id; 502 with a time to wait."""
    simulator = contest.world.simulator
    bad = await contest.get(f"{TRADES}/0x12")
    simulator.faults.add(SimulatedFault(kind="status", upstream="hiro"))
    failed = await contest.get(f"{TRADES}/{UNKNOWN}")

    assert (bad.status, bad.json()["code"]) == (400, "bad_request")
    assert "64 hex digits" in bad.json()["error"]
    assert (failed.status, failed.json()["code"]) == (502, "tx_fetch_failed")
    assert int(failed.headers["retry-after"]) >= 1


async def test_one_client_cannot_use_up_the_calls_by_asking_for_verdicts(tmp_path: Path) -> None:
    """Unknown ids one after the other: 429 after a few, with a time to wait."""
    async with competition_site(tmp_path, plan=SMALL) as made:
        answers = [await made.get(f"{TRADES}/0x{number:064x}") for number in range(20)]
        again = await made.get(f"{TRADES}/0x{0:064x}")

        assert [answer.status for answer in answers] == [404] * 3 + [429] * 17
        assert answers[-1].json()["code"] == "too_many_requests"
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert again.status == 404  # it is remembered, so it costs nothing


async def test_an_agent_sees_its_tier_its_ranks_and_its_refusals(contest: CompetitionSite) -> None:
    """An eligible agent with a trade, and an unknown wallet, with what is missing."""
    chain = contest.chain
    first, second = chain.wallets[0], chain.wallets[1]
    for wallet, count in ((first, 3), (second, 1)):
        for _ in range(count):
            await contest.trade(wallet)
    failed = await contest.trade(second, "abort_by_response")
    agent = (await contest.get(f"{AGENTS}/{second.address}")).json()
    stranger = (await contest.get(f"{AGENTS}/{address_of('somebody')}")).json()
    wrong = await contest.get(f"{AGENTS}/SP123")

    assert (agent["tier"], agent["missing"]) == ("eligible", [])
    assert agent["ranks"]["trades"] == 2
    assert set(agent["ranks"]) == {"trades", "volume", "pnl", "latest"}
    assert (agent["ranked"], agent["row"]["tradeCount"]) == (2, 1)
    assert [refusal["txid"] for refusal in agent["lastRefusals"]] == [failed.tx_id]
    assert agent["lastRefusals"][0]["code"] == "tx_failed"
    assert (stranger["tier"], stranger["ranks"], stranger["row"]) == ("not_registered", None, None)
    assert len(stranger["missing"]) == 3
    assert (wrong.status, wrong.json()["code"]) == (400, "bad_request")


async def test_everybodys_trades_come_newest_first_page_by_page(contest: CompetitionSite) -> None:
    """Without an address; the pages together are all swaps, each once."""
    chain = contest.chain
    for number in range(5):
        await contest.trade(chain.wallets[number % 3])
    seen: list[str] = []
    target = f"{TRADES}?limit=2"
    while True:
        page = (await contest.get(target)).json()
        seen += [trade["txid"] for trade in page["trades"]]
        if page["next_cursor"] is None:
            break
        target = f"{TRADES}?limit=2&cursor={page['next_cursor']}"
    wrong = await contest.get(f"{TRADES}?cursor=abc")
    empty = await contest.get(f"{TRADES}?address=")

    newest = await contest.world.all("SELECT txid FROM swaps ORDER BY block_height DESC, tx_index DESC")
    assert seen == [row["txid"] for row in newest]
    assert len(seen) == 5
    assert (wrong.status, empty.status) == (400, 400)


@pytest.mark.slow
async def test_the_guide_names_only_routes_that_exist_and_the_rules_in_force(contest: CompetitionSite) -> None:
    """`/llms.txt` and the card, against the API's own document."""
    guide = await contest.get("/llms.txt")
    card = (await contest.get("/.well-known/agent.json")).json()
    paths = (await contest.get("/openapi.json")).json()["paths"]
    text = guide.body.decode()
    named = [line[2:].split(": ")[0].split(" ") for line in text.splitlines() if line.startswith("- GET /")]

    assert guide.headers["content-type"] == "text/plain; charset=utf-8"
    assert {words[1] for words in named} <= set(paths)
    assert "- GET /api/competition/trades (address, limit, cursor): " in text
    assert {(skill["method"].lower(), skill["path"]) for skill in card["skills"]} <= {
        (method, path) for path, methods in paths.items() for method in methods
    }
    assert "Swaps count from " in text
    assert len(text.splitlines()) <= 62
    assert "## Prizes and what excludes you" in text
    assert all(f"- {kind}: the agent " in text for kind in get_args(FlagKind))


async def test_a_page_that_is_not_there_is_a_page_for_people_and_json_for_programs(contest: CompetitionSite) -> None:
    """By what the client accepts; below /api it is always JSON."""
    page = await contest.get("/nowhere", accept="text/html,application/xhtml+xml")
    program = await contest.get("/nowhere", accept="*/*")
    api = await contest.get("/api/nowhere", accept="text/html")

    assert (page.status, program.status, api.status) == (404, 404, 404)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert b"There is no page at this address." in page.body
    assert program.json()["code"] == api.json()["code"] == "not_found"


async def test_a_spreadsheet_takes_the_whole_board(contest: CompetitionSite) -> None:
    """The newest one, by P&L, with commas and formulas in names as text."""
    chain, counts = contest.chain, []
    for wallet, name in zip(chain.wallets, ('=cmd|"x"!A1', "Ada, the first", "漢;\uff1d1+1"), strict=True):
        update = "UPDATE agents SET display_name = ? WHERE stx_address = ?"
        await contest.db.prepare(update).bind(name, wallet.address).run()
        await contest.trade(wallet)
        counts.append((await contest.get("/api/competition/leaderboard.csv")).body.count(b"\n"))
    answer = await contest.get("/api/competition/leaderboard.csv")
    board = (await contest.get("/api/competition/leaderboard")).json()["rows"]
    lines = list(csv.reader(answer.body.decode().splitlines()))

    assert counts == [2, 3, 4]  # a line more after each agent's first trade
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert [(line[0], line[2], float(line[6])) for line in lines[1:]] == [
        (str(row["rank"]), row["stxAddress"], row["pnlUsd"]) for row in board
    ]
    assert {line[1] for line in lines[1:]} == {'\'=cmd|"x"!A1', "Ada, the first", "漢;'\uff1d1+1"}


NAMED = re.compile(r"- (GET|POST) (/\S+?)(?: \(([a-z, A-Z]+)\))?: (.*)")


@dataclass
class Reader:
    """Finds a route by a word of its description, and fills in the parameters that the guide names."""

    made: CompetitionSite
    guide: str

    async def ask(self, word: str, **values: str) -> Any:
        method, path, query = self._route(word)
        for name in re.findall(r"\{(\w+)\}", path):
            path = path.replace(f"{{{name}}}", values.pop(name))
        assert set(values) <= set(query), f"the guide does not name {values} of {path}"
        target = "&".join(f"{name}={value}" for name, value in values.items())
        assert method == "GET"
        return (await self.made.get(f"{path}?{target}" if target else path)).json()

    async def send(self, word: str, body: Any) -> Any:
        method, path, _ = self._route(word)
        assert method == "POST"
        return (await self.made.post(path, body)).json()

    def _route(self, word: str) -> tuple[str, str, list[str]]:
        found = [match.groups() for line in self.guide.splitlines() if (match := NAMED.fullmatch(line))]
        (method, path, query, _), *others = [groups for groups in found if word in groups[3]]
        assert not others, f"{word} is not clear: {others}"
        return method, path, (query or "").split(", ")


@asynccontextmanager
async def reader(directory: Path) -> AsyncIterator[tuple[Reader, CompetitionSite, Wallet]]:
    async with competition_site(directory) as made:
        guide = (await made.get("/llms.txt")).body.decode()
        yield Reader(made, guide), made, made.chain.wallets[0]


async def traded(made: CompetitionSite, wallet: Wallet, *kinds: str) -> list[str]:
    """Submits calls of these kinds, and names them."""
    return [(await made.trade(wallet, kind)).tx_id for kind in kinds]


async def test_questions_about_taking_part(tmp_path: Path) -> None:
    """1 what is missing, 2 is this contract allowed, 3 when does it end, 4 what is my token worth."""
    async with reader(tmp_path) as (agent, made, _wallet):
        now_s = made.clock.now() // 1000
        rules = RoundRules("week-1", now_s - 60, now_s + 3_600, now_s + 7_200)
        await add(made.world.db, rules, made.clock.now()).run()
        stranger = await agent.ask("missing steps", address=address_of("somebody"))
        allowed = await agent.ask("contracts and functions that count")
        rounds = await agent.ask("The current round")
        prices = await agent.ask("Token prices", tokens="stx")

        assert stranger["missing"][0].startswith("register the wallet")
        called = {each["contract_id"]: each["functions"] for each in allowed["entries"]}
        assert len(called) == 40
        assert all(functions for functions in called.values())
        assert rounds["running"]["ends_at"] == now_s + 3_600
        assert prices["prices"]["stx"]["priceUsd"] > 0


async def test_an_agent_sees_the_flags_of_the_running_round(contest: CompetitionSite) -> None:
    """Those that it would have if the round ended now, computed once a minute; unknown while no round runs."""
    decided = """
    INSERT INTO competition_round_decisions (round_id, erc8004_agent_id, kind, decision, reason, decided_by, decided_at)
    VALUES ('week-1', ?, '', 'exclude', 'several accounts', 'sam', '2026-05-14T00:00:00.000Z')"""
    excluded, other = contest.chain.wallets[:2]
    await traded(contest, excluded, "simple")
    without_round = (await contest.get(f"{AGENTS}/{excluded.address}")).json()
    now_s = contest.clock.now() // 1000
    rules = RoundRules("week-1", now_s - 7_200, now_s + 3_600, now_s + 7_200)
    await add(contest.world.db, rules, contest.clock.now()).run()
    await contest.world.db.prepare(decided).bind(excluded.erc8004_agent_id).run()
    await traded(contest, other, "simple")
    found = [(await contest.get(f"{AGENTS}/{wallet.address}")).json()["flags"] for wallet in (excluded, other)]
    await contest.world.all("DELETE FROM competition_round_decisions")
    kept = (await contest.get(f"{AGENTS}/{excluded.address}")).json()["flags"]
    await contest.clock.sleep(61)
    later = (await contest.get(f"{AGENTS}/{excluded.address}")).json()["flags"]

    assert without_round["flags"] is None
    assert [(flag["kind"], flag["reason"], flag["excludes_from"]) for flag in found[0]] == [
        ("operator", "excluded by an operator: several accounts", ["overall_pnl", "volume", "return"])
    ]
    assert (found[1], len(kept), later) == ([], 1, [])


async def test_questions_about_trades(tmp_path: Path) -> None:
    """5 why was it refused, 6 does it count, 7 count it now, 8 what have I traded."""
    async with reader(tmp_path) as (agent, made, wallet):
        counted, failed = await traded(made, wallet, "simple", "abort_by_response")
        chain = made.chain
        new = chain.swap(wallet).tx_id
        chain.mine()
        refused = await agent.ask("Whether a transaction counts", txid=failed)
        before = await agent.ask("Whether a transaction counts", txid=new)
        submitted = await agent.send("Submit a swap", {"txid": new})
        mine = await agent.ask("newest first", address=wallet.address)

        assert (refused["status"], refused["code"]) == ("rejected", "tx_failed")
        assert f"- {refused['code']}: {refused['sentence']}" in agent.guide
        assert (before["status"], before["known_from"]) == ("verified", "chain")
        assert submitted["txid"] == new
        assert [trade["txid"] for trade in mine["trades"]] == [new, counted]


async def test_questions_about_results(tmp_path: Path) -> None:
    """9 what is my rank, 10 who is before me."""
    async with reader(tmp_path) as (agent, made, wallet):
        other = made.chain.wallets[1]
        await traded(made, wallet, "simple")
        await traded(made, other, "simple", "simple")
        own = await agent.ask("missing steps", address=wallet.address)
        board = await agent.ask("The leaderboard", sort="trades")

        assert (own["ranks"]["trades"], own["ranked"]) == (2, 2)
        assert [row["stxAddress"] for row in board["rows"]] == [other.address, wallet.address]
