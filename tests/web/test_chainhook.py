"""Pushes of Chainhook: who may send them, what is read from them, and that none is lost or counted twice."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.simulator import Simulator
from support.asgi import Answer
from support.competition import as_rows, sweep
from support.competition_site import BEARER, CHAINHOOK, CompetitionSite, push_1, push_2
from support.simulated_fetch import SimulatedFetch
from support.whole_service import ALERT_URL, Webhook
from support.world import CHAINHOOK_SECRET, FAILING, JSON_TYPE, OLD_CHAINHOOK_SECRET, Tocsin, tocsin_in
from tocsin.errors import OtherNetwork
from tocsin.scheduler.health import HealthSnapshot, health_of
from tocsin.scheduler.types import RunFilter
from tocsin.swaps import chainhook
from tocsin.swaps.submit import RECEIVE, VERIFY_QUEUED

DATA = Path(__file__).parents[1] / "data" / "chainhook"
SAMPLE_TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
NOTHING = {"swaps": 0, "refusals": 0, "candidates": 0}
NO_COUNTS = {"queued": 0, "alreadyKnown": 0, "ignored": 0, "rolledBack": 0, "refused": 0}


def read(payload: Any) -> chainhook.Push:
    return chainhook.read_push(json.loads(json.dumps(payload)))


def sample(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())["body"]


@pytest.mark.parametrize("push", [push_1, push_2])
async def test_a_push_is_stored_and_verified(push: Any, contest: CompetitionSite) -> None:
    """Both shapes: the swap is there when the work behind the response is done, from the source chainhook."""
    chain = contest.chain
    own, stranger = chain.swap(chain.wallets[0]), chain.swap(chain.strangers[0])
    transfer = chain.transfer(chain.wallets[0], chain.wallets[1], 5)
    chain.mine()
    answer = await contest.push(push(apply=[own, stranger, transfer]))

    assert answer.status == 200
    assert answer.json()["ignored"] >= 1
    assert [job for job, _ in contest.asked] == [RECEIVE, VERIFY_QUEUED]
    assert await contest.world.rows() == as_rows(contest.simulator.truth())
    assert [row["source"] for row in await contest.world.all("SELECT source FROM swaps")] == ["chainhook"]


async def test_it_is_durable_before_the_response_even_while_hiro_is_down(contest: CompetitionSite) -> None:
    """The status is 200, the transaction waits in the queue, and the next sweep verifies it."""
    simulator = contest.world.simulator
    tx = simulator.chain.swap(simulator.chain.wallets[0])
    simulator.chain.mine()
    simulator.faults.add(SimulatedFault(kind="status", upstream="hiro"))
    answer = await contest.push(push_2(apply=[tx]))
    stored = await contest.stored()
    simulator.faults.clear()
    await contest.world.clock.sleep(900)
    await sweep(contest.world)

    assert (answer.status, answer.json()["queued"]) == (200, 1)
    assert stored == {"swaps": 0, "refusals": 0, "candidates": 1}
    assert contest.world.log.of("queue.verify_failed")
    assert await contest.world.rows() == as_rows(simulator.truth())


async def test_the_same_push_again_changes_nothing(contest: CompetitionSite) -> None:
    """Delivery is at least once: the second is reported as known, and costs no call."""
    chain = contest.chain
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    await contest.push(push_2(apply=[tx]))
    calls = contest.world.calls()
    again = (await contest.push(push_2(apply=[tx]))).json()

    assert again == {**NO_COUNTS, "alreadyKnown": 1, "tooLarge": False}
    assert contest.world.calls() == calls
    assert (await contest.stored())["swaps"] == 1


@pytest.mark.parametrize("fate", ["remined", "pending", "dropped", "forked", "vanished"])
async def test_a_rollback_is_verified_again(fate: Any, contest: CompetitionSite) -> None:
    """A swap that left the chain leaves the totals; one that was mined again stays, in its new block."""
    chain = contest.chain
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    await contest.push(push_2(apply=[tx]))
    taken = chain.reorg(1, fate)
    answer = await contest.push(push_2(rollback=taken, apply=[t for t in taken if t.block is not None]))

    assert answer.json()["rolledBack"] == 1
    assert await contest.world.rows() == as_rows(contest.simulator.truth())
    (totals,) = await contest.world.all("SELECT coalesce(sum(trades), 0) AS n FROM sender_totals")
    assert totals["n"] == len(contest.simulator.truth())


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {CHAINHOOK_SECRET}"},
        {"authorization": f"bearer  {OLD_CHAINHOOK_SECRET}"},
        {"x-chainhook-consumer-secret": OLD_CHAINHOOK_SECRET},
    ],
)
async def test_both_secrets_are_valid_while_one_replaces_the_other(
    headers: dict[str, str], contest: CompetitionSite
) -> None:
    """In either of the headers that Hiro's pages name."""
    answer = await contest.post(CHAINHOOK, push_2(), {**JSON_TYPE, **headers})

    assert answer.json() == {**NO_COUNTS, "tooLarge": False}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong"},
        {"authorization": CHAINHOOK_SECRET},
        {"authorization": f"Basic {CHAINHOOK_SECRET}"},
        {"authorization": f"Bearer {CHAINHOOK_SECRET},{OLD_CHAINHOOK_SECRET}"},
        {"x-chainhook-consumer-secret": "wrong"},
        {"authorization": "Bearer \xff"},
    ],
)
async def test_without_a_secret_nothing_is_stored(headers: dict[str, str], contest: CompetitionSite) -> None:
    """401, and nothing of the secret in the response or the log."""
    chain = contest.chain
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    answer = await contest.post(CHAINHOOK, push_2(apply=[tx]), {**JSON_TYPE, **headers})

    assert (answer.status, answer.json()["code"]) == (401, "unauthorised")
    assert await contest.stored() == NOTHING
    assert CHAINHOOK_SECRET not in answer.body.decode() + repr(contest.world.log.lines)


