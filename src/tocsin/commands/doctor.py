"""`tocsin doctor`: one line for each check of an installation. It includes `tocsin check` and leaves nothing behind."""

import asyncio
import os
import resource
import sqlite3
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from tocsin.commands import check
from tocsin.commands.data_files import load_migrations, read_settings
from tocsin.commands.doctor_network import Ask, network_checks
from tocsin.platform.shared.redaction import Redactor
from tocsin.settings import Settings, SettingsError, secret_values
from tocsin.shapes.doctor_report import DoctorCheck, DoctorReport

FREE_MIN = 100 * 1024 * 1024  # bytes
FREE_GOOD = 1024 * 1024 * 1024
INODES_MIN = 1_000
OPEN_FILES_MIN = 1_024
OPEN_FILES_GOOD = 4_096


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
    asks: list[Ask] = network_checks(settings, clock)
    if offline:
        checks += [DoctorCheck(ask.name, "skipped", "not asked, because of --offline") for ask in asks]
    else:
        checks += asyncio.run(_ask_all(asks))
    mask = Redactor(secret_values(settings)).text
    return _report([DoctorCheck(one.name, one.verdict, mask(one.sentence)) for one in checks])


def _report(checks: list[DoctorCheck]) -> DoctorReport:
    return DoctorReport(all(one.verdict != "problem" for one in checks), checks)


async def _ask_all(asks: list[Ask]) -> list[DoctorCheck]:
    """Run all at once, so that a slow one does not delay the others."""
    return [one for found in await asyncio.gather(*[ask.run() for ask in asks]) for one in found]


def local_checks(settings: Settings, statvfs: Callable[[Path], DiskFigures]) -> list[DoctorCheck]:
    directory = Path(settings.data_dir)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    version = DoctorCheck("sqlite", "ok", f"SQLite {sqlite3.sqlite_version}")
    return [
        *_found(check.findings_by_subject(settings, load_migrations())),
        disk(directory, statvfs),
        *permissions(directory, os.geteuid()),
        open_files(hard),
        version,
        proxy(settings),
    ]


def _found(findings: Mapping[str, list[str]]) -> list[DoctorCheck]:
    checks = []
    for subject, sentences in findings.items():
        checks += [DoctorCheck(subject, "problem", sentence) for sentence in sentences]
        if not sentences:
            checks.append(DoctorCheck(subject, "ok", check.FINE[subject]))
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
        return DoctorCheck(
            "disk", "problem", f"only {figures.f_favail} inodes are free at {there}: delete files."
        )
    if free < FREE_GOOD:
        return DoctorCheck(
            "disk", "warning", f"only {shown}: a backup needs twice the size of the databases."
        )
    return DoctorCheck("disk", "ok", shown)


def permissions(directory: Path, user: int) -> list[DoctorCheck]:
    """Who owns the directory and who else may read it."""
    name = "permissions"
    if not directory.is_dir():
        return [
            DoctorCheck(
                name, "ok", f"{directory} does not exist yet: the service creates it for this user only"
            )
        ]
    found, status = [], directory.stat()
    if user not in {0, status.st_uid}:
        found.append(
            DoctorCheck(
                name, "problem", f"{directory} belongs to another user: run this and Tocsin as that user."
            )
        )
    if status.st_mode & 0o077:
        found.append(
            DoctorCheck(name, "warning", f"other users can enter {directory}: chmod 700 {directory}")
        )
    for file in sorted(directory.glob("*.sqlite*")):
        if file.is_symlink():
            found.append(
                DoctorCheck(name, "problem", f"{file} is a symbolic link: replace it with the file itself.")
            )
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
        return DoctorCheck(
            name, "ok", f"only this machine can reach {settings.host}; trusted proxies: {trusted}"
        )
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
