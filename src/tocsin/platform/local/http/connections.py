"""The open connections, and room for new ones.

A process without free descriptors cannot open its own files. So the number of connections is limited to the process's
descriptors less a reserve, and one client may have only a part of them. When there are too many, the connection that
has waited longest for a request is closed: one of the client that has too many, or else of the one that has most.
"""

import resource
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from tocsin.client_address import client_network

RESERVE = 256  # descriptors for stores, upstreams and log
TOTAL_MAX = 10_000
TOTAL_MIN = 64
SHARE = 4  # one client may have a quarter of all connections
DESCRIPTORS_WANTED = 65_536


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as the system allows it, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft


def connections_max(descriptors: int) -> int:
    """How many connections there may be with this many descriptors."""
    return max(TOTAL_MIN, min(TOTAL_MAX, descriptors - RESERVE))


@dataclass(slots=True, eq=False)
class Place:
    """A connection. `close` ends it at once."""

    client: str
    close: Callable[[], None]


@dataclass(slots=True)
class _Client:
    """The connections of one client: how many, and those that wait for a request, the oldest first."""

    count: int = 0
    waiting: dict[Place, None] = field(default_factory=dict)


class Connections:
    """All connections of a server. Trusted proxies have no limit of their own: they speak for many clients."""

    def __init__(self, total_max: int, trusted_proxies: Collection[str] = ()) -> None:
        self.total_max = total_max
        self.per_client_max = max(TOTAL_MIN // 2, total_max // SHARE)
        self.count = 0
        self.dropped = 0
        self.stopping = False  # the server is stopping: each connection ends with its next response
        self._trusted = [ip_network(proxy, strict=False) for proxy in trusted_proxies]
        self._clients: dict[str, _Client] = {}

    def open(self, host: str, close: Callable[[], None]) -> Place | None:
        """A place for a new connection, which waits for a request; None if there is no room."""
        place = Place(client_network(host), close)
        known = self._clients.get(place.client, _Client())
        if known.count >= self.per_client_max and not self._is_trusted(host) and not self._drop(known):
            return None
        if self.count >= self.total_max and not self._drop(self._largest()):
            return None
        client = self._clients.setdefault(place.client, _Client())  # it may have given up its only connection
        self.count += 1
        client.count += 1
        client.waiting[place] = None
        return place

    def busy(self, place: Place) -> None:
        """Mark a connection that has a request, so that it is not dropped."""
        self._clients[place.client].waiting.pop(place, None)

    def waits(self, place: Place) -> None:
        """Mark a connection that waits for a request again."""
        self._clients[place.client].waiting[place] = None

    def closed(self, place: Place) -> None:
        client = self._clients[place.client]
        client.waiting.pop(place, None)
        client.count -= 1
        self.count -= 1
        if not client.count:
            del self._clients[place.client]

    def _drop(self, client: _Client) -> bool:
        """Close the connection of this client that has waited longest; False if none waits."""
        place = next(iter(client.waiting), None)
        if place is None:
            return False
        self.dropped += 1
        self.closed(place)
        place.close()
        return True

    def _largest(self) -> _Client:
        """The client with the most waiting connections."""
        return max(self._clients.values(), key=lambda client: len(client.waiting))

    def _is_trusted(self, host: str) -> bool:
        if not self._trusted:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._trusted)
