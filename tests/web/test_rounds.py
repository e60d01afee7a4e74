"""The routes of rounds: as the site published them, with our own additions."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from support.asgi import Answer
from support.competition_site import healthy
from support.round_world import AGENTS, END_S, GRACE_S, OF_ROUND, ROUND_ID, START_S, STSTX, RoundWorld, round_world
from support.world import JSON_TYPE, KEY, VIEWER, Tocsin, tocsin_in
from tocsin.rounds.file import read_round_file
from tocsin.rounds.round import AgentFlag
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.scheduler.types import RunFilter
from tocsin.text import utc_time

ROUNDS = "/api/competition/rounds"
OPERATOR = {**KEY, **JSON_TYPE}
ADMIN = "/api/admin/competition/finalize"


@dataclass
class RoundSite(Tocsin):
    world: RoundWorld

    async def decide(self, dry_run: bool = False, **body: Any) -> Answer:
        return await self.post(f"{ADMIN}?dry-run=true" if dry_run else ADMIN, body, OPERATOR)

    async def finalize(self) -> None:
        await self.world.swept(GRACE_S)
        await self.world.run(GRACE_S)


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[RoundSite]:
    async with (
        round_world(directory) as world,
        tocsin_in(directory, clock=world.clock, db=world.db, log=world.log, **OF_ROUND) as made,
    ):
        made.with_deps(health=healthy, posts_per_minute_max=10_000)
        yield made.extended(RoundSite, world=world)


@pytest.fixture
def made(tmp_path: Path) -> AbstractAsyncContextManager[RoundSite]:
    return site(tmp_path)


async def test_only_rounds_with_a_result_are_listed(made: RoundSite) -> None:
    """Newest first, in pages; a running one has its own page, with its rules. Wrong numbers are refused."""
    before = await made.get(ROUNDS)
    running = await made.get(f"{ROUNDS}/{ROUND_ID}")
    hidden = [await made.get(f"{ROUNDS}/{ROUND_ID}{rest}") for rest in ("/file", f"/results/{AGENTS[0]}")]
    absent = [await made.get(f"{ROUNDS}/none{rest}") for rest in ("", "/file")]
    await made.finalize()
    await made.world.add_round(roundId="week-2", startsAt=START_S - 86_400, endsAt=END_S - 86_400)
    await made.world.prices_around(END_S - 86_400, stx="1", ststx="1")
    await made.world.run()
    listed = await made.get(ROUNDS)
    page = await made.get(f"{ROUNDS}?limit=0&offset=1st")
    beyond = await made.get(f"{ROUNDS}?offset={'9' * 40}")
    wrong = [(await made.get(f"{ROUNDS}?{query}")).status for query in ("limit=x", "offset=x", "offset=-1")]

    pagination = {"limit": 20, "offset": 0, "hasMore": False}
    assert before.json() == {"rounds": [], "pagination": pagination, "winners": {}}
    won = listed.json()["winners"][ROUND_ID]
    assert {each["category"]: each["stx_address"] for each in won}["overall_pnl"] == AGENTS[0]
    assert (running.status, running.headers["cache-control"]) == (200, "public, max-age=5")
    assert (running.json()["round"]["status"], running.json()["round"]["ends_at"]) == ("open", END_S)
    lists = ("results", "rewards", "prices", "flags", "discrepancies")
    assert {name: running.json()[name] for name in lists} == {name: [] for name in lists}
    for answer in hidden:
        assert (answer.status, answer.json()["error"]) == (404, "round_not_found")
        assert answer.json()["message"] == (
            f"The round {ROUND_ID} has no result yet. Its end is {utc_time(END_S * 1000)};"
            f" the result follows after {utc_time(GRACE_S * 1000)}."
        )
    for answer in absent:
        assert (answer.status, answer.json()["error"]) == (404, "round_not_found")
        assert answer.json()["message"] == "There is no such round: none."
    rounds = listed.json()["rounds"]
    assert [each["round_id"] for each in rounds] == [ROUND_ID, "week-2"]
    published = ("starts_at", "ends_at", "grace_ends_at", "status", "min_volume_usd", "min_priced_trade_count")
    assert [rounds[0][name] for name in published] == [START_S, END_S, GRACE_S, "finalized", 50.0, 3]
    assert (rounds[0]["created_at"], rounds[0]["finalized_at"]) == (
        "2027-01-15T08:00:00.000Z",
        "2027-01-22T09:00:00.000Z",
    )
    assert page.json()["pagination"] == {"limit": 1, "offset": 1, "hasMore": False}
    assert beyond.json()["rounds"] == []
    assert wrong == [400, 400, 400]


async def test_a_round_has_its_results_and_its_file(made: RoundSite) -> None:
    """The digest in the API is that of the file, which anybody can read."""
    await made.finalize()
    one = (await made.get(f"{ROUNDS}/{ROUND_ID}")).json()
    file = await made.get(f"{ROUNDS}/{ROUND_ID}/file")
    head = await made.ask(f"{ROUNDS}/{ROUND_ID}/file", method="HEAD")
    other = await made.get(f"{ROUNDS}/{ROUND_ID}/file?version=2")

    read = read_round_file(file.body.decode().splitlines())
    assert one["round"]["digest"] == read.digest
    assert [row["rank"] for row in one["results"]] == [1, 2, 3]
    assert one["results"][0]["volume_usd"] == 75.0
    assert one["results"][0]["exact"]["volume_usd"] == "75"
    assert [row.pnl_usd for row in read.outcome.results] == ["10", "0", "-10"]
    assert {row["category"]: row["status"] for row in one["rewards"]} == {"overall_pnl": "pending", "volume": "pending"}
    assert [price["token_id"] for price in one["prices"]] == [STSTX, "stx"]
    assert (one["flags"], one["discrepancies"]) == ([], [])
    assert (file.headers["content-type"], head.status, head.body) == ("application/x-ndjson", 200, b"")
    assert other.status == 404


async def test_the_place_of_an_agent(made: RoundSite) -> None:
    """By its address; an agent that did not trade has none. The status has the newest one."""
    without = (await made.get(f"/api/competition/status?address={AGENTS[0]}")).json()
    await made.finalize()
    placed = await made.get(f"{ROUNDS}/{ROUND_ID}/results/{AGENTS[0]}")
    nobody = await made.get(f"{ROUNDS}/{ROUND_ID}/results/SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M")
    bad = await made.get(f"{ROUNDS}/{ROUND_ID}/results/bc1q")
    unknown = await made.get(f"{ROUNDS}/week-9/results/{AGENTS[0]}")
    status = (await made.get(f"/api/competition/status?address={AGENTS[0]}")).json()
    one = (await made.get(f"{ROUNDS}/{ROUND_ID}")).json()

    assert "latestRoundResult" not in without
    assert (placed.json()["round_id"], placed.json()["result"]["rank"]) == (ROUND_ID, 1)
    assert (nobody.status, nobody.json()["error"]) == (404, "agent_not_placed")
    assert bad.status == 400
    assert (unknown.status, unknown.json()["error"]) == (404, "round_not_found")
    assert status["latestRoundResult"] == placed.json()["result"]
    # An object, as on the site; the column has JSON text.
    expected = {"source_counts": {"agent": 0, "cron": 1, "chainhook": 0}, "unpriced_tokens": []}
    assert one["results"][0]["result_json"] == placed.json()["result"]["result_json"] == expected


async def test_an_agent_sees_its_rounds_its_prizes_and_its_flags(made: RoundSite) -> None:
    """In its answer and on its page, newest first; nothing before there is a result, and no flag that was cleared."""
    target = f"/api/competition/agents/{AGENTS[0]}"
    without = (await made.get(target)).json()
    await made.finalize()
    await made.decide(roundId=ROUND_ID, action="pay", category="overall_pnl", payoutTxid="ab" * 32)
    flags = "INSERT INTO competition_round_flags SELECT ?, erc8004_agent_id, ?, ? FROM agents WHERE stx_address = ?"
    for flag in (AgentFlag(1, "dust", "dust <b>", [], []), AgentFlag(1, "churn", "", [], [], cleared=True)):
        text = json.dumps(flag.to_json())
        await made.world.db.prepare(flags).bind(ROUND_ID, flag.kind, text, AGENTS[0]).run()
    (rounds,) = (await made.get(target)).json()["rounds"]
    page = (await made.get(f"/agents/{AGENTS[0]}")).body.decode()
    second = (await made.get(f"/agents/{AGENTS[2]}")).body.decode()

    assert without["rounds"] == []
    assert (rounds["roundId"], rounds["endsAt"], rounds["rank"], rounds["ranked"]) == (ROUND_ID, END_S * 1000, 1, 3)
    assert rounds["pnlPercent"] == pytest.approx(rounds["pnlUsd"] / rounds["volumeUsd"] * 100)
    assert (rounds["pnlUsd"], rounds["volumeUsd"], rounds["tradeCount"]) == (10.0, 75.0, 1)
    assert [(prize["category"], prize["status"]) for prize in rounds["prizes"]] == [("overall_pnl", "paid")]
    assert [flag["kind"] for flag in rounds["flags"]] == ["dust"]
    assert "Best P&amp;L: 5,000 sats (paid)</small>" in page
    assert "flagged: dust &lt;b&gt;</small>" in page
    assert "rank 2 of 3 · <span>$0.00</span> · 1 trade</li>" in second


async def test_what_runs_now(made: RoundSite) -> None:
    """The running round and the next, with their times; then what waits and why; then the winners."""
    await made.world.act("rule", firstStartsAt=START_S)
    await made.world.run(START_S + 5)
    running = (await made.get(f"{ROUNDS}/current")).json()
    await made.world.run(GRACE_S)
    waiting = (await made.get(f"{ROUNDS}/current")).json()
    await made.finalize()
    final = (await made.get(f"{ROUNDS}/current")).json()

    assert (running["now"], running["running"]["ends_at"]) == (START_S + 5, END_S)
    assert (running["next"]["round_id"], running["next"]["starts_at"]) == ("week-2-2027-01-22", END_S)
    assert (running["waiting"], running["latest"]) == ([], None)
    assert waiting["waiting"][0]["waiting_reason"].startswith("the chain was not read completely")
    assert waiting["running"]["round_id"] == "week-2-2027-01-22"
    assert final["waiting"] == []
    winners = {each["category"]: each["display_name"] for each in final["latest"]["winners"]}
    assert winners == {"overall_pnl": "Agent 0", "volume": "Agent 1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [ROUNDS, f"{ROUNDS}/current", f"{ROUNDS}/x", f"{ROUNDS}/x/file", f"{ROUNDS}/x/results/{AGENTS[0]}"]
)
async def test_routes_describe_themselves_and_say_when_the_database_is_away(tmp_path: Path, path: str) -> None:
    """As the site's do: `?docs=1`, and 503 with `retry_after`."""
    async with site(tmp_path) as made:
        described = await made.get(f"{path}?docs=1")
    away = await made.get(path)  # the database is closed

    assert described.json()["methods"][0]["method"] == "GET"
    assert away.status == 503
    assert (away.json()["error"], away.json()["retry_after"]) == ("transient_d1_unavailable", 5)


