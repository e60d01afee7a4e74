"""The receiver of alerts and heartbeats: it accepts them, refuses them, or does not answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal, TypeAlias

from simulation.time_and_loop import TrueClock
from stacks_simulator.hiro_hooks import HOOK_UUID
from tocsin.errors import FetchFailed, FetchTimeout
from tocsin.fetch import FetchResponse
from tocsin.settings import Settings

ReceiverMode: TypeAlias = Literal["takes", "refuses", "silent", "cut"]

RECEIVER_URL = "https://receiver.example"
ALERT_FORMATS = ("json", "slack", "pagerduty")
ALERTED_SHARE, HEARTBEAT_SHARE, HOOK_SHARE = 0.6, 0.3, 0.9  # of histories


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

    clock: TrueClock
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
