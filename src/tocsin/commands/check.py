"""`tocsin check`: every problem that would prevent or harm a start, with its fix. It leaves nothing behind."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from tocsin.budget.cadence import overdraft
from tocsin.commands.data_files import load_migrations, read_settings
from tocsin.errors import StartError, TocsinError
from tocsin.platform.local.sqlite.data_dir import try_to_write
from tocsin.platform.local.sqlite.data_lock import is_in_use
from tocsin.platform.local.sqlite.migrations import Migration
from tocsin.platform.local.sqlite.store_check import examine
from tocsin.scheduler.upstream_set import demands_on
from tocsin.settings import Settings, SettingsError
from tocsin.tasks import tasks
from tocsin.upstream.registry import upstreams

FINE = {
    "keys": "the keys fit the plans",
    "address": "this machine has the address to listen on",
    "databases": "intact, writable, and with a schema that this release can use",
    "tasks": "at least one task is enabled",
    "plans": "the calls of all tasks fit the plans",
}


def check() -> list[str]:
    """Every problem that would prevent or harm a start, each with its fix."""
    try:
        settings = read_settings()
    except SettingsError as error:
        return str(error).splitlines()[1:] or [str(error)]
    return findings(settings, load_migrations())


def calls_out() -> list[str]:
    """What the service sends to other services, and the hook that it watches; no secret is shown."""
    try:
        settings = read_settings()
    except SettingsError:
        return []
    return called_out(settings)


def called_out(settings: Settings) -> list[str]:
    lines = []
    if settings.heartbeat_url is not None:
        host = urlsplit(settings.heartbeat_url).hostname
        lines.append(f"Heartbeats go to {host} while the service is ready (TOCSIN_HEARTBEAT_URL).")
    if settings.alert_url is not None:
        host, name = urlsplit(settings.alert_url).hostname, settings.alert_name
        lines.append(f"Alerts go to {host} as {settings.alert_format}, from {name} (TOCSIN_ALERT_URL).")
    if settings.chainhook_id is not None:
        then = "enabled again" if settings.chainhook_reenable else "reported"
        hook = settings.chainhook_id
        lines.append(f"The hook {hook} is {then} when Hiro interrupts it (TOCSIN_CHAINHOOK_ID).")
    return lines


def findings(settings: Settings, schemas: Mapping[str, list[Migration]]) -> list[str]:
    return [sentence for found in findings_by_subject(settings, schemas).values() for sentence in found]


def findings_by_subject(settings: Settings, schemas: Mapping[str, list[Migration]]) -> dict[str, list[str]]:
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
        findings.append(
            "HIRO_API_KEY is not set, but the plan allows more than 50 calls a minute: set the key."
        )
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
    except TocsinError as error:
        return [str(error)]
    sentences = [
        overdraft(upstream.quota, demands_on(name, planned)) for name, upstream in upstreams(settings).items()
    ]
    return [sentence for sentence in sentences if sentence is not None]
