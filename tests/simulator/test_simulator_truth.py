"""The truth against an independent netting of what the APIs show."""

import json
from collections import Counter
from typing import Any

import pytest

from support.simulated import HandClock, ask, ask_json, lively_chain, quiet_simulator
from tocsin.simulator.call_kinds import REFUSED_KINDS, SWAP_KINDS
from tocsin.simulator.chain import Chain
from tocsin.simulator.chain_records import ChainTransaction
from tocsin.simulator.contracts import LISTED_CALLS, OFF_LIST_CONTRACT, OFF_LIST_FUNCTION
from tocsin.simulator.rate_limits import UNLIMITED, HiroRateLimit
from tocsin.simulator.simulator import Simulator
from tocsin.simulator.truth import COMPETITION_START_S, Campaign

V1 = "/extended/v1"
V3 = "/extended/v3"


def events_of(simulator: Simulator, tx_id: str) -> list[dict[str, Any]]:
    """All events of a transaction, page by page, as v1 shows them."""
    events: list[dict[str, Any]] = []
    while True:
        body = ask_json(simulator, f"{V1}/tx/{tx_id}?event_limit=100&event_offset={len(events)}")
        events += body["events"]
        if len(events) == body["event_count"]:
            return events


def netted(events: list[dict[str, Any]], wallet: str) -> tuple[str, int, str, int] | None:
    """The netting rule, written anew: one asset out, one in, over all transfers, mints and burns."""
    net: Counter[str] = Counter()
    for event in events:
        asset = event.get("asset", {})
        if "amount" not in asset:
            continue
        name = asset.get("asset_id", "stx")
        if asset["sender"] == wallet:
            net[name] -= int(asset["amount"])
        if asset["recipient"] == wallet:
            net[name] += int(asset["amount"])
    given_, gotten = [[(k, v) for k, v in net.items() if v * sign > 0] for sign in (-1, 1)]
    if len(given_) != 1 or len(gotten) != 1:
        return None
    return given_[0][0], -given_[0][1], gotten[0][0], gotten[0][1]


@pytest.mark.parametrize("kind", SWAP_KINDS)
def test_truth_equals_netting_for_every_kind_of_swap(kind: str) -> None:
    """What the generator meant is what its events add up to, and what v3's balance changes show."""
    simulator = quiet_simulator()
    chain = simulator.chain
    for _ in range(8):
        chain.swap(chain.wallets[0], kind)
    chain.mine()

    truth = chain.truth()

    assert len(truth) == 8
    for swap in truth:
        wanted = (swap.token_in, swap.amount_in, swap.token_out, swap.amount_out)
        assert netted(events_of(simulator, swap.txid), swap.sender) == wanted
        assert netted_by_v3(simulator, swap.txid, swap.sender) == wanted


def netted_by_v3(simulator: Simulator, tx_id: str, wallet: str) -> tuple[str, int, str, int] | None:
    """The same from one balance-changes call: the fee is given back to STX when the wallet paid it."""
    tx = ask_json(simulator, f"{V3}/transactions/{tx_id}")
    rows = ask_json(simulator, f"{V3}/principals/{wallet}/balance-changes?tx_id={tx_id}")["results"]
    net = {
        row["asset"].get("identifier", "stx"): int(row["balance_change"]["net"])
        for row in rows
        if row["asset"]["type"] != "nft"
    }
    if tx["sponsor"] is None:
        net["stx"] = net.get("stx", 0) + int(tx["fee_rate"])
    given_ = [(name, -amount) for name, amount in net.items() if amount < 0]
    gotten = [(name, amount) for name, amount in net.items() if amount > 0]
    return (*given_[0], *gotten[0]) if len(given_) == len(gotten) == 1 else None


@pytest.mark.parametrize("kind", REFUSED_KINDS)
def test_what_is_no_swap_is_not_in_the_truth(kind: str) -> None:
    """Aborted, off-list and lopsided calls are mined and still count for nothing."""
    chain = quiet_simulator().chain
    tx = chain.swap(chain.wallets[0], kind)

    chain.mine()

    assert tx.state == "mined"
    assert chain.truth() == []


@pytest.mark.parametrize("kind", ["one_sided", "two_given", "two_gotten", "round_trip", "no_events"])
def test_lopsided_calls_do_not_net_to_a_swap(kind: str) -> None:
    """The independent netting finds no swap in them either."""
    simulator = quiet_simulator()
    tx = simulator.chain.swap(simulator.chain.wallets[0], kind)
    simulator.chain.mine()

    assert netted(events_of(simulator, tx.tx_id), tx.sender) is None


def test_a_grown_allow_list_reopens_what_was_off_it() -> None:
    """The truth follows the list that is asked about."""
    chain = quiet_simulator().chain
    chain.swap(chain.wallets[0], "off_list_contract")
    chain.swap(chain.wallets[0], "off_list_function")
    chain.mine()
    contract, function = OFF_LIST_FUNCTION
    grown = {
        **LISTED_CALLS,
        OFF_LIST_CONTRACT: {"swap-helper-a"},
        contract: {*LISTED_CALLS[contract], function},
    }

    assert len(chain.truth(allowlist=grown)) == 2


def test_truth_of_a_lively_chain_equals_netting_of_everything() -> None:
    """After hours of traffic with reorgs, the truth is what an honest reader of the API finds."""
    chain = lively_chain()
    clock = HandClock(chain.now_ms)
    simulator = Simulator(chain, clock, hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED))
    eligible = {wallet.address for wallet in chain.wallets if wallet.tier == "eligible"}
    found = {}
    for tx_id in list(chain.transactions):
        reply = ask(simulator, f"{V1}/tx/{tx_id}")
        row = json.loads(reply.body)
        if reply.status != 200 or not row.get("canonical") or row["tx_status"] != "success":
            continue
        call = row.get("contract_call")
        listed = call and call["function_name"] in LISTED_CALLS.get(call["contract_id"], ())
        if not listed or row["sender_address"] not in eligible:
            continue
        swap = netted(events_of(simulator, tx_id), row["sender_address"])
        if swap:
            found[tx_id] = (row["sender_address"], *swap, row["burn_block_time"])

    truth = {
        row.txid: (
            row.sender,
            row.token_in,
            row.amount_in,
            row.token_out,
            row.amount_out,
            row.burn_block_time,
        )
        for row in chain.truth()
    }
    assert len(truth) > 300
    assert found == truth


def test_only_eligible_senders_in_the_campaign_count() -> None:
    """Registered but ineligible wallets, strangers, and swaps outside the window are left out."""
    start_ms = (COMPETITION_START_S - 1200) * 1000
    chain = Chain(seed=1, start_ms=start_ms, wallets=11, campaign=Campaign(end_s=COMPETITION_START_S + 600))
    tiers = {wallet.tier: wallet for wallet in chain.wallets}

    def swap_at(second: int) -> ChainTransaction:
        chain.advance((COMPETITION_START_S + second) * 1000)
        swap = chain.swap(tiers["eligible"])
        for wallet in (tiers["genesis"], tiers["registered"], chain.strangers[0]):
            chain.swap(wallet)
        chain.mine()
        return swap

    swap_at(-1)  # its Bitcoin block came before the start
    counted = [swap_at(0), swap_at(599)]
    swap_at(600)

    truth = chain.truth()
    assert [row.txid for row in truth] == [tx.tx_id for tx in counted]
    assert {row.burn_block_time for row in truth} == {COMPETITION_START_S}
    assert len(chain.truth(senders={chain.strangers[0].address})) == 2
