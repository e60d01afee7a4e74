"""How calls look on chain: one function per shape, each says what the wallet really gave and got.

A shape turns a `PlannedTrade` (who, which pool, which amounts) into a `CallDraft`: the call, its events in
order, and the swap it amounts to, or None where it is none. The rule is netting: exactly one asset left the
wallet and exactly one came in, over all events; the transaction fee is not a leg.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tocsin.simulator.call_drafts import CallDraft, PlannedTrade
from tocsin.simulator.chain_records import AssetEvent, CallArgument, ChainEvent, NftEvent, SimulatedCall
from tocsin.simulator.contracts import (
    DLMM_ROUTERS,
    FEE_COLLECTOR,
    MULTIHOP_ROUTER,
    NFT_ASSET,
    OFF_LIST_CONTRACT,
    OFF_LIST_FUNCTION,
    POOLS,
    PROVIDER,
    XYK_HELPER,
)
from tocsin.simulator.simulated_tokens import AEUSDC, DIKO, STX, WELSH, SimulatedToken

BINS_MAX = 350  # a DLMM router walks at most this many bins in one call


Shape: TypeAlias = Callable[[PlannedTrade], CallDraft]


def simple(t: PlannedTrade) -> CallDraft:
    return t.call(t.log(), t.outgoing(t.amount_in), t.incoming(t.amount_out), swap=t.swap)


def provider(t: PlannedTrade) -> CallDraft:
    """Through the helper that names who referred the trade: an optional principal."""
    draft = simple(t)
    referrer = PROVIDER if t.rng.random() < 0.5 else None
    call = SimulatedCall(
        XYK_HELPER, "swap-helper-a", (CallArgument("amount", t.amount_in), CallArgument("provider", referrer))
    )
    return replace(draft, call=call)


def multihop(t: PlannedTrade) -> CallDraft:
    """The middle token passes through the wallet: in and out again, net zero."""
    middle, amount = _third(t), t.rng.randrange(10**6, 10**9)
    events = (
        t.outgoing(t.amount_in),
        t.incoming(amount, middle),
        t.outgoing(amount, middle),
        t.incoming(t.amount_out),
        t.log(MULTIHOP_ROUTER),
    )
    call = SimulatedCall(MULTIHOP_ROUTER, "swap-helper-a", (CallArgument("provider", None),))
    return CallDraft(call, events, t.swap)


def multibin(t: PlannedTrade, bins: int = 0) -> CallDraft:
    """One pair of legs and a log line per bin: up to 1,050 events, far past the first page of 20."""
    bins = bins or t.rng.choice((7, 12, 40, 120, BINS_MAX))
    t = replace(t, amount_in=max(t.amount_in, bins * bins), amount_out=max(t.amount_out, bins * bins))
    router = t.rng.choice(DLMM_ROUTERS)
    parts_in, parts_out = _split(t.amount_in, bins), _split(t.amount_out, bins)
    events: list[ChainEvent] = []
    for part_in, part_out in zip(parts_in, parts_out, strict=True):
        events += (t.outgoing(part_in), t.incoming(part_out), t.log(router))
    return CallDraft(
        SimulatedCall(router, "swap-simple-multi", (CallArgument("bins", bins),)), tuple(events), t.swap
    )


def fee_leg(t: PlannedTrade) -> CallDraft:
    """The aggregator's fee leaves the wallet in the same token: part of what was given."""
    cut = max(1, t.amount_in // 400)
    events = (
        t.outgoing(t.amount_in - cut),
        t.outgoing(cut, to=FEE_COLLECTOR),
        t.log(),
        t.incoming(t.amount_out),
    )
    return t.call(*events, swap=t.swap)


def refund(t: PlannedTrade) -> CallDraft:
    """More goes in than is needed, the rest comes back: only the difference was given."""
    rest = max(1, t.amount_in // 3)
    paid, back, got = t.outgoing(t.amount_in + rest), t.incoming(rest, t.token_in), t.incoming(t.amount_out)
    return t.call(paid, got, back, t.log(), swap=t.swap)


def mint_side(t: PlannedTrade) -> CallDraft:
    """What comes in is minted for the wallet; nobody sent it."""
    minted = AssetEvent(t.token_out.id, "mint", "", t.wallet, t.amount_out)
    return t.call(t.outgoing(t.amount_in), minted, t.log(), swap=t.swap)


def burn_side(t: PlannedTrade) -> CallDraft:
    """What goes out is burned; nobody received it."""
    burned = AssetEvent(t.token_in.id, "burn", t.wallet, "", t.amount_in)
    return t.call(t.log(), burned, t.incoming(t.amount_out), swap=t.swap)


def sponsored(t: PlannedTrade) -> CallDraft:
    """Somebody else pays the fee, so the wallet's STX moves by the legs alone."""
    return replace(simple(t), sponsored=True)


def nft_noise(t: PlannedTrade) -> CallDraft:
    """A badge without an amount comes along."""
    badge = NftEvent(NFT_ASSET, "transfer", t.pool.vault, t.wallet, t.rng.randrange(1, 5000))
    return t.call(badge, t.outgoing(t.amount_in), t.incoming(t.amount_out), swap=t.swap)


def bystanders(t: PlannedTrade) -> CallDraft:
    """The wallet pays itself, and others move the same tokens among themselves."""
    itself = AssetEvent(t.token_in.id, "transfer", t.wallet, t.wallet, t.amount_in * 7)
    others = AssetEvent(t.token_out.id, "transfer", t.pool.vault, FEE_COLLECTOR, t.amount_out * 9)
    return t.call(itself, t.outgoing(t.amount_in), others, t.incoming(t.amount_out), t.log(), swap=t.swap)


def huge(t: PlannedTrade) -> CallDraft:
    """Amounts that neither a signed 64-bit integer nor a double holds exactly."""
    big = replace(
        t, amount_in=2**63 + t.rng.randrange(1, 2**60, 2), amount_out=2**70 + t.rng.randrange(2**60)
    )
    return simple(big)


def small_stx(t: PlannedTrade) -> CallDraft:
    """Sells for less STX than the fee: Hiro's net shows STX going out, yet it is what came in."""
    pool = next(pool for pool in POOLS if pool.y == DIKO)
    few = replace(t, pool=pool, token_in=DIKO, token_out=STX, amount_out=max(1, t.fee // 3))
    return simple(few)


def off_list_contract(t: PlannedTrade) -> CallDraft:
    return replace(simple(t), call=SimulatedCall(OFF_LIST_CONTRACT, "swap-helper-a"))


def off_list_function(t: PlannedTrade) -> CallDraft:
    return replace(simple(t), call=SimulatedCall(*OFF_LIST_FUNCTION))


def abort_by_response(t: PlannedTrade) -> CallDraft:
    return replace(simple(t), events=(), outcome="abort_by_response")


def abort_by_post_condition(t: PlannedTrade) -> CallDraft:
    return replace(simple(t), events=(), outcome="abort_by_post_condition")


def problematic_skipped(t: PlannedTrade) -> CallDraft:
    return replace(simple(t), events=(), outcome="problematic_skipped")


def one_sided(t: PlannedTrade) -> CallDraft:
    return t.call(t.outgoing(t.amount_in), t.log(), swap=None)


def two_given(t: PlannedTrade) -> CallDraft:
    """A protocol fee in a third token: two assets go out, so it is no plain swap."""
    return t.call(
        t.outgoing(t.amount_in),
        t.outgoing(5000, _third(t), FEE_COLLECTOR),
        t.incoming(t.amount_out),
        swap=None,
    )


def two_gotten(t: PlannedTrade) -> CallDraft:
    """A reward in a third token comes along."""
    return t.call(t.outgoing(t.amount_in), t.incoming(t.amount_out), t.incoming(5000, _third(t)), swap=None)


def round_trip(t: PlannedTrade) -> CallDraft:
    """Out to the other token and back again: one asset is left over."""
    back = t.amount_in * 99 // 100
    legs = (
        t.outgoing(t.amount_in),
        t.incoming(t.amount_out),
        t.outgoing(t.amount_out, t.token_out),
        t.incoming(back, t.token_in),
    )
    return t.call(*legs, swap=None)


def no_events(t: PlannedTrade) -> CallDraft:
    return t.call(swap=None)


# Swaps when they succeed, are listed and come from an eligible sender. The off-list ones count as soon as
# the list has grown; the aborted ones never do.
SWAP_KINDS: Mapping[str, Shape] = {
    shape.__name__: shape
    for shape in (
        simple,
        provider,
        multihop,
        multibin,
        fee_leg,
        refund,
        mint_side,
        burn_side,
        sponsored,
        nft_noise,
        bystanders,
        huge,
        small_stx,
    )
}  # fmt: skip - one line per idea, not one per name
REFUSED_KINDS: Mapping[str, Shape] = {
    shape.__name__: shape
    for shape in (
        off_list_contract,
        off_list_function,
        abort_by_response,
        abort_by_post_condition,
        problematic_skipped,
        one_sided,
        two_given,
        two_gotten,
        round_trip,
        no_events,
    )
}  # fmt: skip - as above
CALL_KINDS: Mapping[str, Shape] = {**SWAP_KINDS, **REFUSED_KINDS}


def _third(t: PlannedTrade) -> SimulatedToken:
    """A token that is on neither side."""
    return next(token for token in (STX, AEUSDC, WELSH) if token not in {t.token_in, t.token_out})


def _split(amount: int, parts: int) -> list[int]:
    """Uneven parts that add up; each is at least one when the amount is at least `parts` squared."""
    even = amount // parts
    pieces = [even + (number - parts // 2) for number in range(parts - 1)]
    return [*pieces, amount - sum(pieces)]
