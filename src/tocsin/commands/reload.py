"""A reload: reads the settings again and applies those that need no restart, or none if one is wrong.

Emits `settings.reloaded`, `settings.refused` and `settings.not_reloaded`.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

from holdfast.errors import HoldfastError, StartError, UsageError
from tocsin.app import App
from tocsin.commands.client import SettingSources
from tocsin.errors import RequestRefused
from tocsin.logs import Redactor
from tocsin.scheduler.audit import audited
from tocsin.scheduler.types import AuditEntry, Reloaded
from tocsin.settings import Settings, SettingsError, read, secret_values, setting_of
from tocsin.swaps.rules import with_added
from tocsin.web.admin import detail_of

ALLOWLIST = "TOCSIN_ALLOWLIST"


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """The sources of a process's settings: `.env`, its environment, and these options of its command.

    A process cannot see a change of its own environment, so only `.env` and the allow-list can change.
    """

    host: str | None = None
    port: int | None = None
    data_dir: Path | None = None
    adjusted: Callable[[Settings], Settings] = lambda settings: settings  # the demo has settings of its own

    def read(self) -> Settings:
        """Read the settings; raises with every problem of them and of the allow-list."""
        try:
            environment = self.environment()
        except OSError as error:
            raise SettingsError(f".env: cannot be read ({error.strerror})") from None
        problems: list[str] = []
        try:
            with_added(environment.get(ALLOWLIST, "").strip() or None)
        except StartError as error:
            problems.append(str(error))
        try:
            settings = read(environment)
        except SettingsError as error:
            raise SettingsError(*error.problems, *problems) from None
        if problems:
            raise SettingsError(*problems)
        return self.adjusted(settings)

    def overridden(self) -> list[str]:
        """Settings whose value in `.env` is not used, because the environment or the command line has another."""
        environment, in_file = self.environment(), _sources().in_file
        known = {setting_of(setting).name for setting in fields(Settings)}
        return sorted(name for name in known & in_file.keys() if environment[name] != in_file[name])

    def environment(self) -> dict[str, str]:
        """The texts of `.env` in the working directory, the environment and the command line; the last one wins."""
        options = {"TOCSIN_HOST": self.host, "TOCSIN_PORT": self.port, "TOCSIN_DATA_DIR": self.data_dir}
        given = {name: str(value) for name, value in options.items() if value is not None}
        return {**_sources().checked(), **given}


def _sources() -> SettingSources:
    return SettingSources(os.environ, Path(".env"))


def plan_reload(old: Settings, new: Settings) -> tuple[Settings, list[str], list[str]]:
    """What is in force after a reload, and the names of changed settings: those applied, those that need a restart.

    No setting that a reload applies depends on one that needs a restart. Pure.
    """
    changed = [setting for setting in fields(Settings) if getattr(old, setting.name) != getattr(new, setting.name)]
    applied = [setting for setting in changed if setting_of(setting).reload]
    return (
        replace(old, **{setting.name: getattr(new, setting.name) for setting in applied}),
        [setting_of(setting).name for setting in applied],
        [setting_of(setting).name for setting in changed if not setting_of(setting).reload],
    )


class Reloader:
    """Applies changed settings to the running service: keys and rules of the routes, tasks and jobs of the object."""

    def __init__(self, app: App, source: SettingsSource, redact: Redactor) -> None:
        self._app = app
        self._source = source
        self._redact = redact
        self._logger = app.platform.logger
        self._one_at_a_time = asyncio.Lock()
        self._on_signal: set[asyncio.Task[None]] = set()

    async def reload(self) -> Reloaded:
        """Apply the settings. If any is wrong, refuse with every problem; the old ones stay in force."""
        async with self._one_at_a_time:
            try:
                settings, applied, needs_restart = plan_reload(self._app.settings, self._source.read())
                overridden = self._source.overridden()
                new = self._app.configured(settings)
            except (StartError, UsageError, OSError) as error:
                self._logger.exception("settings.refused", error=str(error))
                sentence = f"Nothing was changed, and the old settings stay in force. {error}"
                raise RequestRefused(422, "settings_refused", sentence) from None
            self._redact.learn(secret_values(settings))  # before anything can log them
            allowlist = self._app.in_force.rules.allowlist
            await self._app.apply(new)
            if new.rules.allowlist != allowlist and ALLOWLIST not in applied:
                applied = [*applied, ALLOWLIST]  # the same file with another content
        done = Reloaded(settings.instance, applied, needs_restart, overridden)
        self._logger.info(
            "settings.reloaded",
            applied=[*done.applied],
            needs_restart=[*done.needs_restart],
            overridden=[*done.overridden],
        )
        return done

    def reload_on_signal(self) -> None:
        """For SIGHUP: nobody waits for the answer, so the log has it."""
        work = asyncio.create_task(self._reload_on_signal())
        self._on_signal.add(work)
        work.add_done_callback(self._on_signal.discard)

    async def _reload_on_signal(self) -> None:
        entry = AuditEntry("SIGHUP", "operator", "this machine", "reload")
        try:
            await audited(self._app.scheduler, self._logger, entry, self.reload, detail_of)
        except HoldfastError as error:
            self._logger.exception("settings.not_reloaded", error=str(error))
