"""The systemd units: valid, hardened, and with settings that a start accepts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.missing import SYSTEMD, require
from tocsin import settings

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICES = ("tocsin.service", "tocsin-backup.service")
UNIT_FILES = (*SERVICES, "tocsin.socket", "tocsin-backup.timer")
EXPOSURE_MAX = 1.5  # of 10, as systemd-analyze counts


def directives(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (UNITS / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def analyze(*arguments: str, at: Path) -> str:
    """Return what systemd-analyze reports about the units, with a command that exists on this machine."""
    require(shutil.which("systemd-analyze") is not None, SYSTEMD)
    for name in UNIT_FILES:
        text = (UNITS / name).read_text()
        (at / name).write_text(re.sub(r"(?m)^(ExecStart\w*)=\S+", r"\1=/bin/true", text))
    done = subprocess.run(["systemd-analyze", *arguments], cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Every directive and value, without a warning."""
    assert analyze("verify", *(f"./{name}" for name in UNIT_FILES), at=tmp_path) == ""


@pytest.mark.parametrize("name", SERVICES)
def test_the_services_are_hardly_exposed(name: str, tmp_path: Path) -> None:
    """By systemd's own count."""
    report = analyze("security", "--offline=true", "--no-pager", f"./{name}", at=tmp_path)
    level = re.search(rf"Overall exposure level for {name}: ([\d.]+)", report)

    assert level is not None
    assert float(level[1]) <= EXPOSURE_MAX


def test_the_service_tells_systemd_how_it_is_and_is_always_restarted() -> None:
    """The longest waits of the process itself fit into what systemd allows."""
    service = directives("tocsin.service")

    assert (service["Type"], service["Restart"], service["WatchdogSec"]) == (["notify"], ["always"], ["30"])
    assert int(service["TimeoutStopSec"][0]) > 3 + 1 + 3 + 1  # requests, their answers, log service, log lines
    assert (service["TimeoutStartSec"], service["StartLimitIntervalSec"]) == (["10min"], ["0"])
    assert service["Requires"] == ["tocsin.socket"]
    assert directives("tocsin.socket")["ListenStream"] == ["127.0.0.1:8787"]


@pytest.mark.parametrize("value", ["an-admin-key-for-tests-of-32-characters", ""])
def test_the_settings_file_is_accepted(value: str) -> None:
    """As it is, and with keys; the proxy on this machine is trusted."""
    text = (UNITS / "tocsin.env").read_text().replace("_KEY=", f"_KEY={value}")
    read = settings.read(settings.read_env_file(text.encode()))

    assert read.trusted_proxies
    assert "".join(key.secret for key in read.admin_key) == value


def test_commands_run_with_the_user_and_the_data_of_the_service() -> None:
    """The script gives a command the same settings as the unit gives the service."""
    script, service = (UNITS / "tocsin-run").read_text(), directives("tocsin.service")

    for name in ("DynamicUser", "User", "StateDirectoryMode", "UMask", "EnvironmentFile", "WorkingDirectory"):
        assert f"-p {name}={service[name][0]}" in script
    assert f'-p StateDirectory="{" ".join(directives("tocsin-backup.service")["StateDirectory"])}"' in script
    assert service["Environment"][0].split()[0] in script
    assert service["ExecStart"][0].removesuffix(" serve") in script
    assert (UNITS / "tocsin-run").stat().st_mode & 0o111


def test_a_backup_runs_as_the_user_of_the_service() -> None:
    """With its settings and its data, and a directory of its own that systemd gives to that user."""
    service, backup = directives("tocsin.service"), directives("tocsin-backup.service")

    for name in ("DynamicUser", "User", "StateDirectoryMode", "UMask", "EnvironmentFile", "WorkingDirectory"):
        assert backup[name] == service[name], name
    assert backup["Environment"] == service["Environment"]
    data, kept = (f"/var/lib/{name}" for name in backup["StateDirectory"][0].split())
    assert service["WorkingDirectory"] == [data]
    assert backup["ExecStart"] == [f"{service['ExecStart'][0].removesuffix(' serve')} backup {kept}"]
    assert backup["ExecStartPost"][0].split()[1] == kept
    assert kept in (UNITS.parents[1] / "docs" / "backup.md").read_text()
    assert directives("tocsin-backup.timer")["Persistent"] == ["yes"]
