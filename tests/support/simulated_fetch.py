"""A `Fetch` that calls the simulator in process, in the clock's time and without a socket.

A hang lasts until the caller's timeout, a slow body takes its full time, and a cut connection raises
`FetchFailed`: errors and waiting times are the same as over a real connection.
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from stacks_simulator.http_messages import Delivery, SimulatedRequest, UpstreamName
from stacks_simulator.simulator import Simulator
from tocsin.errors import FetchFailed, FetchTimeout, FetchTooLarge
from tocsin.fetch import FetchResponse

HIRO_URL = "https://api.mainnet.hiro.so"
TENERO_URL = "https://api.tenero.io"
BASES: Mapping[str, UpstreamName] = {HIRO_URL: "hiro", TENERO_URL: "tenero"}


class SimulatedFetch:
    """Reaches the two upstreams at their base URLs, and nothing else."""

    def __init__(self, simulator: Simulator, *, latency_s: float = 0.0) -> None:
        self._simulator = simulator
        self.latency_s = latency_s

    async def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 8.0,
        body_max: int = 8 * 1024 * 1024,
    ) -> FetchResponse:
        upstream, base = self._upstream(url)
        parts = urlsplit(url[len(base) :])
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        await self._wait(min(self.latency_s, timeout_s))
        delivery = self._simulator.handle(
            upstream, SimulatedRequest(method, unquote(parts.path), parts.query, lower, body or b"")
        )
        await self._wait_for(delivery, timeout_s - self.latency_s, body_max)
        reply = delivery.reply
        return FetchResponse(reply.status, reply.headers, reply.body + b" " * delivery.padding)

    def _upstream(self, url: str) -> tuple[UpstreamName, str]:
        for base, upstream in BASES.items():
            if url.startswith(base + "/"):
                return upstream, base
        raise FetchFailed(f"nothing is simulated at {url}; the base URLs are {', '.join(BASES)}")

    async def _wait_for(self, delivery: Delivery, left_s: float, body_max: int) -> None:
        """Wait as long as the delivery takes. Raise when it does not arrive completely."""
        duration_s = self._duration_s(delivery, body_max)
        if duration_s > left_s:
            await self._wait(max(0.0, left_s))
            raise FetchTimeout("no complete reply in time")
        await self._wait(duration_s)
        if delivery.cut_after is not None and delivery.cut_after <= body_max:
            raise FetchFailed("the connection was cut")
        if delivery.size > body_max:
            reply, message = delivery.reply, f"the body is larger than {body_max} bytes"
            raise FetchTooLarge(message, reply.status, reply.headers, reply.body)

    @staticmethod
    def _duration_s(delivery: Delivery, body_max: int) -> float:
        """The time until the caller can stop reading: at the end of the body, at its limit, or at the cut."""
        if delivery.hangs:
            return float("inf")
        needed = min(delivery.size, body_max + 1)
        if delivery.cut_after is not None:
            needed = min(needed, delivery.cut_after)
        share = needed / delivery.size if delivery.size else 1.0
        return delivery.delay_s + delivery.drip_s * share

    async def _wait(self, seconds: float) -> None:
        # Even for zero seconds: a fetch always lets other coroutines run.
        await self._simulator.clock.sleep(seconds)
