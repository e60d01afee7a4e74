"""Requests, replies and deliveries, shared by both upstreams and both ways to reach them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

UpstreamName: TypeAlias = Literal["hiro", "tenero"]
UPSTREAM_NAMES: tuple[UpstreamName, ...] = ("hiro", "tenero")


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request to an upstream. The path is relative to the base URL; header names are lower-case."""

    method: str
    path: str
    query_text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @staticmethod
    def get(target: str, headers: Mapping[str, str] | None = None) -> "SimulatedRequest":
        """A GET request for a path with its query, given as one string."""
        parts = urlsplit(target)
        lower = {name.lower(): value for name, value in (headers or {}).items()}
        return SimulatedRequest("GET", unquote(parts.path), parts.query, lower)

    def query(self) -> dict[str, list[str]]:
        return parse_qs(self.query_text, keep_blank_values=True) if self.query_text else {}


@dataclass(frozen=True, slots=True)
class SimulatedReply:
    """A complete reply of a working upstream."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def with_headers(self, headers: Mapping[str, str]) -> "SimulatedReply":
        return replace(self, headers={**self.headers, **headers})


def json_reply(status: int, value: object, headers: Mapping[str, str] | None = None) -> SimulatedReply:
    body = json.dumps(value, separators=(",", ":")).encode()
    return SimulatedReply(status, body, {"content-type": "application/json; charset=utf-8", **(headers or {})})


@dataclass(frozen=True, slots=True)
class Delivery:
    """A reply and how it arrives. Without a fault it arrives at once and complete.

    `delay_s` passes before the first byte, `drip_s` between the first and the last. `padding` spaces follow
    the body. The connection breaks after `cut_after` bytes of the body; 0 means before the status line.
    A delivery that hangs never arrives.
    """

    reply: SimulatedReply
    delay_s: float = 0.0
    drip_s: float = 0.0
    padding: int = 0
    cut_after: int | None = None
    hangs: bool = False

    @property
    def size(self) -> int:
        return len(self.reply.body) + self.padding