async def test_without_a_configured_secret_it_refuses(tmp_path: Path) -> None:
    """An empty secret must never mean that anybody may push."""
    async with tocsin_in(tmp_path, stub=FAILING, chainhook_secret=()) as made:
        for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer"}):
            answer = await made.post(CHAINHOOK, {}, {**JSON_TYPE, **headers})
            assert (answer.status, answer.json()["code"]) == (503, "key_not_configured")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_body"),
        (b"\xff", 400, "malformed_body"),
        (b'{"apply": [', 400, "malformed_body"),
        (b'{"apply": []', 400, "malformed_body"),
        (b'{"apply": []}}', 400, "malformed_body"),
        (b'{"apply": [],}', 400, "malformed_body"),
        (b'{"apply": [{"transactions": [{"a": tru}]}]}', 400, "malformed_body"),
        (b'{"apply": [{"transactions": [{}, ]}]}', 400, "malformed_body"),
        (b'{"apply" []}', 400, "malformed_body"),
        (b'{"apply": [] "rollback": []}', 400, "malformed_body"),
        (b"{apply: []}", 400, "malformed_body"),
        (b'{"event": "\\', 400, "malformed_body"),
        (b'{"other": , "apply": []}', 400, "malformed_body"),
        (b"nul", 400, "malformed_body"),
        (b'{"apply": [NaN]}', 400, "malformed_body"),
        (b"{}", 422, "malformed_push"),
        (b"[]", 422, "malformed_push"),
        (b"null", 422, "malformed_push"),
        (b'{"event": []}', 422, "malformed_push"),
        (b'{"event": {"apply": {}}}', 422, "malformed_push"),
        (b'{"apply": [{}]}', 422, "malformed_push"),
        (b'{"apply": [7]}', 422, "malformed_push"),
        (b'{"apply": [{"transactions": [7]}]}', 422, "malformed_push"),
        (b'{"apply": [' + b"[]," * 500 + b"[]]}", 422, "malformed_push"),
        pytest.param(b"[" * 40_000, 400, "malformed_body", id="deep_0"),
        pytest.param(b'{"apply":' * 40_000, 400, "malformed_body", id="deep_1"),
        pytest.param(b'{"event":{"apply":[{"transactions":[[' * 40_000, 400, "malformed_body", id="deep_2"),
        pytest.param(b" " * 41_943_041, 413, "body_too_large", id="too_large"),
        pytest.param(b" " * 5_000_000 + b"{}", 422, "malformed_push", id="large_and_no_push"),
    ],
)
async def test_a_body_that_is_not_a_push_is_explained(
    body: bytes, status: int, code: str, contest: CompetitionSite
) -> None:
    """The sentence names the place; nothing is stored."""
    answer = await contest.post(CHAINHOOK, body, BEARER)

    assert (answer.status, answer.json()["code"]) == (status, code)
    assert await contest.stored() == NOTHING


@pytest.mark.parametrize("name", ["v2_apply_synthetic", "v1_swap_synthetic"])
def test_the_samples_name_their_swap(name: str) -> None:
    """Id, sender and call are found where each version has them."""
    (pushed,) = read(sample(name)).applied

    assert pushed.txid == SAMPLE_TXID
    assert pushed.sender == "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
    assert pushed.call is not None
    assert pushed.call.contract_id.endswith(".stableswap-stx-ststx-v-1-2")
    assert pushed.call.function_name == "swap-x-for-y"


