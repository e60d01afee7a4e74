"""`tocsin doctor`: problems that would prevent or harm a start, each with its fix.

`check` is `doctor --offline`: settings, keys, address, databases, tasks, plans, disk, permissions and limits. `doctor`
also uses the network: one call to each upstream, with its key, and a connection to each receiver of alerts, heartbeats
and log lines, to which it sends nothing, so that nobody is woken by a false alert. It leaves nothing behind.
"""

import asyncio
import json
import os
import resource
import socket
import sqlite3
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError, StartError
from holdfast.local.data_dir import is_in_use, try_to_write
from holdfast.local.store_check import examine
from tocsin.app import tasks
from tocsin.commands.client import ANYWHERE, ServiceAddress
from tocsin.commands.files import load_migrations, read_settings
from tocsin.errors import FetchError
from tocsin.fetch import FetchResponse
from tocsin.local.fetch import HttpFetch
from tocsin.logs import Redactor
from tocsin.scheduler.upstreams import demands_on
from tocsin.settings import Settings, SettingsError, secret_values
from tocsin.shape import Shape
from tocsin.upstream.budget import WindowReading, overdraft
from tocsin.upstream.client import Upstream
from tocsin.upstream.registry import upstreams

Verdict: TypeAlias = Literal["ok", "warning", "problem", "skipped"]
Finding: TypeAlias = tuple[Verdict, str]  # with what was found, or what is wrong and how to fix it
NetworkCheck: TypeAlias = Callable[[], Awaitable[dict[str, Finding]]]

TIMEOUT_S = 8.0
CLOCK_GOOD_S = 5
CLOCK_MAX_S = 60
FREE_MIN = 100 * 1024 * 1024  # bytes
FREE_GOOD = 1024 * 1024 * 1024
INODES_MIN = 1_000
OPEN_FILES_MIN = 1_024
OPEN_FILES_GOOD = 4_096


@dataclass(frozen=True, slots=True)
class DoctorCheck(Shape):
    """One finding, by the name of its check."""

    name: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class DoctorReport(Shape):
    """`ok` is true if there is no problem; warnings do not count."""

    ok: bool
    checks: list[DoctorCheck]


def doctor(data_dir: Path | None, *, offline: bool, clock: Callable[[], int]) -> DoctorReport:
    """Run every check. With `offline`, skip those that need a network or the running service."""
    try:
        settings = read_settings(data_dir=data_dir)
    except SettingsError as error:
        return DoctorReport(ok=False, checks=[DoctorCheck("settings", "problem", each) for each in error.problems])
    found = [(name, finding) for name, findings in local_checks(settings).items() for finding in findings]
    asks = network_checks(settings, clock)
    if offline:
        found += [(name, ("skipped", f"{receivers(settings).get(name, '')}not asked offline")) for name in asks]
    else:
        found += asyncio.run(_ask_all(asks.values()))
    mask = Redactor(secret_values(settings)).text
    checks = [DoctorCheck(name, verdict, mask(sentence)) for name, (verdict, sentence) in found]
    return DoctorReport(all(one.verdict != "problem" for one in checks), checks)


def receivers(settings: Settings) -> dict[str, str]:
    """What the service sends to others, without secrets."""
    sent = {}
    if settings.heartbeat_url is not None:
        sent["heartbeats"] = f"to {urlsplit(settings.heartbeat_url).hostname} while the service is ready; "
    if settings.alert_url is not None:
        host, name = urlsplit(settings.alert_url).hostname, settings.alert_name
        sent["alerts"] = f"to {host} as {settings.alert_format}, from {name}; "
    return sent


def local_checks(settings: Settings) -> dict[str, Iterable[Finding]]:
    """The findings of each check on this machine."""
    directory = Path(settings.data_dir)
    _, open_files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "settings": [("ok", "all settings are valid")],
        "keys": _problems(keys(settings), "the keys fit the plans"),
        "address": _problems(address(settings), "this machine has the address to listen on"),
        "databases": _problems(databases(directory), "intact, writable, and with a schema that this release can use"),
        "tasks": _problems(enabled(settings), "at least one task is enabled"),
        "plans": _problems(plans(settings), "the calls of all tasks fit the plans"),
        "disk": [disk(directory)],
        "permissions": [*permissions(directory, os.geteuid())] or [("ok", f"only its owner can enter {directory}")],
        "open files": [open_files(open_files_max)],
        "sqlite": [("ok", f"SQLite {sqlite3.sqlite_version}")],
        "proxy": [proxy(settings)],
        "hook": hook(settings),
    }


def _problems(sentences: Iterable[str], fine: str) -> list[Finding]:
    return [("problem", sentence) for sentence in sentences] or [("ok", fine)]


def keys(settings: Settings) -> Iterator[str]:
    if not settings.admin_key:
        yield "ADMIN_KEY is not set: the console and the admin routes will refuse all requests. Set a long random text."
    if settings.hiro_api_key is None and (settings.hiro_plan_minute or 0) > 50:
        yield "HIRO_API_KEY is not set, but the plan allows more than 50 calls a minute: set the key."
    without_key = Settings()
    plan = settings.tenero_plan_minute, settings.tenero_plan_month
    if settings.tenero_api_key and plan == (without_key.tenero_plan_minute, without_key.tenero_plan_month):
        yield (
            "TENERO_API_KEY is set, and a key has its own limits (Starter: 10 a minute, 10,000 a month),"
            " but the plan is the one without a key: set TOCSIN_TENERO_PLAN_MINUTE and _MONTH to your limits."
        )


