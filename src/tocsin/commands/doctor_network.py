"""The network checks of `tocsin doctor`: one call to each upstream, with its key, and a connection to each receiver.

For receivers of alerts, heartbeats and log lines it only opens a connection, including TLS. It sends nothing, so that
nobody is woken by a false alert.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from tocsin import __version__
from tocsin.bindings import FetchResponse
from tocsin.budget.limiter import WindowReading
from tocsin.commands.service_address import ANYWHERE
from tocsin.errors import FetchError
from tocsin.platform.local.http.fetch import HttpFetch
from tocsin.settings import Settings
from tocsin.shapes.doctor_report import DoctorCheck
from tocsin.upstream.client import Upstream
from tocsin.upstream.registry import upstreams

TIMEOUT_S = 8.0
CLOCK_GOOD_S = 5
CLOCK_MAX_S = 60
TARGETS = {"hiro": "/extended/v3/transactions?limit=1", "tenero": "/v1/stacks/tokens/stx"}


@dataclass(frozen=True, slots=True)
class Ask:
    """A check that needs the network."""

    name: str
    run: Callable[[], Awaitable[list[DoctorCheck]]]


def network_checks(settings: Settings, clock: Callable[[], int]) -> list[Ask]:
    """Every network check that applies to these settings."""
    asks = [
        Ask(name, lambda upstream=upstream: ask_upstream(upstream, clock))  # type: ignore[misc]  # bound at once
        for name, upstream in upstreams(settings).items()
    ]
    receivers = {
        "alerts": (settings.alert_url, "TOCSIN_ALERT_URL"),
        "heartbeats": (settings.heartbeat_url, "TOCSIN_HEARTBEAT_URL"),
        "log service": (settings.worker_logs_url, "WORKER_LOGS_URL"),
    }
    for name, (url, setting) in receivers.items():
        if url is not None:
            asks.append(Ask(name, lambda name=name, url=url, setting=setting: reach(name, url, setting)))  # type: ignore[misc]  # bound at once
    return [*asks, Ask("service", lambda: ask_service(settings))]


async def ask_upstream(upstream: Upstream, clock: Callable[[], int]) -> list[DoctorCheck]:
    """One cheap call with the key: whether it is accepted, which plan the headers show, and how wrong our clock is."""
    name, headers = upstream.name, {"accept": "application/json", "user-agent": f"tocsin/{__version__}"}
    if upstream.key is not None:
        headers[upstream.key_header] = upstream.key
    fetch = HttpFetch()
    try:
        response = await fetch(
            f"{upstream.base_url.rstrip('/')}{TARGETS[name]}", headers=headers, timeout_s=TIMEOUT_S
        )
    except FetchError as error:
        sentence = f"{error}. Check the network and {upstream.url_setting}."
        return [DoctorCheck(name, "problem", sentence)]
    finally:
        await fetch.close()
    return [upstream_check(upstream, response), *clock_check(name, response, clock())]


def upstream_check(upstream: Upstream, response: FetchResponse) -> DoctorCheck:
    """What the answer shows about the key and the plan."""
    limits = upstream.read_limits(response.headers)
    plan = _shown_plan({"second": limits.second, "minute": limits.minute, "month": limits.month})
    refusal = _refusal(upstream, response)
    if refusal is not None:
        return DoctorCheck(upstream.name, "problem", refusal)
    if response.status == 429:
        sentence = f"it answers 429, too many calls{plan}: wait, or get a larger plan."
        return DoctorCheck(upstream.name, "warning", sentence)
    if upstream.key is None:
        return DoctorCheck(upstream.name, "ok", f"answers without a key{plan}")
    if limits.anonymous:
        sentence = f"it answers, but ignores our key{plan}: check {upstream.key_setting}."
        return DoctorCheck(upstream.name, "problem", sentence)
    return DoctorCheck(upstream.name, "ok", f"answers with our key{plan}")


def _refusal(upstream: Upstream, response: FetchResponse) -> str | None:
    """Why an answer cannot be used; None if it can."""
    if response.status in {401, 403}:
        return f"it refuses our key ({response.status}): check {upstream.key_setting}."
    if response.status not in {200, 429}:
        return f"it answers {response.status}: check {upstream.url_setting}."
    try:
        json.loads(response.body)
    except ValueError:
        if response.status == 200:
            return f"its answer is not JSON: check {upstream.url_setting}."
    return None


def _shown_plan(windows: Mapping[str, WindowReading]) -> str:
    """The calls left according to the headers: `; 499 of 500 left this minute`."""
    shown = [
        f"{_shown(window.remaining)} of {_shown(window.limit)} left this {unit}"
        for unit, window in windows.items()
        if window.limit is not None or window.remaining is not None
    ]
    return f"; {', '.join(shown)}" if shown else ""


def _shown(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def clock_check(name: str, response: FetchResponse, now: int) -> list[DoctorCheck]:
    """How far our clock is from the `Date` of an answer; nothing without one."""
    try:
        sent_at = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return []
    offset_s = now / 1000 - sent_at
    if abs(offset_s) <= CLOCK_GOOD_S:
        return [DoctorCheck("clock", "ok", f"agrees with {name}'s")]
    direction = "ahead of" if offset_s > 0 else "behind"
    verdict = "warning" if abs(offset_s) <= CLOCK_MAX_S else "problem"
    sentence = (
        f"it is {abs(offset_s):,.0f} s {direction} {name}'s: synchronise it (timedatectl set-ntp true)."
    )
    return [DoctorCheck("clock", verdict, sentence)]  # type: ignore[arg-type]  # one of two words


async def reach(name: str, url: str, setting: str) -> list[DoctorCheck]:
    """Connect and send nothing."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or (443 if secure else 80), ssl=secure or None
            )
            writer.close()
    except (OSError, ssl.SSLError, UnicodeError) as error:  # a timeout is an OSError
        reason = getattr(error, "strerror", None) or type(error).__name__
        sentence = f"{parts.hostname} cannot be reached ({reason}): check {setting} and the network."
        return [DoctorCheck(name, "problem", sentence)]
    return [DoctorCheck(name, "ok", f"{parts.hostname} can be reached; nothing was sent")]


async def ask_service(settings: Settings) -> list[DoctorCheck]:
    """Whether the service is running and ready."""
    host = ANYWHERE.get(settings.host, settings.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/readyz"
    fetch = HttpFetch()
    try:
        response = await fetch(url, timeout_s=TIMEOUT_S)
        answer = json.loads(response.body)
        ready, reasons = bool(answer["ready"]), [str(reason) for reason in answer.get("reasons", [])]
    except FetchError:
        where = f"{host}:{settings.port}"
        return [
            DoctorCheck("service", "warning", f"it is not running at {where}: start it with `tocsin serve`.")
        ]
    except (ValueError, KeyError, TypeError):
        return [
            DoctorCheck(
                "service", "problem", f"another program answers at {url}: choose another TOCSIN_PORT."
            )
        ]
    finally:
        await fetch.close()
    if ready:
        return [DoctorCheck("service", "ok", "it is running and ready")]
    return [
        DoctorCheck(
            "service", "problem", f"it is running but not ready: {'; '.join(reasons)}. See: tocsin status"
        )
    ]