def test_a_reorg_names_what_came_and_what_went() -> None:
    """The same id in both parts is read from both."""
    push = read(sample("v2_reorg_synthetic"))

    assert SAMPLE_TXID in {pushed.txid for pushed in push.applied}
    assert push.rolled_back
    assert chainhook.Push.from_json(push.to_json()) == push


@pytest.mark.parametrize("name", ["v2_fixture_apply_identity", "v2_fixture_rollback_block", "v1_fixture"])
def test_what_has_no_usable_id_is_counted(name: str) -> None:
    """No chain has such a transaction, so the push is accepted, and the operator sees the number."""
    push = read(sample(name))

    assert push.without_id + len(push.applied) + len(push.rolled_back) >= 1


@pytest.mark.parametrize(
    ("about", "word"),
    [
        ({"event": {"apply": [], "rollback": [], "chain": "stacks", "network": "testnet"}}, "testnet"),
        ({"event": {"network": "devnet", "apply": [], "rollback": []}}, "devnet"),
        ({"event": {"apply": [], "chain": "bitcoin", "network": "mainnet"}}, "bitcoin"),
        ({"apply": [], "rollback": [], "chainhook": {"uuid": "u", "network": "testnet"}}, "testnet"),
        ({"apply": [], "rollback": [], "network": 7}, "7"),
    ],
)
async def test_a_push_of_another_network_is_refused(about: Any, word: str, contest: CompetitionSite) -> None:
    """Wherever it says so; nothing is stored, and Hiro is not called."""
    chain = contest.chain
    tx = chain.swap(chain.wallets[0])
    chain.mine()
    blocks = push_2(apply=[tx])["event"]["apply"]
    event = about.get("event", about)
    event["apply"] = blocks
    calls = contest.world.calls()
    answer = await contest.push(about)

    assert (answer.status, answer.json()["code"]) == (422, "wrong_network")
    assert word in answer.json()["error"]
    assert (await contest.stored(), contest.world.calls()) == (NOTHING, calls)
    assert contest.asked == []


@pytest.mark.parametrize("network", ["mainnet", None])
async def test_a_push_of_mainnet_is_accepted(network: str | None, contest: CompetitionSite) -> None:
    """And one that does not say, such as v1's."""
    answer = await contest.push({"event": {"apply": [], "rollback": [], "network": network}})

    assert answer.status == 200


READ_MAX, VALUES_MAX = 8_388_608, 400_000


async def woken_by(made: Tocsin, body: bytes, within_s: int = 54) -> tuple[Answer, set[str]]:
    """Push a body between two slots; return the answer, and which readers of the chain run then."""
    await made.client().arm()
    await made.clock.sleep(5)
    pushed_at = made.clock.now()
    answer = await made.post(CHAINHOOK, body, BEARER)
    await made.clock.sleep(within_s)
    ran = {run.task for run in (await made.client().runs(RunFilter(None, 50, since=pushed_at))).runs}
    return answer, ran & {"feed", "sweep"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b" " * READ_MAX + b"{}", id="bytes"),
        pytest.param(b"\xff" * (5 * READ_MAX), id="as_much_as_is_received"),
        pytest.param(b'{"apply": [' + b"0," * VALUES_MAX + b"0]}", id="values"),
        pytest.param(b"[" * (VALUES_MAX + 1), id="depth"),
    ],
)
async def test_a_push_that_is_too_large_is_acknowledged_and_the_lists_are_looked_at(
    body: bytes, contest: CompetitionSite
) -> None:
    """Hiro counts a refusal as a failed delivery, and our lists have everything that a push can name."""
    answer, woken = await woken_by(contest, body)

    assert (answer.status, answer.json()) == (200, {**NO_COUNTS, "tooLarge": True})
    assert (await contest.stored(), [job for job, _ in contest.asked]) == (NOTHING, [RECEIVE])
    assert woken == {"feed"}
    assert len(contest.world.log.of("chainhook.too_large")) == 1


async def test_without_a_feed_the_sweep_looks_at_the_lists(tmp_path: Path) -> None:
    """When a push is too large."""
    async with tocsin_in(tmp_path, feed_enabled=False) as made:
        _, woken = await woken_by(made, b" " * READ_MAX + b"{}", within_s=600)

    assert woken == {"sweep"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}" + b" " * (READ_MAX - 2), id="bytes"),
        pytest.param(b"[" + b"0," * (VALUES_MAX - 1) + b"0]", id="values"),
    ],
)
async def test_a_push_at_the_limit_is_read(body: bytes, contest: CompetitionSite) -> None:
    """These are no pushes, and that was found by reading them."""
    answer, woken = await woken_by(contest, body)

    assert (answer.status, answer.json()["code"]) == (422, "malformed_push")
    assert woken == set()


