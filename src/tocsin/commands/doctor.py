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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError, StartError
from holdfast.local.data_dir import is_in_use, try_to_write
from holdfast.local.migrations import Migration
from holdfast.local.store_check import examine
from tocsin import __version__
from tocsin.app import tasks
from tocsin.commands.client import ANYWHERE
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
NetworkCheck: TypeAlias = Callable[[], Awaitable[list["DoctorCheck"]]]

TIMEOUT_S = 8.0
CLOCK_GOOD_S = 5
CLOCK_MAX_S = 60
FREE_MIN = 100 * 1024 * 1024  # bytes
FREE_GOOD = 1024 * 1024 * 1024
INODES_MIN = 1_000
OPEN_FILES_MIN = 1_024
OPEN_FILES_GOOD = 4_096
FINE = {
    "keys": "the keys fit the plans",
    "address": "this machine has the address to listen on",
    "databases": "intact, writable, and with a schema that this release can use",
    "tasks": "at least one task is enabled",
    "plans": "the calls of all tasks fit the plans",
}


@dataclass(frozen=True, slots=True)
class DoctorCheck(Shape):
    """One check. The sentence describes what was found, or what is wrong and how to fix it."""

    name: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class DoctorReport(Shape):
    """`ok` is true if there is no problem; warnings do not count."""

    ok: bool
    checks: list[DoctorCheck]


class DiskFigures(Protocol):
    """What `os.statvfs` returns."""

    @property
    def f_bavail(self) -> int: ...
    @property
    def f_frsize(self) -> int: ...
    @property
    def f_files(self) -> int: ...
    @property
    def f_favail(self) -> int: ...


def findings(settings: Settings, schemas: Mapping[str, list[Migration]]) -> dict[str, list[str]]:
    """The problems by subject; `FINE` has the same subjects."""
    return {
        "keys": _keys(settings),
        "address": _address(settings),
        "databases": _data(settings, schemas),
        "tasks": _enabled(settings),
        "plans": _plans(settings),
    }


def _keys(settings: Settings) -> list[str]:
    findings = []
    if not settings.admin_key:
        findings.append(
            "ADMIN_KEY is not set: the console and the admin routes will refuse all requests. Set a long random text."
        )
    if settings.hiro_api_key is None and (settings.hiro_plan_minute or 0) > 50:
        findings.append("HIRO_API_KEY is not set, but the plan allows more than 50 calls a minute: set the key.")
    without_key = Settings()
    plan = settings.tenero_plan_minute, settings.tenero_plan_month
    if settings.tenero_api_key and plan == (without_key.tenero_plan_minute, without_key.tenero_plan_month):
        findings.append(
            "TENERO_API_KEY is set, and a key has its own limits (Starter: 10 a minute, 10,000 a month),"
            " but the plan is the one without a key: set TOCSIN_TENERO_PLAN_MINUTE and _MONTH to your limits."
        )
    return findings


def _address(settings: Settings) -> list[str]:
    """Whether this machine has the address. The port is not tried: the running service may be using it."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((settings.host, 0))
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        sentence = (
            f"TOCSIN_HOST: this machine cannot listen on {settings.host} ({reason})."
            " Use one of its own addresses: 127.0.0.1 for this machine only, 0.0.0.0 for all interfaces."
        )
        return [sentence]
    return []


def _enabled(settings: Settings) -> list[str]:
    if settings.tenero_enabled or settings.sweep_enabled:
        return []
    sentence = (
        "Both tasks are disabled, so nothing would be refreshed:"
        " set TOCSIN_TENERO_ENABLED or TOCSIN_SWEEP_ENABLED to yes."
    )
    return [sentence]


def _data(settings: Settings, schemas: Mapping[str, list[Migration]]) -> list[str]:
    path, found = Path(settings.data_dir), []
    if not path.exists():
        parent = path.absolute().parent
        if not parent.is_dir():
            return [f"{path}: its parent directory does not exist. Create it: mkdir -p {path.parent}"]
        try:
            with TemporaryDirectory(prefix=".tocsin-check-", dir=parent):
                return []
        except OSError as error:
            return [f"{path} cannot be created ({error.strerror}). Choose another directory: TOCSIN_DATA_DIR"]
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        return [f"{path} is not a writable directory. Choose another: TOCSIN_DATA_DIR"]
    try:
        try_to_write(path)
    except StartError as error:
        found.append(str(error))
    in_use = is_in_use(path)
    for name, migrations in schemas.items():
        try:
            unchecked = examine(path / name, migrations, in_use=in_use)
            if unchecked is not None:
                found.append(f"{path / name} could not be checked ({unchecked}). Run this command again.")
        except (StartError, OSError) as error:
            found.append(str(error))
    return found


def _plans(settings: Settings) -> list[str]:
    """Whether the tasks can be built, and whether the upstreams' plans cover them."""
    try:
        planned = {task.name: task for task in tasks(settings)}
    except HoldfastError as error:
        return [str(error)]
    sentences = [overdraft(upstream.quota, demands_on(name, planned)) for name, upstream in upstreams(settings).items()]
    return [sentence for sentence in sentences if sentence is not None]


