"""`tocsin check`: each thing that would stop or harm a start is told with its fix, and nothing is written."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tocsin.commands.check import findings
from tocsin.platform.local.sqlite.migrations import load
from tocsin.service import SCHEMAS
from tocsin.settings import Settings

FINE = Settings(admin_key="a-long-random-text")


def found(directory: Path, **changes: Any) -> list[str]:
    settings = replace(FINE, data_dir=str(directory / "data"), **changes)
    return findings(settings, {name: load(path) for name, path in SCHEMAS.items()})


def test_all_is_fine_and_nothing_is_made(tmp_path: Path) -> None:
    """A new directory is the start's to make."""
    assert found(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"admin_key": None}, "ADMIN_KEY is not set"),
        ({"admin_key": "abcd"}, "ADMIN_KEY is short"),
        ({"cron_secret": "abcd"}, "CRON_SECRET is short"),
        ({"hiro_plan_minute": 500}, "HIRO_API_KEY is not set"),
        ({"tenero_api_key": "a-tenero-key"}, "TOCSIN_TENERO_PLAN_MINUTE"),
        ({"hiro_plan_month": 1_000}, "calls per month, the plan has 1000"),
        ({"allowlist": "nowhere.json"}, "TOCSIN_ALLOWLIST: nowhere.json cannot be read"),
    ],
)
def test_what_would_harm_is_told_with_its_fix(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    """One finding for one thing."""
    (finding,) = found(tmp_path, **changes)

    assert said in finding


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data.write_text(""), "is not a directory that can be written"),
        (lambda data: (data.mkdir(), (data / "db.sqlite").write_text("what")), "db.sqlite"),
        (
            lambda data: (data.mkdir(), (data / "kv.sqlite-wal").write_bytes(b"x" * 99)),
            "kv.sqlite is missing",
        ),
    ],
)
def test_a_data_directory_that_cannot_be_used_is_told(
    spoil: Callable[[Path], Any], said: str, tmp_path: Path
) -> None:
    """Before a start would find out."""
    spoil(tmp_path / "data")
    (finding,) = found(tmp_path)

    assert said in finding


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no write, though its permissions say that it does."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    (tmp_path / "data").mkdir()
    monkeypatch.setattr("tocsin.platform.local.sqlite.data_dir.os.write", full)
    (finding,) = found(tmp_path)

    assert "full disk" in finding
