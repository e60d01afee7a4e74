"""Both upstreams with their limits and faults: takes a request and returns the delivery of its reply."""

from collections import deque
from dataclasses import dataclass
from email.utils import formatdate

from holdfast.types import Clock
from stacks_simulator.addresses import digest
from stacks_simulator.chain import Chain
from stacks_simulator.faults import FaultInjector, FaultKind
from stacks_simulator.hiro_api import HiroApi
from stacks_simulator.hiro_lookups import cost_of
from stacks_simulator.http_messages import Delivery, SimulatedReply, SimulatedRequest, UpstreamName
from stacks_simulator.rate_limits import HiroRateLimit, TeneroRateLimit, UpstreamRateLimit
from stacks_simulator.tenero_api import TeneroApi
from stacks_simulator.truth import TrueSwap

REQUESTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request that the simulator received, for tests that count requests."""

    at_ms: int
    upstream: UpstreamName
    path: str
    query: str
    keyed: bool
    status: int
    fault: FaultKind | None


class Simulator:
    """A chain, its two APIs, their limits and their faults, on one clock.

    The chain's time runs `speed` times as fast as the clock. It starts at the chain's time when the simulator is
    created, or at `since_ms`. Limits and `Retry-After` follow the clock itself, because callers wait by the clock.
    """

    def __init__(
        self,
        chain: Chain,
        clock: Clock,
        *,
        speed: float = 1.0,
        hiro_rate_limit: HiroRateLimit | None = None,
        tenero_rate_limit: TeneroRateLimit | None = None,
        faults: FaultInjector | None = None,
        since_ms: int | None = None,
    ) -> None:
        self.chain = chain
        self.clock = clock
        self.speed = speed
        self.hiro = HiroApi(chain)
        self.tenero = TeneroApi(chain.market)
        self.hiro_rate_limit = hiro_rate_limit or HiroRateLimit()
        self.tenero_rate_limit = tenero_rate_limit or TeneroRateLimit()
        self.faults = faults or FaultInjector(chain.seed)
        self.requests: deque[RecordedRequest] = deque(maxlen=REQUESTS_MAX)
        self._reply_count = 0
        self._chain_origin_ms = chain.now_ms
        self._clock_origin_ms = clock.now() if since_ms is None else since_ms

    def advance(self) -> None:
        """Advance the chain to the present. Every request does this first."""
        elapsed_ms = self.clock.now() - self._clock_origin_ms
        self.chain.advance(self._chain_origin_ms + int(elapsed_ms * self.speed))

    def truth(self) -> list[TrueSwap]:
        """The swaps that a perfect sweep would have found by now."""
        self.advance()
        return self.chain.truth()

    def handle(self, upstream: UpstreamName, request: SimulatedRequest) -> Delivery:
        """Handle one request and return what arrives at the caller."""
        self.advance()
        now_ms = self.clock.now()
        rate_limit = self.rate_limit(upstream)
        cost = cost_of(request) if upstream == "hiro" else 1
        decision = rate_limit.admit(request.headers, now_ms, cost)
        reply = decision.error_reply or self._reply(upstream, request)
        reply = reply.with_headers({**decision.headers, **self._edge_headers(now_ms)})
        delivery, fault = self.faults.deliver(upstream, request, reply, rate_limit, now_ms)
        is_keyed, status = "x-api-key" in request.headers, delivery.reply.status
        record = RecordedRequest(now_ms, upstream, request.path, request.query_text, is_keyed, status, fault)
        self.requests.append(record)
        return delivery

    def rate_limit(self, upstream: UpstreamName) -> UpstreamRateLimit:
        return self.hiro_rate_limit if upstream == "hiro" else self.tenero_rate_limit

    def _reply(self, upstream: UpstreamName, request: SimulatedRequest) -> SimulatedReply:
        if upstream == "hiro":
            return self.hiro.reply(request)
        return self.tenero.reply(request, self.chain.now_ms)

    def _edge_headers(self, now_ms: int) -> dict[str, str]:
        """The headers that the network in front of both upstreams adds to every reply."""
        self._reply_count += 1
        ray = digest(f"{self.chain.seed}:ray:{self._reply_count}")[2:18]
        date = formatdate(now_ms // 1000, usegmt=True)
        return {"date": date, "server": "cloudflare", "cf-ray": f"{ray}-SIM"}
