"""Submissions share their calls to Hiro: no client can take them all, and unknown ids are not requested twice."""

import asyncio
from collections.abc import Awaitable
from math import e
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset
from holdfast.types import JSON
from stacks_simulator.chain_records import AssetEvent, ChainTransaction, SimulatedCall
from stacks_simulator.tokens import ALEX, WELSH
from support.asgi import Answer, ask
from support.competition import open_world, trading
from support.competition_site import TRADES, competition_site
from support.scheduler import scheduler
from support.scripted_fetch import ScriptedFetch
from support.submitters import LaneFigures, LaneWorld, addresses, hiro_knows_nothing
from support.world import JSON_TYPE
from tocsin.errors import ShareUsed
from tocsin.swaps.submit import (
    RECEIVE,
    RECHECK,
    SUBMIT,
    VERIFY_QUEUED,
    SubmissionLane,
    competition_jobs,
    submit,
    verdict,
)
from tocsin.swaps.types import SubmitAnswer
from tocsin.upstream.budget import Quota
from tocsin.upstream.shares import ClientShares
from tocsin.upstream.windows import Lane

CLIENT = ("192.0.2.1",)
DAY_S = 86_400.0
SMALL = Quota(second=100, minute=10_000, month=10_000, is_cap=True)  # 53 calls for the first day's submissions


def unknown(number: int) -> str:
    return f"0x{number:064x}"


@pytest.mark.parametrize("kind", ["one address", pytest.param("a /48", marks=pytest.mark.slow)])
async def test_greedy_clients_refuse_no_honest_one(kind: str) -> None:
    """Half a day at full speed: every honest submission is looked up, every call of the scheduler is made."""
    figures = await LaneWorld().run(addresses(kind), 0.5)

    assert (figures.honest, figures.honest_refused) == (72, 0)
    assert (figures.task_calls >= 1_920, figures.task_refused) == (True, 0)
    assert figures.request_calls < 200


@pytest.mark.slow
async def test_ten_addresses_refuse_no_honest_one() -> None:
    """They get ten shares, and each of them is smaller than one address alone would get."""
    figures = await LaneWorld().run(addresses("ten addresses"), 0.5)

    assert (figures.honest_refused, figures.task_refused) == (0, 0)
    assert figures.left_min > 250


@pytest.mark.slow
async def test_without_shares_one_client_takes_everything() -> None:
    """What the shares are for: the same client, the same day."""
    figures: LaneFigures = await LaneWorld(shares=False).run(addresses("one address"), 0.5)

    assert figures.honest_refused > 60
    assert figures.task_refused == 0


async def test_ids_that_come_together_are_asked_together(tmp_path: Path) -> None:
    """The first at once, those of the next second in groups of twenty; each waiter gets its own answer."""
    async with open_world(tmp_path) as world:
        chain, lane = world.simulator.chain, SubmissionLane()
        known = [chain.swap(chain.wallets[0]) for _ in range(24)]
        chain.mine()
        began, calls = world.clock.monotonic(), world.calls()
        txids = [known[0].tx_id, unknown(1), *(tx.tx_id for tx in known[1:]), known[23].tx_id]
        answers = await asyncio.gather(
            submit(world.request(), world.rules, {"txid": txids[0]}, lane),
            *[_later(submit(world.request(), world.rules, {"txid": txid}, lane)) for txid in txids[1:]],
        )

        assert [answer.code for answer in answers[:24]] == [None, "tx_not_found", *[None] * 22]
        assert {answer.code for answer in answers[24:]} == {None, "txid_already_verified"}  # twice the same id
        assert [answer.trade.txid for answer in answers[2:] if answer.trade] == txids[2:]
        assert world.calls() - calls == 3
        assert world.clock.monotonic() - began == pytest.approx(1.0, abs=0.1)


async def _later(work: Awaitable[SubmitAnswer]) -> SubmitAnswer:
    await asyncio.sleep(0.01)
    return await work


async def test_what_is_not_found_is_remembered_for_a_minute(tmp_path: Path) -> None:
    """Asking again costs no call, and the time to wait is the rest of the minute."""
    async with competition_site(tmp_path) as made:
        first = await made.submit(unknown(1))
        await made.world.clock.sleep(20.5)
        calls = made.world.calls()
        second = await made.submit(unknown(1))
        calls_of_second = made.world.calls() - calls
        await made.world.clock.sleep(40)
        third = await made.submit(unknown(1))

        assert {answer.json()["code"] for answer in (first, second, third)} == {"tx_not_found"}
        assert [answer.headers["retry-after"] for answer in (first, second, third)] == ["60", "40", "60"]
        assert (calls_of_second, made.world.calls() - calls) == (0, 1)


