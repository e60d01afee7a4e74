"""A trade before it is a transaction: who swaps what for what, and the call that will do it."""

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

AMOUNT_MIN = 1000  # enough to cut fees and refunds from, whatever the token


@dataclass(frozen=True, slots=True)
class PlannedTrade:
    """What a wallet is about to do."""

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

    def incoming(self, amount: int, token: SimulatedToken | None = None, by: str = "") -> AssetEvent:
        return AssetEvent(
            (token or self.token_out).id, "transfer", by or self.pool.vault, self.wallet, amount
        )

    def log(self, contract: str = "") -> ContractLogEvent:
        return ContractLogEvent(contract or self.pool.contract, self.function)

    def call(self, *events: ChainEvent, swap: IntendedSwap | None) -> "CallDraft":
        """The plain call of the pool's own contract, with these events."""
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
    """A plausible trade at the moment's prices; what the caller gives is kept."""
    pool, given, gotten = rng.choice(_directions(token_in, token_out))
    value_usd = min(5_000.0, 8.0 * rng.paretovariate(1.1))
    slippage = 1.0 - rng.uniform(-0.004, 0.012)
    spend = max(AMOUNT_MIN, int(value_usd / price_usd(given, now_ms) * 10**given.decimals))
    worth = spend / 10**given.decimals * price_usd(given, now_ms)
    earn = max(AMOUNT_MIN, int(worth * slippage / price_usd(gotten, now_ms) * 10**gotten.decimals))
    return PlannedTrade(rng, wallet, pool, given, gotten, amount_in or spend, amount_out or earn, fee)


def _directions(
    token_in: SimulatedToken | None, token_out: SimulatedToken | None
) -> list[tuple[SwapPool, SimulatedToken, SimulatedToken]]:
    both = [way for pool in POOLS for way in ((pool, pool.x, pool.y), (pool, pool.y, pool.x))]
    fitting = [way for way in both if token_in in {None, way[1]} and token_out in {None, way[2]}]
    if not fitting:
        pairs = ", ".join(f"{pool.x.symbol}/{pool.y.symbol}" for pool in POOLS)
        raise UsageError(f"no pool swaps these two tokens; there are {pairs}")
    return fitting
