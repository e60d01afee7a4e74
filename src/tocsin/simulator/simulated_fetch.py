"""The in-process face: a `Fetch` on the simulator, in the clock's time and without a socket.

A hang lasts as long as the caller is willing to wait, a slow body takes its time, a cut connection is a
`FetchFailed`: the same classes and the same waiting as over a real wire.
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from tocsin.bindings import FetchResponse
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.simulator.http_messages import Delivery, SimulatedRequest, UpstreamName
from tocsin.simulator.simulator import Simulator

HIRO_URL = "https://api.mainnet.hiro.so"
TENERO_URL = "https://api.tenero.io"


class SimulatedFetch:
    """Reaches the two upstreams by their base URLs, and nothing else."""

    def __init__(
        self,
        simulator: Simulator,
        *,
        hiro_url: str = HIRO_URL,
        tenero_url: str = TENERO_URL,
        latency_s: float = 0.0,
    ) -> None:
        self._simulator = simulator
        self._bases: dict[str, UpstreamName] = {
            hiro_url.rstrip("/"): "hiro",
            tenero_url.rstrip("/"): "tenero",
        }
        self.latency_s = latency_s

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,  # noqa: ARG002 - no upstream reads one
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse:
        upstream, base = self._upstream(url)
        parts = urlsplit(url[len(base) :])
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        await self._wait(min(self.latency_s, timeout_s))
        delivery = self._simulator.answer(
            upstream, SimulatedRequest(method, unquote(parts.path), parts.query, lower)
        )
        await self._wait_for(delivery, timeout_s - self.latency_s, body_max)
        reply = delivery.reply
        return FetchResponse(reply.status, reply.headers, reply.body + b" " * delivery.padding)

    def _upstream(self, url: str) -> tuple[UpstreamName, str]:
        for base, upstream in self._bases.items():
            if url.startswith(base + "/"):
                return upstream, base
        raise FetchFailed(f"nothing is simulated at {url}; there are {', '.join(self._bases)}")

    async def _wait_for(self, delivery: Delivery, left_s: float, body_max: int) -> None:
        """Let the time pass that the delivery takes; raise what keeps it from arriving whole."""
        arrives_s = self._arrives_s(delivery, body_max)
        if arrives_s > left_s:
            await self._wait(max(0.0, left_s))
            raise FetchTimeout("no complete answer in time")
        await self._wait(arrives_s)
        if delivery.cut_after is not None and delivery.cut_after <= body_max:
            raise FetchFailed("the connection was cut")
        if delivery.size > body_max:
            raise FetchTooLarge(f"the body passes {body_max} bytes")

    @staticmethod
    def _arrives_s(delivery: Delivery, body_max: int) -> float:
        """When the last byte is here, or the one that settles the matter."""
        if delivery.hangs:
            return float("inf")
        needed = min(delivery.size, body_max + 1)
        if delivery.cut_after is not None:
            needed = min(needed, delivery.cut_after)
        share = needed / delivery.size if delivery.size else 1.0
        return delivery.delay_s + delivery.drip_s * share

    async def _wait(self, seconds: float) -> None:
        # Also for no time at all: a fetch always lets others run.
        await self._simulator.clock.sleep(seconds)
