"""The nonces of accounts, which have no gaps on a chain."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_testing.virtual_time import START_MS
from stacks_simulator.chain import FATES, Chain
from stacks_simulator.traffic import Traffic, start_traffic
from support.simulated import ask_json, quiet_simulator

V1 = "/extended/v1"
V3 = "/extended/v3"
HOUR_MS = 3_600_000


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
@settings(max_examples=15, deadline=None)
def test_the_nonces_of_every_account_are_consecutive(seed: int, fates: list[Any]) -> None:
    """Through drops, re-broadcasts and reorgs, an account's mined nonces are 0, 1, 2 and so on."""
    chain = Chain(seed=seed, start_ms=START_MS, wallets=4)
    start_traffic(chain, Traffic(swaps=600, reorgs=60, network=600))
    for number in range(1, 6):
        chain.advance(START_MS + number * HOUR_MS // 6)
        assert_consecutive(chain)
    for fate in fates:
        chain.reorg(40, fate)
        assert_consecutive(chain)
        chain.mine()
        assert_consecutive(chain)

    assert any(len(nonces) > 20 for nonces in used_nonces(chain).values())
    assert any(tx.sponsor for block in chain.blocks for tx in block.transactions)


def test_a_dropped_transaction_uses_no_nonce() -> None:
    """A waiting one shows the next nonce; the block's order decides who gets which."""
    simulator = quiet_simulator()
    chain = simulator.chain
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


def test_a_reorg_takes_nonces_back() -> None:
    """Replies show the new nonce of a transaction that is mined again; the copy on a fork keeps its own."""
    simulator = quiet_simulator()
    chain = simulator.chain
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
    assert ask_json(simulator, f"{V3}/transactions/{replacement.tx_id}")["sender"]["nonce"] == 0
