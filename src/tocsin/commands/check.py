"""`tocsin check`: everything that would stop or harm a start, each with its fix. It only reads."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tocsin.budget.cadence import overdraft
from tocsin.commands.data_files import load_migrations, read_settings
from tocsin.errors import StartError, TocsinError
from tocsin.platform.local.sqlite.data_dir import try_to_write
from tocsin.platform.local.sqlite.migrations import Migration
from tocsin.platform.local.sqlite.store_check import examine
from tocsin.scheduler.upstream_set import demands_on
from tocsin.settings import Settings, SettingsError
from tocsin.tasks import tasks
from tocsin.upstream.registry import upstreams

KEY_LENGTH_MIN = 8


def check() -> list[str]:
    """What stands in the way of a good start, with the fix for each."""
    try:
        settings = read_settings()
    except SettingsError as error:
        return str(error).splitlines()[1:] or [str(error)]
    return findings(settings, load_migrations())


def calls_out() -> list[str]:
    """What the service tells the outside by itself, and what it watches there; no secret is shown."""
    try:
        settings = read_settings()
    except SettingsError:
        return []
    return called_out(settings)


def called_out(settings: Settings) -> list[str]:
    lines = []
    if settings.heartbeat_url is not None:
        host = urlsplit(settings.heartbeat_url).hostname
        lines.append(f"Heartbeats go to {host} while all is well (TOCSIN_HEARTBEAT_URL).")
    if settings.alert_url is not None:
        host, name = urlsplit(settings.alert_url).hostname, settings.alert_name
        lines.append(f"Alerts go to {host} as {settings.alert_format}, from {name} (TOCSIN_ALERT_URL).")
    if settings.chainhook_id is not None:
        then = "enabled again" if settings.chainhook_reenable else "reported"
        hook = settings.chainhook_id
        lines.append(f"The hook {hook} is {then} when Hiro interrupted it (TOCSIN_CHAINHOOK_ID).")
    return lines


def findings(settings: Settings, schemas: Mapping[str, list[Migration]]) -> list[str]:
    return [*_keys(settings), *_data(settings, schemas), *_plans(settings)]


def _keys(settings: Settings) -> list[str]:
    findings = []
    if settings.admin_key is None:
        findings.append(
            "ADMIN_KEY is not set: the console and the admin routes will refuse. Set a long random text."
        )
    if settings.hiro_api_key is None and (settings.hiro_plan_minute or 0) > 50:
        findings.append(
            "HIRO_API_KEY is not set, but the plan counts on more than 50 calls a minute: set the key."
        )
    without_key = Settings()
    plan = settings.tenero_plan_minute, settings.tenero_plan_month
    if settings.tenero_api_key and plan == (without_key.tenero_plan_minute, without_key.tenero_plan_month):
        findings.append(
            "TENERO_API_KEY is set, and a key has limits of its own (Starter: 10 a minute, 10,000 a month),"
            " but the plan is the one without a key: set TOCSIN_TENERO_PLAN_MINUTE and _MONTH to yours."
        )
    for name, key in (("ADMIN_KEY", settings.admin_key), ("CRON_SECRET", settings.cron_secret)):
        if key is not None and len(key) < KEY_LENGTH_MIN:
            findings.append(
                f"{name} is short enough to be guessed: set a random text of 20 characters or more."
            )
    return findings


def _data(settings: Settings, schemas: Mapping[str, list[Migration]]) -> list[str]:
    path, found = Path(settings.data_dir), []
    if not path.exists():
        if not path.absolute().parent.is_dir():
            found.append(f"{path}: the directory above it does not exist. Make it: mkdir -p {path.parent}")
        return found
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        return [f"{path} is not a directory that can be written. Choose another: TOCSIN_DATA_DIR"]
    try:
        try_to_write(path)
    except StartError as error:
        found.append(str(error))
    for name, migrations in schemas.items():
        try:
            examine(path / name, migrations)
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
