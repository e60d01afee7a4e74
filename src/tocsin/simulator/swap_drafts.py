"""A trade before it is a transaction: who swaps what for what, and the call that will do it."""

from dataclasses import dataclass
from random import Random

from tocsin.errors import UsageError
from tocsin.simulator.chain_records import Argument, AssetEvent, Event, IntendedSwap, LogEvent, SimulatedCall
from tocsin.simulator.contracts import POOLS, Pool
from tocsin.simulator.simulated_tokens import SimulatedToken, price_usd

AMOUNT_MIN = 1000  # enough to cut fees and refunds from, whatever the token


@dataclass(frozen=True, slots=True)
class Trade:
    """What a wallet is about to do."""

    rng: Random
    wallet: str
    pool: Pool
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

    def pays(self, amount: int, token: SimulatedToken | None = None, to: str = "") -> AssetEvent:
        return AssetEvent((token or self.token_in).id, "transfer", self.wallet, to or self.pool.vault, amount)

    def gets(self, amount: int, token: SimulatedToken | None = None, by: str = "") -> AssetEvent:
        return AssetEvent(
            (token or self.token_out).id, "transfer", by or self.pool.vault, self.wallet, amount
        )

    def logs(self, contract: str = "") -> LogEvent:
        return LogEvent(contract or self.pool.contract, self.function)

    def call(self, *events: Event, swap: IntendedSwap | None) -> "Draft":
        """The plain call of the pool's own contract, with these events."""
        arguments = (Argument("x-amount", self.amount_in), Argument("min-dy", self.amount_out * 99 // 100))
        return Draft(SimulatedCall(self.pool.contract, self.function, arguments), events, swap)


@dataclass(frozen=True, slots=True)
class Draft:
    """A call that is ready to be broadcast."""

    call: SimulatedCall
    events: tuple[Event, ...]
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
) -> Trade:
    """A plausible trade at the moment's prices; what the caller gives is kept."""
    pool, given, gotten = rng.choice(_directions(token_in, token_out))
    value_usd = min(5_000.0, 8.0 * rng.paretovariate(1.1))
    slippage = 1.0 - rng.uniform(-0.004, 0.012)
    spend = max(AMOUNT_MIN, int(value_usd / price_usd(given, now_ms) * 10**given.decimals))
    worth = spend / 10**given.decimals * price_usd(given, now_ms)
    earn = max(AMOUNT_MIN, int(worth * slippage / price_usd(gotten, now_ms) * 10**gotten.decimals))
    return Trade(rng, wallet, pool, given, gotten, amount_in or spend, amount_out or earn, fee)


def _directions(
    token_in: SimulatedToken | None, token_out: SimulatedToken | None
) -> list[tuple[Pool, SimulatedToken, SimulatedToken]]:
    both = [way for pool in POOLS for way in ((pool, pool.x, pool.y), (pool, pool.y, pool.x))]
    fitting = [way for way in both if token_in in {None, way[1]} and token_out in {None, way[2]}]
    if not fitting:
        pairs = ", ".join(f"{pool.x.symbol}/{pool.y.symbol}" for pool in POOLS)
        raise UsageError(f"no pool swaps these two tokens; there are {pairs}")
    return fitting