def doctor(
    data_dir: Path | None,
    *,
    offline: bool,
    clock: Callable[[], int],
    statvfs: Callable[[Path], DiskFigures] = os.statvfs,
) -> DoctorReport:
    """Run every check. With `offline`, skip those that need a network or the running service."""
    try:
        settings = read_settings(data_dir=data_dir)
    except SettingsError as error:
        problems = str(error).splitlines()[1:] or [str(error)]
        return _report([DoctorCheck("settings", "problem", problem.strip()) for problem in problems])
    checks = [DoctorCheck("settings", "ok", "all settings are valid"), *local_checks(settings, statvfs)]
    asks = network_checks(settings, clock)
    if offline:
        known = receivers(settings)
        checks += [DoctorCheck(name, "skipped", f"{known.get(name, '')}not asked offline") for name in asks]
    else:
        checks += asyncio.run(_ask_all(asks.values()))
    mask = Redactor(secret_values(settings)).text
    return _report([DoctorCheck(one.name, one.verdict, mask(one.sentence)) for one in checks])


def receivers(settings: Settings) -> dict[str, str]:
    """What the service sends to others, without secrets."""
    sent = {}
    if settings.heartbeat_url is not None:
        sent["heartbeats"] = f"to {urlsplit(settings.heartbeat_url).hostname} while the service is ready; "
    if settings.alert_url is not None:
        host, name = urlsplit(settings.alert_url).hostname, settings.alert_name
        sent["alerts"] = f"to {host} as {settings.alert_format}, from {name}; "
    return sent


def hook(settings: Settings) -> list[DoctorCheck]:
    if settings.chainhook_id is None:
        return []
    then = "enabled again" if settings.chainhook_reenable else "reported"
    return [DoctorCheck("hook", "ok", f"{settings.chainhook_id} is {then} when Hiro interrupts it")]


def _report(checks: list[DoctorCheck]) -> DoctorReport:
    return DoctorReport(all(one.verdict != "problem" for one in checks), checks)


async def _ask_all(asks: Iterable[NetworkCheck]) -> list[DoctorCheck]:
    """Run all at once, so that a slow one does not delay the others."""
    return [one for found in await asyncio.gather(*[ask() for ask in asks]) for one in found]


def local_checks(settings: Settings, statvfs: Callable[[Path], DiskFigures]) -> list[DoctorCheck]:
    directory = Path(settings.data_dir)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    version = DoctorCheck("sqlite", "ok", f"SQLite {sqlite3.sqlite_version}")
    return [
        *_found(findings(settings, load_migrations())),
        disk(directory, statvfs),
        *permissions(directory, os.geteuid()),
        open_files(hard),
        version,
        proxy(settings),
        *hook(settings),
    ]


def _found(findings: Mapping[str, list[str]]) -> list[DoctorCheck]:
    checks = []
    for subject, sentences in findings.items():
        checks += [DoctorCheck(subject, "problem", sentence) for sentence in sentences]
        if not sentences:
            checks.append(DoctorCheck(subject, "ok", FINE[subject]))
    return checks


