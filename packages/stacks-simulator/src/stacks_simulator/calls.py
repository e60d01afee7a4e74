"""Contract calls: the pools and contracts that they use, and one function per kind of call.

The function turns a `PlannedTrade` (wallet, pool, amounts) into a `CallDraft`: the call, its events in order,
and the swap that the call really is, or None. The rule is netting: over all events, exactly one asset left the
wallet and exactly one came in. The transaction fee does not count, and neither does an asset that only went to
somebody who gave nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TypeAlias

from holdfast.errors import UsageError
from stacks_simulator.addresses import address_of
from stacks_simulator.chain_records import (
    AssetEvent,
    CallArgument,
    ChainEvent,
    ContractLogEvent,
    IntendedSwap,
    NftEvent,
    SimulatedCall,
)
from stacks_simulator.tokens import (
    AEUSDC,
    ALEX,
    B42,
    DIKO,
    DUST,
    SBTC,
    STSTX,
    STX,
    SUSDT,
    USDA,
    USDCX,
    VELAR,
    WELSH,
    SimulatedToken,
)

_STABLE = "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M"
_XYK = "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR"
_DLMM = "SM1FKXGNZJWSTWDWXQZJNF7B5TV5ZB235JTCXYXKD"

XYK_CORE = f"{_XYK}.xyk-core-v-1-2"
XYK_HELPER = f"{_XYK}.xyk-swap-helper-v-1-3"
MULTIHOP_ROUTER = f"{_XYK}.router-stableswap-xyk-multihop-v-1-2"
DLMM_ROUTERS = (f"{_DLMM}.dlmm-swap-router-v-1-1", f"{_DLMM}.dlmm-swap-router-v-1-2")

PROVIDER = "SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B"
FEE_COLLECTOR = address_of("fee-collector")
NFT_ASSET = f"{address_of('nft')}.trade-badges::badge"

FAILURES = ("abort_by_response", "abort_by_post_condition", "problematic_skipped")
AMOUNT_MIN = 1000  # large enough to take fees and refunds out of it, for every token
BINS_MAX = 350  # the most bins that a DLMM router uses in one call

_PAIR = ("swap-x-for-y", "swap-y-for-x")


@dataclass(frozen=True, slots=True)
class SwapPool:
    """A pair of tokens, the contract to call, and the principal that holds the funds."""

    contract: str
    x: SimulatedToken
    y: SimulatedToken
    vault: str
    functions: tuple[str, str] = _PAIR


def _xyk(x: SimulatedToken, y: SimulatedToken) -> SwapPool:
    return SwapPool(XYK_CORE, x, y, f"{_XYK}.xyk-pool-{x.symbol.lower()}-{y.symbol.lower()}-v-1-1")


def _stable(name: str, x: SimulatedToken, y: SimulatedToken) -> SwapPool:
    return SwapPool(f"{_STABLE}.{name}", x, y, f"{_STABLE}.{name}")


POOLS = (
    _stable("stableswap-stx-ststx-v-1-2", STX, STSTX),
    _stable("stableswap-usda-susdt-v-1-2", USDA, SUSDT),
    _stable("stableswap-aeusdc-susdt-v-1-2", AEUSDC, SUSDT),
    _stable("stableswap-usda-aeusdc-v-1-4", USDA, AEUSDC),
    _xyk(SBTC, STX),
    _xyk(STX, AEUSDC),
    _xyk(STX, USDCX),
    _xyk(STX, WELSH),
    _xyk(STX, B42),
    _xyk(STX, DUST),
    SwapPool(f"{_STABLE}.wrapper-alex-v-2-1", STX, ALEX, f"{_STABLE}.wrapper-alex-v-2-1", ("swap-helper",) * 2),
    SwapPool(
        f"{_STABLE}.wrapper-velar-v-1-1",
        STX,
        VELAR,
        f"{_STABLE}.wrapper-velar-v-1-1",
        ("swap-helper-a", "swap-helper-b"),
    ),
    SwapPool(f"{_STABLE}.wrapper-arkadiko-v-1-1", STX, DIKO, f"{_STABLE}.wrapper-arkadiko-v-1-1"),
)

# The calls that count as swaps. A test checks that the competition's allow-list has all of them.
LISTED_CALLS: Mapping[str, frozenset[str]] = {
    **{pool.contract: frozenset(pool.functions) for pool in POOLS},
    XYK_HELPER: frozenset({"swap-helper-a"}),
    MULTIHOP_ROUTER: frozenset({"swap-helper-a"}),
    **{router: frozenset({"swap-simple-multi"}) for router in DLMM_ROUTERS},
}
OFF_LIST_CONTRACT = f"{_XYK}.router-stableswap-xyk-v-1-3"
OFF_LIST_FUNCTION = (XYK_CORE, "swap-x-for-y-via-callback")


@dataclass(frozen=True, slots=True)
class PlannedTrade:
    """A swap that a wallet will make, and the parts of its transaction."""

    rng: Random
    wallet: str
    pool: SwapPool
    token_in: SimulatedToken
    token_out: SimulatedToken
    amount_in: int
    amount_out: int
    fee: int  # of the transaction, in micro-STX

    @property
    def function(self) -> str:
        return self.pool.functions[0 if self.token_in == self.pool.x else 1]

    @property
    def swap(self) -> IntendedSwap:
        return IntendedSwap(self.token_in.id, self.amount_in, self.token_out.id, self.amount_out)

    def outgoing(self, amount: int | None = None, token: SimulatedToken | None = None, to: str = "") -> AssetEvent:
        """A transfer from the wallet, usually of all that it gives to the pool."""
        amount = self.amount_in if amount is None else amount
        return AssetEvent((token or self.token_in).id, "transfer", self.wallet, to or self.pool.vault, amount)

    def incoming(self, amount: int | None = None, token: SimulatedToken | None = None) -> AssetEvent:
        amount = self.amount_out if amount is None else amount
        return AssetEvent((token or self.token_out).id, "transfer", self.pool.vault, self.wallet, amount)

    def log(self, contract: str = "") -> ContractLogEvent:
        return ContractLogEvent(contract or self.pool.contract, self.function)

    def draft(self, *events: ChainEvent, is_swap: bool = True) -> "CallDraft":
        """Draft a plain call to the pool's own contract, with these events."""
        arguments = (CallArgument("x-amount", self.amount_in), CallArgument("min-dy", self.amount_out * 99 // 100))
        call = SimulatedCall(self.pool.contract, self.function, arguments)
        return CallDraft(call, events, self.swap if is_swap else None)


@dataclass(frozen=True, slots=True)
class CallDraft:
    """A call that is ready to be broadcast."""

    call: SimulatedCall
    events: tuple[ChainEvent, ...]
    swap: IntendedSwap | None
    outcome: str = "success"
    sponsored: bool = False


def draw_trade(
    rng: Random,
    wallet: str,
    fee: int,
    price: Callable[[SimulatedToken], float],
    *,
    token_in: SimulatedToken | None = None,
    token_out: SimulatedToken | None = None,
    amount_in: int | None = None,
    amount_out: int | None = None,
) -> PlannedTrade:
    """Draw a plausible trade at these prices. Given arguments are kept."""
    pool, sold, bought = rng.choice(_directions(token_in, token_out))
    target_usd = min(5_000.0, 8.0 * rng.paretovariate(1.1))
    slippage = 1.0 - rng.uniform(-0.004, 0.012)
    drawn_in = max(AMOUNT_MIN, int(target_usd / price(sold) * 10**sold.decimals))
    value_usd = drawn_in / 10**sold.decimals * price(sold)
    drawn_out = max(AMOUNT_MIN, int(value_usd * slippage / price(bought) * 10**bought.decimals))
    return PlannedTrade(rng, wallet, pool, sold, bought, amount_in or drawn_in, amount_out or drawn_out, fee)


def _directions(
    token_in: SimulatedToken | None, token_out: SimulatedToken | None
) -> list[tuple[SwapPool, SimulatedToken, SimulatedToken]]:
    """Every pool and direction that swaps the given tokens (None: any token)."""
    directions = [
        (pool, sold, bought)
        for pool in POOLS
        for sold, bought in ((pool.x, pool.y), (pool.y, pool.x))
        if token_in in {None, sold} and token_out in {None, bought}
    ]
    if not directions:
        pairs = ", ".join(f"{pool.x.symbol}/{pool.y.symbol}" for pool in POOLS)
        raise UsageError(f"no pool swaps these two tokens; the pools are {pairs}")
    return directions


def simple(trade: PlannedTrade) -> CallDraft:
    return trade.draft(trade.log(), trade.outgoing(), trade.incoming())


def provider(trade: PlannedTrade) -> CallDraft:
    """A call to the helper that takes the referrer of the trade, an optional principal."""
    draft = simple(trade)
    referrer = PROVIDER if trade.rng.random() < 0.5 else None
    call = SimulatedCall(
        XYK_HELPER, "swap-helper-a", (CallArgument("amount", trade.amount_in), CallArgument("provider", referrer))
    )
    return replace(draft, call=call)


def multihop(trade: PlannedTrade) -> CallDraft:
    """The middle token passes through the wallet: it comes in and goes out, and its net is zero."""
    middle, amount = _third(trade), trade.rng.randrange(10**6, 10**9)
    through = (trade.incoming(amount, middle), trade.outgoing(amount, middle))
    events = (trade.outgoing(), *through, trade.incoming(), trade.log(MULTIHOP_ROUTER))
    call = SimulatedCall(MULTIHOP_ROUTER, "swap-helper-a", (CallArgument("provider", None),))
    return CallDraft(call, events, trade.swap)


def multibin(trade: PlannedTrade) -> CallDraft:
    """Two transfers and a log line per bin: up to 1,050 events, many more than the first page of 20."""
    bins = trade.rng.choice((7, 12, 40, 120, BINS_MAX))
    trade = replace(trade, amount_in=max(trade.amount_in, bins * bins), amount_out=max(trade.amount_out, bins * bins))
    router = trade.rng.choice(DLMM_ROUTERS)
    parts_in, parts_out = _split(trade.amount_in, bins), _split(trade.amount_out, bins)
    events: list[ChainEvent] = []
    for part_in, part_out in zip(parts_in, parts_out, strict=True):
        events += (trade.outgoing(part_in), trade.incoming(part_out), trade.log(router))
    return CallDraft(
        SimulatedCall(router, "swap-simple-multi", (CallArgument("bins", bins),)), tuple(events), trade.swap
    )


def fee_leg(trade: PlannedTrade) -> CallDraft:
    """The aggregator's fee leaves the wallet in the same token; it is part of the amount in."""
    fee = max(1, trade.amount_in // 400)
    paid = (trade.outgoing(trade.amount_in - fee), trade.outgoing(fee, to=FEE_COLLECTOR))
    return trade.draft(*paid, trade.log(), trade.incoming())


def third_token_fee(trade: PlannedTrade) -> CallDraft:
    """A protocol fee in a third token, to somebody who gives nothing: it is not part of the swap."""
    draft = multibin(trade) if trade.rng.random() < 0.5 else simple(trade)
    return replace(draft, events=(*draft.events, trade.outgoing(5000, _third(trade), FEE_COLLECTOR)))


def refund(trade: PlannedTrade) -> CallDraft:
    """The wallet sends more than needed and gets the rest back; the difference is the amount in."""
    rest = max(1, trade.amount_in // 3)
    paid, back = trade.outgoing(trade.amount_in + rest), trade.incoming(rest, trade.token_in)
    return trade.draft(paid, trade.incoming(), back, trade.log())


def mint_side(trade: PlannedTrade) -> CallDraft:
    """The token that comes in is minted for the wallet; it has no sender."""
    minted = AssetEvent(trade.token_out.id, "mint", "", trade.wallet, trade.amount_out)
    return trade.draft(trade.outgoing(), minted, trade.log())


def burn_side(trade: PlannedTrade) -> CallDraft:
    """The token that goes out is burned; it has no recipient."""
    burned = AssetEvent(trade.token_in.id, "burn", trade.wallet, "", trade.amount_in)
    return trade.draft(trade.log(), burned, trade.incoming())


def sponsored(trade: PlannedTrade) -> CallDraft:
    """A sponsor pays the fee, so the wallet's STX balance changes by the swap alone."""
    return replace(simple(trade), sponsored=True)


def nft_noise(trade: PlannedTrade) -> CallDraft:
    """The wallet also receives a badge, an NFT without an amount."""
    badge = NftEvent(NFT_ASSET, "transfer", trade.pool.vault, trade.wallet, trade.rng.randrange(1, 5000))
    return trade.draft(badge, trade.outgoing(), trade.incoming())


def bystanders(trade: PlannedTrade) -> CallDraft:
    """The wallet sends a token to itself, and others transfer the same tokens between them."""
    to_itself = AssetEvent(trade.token_in.id, "transfer", trade.wallet, trade.wallet, trade.amount_in * 7)
    others = AssetEvent(trade.token_out.id, "transfer", trade.pool.vault, FEE_COLLECTOR, trade.amount_out * 9)
    return trade.draft(to_itself, trade.outgoing(), others, trade.incoming(), trade.log())


def huge(trade: PlannedTrade) -> CallDraft:
    """Amounts that neither a signed 64-bit integer nor a double can hold exactly."""
    amount_in, amount_out = 2**63 + trade.rng.randrange(1, 2**60, 2), 2**70 + trade.rng.randrange(2**60)
    return simple(replace(trade, amount_in=amount_in, amount_out=amount_out))


def small_stx(trade: PlannedTrade) -> CallDraft:
    """The wallet gets less STX than the fee: Hiro's net shows STX going out, although the swap brought it in."""
    pool = next(pool for pool in POOLS if pool.y == DIKO)
    small = replace(trade, pool=pool, token_in=DIKO, token_out=STX, amount_out=max(1, trade.fee // 3))
    return simple(small)


def off_list_contract(trade: PlannedTrade) -> CallDraft:
    return replace(simple(trade), call=SimulatedCall(OFF_LIST_CONTRACT, "swap-helper-a"))


def off_list_function(trade: PlannedTrade) -> CallDraft:
    return replace(simple(trade), call=SimulatedCall(*OFF_LIST_FUNCTION))


def failed(outcome: str, trade: PlannedTrade) -> CallDraft:
    return replace(simple(trade), events=(), outcome=outcome)


def one_sided(trade: PlannedTrade) -> CallDraft:
    return trade.draft(trade.outgoing(), trade.log(), is_swap=False)


def two_given(trade: PlannedTrade) -> CallDraft:
    """Two assets go to the pool, which pays out a third: neither is a fee, so it is not a swap."""
    return trade.draft(trade.outgoing(), trade.outgoing(5000, _third(trade)), trade.incoming(), is_swap=False)


def two_gotten(trade: PlannedTrade) -> CallDraft:
    """The wallet also gets a reward in a third token."""
    return trade.draft(trade.outgoing(), trade.incoming(), trade.incoming(5000, _third(trade)), is_swap=False)


def round_trip(trade: PlannedTrade) -> CallDraft:
    """To the other token and back: the net has only one asset."""
    back = trade.amount_in * 99 // 100
    returned = (trade.outgoing(trade.amount_out, trade.token_out), trade.incoming(back, trade.token_in))
    return trade.draft(trade.outgoing(), trade.incoming(), *returned, is_swap=False)


def no_events(trade: PlannedTrade) -> CallDraft:
    return trade.draft(is_swap=False)


CallKind: TypeAlias = Callable[[PlannedTrade], CallDraft]

# These count if they succeed, are on the allow-list and have an eligible sender. Of the refused kinds, the
# off-list ones count once their calls are on the allow-list; the aborted ones never do.
SWAP_KINDS: Mapping[str, CallKind] = {kind.__name__: kind for kind in (
    simple, provider, multihop, multibin, fee_leg, third_token_fee, refund, mint_side, burn_side, sponsored, nft_noise,
    bystanders, huge, small_stx,
)}  # fmt: skip
REFUSED_KINDS: Mapping[str, CallKind] = {
    **{kind.__name__: kind for kind in (
        off_list_contract, off_list_function, one_sided, two_given, two_gotten, round_trip, no_events,
    )},
    **{outcome: partial(failed, outcome) for outcome in FAILURES},
}  # fmt: skip
CALL_KINDS: Mapping[str, CallKind] = {**SWAP_KINDS, **REFUSED_KINDS}


def _third(trade: PlannedTrade) -> SimulatedToken:
    """A token that is not part of the trade."""
    return next(token for token in (STX, AEUSDC, WELSH) if token not in {trade.token_in, trade.token_out})


def _split(amount: int, parts: int) -> list[int]:
    """Uneven parts with this sum; each is at least 1 when the amount is at least `parts` squared."""
    even = amount // parts
    pieces = [even + (number - parts // 2) for number in range(parts - 1)]
    return [*pieces, amount - sum(pieces)]