async def test_a_refused_long_route_costs_its_client_all_its_calls(tmp_path: Path) -> None:
    """Its first hundred events come with the lookup, the others take further calls; a swap costs nothing."""
    async with open_world(tmp_path) as world:
        chain, lane = world.simulator.chain, SubmissionLane()
        agent, pool = chain.wallets[0].address, contract_of(chain.swap(chain.wallets[0]))
        given = [AssetEvent(asset, "transfer", agent, pool.contract, 1) for asset in ("stx", ALEX.id)] * 130
        gotten = [AssetEvent(WELSH.id, "transfer", pool.contract, agent, 5)]
        long_route = chain.broadcast(agent, pool, (*given, *gotten), fee=100)
        [swap] = world.trade(chain.wallets[0], kind="multibin")
        used = []
        for tx in (long_route, swap):
            before = world.calls()
            answer = await submit(world.request(), world.rules, {"txid": tx.tx_id, "client": list(CLIENT)}, lane)
            made = world.calls() - before
            used.append((answer.code, made, lane._shares._used_by(CLIENT[0], world.clock.monotonic())))

    code, calls, charged = used[0]
    assert (code, calls) == ("incomplete_events", 4)
    assert charged == pytest.approx(4, abs=0.01)
    assert used[1][0] is None
    assert used[1][2] == pytest.approx(4, abs=0.01)  # what the swap cost is given back


def contract_of(tx: ChainTransaction) -> SimulatedCall:
    assert isinstance(tx.payload, SimulatedCall)
    return tx.payload


async def test_an_operator_does_not_get_a_remembered_answer(tmp_path: Path) -> None:
    """A recheck asks the chain."""
    async with competition_site(tmp_path) as made:
        await made.submit(unknown(1))
        calls = made.world.calls()
        await made.client().run_job(RECHECK, {"txid": unknown(1)})

        assert made.world.calls() == calls + 1


async def test_a_change_wakes_the_board(tmp_path: Path) -> None:
    """So an agent sees its own trade. A submission that is refused changes nothing; a recheck may withdraw a swap."""
    async with open_world(tmp_path) as world:
        jobs, chain, woken = competition_jobs(world.rules), world.simulator.chain, list[str]()
        own, other = chain.swap(chain.wallets[0]), chain.swap(chain.wallets[1])
        chain.mine()
        row: JSON = {"txid": other.tx_id, "sender": None, "contract": None, "function": None}

        async def wakes(name: str, txid: str | None) -> bool:
            woken.clear()
            context = world.request()
            context.wake = lambda *tasks: woken.extend(tasks)
            await jobs[name](context, {"txid": txid, "client": list(CLIENT)})
            return woken == ["board"]

        assert not await wakes(SUBMIT, unknown(1))
        assert await wakes(SUBMIT, own.tx_id)
        assert await wakes(RECHECK, own.tx_id)
        assert not await wakes(VERIFY_QUEUED, None)
        await jobs[RECEIVE](world.request(), {"applied": [row], "rolledBack": [], "withoutId": 0})
        assert await wakes(VERIFY_QUEUED, None)


async def test_a_client_that_used_its_share_is_told_when_to_come_back(tmp_path: Path) -> None:
    """429; header and sentence agree. What is known, other clients and operators are not affected."""
    async with open_world(tmp_path, plan=SMALL) as world:
        jobs, chain = competition_jobs(world.rules), world.simulator.chain
        own, other = chain.swap(chain.wallets[0]), chain.swap(chain.wallets[1])
        chain.mine()

        async def job(name: str, txid: str, client: tuple[str, ...] = CLIENT) -> Any:
            return await jobs[name](world.request(), {"txid": txid, "client": list(client)})

        await job(SUBMIT, own.tx_id)
        codes = []
        for number in range(6):
            codes.append((await job(SUBMIT, unknown(number)))["code"])
            await world.clock.sleep(2)
        refused = await job(SUBMIT, unknown(99))
        wait_s = (refused["retryAt"] - world.clock.now()) // 1000
        known = await job(SUBMIT, own.tx_id)
        neighbor = await job(SUBMIT, other.tx_id, ("192.0.2.2",))
        operator = await job(RECHECK, unknown(98))
        await world.clock.sleep(wait_s)
        after = await job(SUBMIT, unknown(99))

        assert codes == ["tx_not_found"] * 3 + ["too_many_requests"] * 3
        assert (refused["httpStatus"], refused["retryable"]) == (429, True)
        assert refused["sentence"].endswith(f"To submit again, wait {wait_s} s.")
        assert 3_600 < wait_s < DAY_S
        assert (known["code"], neighbor["code"]) == ("txid_already_verified", None)
        assert (operator["code"], after["code"]) == ("tx_not_found", "tx_not_found")


