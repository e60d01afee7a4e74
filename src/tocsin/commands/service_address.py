"""The address of the running service, by URL or by host and port, and whether a key may be sent there."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from tocsin.errors import UsageError
from tocsin.setting_values import url
from tocsin.settings import URL_FOR_COMMANDS, Settings

PORT = Settings().port
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where it listens, not where we call


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A host and a port, and for a URL the prefix of every path."""

    host: str
    port: int
    prefix: str = ""
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https://' if self.tls else ''}{host}:{self.port}{self.prefix}"


def parse_url(text: str, name: str) -> ServiceAddress:
    """The address of a URL. `name` tells where it was given; the URL is not repeated, as it may hold a password."""
    try:
        parts = urlsplit(url(text))
        if parts.port == 0:
            raise ValueError("has the port 0")  # noqa: TRY301 - one sentence for every problem
    except ValueError as error:
        raise UsageError(f"{name} {error}. Example: https://tocsin.example.org/prefix") from None
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    return ServiceAddress(ANYWHERE.get(host, host), parts.port or (443 if tls else 80), parts.path, tls)


def address_of(
    known: Mapping[str, str], *, address_url: str | None, host: str | None, port: int | None
) -> tuple[ServiceAddress, list[str]]:
    """The address by options, else by settings; a URL wins over host and port. Also the names of the settings used."""
    if address_url is not None:
        if host is not None or port is not None:
            raise UsageError("Give --url, or --host and --port, but not both.")
        return parse_url(address_url, "--url"), []
    if host is None and port is None and known.get(URL_FOR_COMMANDS):
        return parse_url(known[URL_FOR_COMMANDS], URL_FOR_COMMANDS), [URL_FOR_COMMANDS]
    at = host or known.get("TOCSIN_HOST", "127.0.0.1")
    set_port = known.get("TOCSIN_PORT", str(PORT))
    if port is None and not (set_port.isdecimal() and 0 < int(set_port[:6]) < 65_536):
        raise UsageError(f"TOCSIN_PORT is {set_port!r}; give a number from 1 to 65535, such as {PORT}.")
    used = [name for name, option in (("TOCSIN_HOST", host), ("TOCSIN_PORT", port)) if option is None]
    return ServiceAddress(ANYWHERE.get(at, at), port or int(set_port)), used


def is_this_machine(host: str) -> bool:
    """Whether data sent to this host stays on this machine. Sends nothing, except to look up a name."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> bool:
    """A loopback address, or one of this machine's: the kernel connects to those from the same address."""
    if ip_address(str(address[0]).partition("%")[0]).is_loopback:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # a datagram socket: nothing is sent
        except OSError:
            return False
        return bool(probe.getsockname()[0] == probe.getpeername()[0])
