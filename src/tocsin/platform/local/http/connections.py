"""The open connections, and room for new ones.

A process without free descriptors cannot open its own files. So the number of connections is limited to the process's
descriptors less a reserve, and one client may have only a part of them.
"""

import resource
from collections.abc import Callable, Collection
from ipaddress import ip_address, ip_network

from tocsin.client_address import client_networks
from tocsin.client_places import WAITING, Place, Places

RESERVE = 256  # descriptors for stores, upstreams and log
TOTAL_MAX = 10_000
TOTAL_MIN = 64
SHARE = 4  # one client may have a quarter of all connections,
SHARE_MAX = 256  # but not more than this: the loop serves all that are ready before it looks again
SHARES_PER_SITE = 2  # one IPv6 /48 may have twice as many
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


class Connections(Places):
    """All connections of a server. Trusted proxies have no limit of their own: they speak for many clients."""

    def __init__(self, total_max: int, trusted_proxies: Collection[str] = ()) -> None:
        share = min(SHARE_MAX, max(TOTAL_MIN // 2, total_max // SHARE))
        super().__init__(total_max, share, share * SHARES_PER_SITE)
        self.stopping = False  # the server is stopping: each connection ends with its next response
        self._trusted = [ip_network(proxy, strict=False) for proxy in trusted_proxies]

    def connect(self, host: str, close: Callable[[], None]) -> Place | None:
        """A place for a new connection, which waits for a request; None if there is no room."""
        return self.open(client_networks(host), close, WAITING, is_limited=not self._is_trusted(host))

    def _is_trusted(self, host: str) -> bool:
        if not self._trusted:
            return False
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._trusted)