def address(settings: Settings) -> Iterator[str]:
    """Whether this machine has the address. The port is not tried: the running service may be using it."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((settings.host, 0))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        yield (
            f"TOCSIN_HOST: this machine cannot listen on {settings.host} ({reason})."
            " Use one of its own addresses: 127.0.0.1 for this machine only, 0.0.0.0 for all interfaces."
        )


def enabled(settings: Settings) -> Iterator[str]:
    if not (settings.tenero_enabled or settings.sweep_enabled):
        yield (
            "Both tasks are disabled, so nothing would be refreshed:"
            " set TOCSIN_TENERO_ENABLED or TOCSIN_SWEEP_ENABLED to yes."
        )


def databases(path: Path) -> Iterator[str]:
    """Whether the data directory can be used, or made."""
    if not path.exists():
        parent = path.absolute().parent
        if not parent.is_dir():
            yield f"{path}: its parent directory does not exist. Create it: mkdir -p {path.parent}"
            return
        try:
            TemporaryDirectory(prefix=".tocsin-check-", dir=parent).cleanup()
        except OSError as error:
            yield f"{path} cannot be created ({error.strerror}). Choose another directory: TOCSIN_DATA_DIR"
        return
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        yield f"{path} is not a writable directory. Choose another: TOCSIN_DATA_DIR"
        return
    try:
        try_to_write(path)
    except StartError as error:
        yield str(error)
    in_use = is_in_use(path)
    for name, migrations in load_migrations().items():
        try:
            unchecked = examine(path / name, migrations, in_use=in_use)
            if unchecked is not None:
                yield f"{path / name} could not be checked ({unchecked}). Run this command again."
        except (StartError, OSError) as error:
            yield str(error)


def plans(settings: Settings) -> Iterator[str]:
    """Whether the tasks can be built, and whether the upstreams' plans cover them."""
    try:
        planned = {task.name: task for task in tasks(settings)}
    except HoldfastError as error:
        yield str(error)
        return
    for name, upstream in upstreams(settings).items():
        sentence = overdraft(upstream.quota, demands_on(name, planned))
        if sentence is not None:
            yield sentence


