"""What a reload applies, what it leaves to a restart, and what it refuses."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import KV, Database
from holdfast_testing.captured_log import CapturedLog
from support.scheduler import no_wire
from tocsin.app import Platform, build
from tocsin.commands.reload import Reloader, SettingsSource, plan_reload
from tocsin.errors import RequestRefused
from tocsin.logs import Redactor
from tocsin.settings import Settings, SettingsError, read

OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"


def test_only_what_can_change_does() -> None:
    """Keys and cadences are applied; the port is reported as needing a restart and stays unchanged."""
    old = read({"ADMIN_KEY": OLD, "TOCSIN_PORT": "8000"})
    new = read({"ADMIN_KEY": f"{OLD},{NEW}", "TOCSIN_PORT": "9000", "TOCSIN_SWEEP_CADENCE": "30m"})

    settings, applied, needs_restart = plan_reload(old, new)

    assert applied == ["ADMIN_KEY", "TOCSIN_SWEEP_CADENCE"]
    assert needs_restart == ["TOCSIN_PORT"]
    assert settings == read({"ADMIN_KEY": f"{OLD},{NEW}", "TOCSIN_PORT": "8000", "TOCSIN_SWEEP_CADENCE": "30m"})


def test_nothing_changed_is_nothing_to_do() -> None:
    """The settings are the same."""
    assert plan_reload(Settings(), Settings()) == (Settings(), [], [])


def test_every_problem_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the settings and of the allow-list; no key is shown."""
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("ADMIN_KEY=too-short\nTOCSIN_SWEEP_CADENCE=fast\nTOCSIN_ALLOWLIST=list.json\n")
    Path("list.json").write_text("{}")

    with pytest.raises(SettingsError) as refused:
        SettingsSource().read()

    for name in ("ADMIN_KEY", "TOCSIN_SWEEP_CADENCE", "TOCSIN_ALLOWLIST"):
        assert f"  {name}: " in str(refused.value)
    assert "too-short" not in str(refused.value)


def test_an_allow_list_alone_can_be_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file may have changed although no setting did."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOCSIN_ALLOWLIST", "list.json")
    with pytest.raises(SettingsError, match=r"TOCSIN_ALLOWLIST: list.json cannot be read"):
        SettingsSource().read()


def test_what_the_environment_overrides_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody edits .env and wonders why nothing happens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADMIN_KEY", OLD)
    monkeypatch.setenv("CRON_SECRET", OLD)
    Path(".env").write_text(f"ADMIN_KEY={NEW}\nCRON_SECRET={OLD}\nTOCSIN_PORT=9000\nOTHER=1\n")
    source = SettingsSource(port=8000)

    assert source.overridden() == ["ADMIN_KEY", "TOCSIN_PORT"]
    assert source.read().admin_key[0].secret == OLD
    assert source.read().port == 8000


