"""The truth, compared with an independent netting of what the APIs return."""

import json
from collections import Counter
from typing import Any

import pytest

from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT, OFF_LIST_FUNCTION, REFUSED_KINDS, SWAP_KINDS
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.rate_limits import UNLIMITED, HiroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.truth import COMPETITION_START_S, Campaign
from support.simulated import HandClock, ask, ask_json, lively_chain

V1 = "/extended/v1"
V3 = "/extended/v3"


def events_of(simulator: Simulator, tx_id: str) -> list[dict[str, Any]]:
    """All events of a transaction from v1, page by page."""
    events: list[dict[str, Any]] = []
    while True:
        body = ask_json(simulator, f"{V1}/tx/{tx_id}?event_limit=100&event_offset={len(events)}")
        events += body["events"]
        if len(events) == body["event_count"]:
            return events


def net_swap(events: list[dict[str, Any]], wallet: str) -> tuple[str, int, str, int] | None:
    """A second implementation of netting: one asset out, one in, over all transfers, mints and burns."""
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
    outgoing = [(name, -amount) for name, amount in net.items() if amount < 0]
    incoming = [(name, amount) for name, amount in net.items() if amount > 0]
    if len(outgoing) > 1:
        outgoing = [(name, amount) for name, amount in outgoing if not only_pays(events, wallet, name)]
    return (*outgoing[0], *incoming[0]) if len(outgoing) == len(incoming) == 1 else None


def only_pays(events: list[dict[str, Any]], wallet: str, name: str) -> bool:
    """Whether the wallet sent this token only to those who send nothing to anybody."""
    assets = [event["asset"] for event in events if "amount" in event.get("asset", {})]
    sent = [asset for asset in assets if asset["sender"] == wallet and asset.get("asset_id", "stx") == name]
    givers = {asset["sender"] for asset in assets if asset["recipient"]}
    return all(asset["recipient"] and asset["recipient"] not in givers for asset in sent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SWAP_KINDS)
def test_truth_equals_netting_for_every_kind_of_swap(kind: str, simulator: Simulator, chain: Chain) -> None:
    """What the generator intended is the net of its events and of v3's balance changes."""
    for _ in range(8):
        chain.swap(chain.wallets[0], kind)
    chain.mine()

    truth = chain.truth()

    assert len(truth) == 8
    for swap in truth:
        expected = (swap.token_in, swap.amount_in, swap.token_out, swap.amount_out)
        assert net_swap(events_of(simulator, swap.txid), swap.sender) == expected
        if kind != "third_token_fee":  # balance changes do not say who was paid
            assert net_swap_by_v3(simulator, swap.txid, swap.sender) == expected


def net_swap_by_v3(simulator: Simulator, tx_id: str, wallet: str) -> tuple[str, int, str, int] | None:
    """The same from one balance-changes call: the fee is added back to STX when the wallet paid it."""
    tx = ask_json(simulator, f"{V1}/tx/{tx_id}")
    rows = ask_json(simulator, f"{V3}/principals/{wallet}/balance-changes?tx_id={tx_id}")["results"]
    net = {
        row["asset"].get("identifier", "stx"): int(row["balance_change"]["net"])
        for row in rows
        if row["asset"]["type"] != "nft"
    }
    if not tx["sponsored"]:
        net["stx"] = net.get("stx", 0) + int(tx["fee_rate"])
    outgoing = [(name, -amount) for name, amount in net.items() if amount < 0]
    incoming = [(name, amount) for name, amount in net.items() if amount > 0]
    return (*outgoing[0], *incoming[0]) if len(outgoing) == len(incoming) == 1 else None


@pytest.mark.parametrize("kind", REFUSED_KINDS)
def test_a_call_that_does_not_count_is_not_in_the_truth(kind: str, chain: Chain) -> None:
    """Aborted calls, off-list calls and calls that are not swaps are mined and do not count."""
    tx = chain.swap(chain.wallets[0], kind)

    chain.mine()

    assert tx.state == "mined"
    assert chain.truth() == []


@pytest.mark.parametrize("kind", ["one_sided", "two_given", "two_gotten", "round_trip", "no_events"])
def test_calls_that_are_not_swaps_do_not_net_to_a_swap(kind: str, simulator: Simulator) -> None:
    """The independent netting finds no swap in them either."""
    tx = simulator.chain.swap(simulator.chain.wallets[0], kind)
    simulator.chain.mine()

    assert net_swap(events_of(simulator, tx.tx_id), tx.sender) is None


def test_off_list_calls_count_with_a_longer_allow_list(chain: Chain) -> None:
    """The truth depends on the allow-list that it is asked for."""
    chain.swap(chain.wallets[0], "off_list_contract")
    chain.swap(chain.wallets[0], "off_list_function")
    chain.mine()
    contract, function = OFF_LIST_FUNCTION
    longer = {**LISTED_CALLS, OFF_LIST_CONTRACT: {"swap-helper-a"}, contract: {*LISTED_CALLS[contract], function}}

    assert len(chain.truth(allowlist=longer)) == 2


@pytest.mark.slow
def test_truth_of_a_lively_chain_equals_netting_of_everything() -> None:
    """After hours of traffic with reorgs, the truth is what a careful reader of the API finds."""
    chain = lively_chain()
    clock = HandClock(chain.now_ms)
    simulator = Simulator(chain, clock, hiro_rate_limit=HiroRateLimit(UNLIMITED, UNLIMITED))
    eligible = {wallet.address for wallet in chain.wallets if wallet.tier == "eligible"}
    swaps = {}
    for tx_id in list(chain.transactions):
        reply = ask(simulator, f"{V1}/tx/{tx_id}")
        row = json.loads(reply.body)
        if reply.status != 200 or not row.get("canonical") or row["tx_status"] != "success":
            continue
        call = row.get("contract_call")
        listed = call and call["function_name"] in LISTED_CALLS.get(call["contract_id"], ())
        if not listed or row["sender_address"] not in eligible:
            continue
        swap = net_swap(events_of(simulator, tx_id), row["sender_address"])
        if swap:
            swaps[tx_id] = (row["sender_address"], *swap, row["burn_block_time"])

    truth = {
        row.txid: (row.sender, row.token_in, row.amount_in, row.token_out, row.amount_out, row.burn_block_time)
        for row in chain.truth()
    }
    assert len(truth) > 300
    assert swaps == truth


def test_only_eligible_senders_in_the_campaign_count() -> None:
    """Registered but ineligible wallets, strangers, and swaps outside the campaign do not count."""
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