def disk(directory: Path) -> Finding:
    """Space and inodes where the data directory is, or will be."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.is_dir())
    try:
        figures = os.statvfs(there)
    except OSError as error:
        return "problem", f"the disk of {there} cannot be checked: {error.strerror}."
    free = figures.f_bavail * figures.f_frsize
    shown = f"{free / 1e9:,.1f} GB are free at {there}"
    if free < FREE_MIN:
        return "problem", f"only {shown}: free some space, or writes will soon fail."
    if figures.f_files and figures.f_favail < INODES_MIN:
        return "problem", f"only {figures.f_favail} inodes are free at {there}: delete files."
    if free < FREE_GOOD:
        return "warning", f"only {shown}: a backup needs twice the size of the databases."
    return "ok", shown


def permissions(directory: Path, user: int) -> Iterator[Finding]:
    """Who owns the directory and who else may read it."""
    if not directory.is_dir():
        yield "ok", f"{directory} does not exist yet: the service creates it for this user only"
        return
    status = directory.stat()
    if user not in {0, status.st_uid}:
        yield "problem", f"{directory} belongs to another user: run this and Tocsin as that user."
    if status.st_mode & 0o077:
        yield "warning", f"other users can enter {directory}: chmod 700 {directory}"
    for file in sorted(directory.glob("*.sqlite*")):
        if file.is_symlink():
            yield "problem", f"{file} is a symbolic link: replace it with the file itself."
        elif file.stat().st_mode & 0o077:
            yield "warning", f"other users can read {file}: chmod 600 {file}"


def open_files(hard: int) -> Finding:
    """Each visitor and each database needs a file descriptor. The service raises its soft limit itself."""
    if hard == resource.RLIM_INFINITY:
        return "ok", "no limit"
    shown, fix = f"at most {hard:,} open files here", "raise it: LimitNOFILE=65536 in the unit, or ulimit -n 65536"
    if hard < OPEN_FILES_MIN:
        return "problem", f"{shown}, too few for a few hundred visitors: {fix}"
    return ("warning", f"{shown}: {fix}") if hard < OPEN_FILES_GOOD else ("ok", shown)


def proxy(settings: Settings) -> Finding:
    """A service that others can reach needs TLS, and must know which proxies to trust for a visitor's address."""
    trusted = ", ".join(settings.trusted_proxies) or "none"
    if _is_loopback(settings.host):
        return "ok", f"only this machine can reach {settings.host}; trusted proxies: {trusted}"
    if settings.trusted_proxies:
        return "ok", f"listens on {settings.host}; trusted proxies: {trusted}"
    return "warning", (
        f"others can reach {settings.host} without TLS: listen on 127.0.0.1 behind a proxy with TLS, and put the"
        " proxy's address into TOCSIN_TRUSTED_PROXIES, or all visitors count as one client."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hook(settings: Settings) -> Iterator[Finding]:
    if settings.chainhook_id is not None:
        then = "enabled again" if settings.chainhook_reenable else "reported"
        yield "ok", f"{settings.chainhook_id} is {then} when Hiro interrupts it"


async def _ask_all(asks: Iterable[NetworkCheck]) -> list[tuple[str, Finding]]:
    """Run all at once, so that a slow one does not delay the others."""
    return [found for each in await asyncio.gather(*[ask() for ask in asks]) for found in each.items()]


def network_checks(settings: Settings, clock: Callable[[], int]) -> dict[str, NetworkCheck]:
    """Every network check that applies to these settings, by name."""
    receivers = {
        "alerts": (settings.alert_url, "TOCSIN_ALERT_URL"),
        "heartbeats": (settings.heartbeat_url, "TOCSIN_HEARTBEAT_URL"),
        "log service": (settings.worker_logs_url, "WORKER_LOGS_URL"),
    }
    return {
        **{name: partial(ask_upstream, upstream, clock) for name, upstream in upstreams(settings).items()},
        **{name: partial(reach, name, url, setting) for name, (url, setting) in receivers.items() if url is not None},
        "service": partial(ask_service, settings),
    }


async def _fetched(url: str, headers: Mapping[str, str]) -> FetchResponse:
    async with aclosing(HttpFetch()) as fetch:
        return await fetch(url, headers=headers, timeout_s=TIMEOUT_S)


async def ask_upstream(upstream: Upstream, clock: Callable[[], int]) -> dict[str, Finding]:
    """One cheap call with the key: whether it is accepted, which plan the headers show, and how wrong our clock is."""
    headers = {"accept": "application/json"}
    if upstream.key is not None:
        headers[upstream.key_header] = upstream.key
    try:
        response = await _fetched(f"{upstream.base_url.rstrip('/')}{upstream.probe}", headers)
    except FetchError as error:
        return {upstream.name: ("problem", f"{error}. Check the network and {upstream.url_setting}.")}
    offset = clock_check(upstream.name, response, clock())
    return {upstream.name: upstream_check(upstream, response), **({} if offset is None else {"clock": offset})}


def upstream_check(upstream: Upstream, response: FetchResponse) -> Finding:
    """What the answer shows about the key and the plan."""
    limits = upstream.read_limits(response.headers)
    plan = _shown_plan({"second": limits.second, "minute": limits.minute, "month": limits.month})
    refusal = _refusal(upstream, response)
    if refusal is not None:
        return "problem", refusal
    if response.status == 429:
        return "warning", f"it answers 429, too many calls{plan}: wait, or get a larger plan."
    if upstream.key is None:
        return "ok", f"answers without a key{plan}"
    if limits.anonymous:
        return "problem", f"it answers, but ignores our key{plan}: check {upstream.key_setting}."
    return "ok", f"answers with our key{plan}"


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
    shown = []
    for unit, window in windows.items():
        of = "" if window.limit is None else f"{window.limit:,} "
        if window.remaining is not None:
            shown.append(f"{window.remaining:,} {of and f'of {of}'}left this {unit}")
        elif of:
            shown.append(f"{of}a {unit}")
    return f"; {', '.join(shown)}" if shown else ""


def clock_check(name: str, response: FetchResponse, now: int) -> Finding | None:
    """How far our clock is from the `Date` of an answer; None without one."""
    try:
        sent_at = parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    offset_s = now / 1000 - sent_at
    if abs(offset_s) <= CLOCK_GOOD_S:
        return "ok", f"agrees with {name}'s"
    direction = "ahead of" if offset_s > 0 else "behind"
    verdict: Verdict = "warning" if abs(offset_s) <= CLOCK_MAX_S else "problem"
    return verdict, f"it is {abs(offset_s):,.0f} s {direction} {name}'s: synchronize it (timedatectl set-ntp true)."


async def reach(name: str, url: str, setting: str) -> dict[str, Finding]:
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
        return {name: ("problem", sentence)}
    return {name: ("ok", f"{parts.hostname} can be reached; nothing was sent")}


async def ask_service(settings: Settings) -> dict[str, Finding]:
    """Whether the service is running and ready."""
    where = ServiceAddress(ANYWHERE.get(settings.host, settings.host), settings.port)
    url = f"http://{where}/readyz"
    try:
        answer = json.loads((await _fetched(url, {})).body)
        ready, reasons = bool(answer["ready"]), [str(reason) for reason in answer.get("reasons", [])]
    except FetchError:
        found: Finding = "warning", f"it is not running at {where}: start it with `tocsin serve`."
    except (ValueError, KeyError, TypeError):
        found = "problem", f"another program answers at {url}: choose another TOCSIN_PORT."
    else:
        sentence = f"it is running but not ready: {'. '.join(reasons)}. See: tocsin status"
        found = ("ok", "it is running and ready") if ready else ("problem", sentence)
    return {"service": found}
