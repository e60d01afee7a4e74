"""Each shape of call looks on chain as its name says."""

import pytest

from support.simulated import quiet_simulator
from tocsin.simulator.call_kinds import BINS_MAX, CALL_KINDS
from tocsin.simulator.chain_records import AssetEvent, ChainTransaction, NftEvent, SimulatedCall
from tocsin.simulator.contracts import FEE_COLLECTOR, LISTED_CALLS
from tocsin.simulator.simulated_tokens import STX


def shaped(kind: str, number: int = 0) -> ChainTransaction:
    chain = quiet_simulator(seed=number).chain
    return chain.swap(chain.wallets[0], kind)


def legs(tx: ChainTransaction, *, out: bool) -> list[AssetEvent]:
    moved = [event for event in tx.events if isinstance(event, AssetEvent)]
    return [event for event in moved if tx.sender == (event.sender if out else event.recipient)]


def test_a_fee_leg_is_part_of_what_was_given() -> None:
    """Two transfers of the same token leave the wallet; the smaller goes to the aggregator."""
    tx = shaped("fee_leg")
    assert tx.swap is not None

    to_pool, to_collector = legs(tx, out=True)

    assert to_pool.asset == to_collector.asset == tx.swap.token_in
    assert to_collector.recipient == FEE_COLLECTOR
    assert 0 < to_collector.amount < to_pool.amount < tx.swap.amount_in


def test_a_refund_comes_back_to_the_wallet() -> None:
    """More goes out than was given in the end, and the rest comes in again."""
    tx = shaped("refund")
    assert tx.swap is not None

    (paid,) = legs(tx, out=True)
    back = [leg for leg in legs(tx, out=False) if leg.asset == tx.swap.token_in]

    assert paid.amount > tx.swap.amount_in
    assert sum(leg.amount for leg in back) == paid.amount - tx.swap.amount_in


def test_a_middle_token_passes_through_the_wallet() -> None:
    """A third token comes in and leaves again, to the last unit."""
    tx = shaped("multihop")
    assert tx.swap is not None
    sides = {tx.swap.token_in, tx.swap.token_out}

    through = [
        [(leg.asset, leg.amount) for leg in legs(tx, out=out) if leg.asset not in sides]
        for out in (True, False)
    ]

    assert len(through[0]) == 1
    assert through[0] == through[1]


def test_bins_make_hundreds_of_events() -> None:
    """Every bin has a pair of legs and a log line; the largest swap passes any page."""
    sizes = {len(shaped("multibin", seed).events) for seed in range(30)}

    assert max(sizes) == 3 * BINS_MAX
    assert min(sizes) > 20


@pytest.mark.parametrize(("kind", "action"), [("mint_side", "mint"), ("burn_side", "burn")])
def test_one_side_may_be_minted_or_burned(kind: str, action: str) -> None:
    """A mint has no sender, a burn no recipient."""
    (event,) = [
        event for event in shaped(kind).events if isinstance(event, AssetEvent) and event.action == action
    ]

    assert (event.sender == "") is (action == "mint")
    assert (event.recipient == "") is (action == "burn")


def test_noise_comes_along() -> None:
    """A badge, a payment to oneself, and other people's transfers are among the events."""
    badge, crowd = shaped("nft_noise"), shaped("bystanders")

    assert any(isinstance(event, NftEvent) and event.recipient == badge.sender for event in badge.events)
    moved = [event for event in crowd.events if isinstance(event, AssetEvent)]
    assert any(event.sender == event.recipient == crowd.sender for event in moved)
    assert any(crowd.sender not in {event.sender, event.recipient} for event in moved)


def test_amounts_and_fees_at_their_edges() -> None:
    """Amounts pass 2^63 and lie between doubles; STX may come in below the fee; a sponsor pays for others."""
    huge, small, sponsored = shaped("huge"), shaped("small_stx"), shaped("sponsored")

    assert huge.swap is not None
    assert huge.swap.amount_in > 2**63
    assert int(float(huge.swap.amount_in)) != huge.swap.amount_in
    assert small.swap is not None
    assert small.swap.token_out == STX.id
    assert small.swap.amount_out < small.fee
    assert sponsored.fee_payer == sponsored.sponsor != sponsored.sender


@pytest.mark.parametrize("kind", CALL_KINDS)
def test_only_the_off_list_shapes_call_off_the_list(kind: str) -> None:
    """Contract and function are listed for every shape but the two that are named for it."""
    tx = shaped(kind)
    assert isinstance(tx.payload, SimulatedCall)

    listed = tx.payload.function in LISTED_CALLS.get(tx.payload.contract, ())

    assert listed is not kind.startswith("off_list")
