"""What a reload applies, what it leaves to a restart, and what it refuses."""

from pathlib import Path

import pytest

from tocsin.commands.reload_settings import SettingsSource, plan_reload
from tocsin.settings import Settings, SettingsError, read

OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"


def test_only_what_can_change_does() -> None:
    """Keys and cadences are applied; the port is reported as needing a restart and stays unchanged."""
    old = read({"ADMIN_KEY": OLD, "TOCSIN_PORT": "8000"})
    new = read({"ADMIN_KEY": f"{OLD},{NEW}", "TOCSIN_PORT": "9000", "TOCSIN_SWEEP_CADENCE": "30m"})

    plan = plan_reload(old, new)

    assert plan.applied == ["ADMIN_KEY", "TOCSIN_SWEEP_CADENCE"]
    assert plan.needs_restart == ["TOCSIN_PORT"]
    assert plan.settings == read(
        {"ADMIN_KEY": f"{OLD},{NEW}", "TOCSIN_PORT": "8000", "TOCSIN_SWEEP_CADENCE": "30m"}
    )


def test_nothing_changed_is_nothing_to_do() -> None:
    """The settings are the same."""
    plan = plan_reload(Settings(), Settings())

    assert (plan.settings, plan.applied, plan.needs_restart) == (Settings(), [], [])


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
