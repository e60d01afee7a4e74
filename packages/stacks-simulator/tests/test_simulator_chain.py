"""The chain: time, what happens to transactions, nonces without gaps, and that the same seed repeats it."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.testing.virtual_time import START_MS
from stacks_simulator.calls import CALL_KINDS
from stacks_simulator.chain import BLOCK_MS, DROP_STATUSES, FATES, Chain
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import STSTX, STX
from stacks_simulator.traffic import KIND_WEIGHTS, Traffic, start_traffic
from support.simulated import HandClock, ask, ask_json, lively_chain

V1 = "/extended/v1"
V3 = "/extended/v3"
HOUR_MS = 3_600_000


@pytest.mark.slow
def test_traffic_brings_every_kind_and_every_fate() -> None:
    """Everything that the simulator can do happens within twelve hours of traffic."""
    chain = lively_chain(wallets=30, hours=12.0)

    states = Counter(tx.state for tx in chain.transactions.values())
    statuses = {tx.status for tx in chain.transactions.values()}

    assert set(KIND_WEIGHTS) == set(CALL_KINDS)
    assert {"mined", "dropped", "forked", "vanished"} <= set(states)
    assert set(DROP_STATUSES) <= statuses
    assert {"success", "abort_by_response", "abort_by_post_condition", "problematic_skipped"} <= statuses
    assert max(len(tx.events) for tx in chain.transactions.values()) > 1000
    assert any(tx.swap and tx.swap.amount_in > 2**63 for tx in chain.transactions.values())


@pytest.mark.slow
@given(cuts=st.lists(st.integers(0, 1_200_000), max_size=6), seed=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_the_number_of_steps_does_not_matter(cuts: list[int], seed: int) -> None:
    """The chain is the same whether it is advanced in one step or in many."""

    def history(steps: list[int]) -> list[tuple[Any, ...]]:
        chain = Chain(seed=seed, start_ms=START_MS, wallets=5)
        start_traffic(chain, Traffic(swaps=200, reorgs=20))
        for step in steps:
            chain.advance(START_MS + step)
        return [(tx.tx_id, tx.state, tx.status, tx.block and tx.position) for tx in chain.transactions.values()]

    assert history([*sorted(cuts), 1_200_000]) == history([1_200_000])


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Two simulators with one seed send the same replies, headers included; another seed sends others."""

    def replies(seed: int) -> list[Any]:
        chain = lively_chain(seed=seed, hours=0.5)
        simulator = Simulator(chain, HandClock(chain.now_ms))
        wallet = chain.wallets[0].address
        ids = ",".join(list(chain.transactions)[:5])
        return [
            ask(simulator, f"{V3}/principals/{wallet}/transactions"),
            ask(simulator, f"{V1}/address/{wallet}/transactions?limit=50"),
            ask(simulator, f"{V1}/tx/multiple?tx_id={ids}"),
            ask(simulator, "/v1/stacks/tokens", upstream="tenero"),
        ]

    assert replies(7) == replies(7)
    assert replies(7)[0] != replies(8)[0]


def test_a_transaction_waits_then_is_mined(simulator: Simulator, chain: Chain) -> None:
    """It is pending until the first block after its wait; then it has a block and its Bitcoin time."""
    tx = chain.swap(wait_ms=7_000)

    chain.advance(START_MS + 2 * BLOCK_MS - 1)
    assert ask_json(simulator, f"{V1}/tx/{tx.tx_id}")["tx_status"] == "pending"
    chain.advance(START_MS + 2 * BLOCK_MS)

    body = ask_json(simulator, f"{V1}/tx/{tx.tx_id}")
    assert body["tx_status"] == "success"
    assert body["block_time"] == (START_MS + 2 * BLOCK_MS) // 1000
    assert 0 <= body["block_time"] - body["burn_block_time"] < 600
    assert ask_json(simulator, "/extended")["chain_tip"]["block_height"] == body["block_height"]


def test_a_month_without_traffic_costs_nothing(chain: Chain) -> None:
    """Empty blocks are only heights: half a million of them pass in one step."""
    before = chain.tip_height

    chain.advance(START_MS + 30 * 86_400_000)

    assert chain.tip_height - before == 30 * 86_400 // 5
    assert chain.blocks == []


@pytest.mark.parametrize("status", DROP_STATUSES)
def test_a_dropped_transaction_may_come_back(status: str, simulator: Simulator, chain: Chain) -> None:
    """v1 shows why it was dropped; broadcast again, it is mined with the same id."""
    tx = chain.swap(wait_ms=None)
    chain.drop(tx, status)

    body = ask_json(simulator, f"{V1}/tx/{tx.tx_id}")
    assert body["tx_status"] == status
    assert (body["replaced_by_tx_id"] is not None) == (status == "dropped_replace_by_fee")
    chain.rebroadcast(tx)
    chain.mine()

    assert [swap.txid for swap in chain.truth()] == [tx.tx_id]


