"""Transactions of the rest of the network: strangers who pay each other and call contracts that are not listed.

None of them is a swap. Creating them is cheap, because a real day has thousands of them. They have a random stream of
their own, so other traffic is the same with and without them.

On the real network, a tenure begins with each Bitcoin block, and with a transaction of its miner: even if nobody else
does anything, the newest block of the list is seldom old.
"""

from random import Random

from tocsin.simulator.addresses import address_of
from tocsin.simulator.chain import BURN_BLOCK_S, Chain
from tocsin.simulator.chain_records import ContractLogEvent, SimulatedCall, TenureChange

HOUR_MS = 3_600_000
WAIT_MS_MAX = 20_000  # the longest wait in the mempool
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


def start_tenures(chain: Chain) -> None:
    """Begin a tenure with each Bitcoin block from now on."""
    period_ms = BURN_BLOCK_S * 1000

    def begin() -> None:
        chain.broadcast(MINER, TenureChange(), (), fee=0)
        start_tenures(chain)

    chain.schedule((chain.now_ms // period_ms + 1) * period_ms, begin)


class NetworkTraffic:
    """Creates a number of transactions per hour, about half of them transfers and half calls."""

    def __init__(self, chain: Chain, hourly: float, stream: str) -> None:
        self._chain = chain
        self._rng = Random(f"{chain.seed}:{stream}")  # noqa: S311 - a repeatable model, not a secret
        self._rate = hourly / HOUR_MS
        self._addresses: dict[int, str] = {}

    def schedule_next(self) -> None:
        gap_ms = self._rng.expovariate(self._rate)
        self._chain.schedule(self._chain.now_ms + round(gap_ms), self._arrive)

    def _arrive(self) -> None:
        sender, wait_ms = self._account(), self._rng.randrange(WAIT_MS_MAX)
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