async def test_an_operator_takes_the_steps_by_hand(made: RoundSite) -> None:
    """In their order; a dry run computes and writes nothing; the audit log has what was done."""
    await made.world.swept(GRACE_S)
    unknown = await made.decide(roundId="week-9", action="close")
    early = await made.decide(roundId=ROUND_ID, action="close")
    made.world.clock.at_s = GRACE_S
    wrong = [
        (await made.decide(roundId=ROUND_ID, action=action)).json()["error"] for action in ("snapshot", "finalize")
    ]
    dry = await made.decide(dry_run=True, roundId=ROUND_ID, action="finalize")
    untouched = await made.world.status()
    steps = [
        (await made.decide(roundId=ROUND_ID, action=action)).json()["round"]["status"]
        for action in ("close", "snapshot", "finalize")
    ]
    again = await made.decide(roundId=ROUND_ID, action="finalize")
    last, before, *_ = (await made.client().audit(50)).records

    assert (unknown.status, unknown.json()["error"]) == (404, "round_not_found")
    assert (early.status, early.json()["error"]) == (409, "grace_period_active")
    assert wrong == ["wrong_status", "wrong_status"]
    assert [row["pnl_usd"] for row in dry.json()["outcome"]["results"]] == ["10", "0", "-10"]
    assert untouched == "open"
    assert steps == ["closed", "finalizing", "finalized"]
    assert (again.status, again.json()["error"]) == (409, "wrong_status")
    assert (before.key, before.action, before.target, before.reason) == ("alice", "round finalize", ROUND_ID, None)
    assert (before.outcome, before.detail) == ("done", "3 agents")
    assert (last.key, last.action, last.outcome) == ("alice", "round finalize", "refused")


