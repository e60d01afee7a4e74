"""Random traffic on a chain: calls of every kind, transfers, drops, floods of dust and reorgs.

Everything is drawn from seeded random streams, one arrival after the other, so the result does not depend on
the number of steps in which the chain is advanced.

The rest of the network has a stream of its own, so other traffic is the same with and without it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from random import Random

from stacks_simulator.addresses import address_of
from stacks_simulator.chain import BURN_BLOCK_S, DROP_STATUSES, Chain
from stacks_simulator.chain_records import ChainTransaction, ContractLogEvent, IntendedSwap, SimulatedCall, TenureChange
from stacks_simulator.traders import Traders
from stacks_simulator.wallets import Wallet

HOUR_MS = 3_600_000
NETWORK_WAIT_MS_MAX = 20_000  # the longest wait in the mempool
ACCOUNT_COUNT = 2_000
MINER = address_of("miner")
CALLS = tuple(
    SimulatedCall(f"{address_of(f'network:contract:{number}')}.{name}", function)
    for number, (name, function) in enumerate(
        (
            ("stacking-pool-v1", "delegate-stx"),
            ("name-registry-v2", "name-renewal"),
            ("marketplace-v4", "list-item"),
            ("lending-market-v3", "accrue-interest"),
            ("price-oracle-v2", "update-feeds"),
            ("bridge-endpoint-v1", "finalise-peg-in"),
            ("voting-v1", "cast-vote"),
            ("lottery-v2", "buy-ticket"),
        )
    )
)

WAIT_MS_MAX = 40_000  # the longest wait in the mempool
DROP_SHARE = 0.03
RETURN_SHARE = 0.25  # of the dropped transactions: broadcast again later

KIND_WEIGHTS: Mapping[str, float] = {
    "simple": 40,
    "provider": 6,
    "multihop": 12,
    "multibin": 3,
    "fee_leg": 6,
    "refund": 4,
    "mint_side": 4,
    "burn_side": 4,
    "sponsored": 8,
    "nft_noise": 3,
    "bystanders": 3,
    "huge": 1,
    "small_stx": 1,
    "off_list_contract": 3,
    "off_list_function": 1,
    "abort_by_response": 2,
    "abort_by_post_condition": 2,
    "problematic_skipped": 0.3,
    "one_sided": 1,
    "two_given": 1,
    "two_gotten": 1,
    "round_trip": 1,
    "no_events": 0.5,
    "third_token_fee": 1,
}
# Without the kinds that change the amounts of a trade, calls that nobody has listed, and replies without events.
EVERYDAY_KINDS: Mapping[str, float] = {
    kind: weight
    for kind, weight in KIND_WEIGHTS.items()
    if kind
    not in {"huge", "small_stx", "multibin", "third_token_fee", "off_list_contract", "off_list_function", "no_events"}
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many of each happen per hour on the whole chain."""

    swaps: float = 300.0  # by registered wallets
    strangers: float = 60.0  # swaps by others
    transfers: float = 90.0  # between a registered wallet and a stranger
    floods: float = 0.2  # of 26 to 79 dust transfers to one wallet at once
    reorgs: float = 0.25
    network: float = 0.0  # other transactions of the whole network: see `NetworkTraffic`
    tenures: bool = False  # a transaction of the miner after each Bitcoin block
    kinds: Mapping[str, float] = field(default_factory=lambda: KIND_WEIGHTS)
    with_styles: bool = False  # registered wallets trade as `traders.py` describes, and have funders of their own


def start_traffic(chain: Chain, traffic: Traffic, stream: str = "traffic") -> None:
    """Add traffic whenever the chain advances from now on. Each call needs its own stream."""
    generator = _TrafficGenerator(chain, traffic, stream)
    if generator.rate > 0:
        generator.schedule_next()
    if traffic.tenures:
        start_tenures(chain)
    if traffic.network > 0:
        NetworkTraffic(chain, traffic.network, f"{stream}:network").schedule_next()


