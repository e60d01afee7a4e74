"""Answers from outside that are wrong: of the receiver of alerts, and of upstreams.

The receiver accepts alerts and heartbeats, refuses them, or does not answer. An upstream's answer may have an odd
status, a value of another type, or contradict itself or the upstream's contract. None can be mistaken for a true answer
with other values: nobody could notice an upstream that lies.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, TypeAlias

from simulation.machine import SimulatedTime
from stacks_simulator.hiro_hooks import HOOK_UUID
from stacks_simulator.http_messages import UpstreamName
from tocsin.errors import FetchFailed, FetchTimeout
from tocsin.fetch import FetchResponse
from tocsin.settings import Settings

ReceiverMode: TypeAlias = Literal["takes", "refuses", "silent", "cut"]
RECEIVER_URL = "https://receiver.example"
ALERT_FORMATS = ("json", "slack", "pagerduty")
ALERTED_SHARE, HEARTBEAT_SHARE, HOOK_SHARE = 0.6, 0.3, 0.9  # of histories
Change: TypeAlias = Callable[[Any, Random], bool]  # changes a body in place; returns whether it could
OTHER_TXID = "0x" + "5e" * 32
OTHER_ADDRESS = "SP000000000000000000002Q6VF78.another-token"
STALE_CURSOR = (400, 404, 410)
VALUES_MAX = 200_001
ODD_STATUSES = (400, 403, 408, 418, 425, 451, 600)
ELSEWHERE = "https://elsewhere.example/"
RETRY_AFTER = ("soon", "-3", "Wed, 20 May 2026 07:28:00", "Wed, 20 May 2026 07:28:00 GMT", "9" * 30)
KINDS = ("value", "value", "contradiction", "contradiction", "status", "moved", "limited")


def with_receivers(rng: Random, settings: Settings) -> Settings:
    """Draw settings: some name a receiver of alerts, one of heartbeats, or a hook to watch."""
    form = rng.choice(ALERT_FORMATS)
    alerted, beats, hooked = rng.random(), rng.random(), rng.random()
    if alerted < ALERTED_SHARE:
        settings = replace(
            settings,
            alert_url=f"{RECEIVER_URL}/alerts",
            alert_format=form,
            alert_key="the-key-of-the-receiver" if form != "slack" else None,
        )
    if beats < HEARTBEAT_SHARE:
        settings = replace(settings, heartbeat_url=f"{RECEIVER_URL}/heartbeat")
    if hooked < HOOK_SHARE and settings.hiro_api_key is not None:
        settings = replace(settings, chainhook_id=f"/chainhooks/me/{HOOK_UUID}", chainhook_reenable=rng.random() < 0.7)
    return settings


@dataclass
class AlertReceiver:
    """Receives alerts. `says_ready`: whether the last accepted alert said that the service is ready."""

    clock: SimulatedTime
    mode: ReceiverMode = "takes"
    says_ready: bool = True
    taken: int = 0
    given_up: int = 0

    async def receive(
        self, url: str, *, body: bytes | None = None, timeout_s: float = 8.0, **_options: Any
    ) -> FetchResponse:
        if self.mode == "silent":
            await self.clock.sleep(timeout_s)
            raise FetchTimeout("no complete reply in time")
        await self.clock.sleep(0.05)
        if self.mode == "cut":
            raise FetchFailed("the connection was cut")
        if self.mode == "refuses":
            return FetchResponse(503, {}, b"")
        if url.endswith("/alerts"):
            self.taken += 1
            self.says_ready = _says_ready(json.loads(body or b"{}"))
        return FetchResponse(204, {}, b"")


def _says_ready(alert: Mapping[str, Any]) -> bool:
    """Read an alert in any of the formats."""
    if "text" in alert:
        return "ready again" in alert["text"].partition("\n")[0]
    return alert.get("event") == "ready" or alert.get("event_action") == "resolve"


def contradicted(answer: FetchResponse, url: str, rng: Random) -> FetchResponse:
    """Return what arrives instead of this answer; the same if nothing in it can be changed."""
    if "/transactions?" in url and "cursor=" in url and rng.random() < 0.5:
        return FetchResponse(rng.choice(STALE_CURSOR), {}, b'{"error":"querystring/cursor is not known"}')
    if rng.random() < 0.03:
        return FetchResponse(answer.status, answer.headers, b"[" + b"0," * VALUES_MAX + b"0]")
    try:
        body = json.loads(answer.body)
    except ValueError:
        return answer
    changes = next((changes for part, changes in CHANGES.items() if part in url), ())
    try:
        is_changed = answer.status == 200 and bool(changes) and rng.choice(changes)(body, rng)
    except (AttributeError, KeyError, TypeError):  # another fault has already made it odd
        return answer
    if not is_changed:
        return answer
    return FetchResponse(answer.status, answer.headers, json.dumps(body).encode())


# Lists of transactions


def _oldest_first(body: Any, _rng: Random) -> bool:
    heights = [row["block"]["height"] for row in _listed(body)]
    if not heights or heights[0] == heights[-1]:
        return False
    body["results"].reverse()
    return True


def _without_block(body: Any, rng: Random) -> bool:
    return _change_one(list(_listed(body)), rng, lambda row: row.update(block=None))


def _empty_page(body: Any, _rng: Random) -> bool:
    if not body.get("results") or not body["cursor"].get("next"):
        return False
    body["results"] = []
    return True


def _listed(body: Any) -> Iterator[Any]:
    for row in body.get("results", ()):
        yield row.get("transaction", row)


# tx/multiple


def _another_transaction(body: Any, rng: Random) -> bool:
    return _change_one(_found(body), rng, lambda row: row.update(tx_id=OTHER_TXID))


def _event_twice(body: Any, rng: Random) -> bool:
    rows = [row for row in _found(body) if len(row.get("events", ())) >= 2]
    return _change_one(rows, rng, lambda row: row["events"][0].update(event_index=row["events"][1]["event_index"]))


def _new_event(body: Any, rng: Random) -> bool:
    return _change_one(_transfers(body), rng, lambda event: event.update(event_type="asset_of_tomorrow"))


def _new_kind(body: Any, rng: Random) -> bool:
    return _change_one(_transfers(body), rng, lambda event: event["asset"].update(asset_event_type="lent"))


def _nobody_gives(body: Any, rng: Random) -> bool:
    events = [event for event in _transfers(body) if event["asset"]["asset_event_type"] == "transfer"]
    return _change_one(events, rng, lambda event: event["asset"].update(sender=""))


def _odd_amount(body: Any, rng: Random) -> bool:
    """Make all amounts odd: those between others need not be readable, and without the sender's nothing counts."""
    odd = rng.choice(("-5", "1e6", "0x10", ""))
    events = _transfers(body)
    for event in events:
        event["asset"]["amount"] = odd
    return bool(events)