async def test_incomplete_data_is_captured_only_by_force(made: RoundSite) -> None:
    """With a reason."""
    made.world.clock.at_s = GRACE_S
    await made.decide(roundId=ROUND_ID, action="close")
    refused = await made.decide(roundId=ROUND_ID, action="snapshot")
    silent = await made.decide(roundId=ROUND_ID, action="snapshot", force=True)
    forced = await made.decide(roundId=ROUND_ID, action="snapshot", force=True, reason="Hiro is gone for good")

    assert (refused.status, refused.json()["error"]) == (409, "data_incomplete")
    assert silent.status == 400
    assert forced.json()["round"]["status"] == "finalizing"


async def test_prizes_are_paid_one_by_one(made: RoundSite) -> None:
    """The round is partially paid, then paid. A prize is paid once."""
    await made.finalize()
    paid = [
        (await made.decide(roundId=ROUND_ID, action="pay", category=category, payoutTxid="ab" * 32)).json()
        for category in ("overall_pnl", "volume")
    ]
    again = await made.decide(roundId=ROUND_ID, action="pay", category="volume", payoutTxid="ab" * 32)
    listed = await made.get(ADMIN, **VIEWER)

    assert [each["round"]["status"] for each in paid] == ["partially_paid", "paid"]
    assert again.status == 409
    assert [each["status"] for each in listed.json()["rounds"][0]["rewards"]] == ["paid", "paid"]