def disk(directory: Path, statvfs: Callable[[Path], DiskFigures]) -> DoctorCheck:
    """Space and inodes where the data directory is, or will be."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.is_dir())
    try:
        figures = statvfs(there)
    except OSError as error:
        return DoctorCheck("disk", "problem", f"the disk of {there} cannot be checked: {error.strerror}.")
    free = figures.f_bavail * figures.f_frsize
    shown = f"{free / 1e9:,.1f} GB are free at {there}"
    if free < FREE_MIN:
        return DoctorCheck("disk", "problem", f"only {shown}: free some space, or writes will soon fail.")
    if figures.f_files and figures.f_favail < INODES_MIN:
        return DoctorCheck("disk", "problem", f"only {figures.f_favail} inodes are free at {there}: delete files.")
    if free < FREE_GOOD:
        return DoctorCheck("disk", "warning", f"only {shown}: a backup needs twice the size of the databases.")
    return DoctorCheck("disk", "ok", shown)


def permissions(directory: Path, user: int) -> list[DoctorCheck]:
    """Who owns the directory and who else may read it."""
    name = "permissions"
    if not directory.is_dir():
        return [DoctorCheck(name, "ok", f"{directory} does not exist yet: the service creates it for this user only")]
    found, status = [], directory.stat()
    if user not in {0, status.st_uid}:
        found.append(
            DoctorCheck(name, "problem", f"{directory} belongs to another user: run this and Tocsin as that user.")
        )
    if status.st_mode & 0o077:
        found.append(DoctorCheck(name, "warning", f"other users can enter {directory}: chmod 700 {directory}"))
    for file in sorted(directory.glob("*.sqlite*")):
        if file.is_symlink():
            found.append(DoctorCheck(name, "problem", f"{file} is a symbolic link: replace it with the file itself."))
        elif file.stat().st_mode & 0o077:
            found.append(DoctorCheck(name, "warning", f"other users can read {file}: chmod 600 {file}"))
    return found or [DoctorCheck(name, "ok", f"only its owner can enter {directory}")]


def open_files(hard: int) -> DoctorCheck:
    """Each visitor and each database needs a file descriptor. The service raises its soft limit itself."""
    shown = "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard:,} open files here"
    name, fix = "open files", "raise it: LimitNOFILE=65536 in the unit, or ulimit -n 65536"
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_MIN:
        return DoctorCheck(name, "problem", f"{shown}, too few for a few hundred visitors: {fix}")
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_GOOD:
        return DoctorCheck(name, "warning", f"{shown}: {fix}")
    return DoctorCheck(name, "ok", shown)


def proxy(settings: Settings) -> DoctorCheck:
    """A service that others can reach needs TLS, and must know which proxies to trust for a visitor's address."""
    name = "proxy"
    if _is_loopback(settings.host):
        trusted = ", ".join(settings.trusted_proxies) or "none"
        return DoctorCheck(name, "ok", f"only this machine can reach {settings.host}; trusted proxies: {trusted}")
    if not settings.trusted_proxies:
        return DoctorCheck(
            name,
            "warning",
            f"others can reach {settings.host} without TLS: listen on 127.0.0.1 behind a proxy with TLS, and put the"
            " proxy's address into TOCSIN_TRUSTED_PROXIES, or all visitors count as one client.",
        )
    return DoctorCheck(
        name, "ok", f"listens on {settings.host}; trusted proxies: {', '.join(settings.trusted_proxies)}"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


async def ask_upstream(upstream: Upstream, clock: Callable[[], int]) -> list[DoctorCheck]:
    """One cheap call with the key: whether it is accepted, which plan the headers show, and how wrong our clock is."""
    name, headers = upstream.name, {"accept": "application/json", "user-agent": f"tocsin/{__version__}"}
    if upstream.key is not None:
        headers[upstream.key_header] = upstream.key
    fetch = HttpFetch()
    try:
        url = f"{upstream.base_url.rstrip('/')}{upstream.probe}"
        response = await fetch(url, headers=headers, timeout_s=TIMEOUT_S)
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
    shown = []
    for unit, window in windows.items():
        of = "" if window.limit is None else f"{window.limit:,} "
        if window.remaining is not None:
            shown.append(f"{window.remaining:,} {of and f'of {of}'}left this {unit}")
        elif of:
            shown.append(f"{of}a {unit}")
    return f"; {', '.join(shown)}" if shown else ""


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
    sentence = f"it is {abs(offset_s):,.0f} s {direction} {name}'s: synchronize it (timedatectl set-ntp true)."
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
        return [DoctorCheck("service", "warning", f"it is not running at {where}: start it with `tocsin serve`.")]
    except (ValueError, KeyError, TypeError):
        return [DoctorCheck("service", "problem", f"another program answers at {url}: choose another TOCSIN_PORT.")]
    finally:
        await fetch.close()
    if ready:
        return [DoctorCheck("service", "ok", "it is running and ready")]
    return [DoctorCheck("service", "problem", f"it is running but not ready: {'. '.join(reasons)}. See: tocsin status")]
