"""A key and its address come from one place: `.env`, the environment, or the command line."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from tocsin.commands.client import client_of
from tocsin.commands.files import read_settings
from tocsin.errors import ServiceUnreachable
from tocsin.settings import SettingsError


@pytest.mark.parametrize(
    ("environment", "file", "options"),
    [
        ({"ADMIN_KEY": "secret"}, "TOCSIN_HOST=evil.test", {}),
        ({"ADMIN_KEY": "secret"}, "TOCSIN_PORT=9001", {"host": "127.0.0.1"}),
        ({"ADMIN_KEY": "secret", "TOCSIN_HOST": "127.0.0.1"}, "ADMIN_KEY=x\nTOCSIN_PORT=9001", {}),
        ({"TOCSIN_HOST": "127.0.0.1"}, "ADMIN_KEY=secret", {}),
        ({"ADMIN_KEY": "secret"}, "TOCSIN_URL=https://evil.test", {}),
        ({"ADMIN_KEY": "secret", "TOCSIN_PORT": "1"}, "TOCSIN_URL=https://evil.test", {}),
        ({"TOCSIN_URL": "https://evil.test"}, "ADMIN_KEY=secret", {}),
        ({"TOCSIN_VIEWER_KEY": "secret"}, "TOCSIN_URL=https://evil.test", {}),
    ],
)
def test_a_key_is_not_sent_to_an_address_from_another_place(
    environment: dict[str, str], file: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A `.env` in some directory must not receive the key of the environment at its own address."""
    dotenv = tmp_path / ".env"
    dotenv.write_text(file)
    client = client_of(environment, dotenv, **options)

    with pytest.raises(UsageError, match=r"Set both in one of them, or give --host and --port") as caught:
        client.get("/api/admin/scheduler", keyed=True)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "file", "options"),
    [
        ({"ADMIN_KEY": "k", "TOCSIN_PORT": "1"}, "TOCSIN_PORT=9001", {}),
        ({"ADMIN_KEY": "k"}, "TOCSIN_HOST=evil.test\nTOCSIN_PORT=9001", {"host": "127.0.0.1", "port": 1}),
        ({}, "ADMIN_KEY=k\nTOCSIN_HOST=127.0.0.1\nTOCSIN_PORT=1", {}),
        ({}, "ADMIN_KEY=k", {"port": 1}),
        ({"ADMIN_KEY": "k"}, "TOCSIN_URL=https://evil.test", {"port": 1}),
        ({"ADMIN_KEY": "k"}, "TOCSIN_URL=https://evil.test", {"url": "http://127.0.0.1:1/"}),
        ({"ADMIN_KEY": "k", "TOCSIN_URL": "http://127.0.0.1:1"}, "TOCSIN_URL=https://evil.test", {}),
        ({}, "ADMIN_KEY=k\nTOCSIN_URL=http://127.0.0.1:1/\nTOCSIN_PORT=9001", {}),
    ],
)
def test_a_key_is_sent_to_an_address_from_its_own_place_or_the_command_line(
    environment: dict[str, str], file: str, options: dict[str, Any], tmp_path: Path
) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text(file)
    with pytest.raises(ServiceUnreachable, match=r"No service answers at 127\.0\.0\.1:1 "):
        client_of(environment, dotenv, **options).get("/api/admin/scheduler", keyed=True)


def test_an_upstreams_key_is_not_combined_with_an_address_of_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIRO_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("TOCSIN_ALERT_KEY", "a-routing-key")
    (tmp_path / ".env").write_text("HIRO_API_URL=https://evil.test\nTOCSIN_ALERT_URL=https://evil.test/x\n")

    with pytest.raises(SettingsError) as caught:
        read_settings()

    rule = "a key is sent only to an address from the same source. Set both in one of them"
    assert str(caught.value).splitlines()[1:] == [
        f"  HIRO_API_KEY comes from the environment and HIRO_API_URL from .env: {rule}",
        f"  TOCSIN_ALERT_KEY comes from the environment and TOCSIN_ALERT_URL from .env: {rule}",
    ]