async def test_the_refusal_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is where the request comes from; the response's header is the sentence's number."""
    monkeypatch.setattr("tocsin.upstream.shares.SHARES", (1e-9, 1e-9))
    async with competition_site(tmp_path) as made:

        async def post(number: int, client: str) -> Answer:
            body = b'{"txid": "%s"}' % unknown(number).encode()
            headers = {**JSON_TYPE, "x-forwarded-for": "203.0.113.9"}
            return await ask(made.app, TRADES, method="POST", headers=headers, body=body, client=client)

        statuses = [(await post(number, "192.0.2.1")).status for number in range(3)]
        refused = await post(9, "192.0.2.1")

        assert statuses == [404, 429, 429]
        assert refused.json()["code"] == "too_many_requests"
        assert refused.json()["error"].endswith(f"wait {refused.headers['retry-after']} s.")
        assert (await post(4, "192.0.2.2")).status == 404


async def test_trades_that_count_use_up_no_share(tmp_path: Path) -> None:
    """An agent that only trades is never held up: what is recorded or newly queued is given back."""
    async with open_world(tmp_path, plan=SMALL) as world:
        chain, lane = world.simulator.chain, SubmissionLane()
        mined = [chain.swap(chain.wallets[0]) for _ in range(10)]
        chain.mine()
        waiting = [chain.swap(chain.wallets[0], wait_ms=None) for _ in range(10)]
        codes = []

        async def code(txid: str) -> str | None:
            argument: JSON = {"txid": txid, "client": [*CLIENT]}
            return (await submit(world.request(), world.rules, argument, lane)).code

        for tx in (*mined, *waiting):
            codes.append(await code(tx.tx_id))
            await world.clock.sleep(2)
        again = [await code(waiting[0].tx_id) for _ in range(4)]

        assert codes == [None] * 10 + ["pending"] * 10
        assert again[0] == "pending"
        assert again[-1] == "too_many_requests"


async def test_a_client_pays_for_every_call_of_a_verdict(tmp_path: Path) -> None:
    """A long route takes more calls than the look-up, and none of them is free."""
    async with open_world(tmp_path) as world:
        chain, lane = world.simulator.chain, SubmissionLane()
        tx = chain.swap(chain.wallets[0], "multibin")
        while len(tx.events) <= 200:
            tx = chain.swap(chain.wallets[0], "multibin")
        chain.mine(tx)
        argument: JSON = {"txid": tx.tx_id, "client": [*CLIENT]}
        answer = await verdict(world.request(), world.rules, argument, lane)
        [(paid, _)] = lane._shares._used.values()

        assert answer.verdict is not None
        assert world.calls() > 1
        assert paid == pytest.approx(world.calls())


async def test_remembered_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.swaps.submit.NOT_FOUND_MAX", 10)
    world = LaneWorld(shares=False)
    for _ in range(15):
        await world.submit("192.0.2.1")

    assert len(world.lane._not_found) == 10


async def test_many_at_once_cannot_all_pass_before_the_first_is_counted() -> None:
    """A burst of sixty has the same share as sixty in a row."""
    world = LaneWorld()
    results = await asyncio.gather(*[world.submit("192.0.2.1") for _ in range(60)], return_exceptions=True)
    share = world.hiro.client.limiter.calls_left(Lane.REQUEST) / 20

    assert sum(isinstance(result, ShareUsed) for result in results) == pytest.approx(60 - share, abs=2)


async def test_in_the_real_object_submitters_share_a_call_and_survive_a_reset(tmp_path: Path) -> None:
    """Each request is a separate event; after a reset, waiting ones get an error, and the next one is served."""
    fetch = ScriptedFetch(hiro_knows_nothing, latency_s=0.3)
    async with (
        open_world(tmp_path) as world,
        scheduler(tmp_path, fetch=fetch, request_jobs=competition_jobs(world.rules), db=world.db) as made,
    ):

        async def sent(number: int, client: str = "192.0.2.1") -> Any:
            return await made.client().run_job(SUBMIT, {"txid": unknown(number), "client": [client]})

        answers = await asyncio.gather(*[sent(number) for number in range(5)])
        calls = len(fetch.requests)
        waiting = [asyncio.create_task(sent(number)) for number in range(10, 13)]
        await asyncio.sleep(0.1)
        made.reset()
        lost = await asyncio.gather(*waiting, return_exceptions=True)
        after = await sent(20)

        assert [answer["code"] for answer in answers] == ["tx_not_found"] * 5
        assert calls <= 2
        assert [type(error) for error in lost] == [ObjectReset] * 3
        assert after["code"] == "tx_not_found"


def without_events(_: str, body: dict[str, Any]) -> None:
    """An index that lags: it knows a transaction, but none of its events."""
    for row in body.values():
        row["result"] |= {"events": [], "event_count": 0}


async def test_a_mined_trade_whose_tokens_are_not_shown_yet_is_pending_and_queued(tmp_path: Path) -> None:
    """Nothing is refused for what Hiro does not show: the sweep asks again."""
    async with trading(tmp_path) as (world, chain):
        [tx] = world.trade(chain.wallets[0])
        with world.changing("tx/multiple", without_events):
            answer = await world.submit(tx.tx_id)
        queued = await world.all("SELECT txid, source FROM candidates")
        refused = await world.all("SELECT txid FROM refusals")

    assert (answer.code, answer.reason) == ("pending", "Hiro does not show its tokens yet")
    assert queued == [{"txid": tx.tx_id, "source": "agent"}]
    assert refused == []


# Shares


def test_a_client_may_use_a_twentieth_and_its_network_a_tenth() -> None:
    """Five and ten of a hundred calls; then it waits until enough is forgotten, plus a second."""
    shares = ClientShares()
    shares.charge(["a"], 4.9, 0)
    assert shares.wait_s(["a"], 100, 0) == 0
    shares.charge(["a"], 0.1, 0)
    assert shares.wait_s(["a"], 100, 0) == 1
    shares.charge(["a"], 5 * e - 5, 0)
    assert shares.wait_s(["a"], 100, 0) == DAY_S  # a day at most
    shares.charge(["b", "net"], 5.5, 0)
    shares.charge(["c", "net"], 4.5, 0)
    assert shares.wait_s(["d", "net"], 100, 0) == 1
    assert shares.wait_s(["d", "net"], 101, 0) == 0
    assert shares.wait_s(["b", "net"], 100, 0) == shares.wait_s(["b"], 100, 0) > 8_000  # the longer of the two


def test_what_a_client_used_is_forgotten_evenly() -> None:
    """After a day about a third still counts; a clock that goes back forgets nothing and adds nothing."""
    shares = ClientShares()
    shares.charge(["a"], 10, 1_000)

    assert shares.wait_s(["a"], 20 * 10 / e + 0.01, 1_000 + DAY_S) == 0
    assert 1 <= shares.wait_s(["a"], 20 * 10 / e - 0.01, 1_000 + DAY_S) < 20
    assert shares.wait_s(["a"], 201, 0) == 0
    assert shares.wait_s(["a"], 200, 0) == 1
    assert shares.wait_s(["a"], 100, 1_000 + shares.wait_s(["a"], 100, 1_000)) == 0


def test_what_is_given_back_is_not_owed() -> None:
    """Never less than nothing; an empty lane is nobody's fault."""
    shares = ClientShares()
    shares.charge(["a"], 3, 0)
    shares.charge(["a"], -5, 0)
    shares.charge(["a"], 5, 0)

    assert shares.wait_s(["a"], 100, 0) == 1
    assert shares.wait_s(["a"], 0.99, 0) == 0
    assert shares.wait_s(["a"], 1, 0) > 0


def test_ten_thousand_clients_are_remembered() -> None:
    """The one that was idle longest is forgotten first; one that owes nothing is not kept at all."""
    shares = ClientShares()
    shares.charge(["given back"], 5, 0)
    shares.charge(["given back"], -5, 0)
    for number in range(10_000):
        shares.charge([str(number)], 50, 0)
    shares.charge(["0"], 1, 0)
    shares.charge(["new"], 50, 0)
    shares.charge(["nothing"], 1e-6, 0)

    assert shares.wait_s(["1"], 100, 0) == 0
    assert shares.wait_s(["0"], 100, 0) > 0
    assert shares.wait_s(["2"], 100, 0) > 0
    assert len(shares._used) == 10_000
