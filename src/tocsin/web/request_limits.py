"""Bounds on what a client may send: the size of a body, and the number of posts."""

import asyncio
from collections import OrderedDict
from math import ceil

from starlette.types import Message, Receive, Scope

from tocsin.bindings import Clock
from tocsin.client_address import client_network
from tocsin.errors import RequestRefused

BODY_MAX = 64 * 1024
BODY_WAIT_S = 30
CLIENTS_MAX = 10_000  # remembered at once; the one that was quiet longest is forgotten first


class ClientRateLimit:
    """A token bucket per client: a number of `what` a minute, bursts allowed."""

    def __init__(self, per_minute_max: int, clock: Clock, what: str = "posts") -> None:
        self._what = what
        self._burst = float(per_minute_max)
        self._per_s = per_minute_max / 60
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many are left, as of then

    def count(self, client: str) -> None:
        """Count one; refuses it when the client has none left."""
        left = self._left_of(client)
        now = self._clock.monotonic()
        self._left.pop(client, None)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
        if left < 1:
            raise self._refusal(left)

    def check(self, client: str) -> None:
        """Refuses when the client has none left; counts nothing."""
        left = self._left_of(client)
        if left < 1:
            raise self._refusal(left)

    def _left_of(self, client: str) -> float:
        now = self._clock.monotonic()
        left, then = self._left.get(client, (self._burst, now))
        return min(self._burst, left + (now - then) * self._per_s)

    def _refusal(self, left: float) -> RequestRefused:
        wait_s = max(1, ceil((1 - left) / self._per_s))
        return RequestRefused(
            429,
            "too_many_requests",
            f"At most {self._burst:.0f} {self._what} a minute are accepted from one client: wait {wait_s} s.",
            retryable=True,
            headers={"Retry-After": str(wait_s)},
        )


def client_of(scope: Scope) -> str:
    """The client that a request counts for: an IPv4 address, or an IPv6 network (/64)."""
    return client_network(str((scope.get("client") or ("unknown",))[0]))


def capped(scope: Scope, receive: Receive, body_max: int) -> Receive:
    """`receive` that refuses a body that is too large, as soon as that is known, or too slow."""
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
    return RequestRefused(413, "body_too_large", f"A body may have {body_max} bytes at most.")
