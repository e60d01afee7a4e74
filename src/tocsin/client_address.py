"""Who a request counts for: an IPv4 address, or the network that an IPv6 client can take any address of. Pure."""

from ipaddress import IPv4Address, IPv6Address, ip_address

IPV6_PREFIX = 64  # what a household usually has


def client_network(host: str, ipv6_prefix: int = IPV6_PREFIX) -> str:
    """The address as it is for IPv4, also when it is written as IPv6; the network for IPv6; any other text as it is."""
    address = _address(host)
    if isinstance(address, IPv6Address):
        bits = 128 - ipv6_prefix
        return f"{IPv6Address(int(address) >> bits << bits)}/{ipv6_prefix}"
    return host if address is None else str(address)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
