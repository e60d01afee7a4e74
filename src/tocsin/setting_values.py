"""Parsers of setting values: each reads a text, or raises ValueError with what is wrong with it. Pure."""

import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import get_args
from urllib.parse import urlsplit

from tocsin.bindings import Level
from tocsin.durations import long_duration, parse_duration

CADENCE_MIN_MS = 1_000
CADENCE_MAX_MS = 7 * 86_400_000
SLICE_MIN_MS = 100
OWN_KEY_MIN = 16  # characters


def integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,15}", text.strip()) or not low <= int(text) <= high:
            raise ValueError(f"is not a whole number from {low} to {high}")
        return int(text)

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()) or not low <= float(text) <= high:
            raise ValueError(f"is not a number from {low:g} to {high:g}")
        return float(text)

    return parse


def limit(text: str) -> int | None:
    """Calls of a plan: a number, or "none" if the plan has no such limit."""
    return None if text.strip() == "none" else integer(1, 10**9)(text)


def yes_or_no(text: str) -> bool:
    words = {
        "yes": True,
        "true": True,
        "1": True,
        "on": True,
        "no": False,
        "false": False,
        "0": False,
        "off": False,
    }
    if text.strip().lower() not in words:
        raise ValueError("is neither yes nor no")
    return words[text.strip().lower()]


def cadence(text: str) -> int:
    ms = parse_duration(text)
    if not CADENCE_MIN_MS <= ms <= CADENCE_MAX_MS:
        bounds = f"from {long_duration(CADENCE_MIN_MS)} to {long_duration(CADENCE_MAX_MS)}"
        raise ValueError(f"is not a duration {bounds}")
    return ms


def time_slice(text: str) -> int:
    """A time slice. Its upper bound depends on the cadence, and is checked with it."""
    ms = parse_duration(text)
    if ms < SLICE_MIN_MS:
        raise ValueError(f"is not a duration of at least {SLICE_MIN_MS} ms")
    return ms


def url(text: str) -> str:
    given = text.strip()
    if not re.fullmatch(r"[!-~]*", given):
        raise ValueError("has a space, a line break or another character that a URL cannot have")
    if not re.match(r"https?://", given):
        raise ValueError("does not begin with https:// or http://")
    try:
        parts = urlsplit(given)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        raise ValueError("is not a URL: its host or its port is wrong") from None
    if not has_host:
        raise ValueError("has no host")
    if "@" in parts.netloc:
        raise ValueError(
            "has a user name or a password, which Tocsin does not send: leave out everything up to the @"
        )
    if parts.query or parts.fragment:
        raise ValueError("has a query or a fragment: leave out everything from the ? or # on")
    return given.rstrip("/")


def api_url(own_path: str) -> Callable[[str], str]:
    """The URL of an API; paths that Tocsin adds itself are refused."""

    def parse(text: str) -> str:
        given = url(text)
        found = re.search(own_path, given)
        if found is not None:
            raise ValueError(f"ends with {found[0]}, which Tocsin adds itself: leave it out")
        return given

    return parse


hiro_url = api_url(r"/extended(?:/v\d+)?$")
tenero_url = api_url(r"/v1(?:/stacks)?$")


def call_url(text: str) -> str:
    """A URL that we send something to: over TLS, or on this machine."""
    stripped = text.strip()
    if not re.fullmatch(r"https?://[!-~]+", stripped) or not _is_safe_target(stripped):
        raise ValueError("is not an https URL, or an http URL of this machine")
    return stripped


def _is_safe_target(address: str) -> bool:
    try:
        parts = urlsplit(address)
        complete = bool(parts.hostname) and parts.port != 0 and not parts.fragment and "@" not in parts.netloc
    except ValueError:
        return False
    return complete and (parts.scheme == "https" or parts.hostname in {"127.0.0.1", "::1", "localhost"})


def one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in values:
            raise ValueError(f"is not one of {', '.join(values)}")
        return text.strip().lower()

    return parse


def chainhook_path(text: str) -> str:
    """The path of a hook at Hiro, from its UUID or from the path itself."""
    uuid = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    if not re.fullmatch(rf"((/[a-z0-9_-]+)+/)?{uuid}", text.strip()):
        raise ValueError("is neither a UUID nor a path that ends with one")
    return text.strip() if text.strip().startswith("/") else f"/chainhooks/v1/me/{text.strip()}"


def secret(text: str) -> str:
    if not 4 <= len(text) <= 256 or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("must have 4 to 256 printable ASCII characters, and no spaces around them")
    return text


def own_key(text: str) -> str:
    """A key that others must send to us, which nobody must be able to guess."""
    if len(secret(text)) < OWN_KEY_MIN:
        raise ValueError(
            f"is too short: give at least {OWN_KEY_MIN} characters; `openssl rand -hex 16` makes a key"
        )
    return text


def networks(text: str) -> tuple[str, ...]:
    """Addresses and networks, separated by commas."""
    try:
        return tuple(str(ip_network(part.strip(), strict=False)) for part in text.split(","))
    except ValueError:
        raise ValueError("is not a list of IP addresses or networks") from None


def origins(text: str) -> tuple[str, ...]:
    """Origins, separated by commas; `*` for any, `none` for none."""
    if text.strip() == "none":
        return ()
    found = tuple(part.strip().lower() for part in text.split(","))
    for each in found:
        if each != "*" and not re.fullmatch(r"https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?", each):
            raise ValueError("is not a list of origins such as https://aibtc.com, nor * or none")
    return found


def host_name(text: str) -> str:
    is_name = all(0 < len(label) < 64 for label in text.split("."))
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,253}", text) or not is_name:
        raise ValueError("is not an address or a host name")
    return text


def word(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", text):
        raise ValueError("is not a short lower-case word")
    return text


def log_level(text: str) -> Level:
    levels: tuple[Level, ...] = get_args(Level)
    for level in levels:
        if text.upper() == level:
            return level
    raise ValueError(f"is not one of {', '.join(levels)}")


def without_credentials(text: str) -> str:
    """A text for an error message, without a possible password before an @ or a key in a query."""
    head, slashes, rest = text.partition("//")
    if not slashes:
        head, rest = "", text
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    return head + slashes + re.sub(r"[?#].*", "?***", rest, flags=re.DOTALL)