async def test_a_void_round_has_no_result(made: RoundSite) -> None:
    await made.finalize()
    voided = await made.decide(roundId=ROUND_ID, action="void", reason="the chain was halted")
    shown = await made.get(f"{ROUNDS}/{ROUND_ID}")
    after = await made.decide(roundId=ROUND_ID, action="reopen", reason="no")

    assert (voided.json()["round"]["status"], voided.json()["round"]["note"]) == ("void", "the chain was halted")
    assert (shown.status, after.status) == (200, 409)
    assert (shown.json()["round"]["note"], shown.json()["results"]) == ("the chain was halted", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([], "The body is an object"),
        ({"roundId": ROUND_ID}, "action is missing"),
        ({"action": "burn"}, "action is 'burn'"),
        ({"action": "close", "roundid": "x"}, "There is no field 'roundid'"),
        ({"action": "close", "roundId": "../x"}, "roundId is lower-case letters"),
        ({"action": "close", "roundId": ROUND_ID, "category": "volume"}, "close takes no category"),
        ({"action": "add", "roundId": "a", "startsAt": "1", "endsAt": 2}, "startsAt cannot be '1'"),
        ({"action": "add", "roundId": "a", "startsAt": 2, "endsAt": 1}, "endsAt must be later than startsAt"),
        ({"action": "add", "roundId": "a", "startsAt": 1, "endsAt": 2, "minVolumeUsd": 50}, "minVolumeUsd cannot be"),
        ({"action": "add", "roundId": "a", "startsAt": 1, "endsAt": 2, "rewards": {"luck": 1}}, "rewards are sats"),
        ({"action": "void", "roundId": ROUND_ID}, "void needs a reason"),
        ({"action": "price", "roundId": ROUND_ID, "reason": "r", "tokenId": "x"}, "A token id is stx"),
        ({"action": "flag", "roundId": ROUND_ID, "reason": "r", "agentId": 1, "decision": "maybe"}, "as decision"),
        ({"action": "rule", "firstStartsAt": 1, "periodS": 5}, "periodS is an hour to a year"),
    ],
)
async def test_what_is_not_clear_is_refused(made: RoundSite, body: Any, sentence: str) -> None:
    answer = await made.post(ADMIN, body, OPERATOR)

    assert answer.status == 400
    assert sentence in str(answer.json())


async def test_only_operators_act(made: RoundSite) -> None:
    viewer = {**VIEWER, **JSON_TYPE}
    body = {"action": "close", "roundId": ROUND_ID}
    looked = await made.get(ADMIN, **VIEWER)
    acted = await made.post(ADMIN, body, viewer)
    nobody = await made.get(ADMIN)

    assert (looked.status, acted.status, nobody.status) == (200, 403, 401)
    assert (await made.client().audit(50)).records == []


async def test_the_task_looks_at_once_at_what_an_operator_added(
    made: RoundSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a round that is about to end is closed on time. If the refresh fails, the action stands."""

    async def fail(*_arguments: object) -> None:
        raise ObjectReset("the object was reset")

    added = await made.decide(action="add", roundId="soon", startsAt=END_S, endsAt=END_S + 60, graceS=60)
    tried = await made.decide(dry_run=True, action="add", roundId="later", startsAt=END_S, endsAt=END_S + 60)
    runs = (await made.client().runs(RunFilter("rounds", 9))).runs
    monkeypatch.setattr(SchedulerDO, "refresh_now", fail)
    later = await made.decide(action="add", roundId="later", startsAt=END_S, endsAt=END_S + 60, graceS=60)
    voided = await made.decide(action="void", roundId="soon", reason="a test")

    assert [answer.status for answer in (added, tried, later, voided)] == [200, 200, 200, 200]
    assert [(run.trigger, run.outcome) for run in runs] == [("refresh", "ok")]
    assert await made.world.round_ids() == [ROUND_ID, "later", "soon"]