def _found(body: Any) -> list[Any]:
    return [entry["result"] for entry in body.values() if entry.get("found")]


def _transfers(body: Any) -> list[Any]:
    return [
        event
        for row in _found(body)
        if row.get("canonical") and len(row.get("events", ())) == row.get("event_count")
        for event in row["events"]
        if isinstance(event.get("asset"), dict) and "amount" in event["asset"]
    ]


# Balances, page by page


def _wrong_total(body: Any, rng: Random) -> bool:
    body["total"] += rng.choice((1, 3))
    return True


def _wrong_net(body: Any, rng: Random) -> bool:
    return _change_one(_changes_of(body), rng, lambda row: row["balance_change"].update(net="1234567"))


def _not_asked_for(body: Any, rng: Random) -> bool:
    return _change_one(_changes_of(body), rng, lambda row: row.update(tx_id=OTHER_TXID))


def _asset_twice(body: Any, _rng: Random) -> bool:
    rows = _changes_of(body)
    if len(rows) < 2 or body["cursor"].get("next"):
        return False
    body["results"] = [*body["results"], rows[0]]
    body["total"] += 1
    return True


def _changes_of(body: Any) -> list[Any]:
    return [row for row in body["results"] if row["asset"]["type"] in {"stx", "ft"}]


# Tenero


def _another_token(body: Any, _rng: Random) -> bool:
    if "address" not in body["data"]:
        return False
    body["data"]["address"] = OTHER_ADDRESS
    return True


def _no_price_field(body: Any, _rng: Random) -> bool:
    for row in body["data"].get("rows", ()):
        row.pop("price_usd", None)
    return "rows" in body["data"]


def _numbers_as_text(body: Any, _rng: Random) -> bool:
    """Send numbers as text, which Tenero may do; the meaning is the same."""
    for row in body["data"].get("rows", ()):
        for name in ("price_usd", "decimals", "total_liquidity_usd"):
            if isinstance(row.get(name), int | float):
                row[name] = str(row[name])
    return True


def _change_one(rows: list[Any], rng: Random, change: Callable[[Any], None]) -> bool:
    if rows:
        change(rng.choice(rows))
    return bool(rows)


CHANGES: Mapping[str, tuple[Change, ...]] = {
    "/tx/multiple": (*(_another_transaction, _event_twice, _new_event, _new_kind, _nobody_gives, _odd_amount),),
    "/balance-changes": (_wrong_total, _wrong_net, _not_asked_for, _asset_twice),
    "/transactions": (_oldest_first, _without_block, _empty_page),
    "/v1/stacks/tokens": (_another_token, _no_price_field, _numbers_as_text),
}


@dataclass
class SpoiltAnswers:
    """Spoils a share of the answers of one upstream for a while."""

    upstream: UpstreamName = "hiro"
    share: float = 0.0
    until_s: float = 0.0
    only: str | None = None  # the only kind to use

    def spoil(self, answer: FetchResponse, url: str, rng: Random) -> FetchResponse:
        """Return what arrives instead of this answer."""
        if rng.random() >= self.share:
            return answer
        kind = self.only or rng.choice(KINDS)
        if kind == "contradiction":
            return contradicted(answer, url, rng)
        if kind == "status":
            return FetchResponse(rng.choice(ODD_STATUSES), {}, b"")
        if kind == "moved":
            status = rng.choice((301, 302, 307, 308))
            return FetchResponse(status, {"location": rng.choice((url, url, ELSEWHERE))}, b"")
        if kind == "limited":
            return FetchResponse(429, {"retry-after": rng.choice(RETRY_AFTER)}, b"")
        return self._with_odd_value(answer, rng)

    @staticmethod
    def _with_odd_value(answer: FetchResponse, rng: Random) -> FetchResponse:
        try:
            body = json.loads(answer.body)
        except ValueError:
            return answer
        return FetchResponse(answer.status, answer.headers, json.dumps(with_odd_part(body, rng)).encode())


def with_odd_part(value: Any, rng: Random) -> Any:
    """Return the value with one part, at any depth, of another type."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        name = rng.choice(list(value))
        return {**value, name: with_odd_part(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.95:
        at = rng.randrange(len(value))
        return [*value[:at], with_odd_part(value[at], rng), *value[at + 1 :]]
    if isinstance(value, dict | str) or value is None:
        return ["odd"]
    return {"odd": True} if isinstance(value, list) else "odd"
