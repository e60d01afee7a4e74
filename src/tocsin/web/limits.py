"""Limits on what one client may send: requests, reads, posts, guesses of a key, and the size of a body.

A client is an IPv4 address, or an IPv6 /64 and its /48. All its requests are limited, whatever the path: how many begin
in a minute, and how many are answered at a time. Reads and posts have lower limits of their own. Who sends the key of
an operator, or of a program that looks up, has none of these limits, except for posts. The key is compared only when a
limit is reached, and a wrong one counts as a guess. A client that has used up its guesses is refused before its next
key is compared, so further guesses are useless. The log reports it once a minute for each client.

Emits `auth.refused`.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil
from typing import Any, Final, Literal, TypeAlias

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from holdfast.types import Clock, Logger
from tocsin.errors import RequestRefused
from tocsin.settings import AccessKey

IPV6_PREFIXES = (64, 48)  # what a household usually has, and an organization: 65,536 of them
HOSTS_MAX = 10_000  # whose networks are cached
BODY_MAX = 64 * 1024
BODY_WAIT_S = 30
CLIENTS_MAX = 10_000  # remembered at once; the one that has been quiet longest is forgotten first
CLIENTS_PER_SITE = 10  # a whole /48 may do as much as this many clients
REQUESTS_PER_READ = 10  # most requests cost less than a read
UNDER_WAY_MAX = 64
GUESSES_PER_MINUTE_MAX = 10
LOG_EVERY_S = 60
KEY_HEADERS = (b"x-admin-key", b"x-api-key")  # of operators, and of programs that look up
Networks: TypeAlias = tuple[str, ...]  # the client, and the larger network that it belongs to, if any
Use: TypeAlias = Literal[0, 1, 2]  # of a place; the lowest goes first
STUCK: Final = 0  # its client does not read
WAITING: Final = 1  # for its client
BUSY: Final = 2
SPARE: Final = (STUCK, WAITING)


@lru_cache(maxsize=HOSTS_MAX)
def client_networks(host: str) -> Networks:
    """What a request counts for: an IPv4 address, even if it is written as IPv6, or an IPv6 /64 and its /48."""
    try:
        address = ip_address(host)
    except ValueError:
        return (host,)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return tuple(str(IPv6Network((int(address), prefix), strict=False)) for prefix in IPV6_PREFIXES)
    return (str(getattr(address, "ipv4_mapped", address)),)


class ClientRateLimit:
    """A token bucket per network: a number of `what` a minute for a client, ten times as many for a whole /48.

    Bursts are allowed. What is expensive counts as several. 0 a minute: no limit.
    """

    def __init__(self, per_minute_max: int, clock: Clock, what: str = "posts") -> None:
        self._what = what
        self._bursts = (float(per_minute_max), float(per_minute_max * CLIENTS_PER_SITE))
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many are left, as of then

    def allows(self, networks: Networks, cost: int = 1) -> bool:
        """Count a request if the client has as many left; refused ones are not counted."""
        if not self._bursts[0]:
            return True
        now, cost = self._clock.monotonic(), min(cost, int(self._bursts[0]))
        lefts = self._lefts(networks, now)
        allowed = min(lefts) >= cost
        for network, left in zip(networks, lefts, strict=False):
            self._left[network] = (left - cost if allowed else left, now)
            self._left.move_to_end(network)
        while len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
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
            left, then = self._left.get(network, (burst, now))
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


@dataclass(slots=True, eq=False)
class Place:
    """`close` is called when the place is taken away; then it is `gone`."""

    networks: "Sequence[_Network]"
    close: Callable[[], None]
    use: Use
    gone: bool = False


@dataclass(slots=True, eq=False)
class _Network:
    """The places of a client or of a /48 by their use, the oldest first."""

    name: str
    places: tuple[dict[Place, None], ...] = field(default_factory=lambda: ({}, {}, {}))

    @property
    def count(self) -> int:
        return sum(map(len, self.places))

    @property
    def spare_count(self) -> int:
        return len(self.places[STUCK]) + len(self.places[WAITING])

    def oldest(self, *uses: Use) -> Place | None:
        return next((place for use in uses for place in self.places[use]), None)


class Places:
    """At most `total_max`. `shares`: how many one client may have, and how many one /48.

    When a share is used up, or all places are taken, the least used place goes: that of a client that does not read, or
    else one that waits for its client, the oldest first. When every place is in use, one goes only if its client has
    more than the new one.
    """

    def __init__(self, total_max: int, *shares: int) -> None:
        self.total_max = total_max
        self.shares = shares
        self.count = 0
        self.dropped = 0
        self._networks: dict[str, _Network] = {}

    def open(
        self,
        networks: tuple[str, ...],
        close: Callable[[], None] = lambda: None,
        use: Use = BUSY,
        *,
        is_limited: bool = True,
    ) -> Place | None:
        """A place for the client with these networks; None if there is none. `is_limited`: it has only its share."""
        for name, share in zip(networks, self.shares, strict=False) if is_limited else ():
            known = self._networks.get(name)
            if known is not None and known.count >= share and not self._drop(known.oldest(*SPARE)):
                return None
        if self.count >= self.total_max and not self._drop(self._least_used(networks)):
            return None
        own = [self._networks.setdefault(name, _Network(name)) for name in networks]
        place = Place(own, close, use)
        for network in own:
            network.places[use][place] = None
        self.count += 1
        return place

    def mark(self, place: Place, use: Use) -> None:
        """The place is used like this from now on."""
        before = place.use
        if before != use:
            place.use = use
            for network in place.networks:
                del network.places[before][place]
                network.places[use][place] = None

    def closed(self, place: Place) -> None:
        """Free a place, unless it was taken away."""
        if place.gone:
            return
        place.gone = True
        self.count -= 1
        for network in place.networks:
            del network.places[place.use][place]
            if not network.count:
                del self._networks[network.name]

    def _drop(self, place: Place | None) -> bool:
        if place is None:
            return False
        self.dropped += 1
        self.closed(place)
        place.close()
        return True

    def _least_used(self, networks: tuple[str, ...]) -> Place | None:
        """The place that goes when all are taken. With nothing to spare, a client keeps as many as the new one gets."""
        known = self._networks.values()
        idlest = max(known, key=lambda network: network.spare_count)
        if idlest.spare_count:
            return idlest.oldest(*SPARE)
        largest = max(known, key=lambda network: network.count)
        own = max((self._networks[name].count for name in networks if name in self._networks), default=0)
        return largest.oldest(BUSY) if largest.count > own + 1 else None


def _no_key(_request: Request, _access: object) -> AccessKey:
    raise NotImplementedError("no route has a key")


class ClientLimits:
    """The limits of all clients of one application. `key_of` is the key of a request, which must give this access."""

    def __init__(
        self,
        posts_per_minute_max: int,
        clock: Clock,
        logger: Logger,
        *,
        reads_per_minute_max: int = 0,
        under_way_max: int = 0,
        key_of: Callable[[Request, Any], AccessKey] = _no_key,
    ) -> None:
        """0 reads a minute: no limit on reads and requests. 0 under way: no limit on these."""
        self.posts = ClientRateLimit(posts_per_minute_max, clock)
        self.reads = ClientRateLimit(reads_per_minute_max, clock, "reads")
        self._requests = ClientRateLimit(reads_per_minute_max * REQUESTS_PER_READ, clock, "requests")
        at_once = under_way_max or sys.maxsize
        self._under_way = Places(sys.maxsize, at_once, at_once * CLIENTS_PER_SITE)
        self._guesses = ClientRateLimit(GUESSES_PER_MINUTE_MAX, clock, "wrong keys")
        self.key_of = key_of
        self._clock = clock
        self._logger = logger
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when, and how many since then

    def begin(self, scope: Scope) -> Place:
        """Count a request of any kind; `end` it with the returned place. Refuses a client over its limits."""
        networks = networks_of(scope)
        try:
            self._requests.count(networks)
            place = self._under_way.open(networks)
            if place is None:
                raise _too_many_at_once()
        except RequestRefused:
            if not self._sends_admin_key(scope, networks):
                raise
            place = self._under_way.open(())
            assert place is not None  # it counts for nobody
        return place

    def end(self, place: Place) -> None:
        self._under_way.closed(place)

    def before_read(self, scope: Scope, cost: int = 1) -> None:
        """Count a read. Refuses a client over its limit."""
        networks = networks_of(scope)
        try:
            self.reads.count(networks, cost)
        except RequestRefused:
            if not self._sends_admin_key(scope, networks):
                raise

    def _sends_admin_key(self, scope: Scope, networks: Networks) -> bool:
        if all(name not in KEY_HEADERS for name, _ in scope["headers"]):
            return False
        self.before_key(networks)
        try:
            self.key_of(Request(scope), "viewer" if b"x-admin-key" in dict(scope["headers"]) else "lookup")
        except RequestRefused:
            self.wrong_key(networks, scope["path"])
            return False
        return True

    def before_key(self, networks: Networks) -> None:
        """Refuse a client that has guessed too often, whatever it sends now."""
        self._guesses.check(networks)

    def wrong_key(self, networks: Networks, path: str) -> None:
        """Count and report a wrong key."""
        self._guesses.count(networks)
        client, now = networks[0], self._clock.monotonic()
        at, unreported = self._logged.pop(client, (-float(LOG_EVERY_S), 0))
        if now - at < LOG_EVERY_S:
            self._logged[client] = (at, unreported + 1)
            return
        self._logged[client] = (now, 0)
        if len(self._logged) > CLIENTS_MAX:
            self._logged.popitem(last=False)
        self._logger.warning("auth.refused", client=client, path=path[:100], count=unreported + 1)


def _too_many_at_once() -> RequestRefused:
    sentence = f"At most {UNDER_WAY_MAX} requests of one client are answered at a time: wait for some of them."
    return RequestRefused(429, "too_many_requests", sentence, retryable=True, headers={"Retry-After": "1"})