NAMES = st.sampled_from(
    ["event", "apply", "rollback", "transactions", "metadata", "operations", "transaction_identifier", "hash",
     "type", "kind", "data", "sender", "contract_call"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_any_payload_is_read_or_refused(payload: Any) -> None:
    """No JSON leads to another error than the one with a sentence."""
    with suppress(UsageError, OtherNetwork):
        push = read(payload)
        assert chainhook.Push.from_json(json.loads(json.dumps(push.to_json()))) == push


IDS = st.integers(0, 5).map(lambda number: f"0x{number:064x}") | st.text(max_size=5)
TRANSACTIONS = st.builds(
    lambda txid, sender, noise: {
        "noise": noise,
        "transaction_identifier": {"hash": txid},
        "metadata": {"sender_address": sender, "noise": noise},
    },
    IDS,
    st.none() | st.sampled_from(["SPA", "SPB"]),
    VALUES | st.text(alphabet='"\\{}[],: é', max_size=12),
)
BLOCKS = st.lists(st.lists(TRANSACTIONS, max_size=3).map(lambda listed: {"transactions": listed}), max_size=3)


@pytest.mark.slow
@given(BLOCKS, BLOCKS, VALUES, st.booleans())
def test_every_transaction_is_read_in_its_own_order(applied: Any, undone: Any, noise: Any, v1: bool) -> None:
    """Whatever else the push contains."""
    event = {"noise": noise, "apply": applied, "other": [noise], "rollback": undone}
    push = read(event if v1 else {"event": event})
    mined, gone = (
        [transaction for block in blocks for transaction in block["transactions"]] for blocks in (applied, undone)
    )

    assert [(pushed.txid, pushed.sender) for pushed in push.applied] == [
        (txid(each), each["metadata"]["sender_address"]) for each in mined if is_id(txid(each))
    ]
    assert push.rolled_back == [txid(each) for each in gone if is_id(txid(each))]
    assert push.without_id == sum(not is_id(txid(each)) for each in [*mined, *gone])


def txid(transaction: Any) -> Any:
    return transaction["transaction_identifier"]["hash"]


def is_id(text: str) -> bool:
    return len(text) == 66


@pytest.mark.parametrize(
    ("unreadable", "count"),
    [
        ({"event": {"apply": [{"transactions": [{"transaction_identifier": {"id": "0x1"}}] * 3}]}}, 3),
        (
            {"event": {"apply": [], "blocks": [{"transactions": [{"transaction_identifier": {"hash": SAMPLE_TXID}}]}]}},
            1,
        ),
    ],
)
async def test_transactions_that_cannot_be_read_raise_an_alert(unreadable: Any, count: int, tmp_path: Path) -> None:
    """Hiro counts such a push as delivered, so nobody else would notice; the next one that can be read ends it."""
    hooks: list[Webhook] = []

    def webhook(simulator: Simulator) -> Webhook:
        hooks.append(Webhook(SimulatedFetch(simulator)))
        return hooks[0]

    async with tocsin_in(tmp_path, fetch=webhook, alert_url=ALERT_URL) as made:
        answers = [await made.post(CHAINHOOK, unreadable, BEARER) for _ in range(2)]
        await asyncio.sleep(1)
        ill = await made.client().status()
        empty = await made.post(CHAINHOOK, {"event": {"apply": [], "rollback": []}}, BEARER)
        still_ill = await made.client().status()
        await made.post(CHAINHOOK, push_2([made.simulator.chain.swap(made.simulator.chain.wallets[0])]), BEARER)
        await asyncio.sleep(1)
        well = await made.client().status()
        health = health_of(HealthSnapshot(0.0, None, replace(ill, next_alarm_at=ill.now)), ill.now)

    assert [(answer.status, answer.json()["ignored"]) for answer in answers] == [(200, count)] * 2
    assert (empty.status, empty.json()["ignored"]) == (200, 0)
    assert f"none can be read ({count} in the last push)" in ill.problems[0]
    assert (len(ill.problems), still_ill.problems, well.problems) == (1, ill.problems, [])
    assert (health.ready, health.state, health.reasons) == (False, "failing", ill.problems)
    assert [(alert["event"], alert["reasons"]) for alert in hooks[0].alerts] == [
        ("not_ready", ill.problems),
        ("ready", []),
    ]


async def test_a_problem_outlives_the_process_and_ends_after_a_day(tmp_path: Path) -> None:
    """Perhaps the hook was removed: an old problem does not stay for ever."""
    unreadable: Any = {"event": {"apply": [{"transactions": [{"transaction_identifier": {}}]}]}}
    async with tocsin_in(tmp_path) as made:
        await made.post(CHAINHOOK, unreadable, BEARER)
    async with tocsin_in(tmp_path) as again:
        first = (await again.client().status()).problems
        await asyncio.sleep(86_401)
        later = (await again.client().status()).problems
    assert (len(first), later) == (1, [])
