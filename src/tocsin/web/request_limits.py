"""Limits on the size of a client's bodies and on the number of its requests."""

import asyncio
from collections import OrderedDict
from math import ceil
from typing import TypeAlias

from starlette.types import Message, Receive, Scope

from tocsin.bindings import Clock
from tocsin.client_address import client_networks
from tocsin.errors import RequestRefused

BODY_MAX = 64 * 1024
BODY_WAIT_S = 30
CLIENTS_MAX = 10_000  # remembered at once; the one that has been quiet longest is forgotten first
CLIENTS_PER_SITE = 10  # a whole /48 may do as much as this many clients

Networks: TypeAlias = tuple[str, ...]  # the client, and the larger network that it belongs to, if any


class ClientRateLimit:
    """A token bucket per network: a number of `what` a minute for a client, ten times as many for a whole /48.

    Bursts are allowed. What is expensive counts as several. 0 a minute: no limit.
    """

    def __init__(self, per_minute_max: int, clock: Clock, what: str = "posts") -> None:
        self._what = what
        self._bursts = (float(per_minute_max), float(per_minute_max * CLIENTS_PER_SITE))
        self._clock = clock
        self._left: OrderedDict[str, list[float]] = OrderedDict()  # how many are left, as of then

    def allows(self, networks: Networks, cost: int = 1) -> bool:
        """Count a request if the client has as many left; refused ones are not counted."""
        if not self._bursts[0]:
            return True
        now, kept, allowed = self._clock.monotonic(), self._left, True
        cost = min(cost, int(self._bursts[0]))
        for network, burst in zip(networks, self._bursts, strict=False):
            bucket = kept.get(network)
            if bucket is None:
                kept[network] = [burst, now]
                continue
            kept.move_to_end(network)
            left = bucket[0] + (now - bucket[1]) * burst / 60
            bucket[:] = min(burst, left), now
            allowed = allowed and bucket[0] >= cost
        if allowed:
            for network in networks:
                kept[network][0] -= cost
        while len(kept) > CLIENTS_MAX:
            kept.popitem(last=False)
        return allowed

    def count(self, networks: Networks, cost: int = 1) -> None:
        """Count a request; refuses it when the client has too few left."""
        if not self.allows(networks, cost):
            raise self._refusal(networks, cost)

    def check(self, networks: Networks) -> None:
        """Refuse when the client has none left; counts nothing."""
        if self._bursts[0] and min(self._lefts(networks, self._clock.monotonic())) < 1:
            raise self._refusal(networks)

    def _lefts(self, networks: Networks, now: float) -> list[float]:
        """How many each network has left."""
        lefts = []
        for network, burst in zip(networks, self._bursts, strict=False):
            left, then = self._left.get(network, [burst, now])
            lefts.append(min(burst, left + (now - then) * burst / 60))
        return lefts

    def _refusal(self, networks: Networks, cost: int = 1) -> RequestRefused:
        cost = min(cost, int(self._bursts[0]))
        lefts = self._lefts(networks, self._clock.monotonic())
        wait_s, burst, whose = max(
            ((cost - left) * 60 / burst, burst, whose)
            for left, burst, whose in zip(lefts, self._bursts, ("client", "network (/48)"), strict=False)
        )
        wait_s = max(1, ceil(wait_s))
        return RequestRefused(
            429,
            "too_many_requests",
            f"At most {burst:.0f} {self._what} a minute are accepted from one {whose}: wait {wait_s} s.",
            retryable=True,
            headers={"Retry-After": str(wait_s)},
        )


def networks_of(scope: Scope) -> Networks:
    """The networks that a request counts for: an IPv4 address, or an IPv6 /64 and its /48."""
    client = scope.get("client")
    return client_networks(client[0]) if client else ("unknown",)


def capped(scope: Scope, receive: Receive, body_max: int) -> Receive:
    """A `receive` that refuses a body that is too slow, or too large, as soon as that is known."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value[:18]) > body_max:
            raise _too_large(body_max)
    size, complete = 0, False
    ends_at = asyncio.get_running_loop().time() + BODY_WAIT_S

    async def receive_capped() -> Message:
        nonlocal size, complete
        if complete:
            return await receive()  # only a disconnect can follow
        try:
            async with asyncio.timeout_at(ends_at):
                message = await receive()
        except TimeoutError:
            sentence = f"The body did not arrive within {BODY_WAIT_S} s: send it again."
            raise RequestRefused(408, "body_too_slow", sentence, retryable=True) from None
        size += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if size > body_max:
            raise _too_large(body_max)
        return message

    return receive_capped


def _too_large(body_max: int) -> RequestRefused:
    return RequestRefused(413, "body_too_large", f"A body may have at most {body_max} bytes.")
