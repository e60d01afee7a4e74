"""The client that a request counts for: an IPv4 address, or the network of an IPv6 client. Pure."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

IPV6_PREFIX = 64  # what a household usually has
IPV6_SITE_PREFIX = 48  # what an organisation usually has: 65,536 of them
HOSTS_MAX = 10_000  # whose networks are cached


def client_network(host: str, ipv6_prefix: int = IPV6_PREFIX) -> str:
    """The IPv4 address, even if it is written as IPv6; the network of an IPv6 address; any other text unchanged."""
    address = _address(host)
    if isinstance(address, IPv6Address):
        bits = 128 - ipv6_prefix
        return f"{IPv6Address(int(address) >> bits << bits)}/{ipv6_prefix}"
    return host if address is None else str(address)


@lru_cache(maxsize=HOSTS_MAX)
def client_networks(host: str) -> tuple[str, ...]:
    """What a request counts for: the client, and for IPv6 also its /48."""
    network = client_network(host)
    return (
        (network, client_network(host, IPV6_SITE_PREFIX))
        if network.endswith(f"/{IPV6_PREFIX}")
        else (network,)
    )


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