class Reloading:
    """A `Reloader` of a service in this directory, whose object only notes what it sees when it is asked to reload."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.redact = Redactor([OLD])
        self.log = CapturedLog()
        self.seen: list[tuple[str, int]] = []
        self.refuses = refuses
        platform = Platform(
            clock=VirtualClock(),
            fetch=no_wire,
            logger=self.log,
            db=cast("Database", None),
            kv=cast("KV", None),
            stub=lambda _name: self,
        )
        app = build(platform, SettingsSource().read())
        self.env, self.in_force = app.env, app.in_force
        self.reloader = Reloader(app, SettingsSource(), self.redact)

    async def reload(self) -> None:
        cadence = next(task.cadence_ms for task in self.env.tasks if task.name == "sweep")
        self.seen.append((self.redact.text(f"{OLD} {NEW}"), cadence))
        await asyncio.sleep(1)
        if self.refuses:
            raise StoreUnavailable("the disk is full")

    def keys(self) -> list[str]:
        return [key.secret for key in self.in_force.settings.admin_key]


@pytest.fixture
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"ADMIN_KEY={OLD}\nTOCSIN_ALLOWLIST=list.json\n")
    (tmp_path / "list.json").write_text('{"contracts": {}}')
    return tmp_path


async def test_new_secrets_are_masked_before_anything_can_log_them(in_directory: Path) -> None:
    """The object reloads with the new tasks, and logs what it does. The old key stays masked."""
    made = Reloading()
    (in_directory / ".env").write_text(f"ADMIN_KEY={NEW}\nTOCSIN_SWEEP_CADENCE=30m\n")
    await made.reloader.reload()

    assert made.seen == [("[redacted] [redacted]", 1_800_000)]
    assert made.keys() == [NEW]


async def test_a_reload_that_the_object_refuses_changes_nothing(in_directory: Path) -> None:
    """Neither the tasks, nor the keys, nor the rules. The next reload finds the same changes."""
    made = Reloading(refuses=True)
    before = made.env.tasks, made.env.request_jobs, made.in_force.settings, made.in_force.rules
    (in_directory / ".env").write_text(f"ADMIN_KEY={NEW}\nTOCSIN_SWEEP_CADENCE=30m\n")
    with pytest.raises(StoreUnavailable):
        await made.reloader.reload()
    after = made.env.tasks, made.env.request_jobs, made.in_force.settings, made.in_force.rules
    made.refuses = False
    done = await made.reloader.reload()

    assert after == before
    assert done.applied == ["ADMIN_KEY", "TOCSIN_SWEEP_CADENCE", "TOCSIN_ALLOWLIST"]


async def test_a_list_with_other_contracts_is_applied_although_no_setting_changed(in_directory: Path) -> None:
    """It is named once; the same content again is no change."""
    made = Reloading()
    unchanged = await made.reloader.reload()
    contract = "SP2C2YFP12AJZB4MABJBAJ55XECVS7E4PMMZ89YZR.a-new-router"
    (in_directory / "list.json").write_text(json.dumps({"contracts": {contract: ["swap"]}}))
    changed = await made.reloader.reload()
    listed = made.in_force.rules.allowlist.contracts

    (in_directory / "other.json").write_text('{"contracts": {}}')
    (in_directory / ".env").write_text(f"ADMIN_KEY={OLD}\nTOCSIN_ALLOWLIST=other.json\n")
    both = await made.reloader.reload()

    assert (unchanged.applied, changed.applied) == ([], ["TOCSIN_ALLOWLIST"])
    assert both.applied == ["TOCSIN_ALLOWLIST"]
    assert contract in listed
    named = ["TOCSIN_ALLOWLIST"]
    assert [line["applied"] for line in made.log.named("settings.reloaded")] == [[], named, named]


async def test_two_reloads_at_once_are_made_one_after_the_other(in_directory: Path) -> None:
    """The second reads the file when the first is done: what was written last is in force."""
    made = Reloading()
    (in_directory / ".env").write_text(f"ADMIN_KEY={OLD}\nTOCSIN_SWEEP_CADENCE=30m\n")
    first = asyncio.create_task(made.reloader.reload())
    second = asyncio.create_task(made.reloader.reload())
    await asyncio.sleep(0.5)
    (in_directory / ".env").write_text(f"ADMIN_KEY={OLD}\nTOCSIN_SWEEP_CADENCE=40m\n")
    applied = [(await each).applied for each in (first, second)]

    assert [cadence for _, cadence in made.seen] == [1_800_000, 2_400_000]
    assert applied == [["TOCSIN_SWEEP_CADENCE", "TOCSIN_ALLOWLIST"], ["TOCSIN_SWEEP_CADENCE"]]


async def test_a_refused_reload_says_so_and_asks_the_object_for_nothing(in_directory: Path) -> None:
    """Every problem is in the answer and in the log."""
    made = Reloading()
    (in_directory / ".env").write_text("ADMIN_KEY=short\n")
    with pytest.raises(RequestRefused, match=r"(?s)Nothing was changed.*stay in force.*ADMIN_KEY") as refused:
        await made.reloader.reload()

    assert (refused.value.status, refused.value.code) == (422, "settings_refused")
    assert made.seen == []
    assert made.keys() == [OLD]
    assert "ADMIN_KEY" in made.log.named("settings.refused")[0]["error"]


def test_the_command_line_wins_over_the_file(in_directory: Path) -> None:
    """And a demo adjusts what it read."""
    (in_directory / ".env").write_text("TOCSIN_HOST=0.0.0.0\nTOCSIN_PORT=1\nTOCSIN_DATA_DIR=there\n")
    source = SettingsSource("127.0.0.2", 2, Path("here"), lambda read: replace(read, instance="demo"))
    settings = source.read()

    assert (settings.host, settings.port, settings.data_dir, settings.instance) == ("127.0.0.2", 2, "here", "demo")
    assert source.overridden() == ["TOCSIN_DATA_DIR", "TOCSIN_HOST", "TOCSIN_PORT"]