@pytest.mark.parametrize(
    ("fate", "status"),
    [
        ("remined", "success"),
        ("pending", "pending"),
        ("dropped", "dropped_replace_across_fork"),
        ("forked", "success"),
        ("vanished", None),
    ],
)
def test_a_reorg_removes_the_newest_blocks(fate: Any, status: str | None, simulator: Simulator, chain: Chain) -> None:
    """Transactions of abandoned blocks leave the lists and the truth, unless they are mined again."""
    older = chain.swap(chain.wallets[0])
    chain.mine()
    tx = chain.swap(chain.wallets[0])
    block_hash = chain.mine().hash
    assert ask_json(simulator, f"{V1}/tx/{tx.tx_id}")["block_hash"] == block_hash

    assert chain.reorg(1, fate) == [tx]

    reply = ask(simulator, f"{V1}/tx/{tx.tx_id}")
    body = json.loads(reply.body)
    assert body.get("tx_status") == status
    rows = ask_json(simulator, f"{V3}/principals/{tx.sender}/transactions")["results"]
    canonical = [tx.tx_id, older.tx_id] if fate == "remined" else [older.tx_id]
    assert [row["transaction"]["tx_id"] for row in rows] == canonical
    assert [swap.txid for swap in chain.truth()] == sorted(canonical, key=[older.tx_id, tx.tx_id].index)
    if fate in {"remined", "forked"}:
        assert body["canonical"] is (fate == "remined")
        assert (body["block_hash"] == block_hash) is (fate == "forked")


@pytest.mark.slow
def test_positions_stay_unique_and_ordered_through_reorgs() -> None:
    """Every canonical transaction has its own position, and newer blocks have greater heights."""
    chain = lively_chain(wallets=10, hours=6.0)

    positions = [tx.position for block in chain.blocks for tx in block.transactions]
    heights = [block.height for block in chain.blocks]
    assert len(set(positions)) == len(positions)
    assert heights == sorted(set(heights))
    assert all(tx.state == "mined" for block in chain.blocks for tx in block.transactions)
    assert chain.index.all == [tx for block in chain.blocks for tx in block.transactions]


def test_blocks_of_the_same_instant_have_different_heights(chain: Chain) -> None:
    """The block of a reorg does not share the height of a regular block at the same moment."""

    def reorg() -> None:
        chain.reorg(3, "remined")

    first = chain.swap(wait_ms=None)
    chain.mine()
    chain.schedule(START_MS + BLOCK_MS, reorg)  # before the block of that moment is scheduled
    second = chain.swap()

    chain.advance(START_MS + BLOCK_MS)

    assert (first.state, second.state) == ("mined", "mined")
    assert first.position < second.position
    assert first.block is not second.block


def test_a_transaction_that_is_broadcast_twice_is_mined_once(chain: Chain) -> None:
    """Dropped and broadcast again before the block, it is in the block once."""
    tx = chain.swap()
    chain.drop(tx)
    chain.rebroadcast(tx)

    chain.advance(START_MS + BLOCK_MS)

    assert chain.blocks[-1].transactions == [tx]
    assert list(chain.index.of(tx.sender)) == [tx]


def test_a_flood_of_dust_pushes_a_swap_off_the_first_page(simulator: Simulator, chain: Chain) -> None:
    """Dust from strangers fills a wallet's first page; a burst can have more than 500 calls."""
    swap = chain.swap(chain.wallets[0])
    chain.mine()
    chain.dust(chain.wallets[0], 26)
    chain.mine()

    page = ask_json(simulator, f"{V1}/address/{swap.sender}/transactions?limit=25")
    assert page["total"] == 27
    assert swap.tx_id not in {row["tx_id"] for row in page["results"]}
    chain.burst(chain.wallets[1], 501)
    chain.advance(START_MS + BLOCK_MS)

    assert len(chain.truth()) == 502
    assert len({row.block_height for row in chain.truth()}) == 2


def test_a_swap_keeps_the_tokens_and_amounts_that_are_given(chain: Chain) -> None:
    """The tokens and amounts of a scripted swap are exact."""
    chain.swap(chain.wallets[0], token_in=STX.id, token_out=STSTX.id, amount_in=2**64 + 1, amount_out=3)
    chain.mine()

    (row,) = chain.truth()

    assert (row.token_in, row.amount_in, row.token_out, row.amount_out) == (STX.id, 2**64 + 1, STSTX.id, 3)
    assert row.as_json()["amount_in"] == "18446744073709551617"


