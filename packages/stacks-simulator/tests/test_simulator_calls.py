"""Each kind of call has the events on chain that its name describes."""

import pytest

from stacks_simulator.calls import BINS_MAX, CALL_KINDS, FEE_COLLECTOR, LISTED_CALLS
from stacks_simulator.chain_records import AssetEvent, ChainTransaction, NftEvent, SimulatedCall
from stacks_simulator.tokens import STX
from support.simulated import quiet_simulator


def call_of(kind: str, seed: int = 0) -> ChainTransaction:
    chain = quiet_simulator(seed=seed).chain
    return chain.swap(chain.wallets[0], kind)


def transfers(tx: ChainTransaction, *, out: bool) -> list[AssetEvent]:
    """The asset events that leave the sender's wallet, or those that come in."""
    events = [event for event in tx.events if isinstance(event, AssetEvent)]
    return [event for event in events if tx.sender == (event.sender if out else event.recipient)]


def test_a_fee_leg_is_part_of_the_amount_in() -> None:
    """Two transfers of the same token leave the wallet; the smaller goes to the aggregator."""
    tx = call_of("fee_leg")
    assert tx.swap is not None

    to_pool, to_collector = transfers(tx, out=True)

    assert to_pool.asset == to_collector.asset == tx.swap.token_in
    assert to_collector.recipient == FEE_COLLECTOR
    assert 0 < to_collector.amount < to_pool.amount < tx.swap.amount_in


def test_a_refund_comes_back_to_the_wallet() -> None:
    """The wallet sends more than the amount in, and the rest comes back."""
    tx = call_of("refund")
    assert tx.swap is not None

    (paid,) = transfers(tx, out=True)
    refunds = [event for event in transfers(tx, out=False) if event.asset == tx.swap.token_in]

    assert paid.amount > tx.swap.amount_in
    assert sum(event.amount for event in refunds) == paid.amount - tx.swap.amount_in


def test_a_middle_token_passes_through_the_wallet() -> None:
    """A third token comes in, and exactly the same amount of it leaves."""
    tx = call_of("multihop")
    assert tx.swap is not None
    sides = {tx.swap.token_in, tx.swap.token_out}

    outgoing, incoming = (
        [(event.asset, event.amount) for event in transfers(tx, out=out) if event.asset not in sides]
        for out in (True, False)
    )

    assert len(outgoing) == 1
    assert outgoing == incoming


def test_bins_make_hundreds_of_events() -> None:
    """Every bin has two transfers and a log line; the largest swap has more events than any page."""
    sizes = {len(call_of("multibin", seed).events) for seed in range(30)}

    assert max(sizes) == 3 * BINS_MAX
    assert min(sizes) > 20


@pytest.mark.parametrize(("kind", "action"), [("mint_side", "mint"), ("burn_side", "burn")])
def test_one_side_may_be_minted_or_burned(kind: str, action: str) -> None:
    """A mint has no sender, a burn no recipient."""
    (event,) = [event for event in call_of(kind).events if isinstance(event, AssetEvent) and event.action == action]

    assert (event.sender == "") is (action == "mint")
    assert (event.recipient == "") is (action == "burn")


def test_unrelated_events_are_among_the_events() -> None:
    """A badge, a transfer to the sender itself, and transfers between others are among the events."""
    badge, crowd = call_of("nft_noise"), call_of("bystanders")

    assert any(isinstance(event, NftEvent) and event.recipient == badge.sender for event in badge.events)
    events = [event for event in crowd.events if isinstance(event, AssetEvent)]
    assert any(event.sender == event.recipient == crowd.sender for event in events)
    assert any(crowd.sender not in {event.sender, event.recipient} for event in events)


def test_extreme_amounts_and_fees() -> None:
    """Amounts exceed 2^63 and no double holds them; the STX can be less than the fee; a sponsor can pay."""
    huge, small, sponsored = call_of("huge"), call_of("small_stx"), call_of("sponsored")

    assert huge.swap is not None
    assert huge.swap.amount_in > 2**63
    assert int(float(huge.swap.amount_in)) != huge.swap.amount_in
    assert small.swap is not None
    assert small.swap.token_out == STX.id
    assert small.swap.amount_out < small.fee
    assert sponsored.fee_payer == sponsored.sponsor != sponsored.sender


@pytest.mark.parametrize("kind", CALL_KINDS)
def test_only_the_off_list_kinds_are_off_the_allow_list(kind: str) -> None:
    """Contract and function are on the allow-list for every kind but the two with off_list in their name."""
    tx = call_of(kind)
    assert isinstance(tx.payload, SimulatedCall)

    listed = tx.payload.function in LISTED_CALLS.get(tx.payload.contract, ())

    assert listed is not kind.startswith("off_list")
