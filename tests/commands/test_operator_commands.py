"""Commands that act: the key and the reason that they send, and the audit log."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_scheduler import ADMIN_KEY, VIEWER_KEY
from support.tocsin_command import tocsin
from support.web_thread import Running, served_in_thread
from tocsin.commands.service_client import client_of


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with served_in_thread(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.mark.slow
def test_a_reason_goes_with_an_action_and_the_audit_log_shows_it_as_text(running: Running) -> None:
    """Markup and terminal commands stay text; no key is shown."""
    running.scheduler.audited.clear()
    done = tocsin("resume", "--reason", "[bold]because[/] it must", port=running.port)
    shown = tocsin("audit", "--limit", "1", port=running.port)
    as_json = tocsin("audit", "--json", port=running.port)

    assert (done.returncode, shown.returncode) == (0, 0)
    assert "[bold]because[/] it must" in shown.stdout
    assert "alice" in shown.stdout
    assert json.loads(as_json.stdout)["records"][0]["outcome"] == "done"
    assert ADMIN_KEY not in shown.stdout + as_json.stdout


@pytest.mark.slow
def test_a_viewers_key_shows_and_does_nothing(running: Running) -> None:
    """If ADMIN_KEY is not set, TOCSIN_VIEWER_KEY is enough to look."""
    viewer = f"carol:{VIEWER_KEY}"
    looked = tocsin("status", port=running.port, ADMIN_KEY="", TOCSIN_VIEWER_KEY=viewer)
    refused = tocsin("resume", port=running.port, ADMIN_KEY="", TOCSIN_VIEWER_KEY=viewer)

    assert looked.returncode == 0
    assert refused.returncode == 1
    assert refused.stderr == "The key carol is read-only: this action needs a key from ADMIN_KEY.\n"


def test_the_first_of_several_keys_is_sent_without_its_name(tmp_path: Path) -> None:
    """As the service's own `.env` lists them."""
    keys = "alice:the-key-of-alice, bob:the-key-of-bob"

    assert client_of({"ADMIN_KEY": keys}, tmp_path / ".env").key == "the-key-of-alice"
    assert client_of({"ADMIN_KEY": "a-bare-key"}, tmp_path / ".env").key == "a-bare-key"
    assert client_of({"TOCSIN_VIEWER_KEY": "carol:to-look"}, tmp_path / ".env").key == "to-look"
    assert client_of({}, tmp_path / ".env").key is None