def start_tenures(chain: Chain) -> None:
    """Begin a tenure with each Bitcoin block from now on, with a transaction of its miner.

    As on the real network: even if nobody else does anything, the newest block of the list is seldom old.
    """
    period_ms = BURN_BLOCK_S * 1000

    def begin() -> None:
        chain.broadcast(MINER, TenureChange(), (), fee=0)
        start_tenures(chain)

    chain.schedule((chain.now_ms // period_ms + 1) * period_ms, begin)


class NetworkTraffic:
    """The rest of the network: strangers who pay each other, or call contracts that are not listed; no swaps.

    Creating them is cheap, because a real day has thousands of them.
    """

    def __init__(self, chain: Chain, hourly: float, stream: str) -> None:
        self._chain = chain
        self._rng = Random(f"{chain.seed}:{stream}")  # noqa: S311 - a repeatable model, not a secret
        self._rate = hourly / HOUR_MS
        self._addresses: dict[int, str] = {}

    def schedule_next(self) -> None:
        gap_ms = self._rng.expovariate(self._rate)
        self._chain.schedule(self._chain.now_ms + round(gap_ms), self._arrive)

    def _arrive(self) -> None:
        sender, wait_ms = self._account(), self._rng.randrange(NETWORK_WAIT_MS_MAX)
        if self._rng.random() < 0.5:
            self._chain.transfer(sender, self._account(), self._rng.randrange(1, 10**9), wait_ms=wait_ms)
        else:
            call, fee = self._rng.choice(CALLS), self._rng.randrange(1_000, 9_000)
            log = ContractLogEvent(call.contract, call.function)
            self._chain.broadcast(sender, call, (log,), fee=fee, wait_ms=wait_ms)
        self.schedule_next()

    def _account(self) -> str:
        number = self._rng.randrange(ACCOUNT_COUNT)
        if number not in self._addresses:
            self._addresses[number] = address_of(f"{self._chain.seed}:network:{number}")
        return self._addresses[number]


class _TrafficGenerator:
    def __init__(self, chain: Chain, traffic: Traffic, stream: str) -> None:
        self._chain = chain
        self._rng = Random(f"{chain.seed}:{stream}")  # noqa: S311 - a repeatable model, not a secret
        self._arrivals = (self._swap, self._stranger, self._transfer, self._flood, self._reorg)
        self._rates = (traffic.swaps, traffic.strangers, traffic.transfers, traffic.floods, traffic.reorgs)
        self.rate = sum(self._rates)
        self._kinds, self._weights = list(traffic.kinds), list(traffic.kinds.values())
        self._traders = Traders(chain, self._rng) if traffic.with_styles else None
        if self._traders is not None:
            self._traders.fund()

    def schedule_next(self) -> None:
        gap_ms = self._rng.expovariate(self.rate / HOUR_MS)
        self._chain.schedule(self._chain.now_ms + 1 + int(gap_ms), self._arrive)

    def _arrive(self) -> None:
        (arrival,) = self._rng.choices(self._arrivals, self._rates)
        arrival()
        self.schedule_next()

    def _swap(self) -> None:
        if self._traders is None:
            self._trade(self._wallet())
        else:
            self._trade(*self._traders.next())

    def _stranger(self) -> None:
        self._trade(self._rng.choice(self._chain.strangers))

    def _trade(self, wallet: Wallet, swap: IntendedSwap | None = None) -> None:
        (kind,) = self._rng.choices(self._kinds, self._weights)
        dropped = self._rng.random() < DROP_SHARE
        wait_ms = None if dropped else self._rng.randrange(WAIT_MS_MAX)
        wanted = {} if swap is None else asdict(swap)
        tx = self._chain.swap(wallet, kind, wait_ms=wait_ms, rng=self._rng, **wanted)
        if dropped:
            self._drop_later(tx)

    def _drop_later(self, tx: ChainTransaction) -> None:
        status, returns = self._rng.choice(DROP_STATUSES), self._rng.random() < RETURN_SHARE
        at_ms = self._chain.now_ms + self._rng.randrange(WAIT_MS_MAX)
        self._chain.schedule(at_ms, lambda: self._drop(tx, status))
        if returns:
            self._chain.schedule(at_ms + 10 * WAIT_MS_MAX, lambda: self._return(tx))

    def _drop(self, tx: ChainTransaction, status: str) -> None:
        if tx.state == "mempool":  # a command may have mined it in the meantime
            self._chain.drop(tx, status)

    def _return(self, tx: ChainTransaction) -> None:
        if tx.state == "dropped":
            self._chain.rebroadcast(tx)

    def _transfer(self) -> None:
        sender, recipient = self._wallet(), self._rng.choice(self._chain.strangers)
        if self._rng.random() < 0.5:
            sender, recipient = recipient, sender
        self._chain.transfer(sender, recipient, self._rng.randrange(1, 10**8), wait_ms=0)

    def _flood(self) -> None:
        self._chain.dust(self._wallet(), self._rng.randrange(26, 80))

    def _reorg(self) -> None:
        self._chain.reorg(self._rng.randrange(1, 8), "mixed", self._rng)

    def _wallet(self) -> Wallet:
        """A random wallet: a few wallets trade a lot, most only rarely."""
        wallets = self._chain.wallets
        return wallets[int(len(wallets) * self._rng.random() ** 2)]