def test_errors_of_commands_list_what_is_accepted(chain: Chain) -> None:
    """The error for an unknown kind, token or status lists the known ones."""
    tx = chain.swap()
    with pytest.raises(UsageError, match="multihop"):
        chain.swap(kind="sideways")
    with pytest.raises(UsageError, match="sbtc-token"):
        chain.swap(token_in="SP1.none::none")
    with pytest.raises(UsageError, match="STX/stSTX"):
        chain.swap(token_in=STX.id, token_out=STX.id)
    with pytest.raises(UsageError, match="dropped_too_expensive"):
        chain.drop(tx, "lost")
    chain.mine()
    with pytest.raises(UsageError, match="only a waiting transaction"):
        chain.drop(tx)
    with pytest.raises(UsageError, match="is mined"):
        chain.rebroadcast(tx)
    with pytest.raises(UsageError, match="already mined"):
        chain.mine(tx)
    with pytest.raises(UsageError, match="at least one block"):
        chain.reorg(0)


def used_nonces(chain: Chain) -> dict[str, list[int]]:
    """The nonces that every account has used as a sender or a sponsor, in the order of the chain."""
    nonces: dict[str, list[int]] = defaultdict(list)
    for block in chain.blocks:
        for tx in block.transactions:
            nonces[tx.sender].append(tx.nonce)
            if tx.sponsor:
                nonces[tx.sponsor].append(tx.sponsor_nonce)
    return nonces


def assert_consecutive(chain: Chain) -> None:
    for account, nonces in used_nonces(chain).items():
        assert nonces == list(range(len(nonces))), account


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), fates=st.lists(st.sampled_from(FATES), max_size=4))
@settings(max_examples=10, deadline=None)
def test_the_nonces_of_every_account_are_consecutive(seed: int, fates: list[Any]) -> None:
    """Through drops, re-broadcasts and reorgs, an account's mined nonces are 0, 1, 2 and so on."""
    chain = Chain(seed=seed, start_ms=START_MS, wallets=4)
    start_traffic(chain, Traffic(swaps=600, reorgs=60, network=120))
    for number in range(1, 4):
        chain.advance(START_MS + number * HOUR_MS // 10)
        assert_consecutive(chain)
    for fate in fates:
        chain.reorg(40, fate)
        assert_consecutive(chain)
        chain.mine()
        assert_consecutive(chain)

    assert any(len(nonces) > 20 for nonces in used_nonces(chain).values())
    assert any(tx.sponsor for block in chain.blocks for tx in block.transactions)


def test_a_dropped_transaction_uses_no_nonce(simulator: Simulator, chain: Chain) -> None:
    """A waiting one shows the next nonce; the block's order decides who gets which."""
    first, second, third = (chain.swap(chain.wallets[0], "sponsored", wait_ms=None) for _ in range(3))
    assert {tx.nonce for tx in (first, second, third)} == {0}
    chain.drop(first)
    chain.mine(third, second)

    nonces = {
        row["transaction"]["tx_id"]: (row["transaction"]["sender"]["nonce"], row["transaction"]["sponsor"])
        for row in ask_json(simulator, f"{V3}/principals/{first.sender}/transactions")["results"]
    }
    assert nonces == {
        second.tx_id: (1, {"address": second.sponsor, "nonce": 1}),
        third.tx_id: (0, {"address": third.sponsor, "nonce": 0}),
    }
    chain.rebroadcast(first, wait_ms=None)
    waiting = ask_json(simulator, f"{V1}/tx/{first.tx_id}")
    assert (waiting["nonce"], waiting["sponsor_nonce"]) == (2, 2)


def test_a_reorg_takes_nonces_back(simulator: Simulator, chain: Chain) -> None:
    """Replies show the new nonce of a transaction that is mined again; the copy on a fork keeps its own."""
    older, newer = chain.burst(chain.wallets[0], 2)
    chain.mine()
    assert [ask_json(simulator, f"{V1}/tx/{tx.tx_id}")["nonce"] for tx in (older, newer)] == [0, 1]

    chain.reorg(1, "pending")
    assert [ask_json(simulator, f"{V1}/tx/{tx.tx_id}")["nonce"] for tx in (older, newer)] == [0, 0]
    chain.mine(newer, older)
    assert [ask_json(simulator, f"{V1}/tx/{tx.tx_id}")["nonce"] for tx in (older, newer)] == [1, 0]

    chain.reorg(1, "forked")
    replacement = chain.swap(chain.wallets[0])
    chain.mine(replacement)
    assert ask_json(simulator, f"{V1}/tx/{older.tx_id}")["nonce"] == 1
    assert ask_json(simulator, f"{V1}/tx/{replacement.tx_id}")["nonce"] == 0
