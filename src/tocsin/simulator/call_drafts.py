"""A trade before its broadcast: the wallet, the tokens and amounts, and the draft of its call."""

from dataclasses import dataclass
from random import Random

from tocsin.errors import UsageError
from tocsin.simulator.chain_records import (
    AssetEvent,
    CallArgument,
    ChainEvent,
    ContractLogEvent,
    IntendedSwap,
    SimulatedCall,
)
from tocsin.simulator.contracts import POOLS, SwapPool
from tocsin.simulator.simulated_tokens import SimulatedToken, price_usd

AMOUNT_MIN = 1000  # large enough to take fees and refunds out of it, for every token


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

    def outgoing(self, amount: int, token: SimulatedToken | None = None, to: str = "") -> AssetEvent:
        return AssetEvent((token or self.token_in).id, "transfer", self.wallet, to or self.pool.vault, amount)

    def incoming(self, amount: int, token: SimulatedToken | None = None) -> AssetEvent:
        return AssetEvent((token or self.token_out).id, "transfer", self.pool.vault, self.wallet, amount)

    def log(self, contract: str = "") -> ContractLogEvent:
        return ContractLogEvent(contract or self.pool.contract, self.function)

    def draft(self, *events: ChainEvent, swap: IntendedSwap | None) -> "CallDraft":
        """Draft a plain call to the pool's own contract, with these events."""
        arguments = (
            CallArgument("x-amount", self.amount_in),
            CallArgument("min-dy", self.amount_out * 99 // 100),
        )
        return CallDraft(SimulatedCall(self.pool.contract, self.function, arguments), events, swap)


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
    now_ms: int,
    *,
    token_in: SimulatedToken | None = None,
    token_out: SimulatedToken | None = None,
    amount_in: int | None = None,
    amount_out: int | None = None,
) -> PlannedTrade:
    """Draw a plausible trade at current prices. Given arguments are kept."""
    pool, sold, bought = rng.choice(_directions(token_in, token_out))
    target_usd = min(5_000.0, 8.0 * rng.paretovariate(1.1))
    slippage = 1.0 - rng.uniform(-0.004, 0.012)
    drawn_in = max(AMOUNT_MIN, int(target_usd / price_usd(sold, now_ms) * 10**sold.decimals))
    value_usd = drawn_in / 10**sold.decimals * price_usd(sold, now_ms)
    drawn_out = max(AMOUNT_MIN, int(value_usd * slippage / price_usd(bought, now_ms) * 10**bought.decimals))
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
