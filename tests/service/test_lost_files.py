"""Files that are deleted or replaced under the running process, and a full disk: nothing more is acknowledged."""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast_testing.linux import mount_namespace
from support.processes import ADMIN_KEY, ServiceProcess, ask, running, running_simulator, until
from support.tocsin_command import TOCSIN, tocsin

pytestmark = pytest.mark.slow

PUSH = json.loads((Path(__file__).parents[1] / "data/chainhook/v2_apply_synthetic.json").read_text())["body"]


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, str]]:
    with running_simulator() as settings:
        yield settings


def answers(service: ServiceProcess) -> list[tuple[int, Any]]:
    """A submission, a push and admin writes."""
    admin = f"{service.url}/api/admin/scheduler?action="
    key = {"X-Admin-Key": ADMIN_KEY}
    return [
        ask(f"{service.url}/api/competition/trades", body={"txid": "0x" + "ab" * 32}),
        ask(f"{service.url}/api/chainhook", body=PUSH, headers={"Authorization": "Bearer a-hook-secret-for-tests"}),
        ask(f"{admin}pause&for=2h", body={}, headers=key),
        ask(f"{admin}resume", body={}, headers=key),
        ask(f"{admin}refresh&task=tenero", body={}, headers=key),
    ]


def not_ready(service: ServiceProcess, word: str) -> str | None:
    status, body = ask(f"{service.url}/readyz")
    return next((reason for reason in body["reasons"] if word in reason), None) if status == 503 else None


def replace(path: Path) -> None:
    """As somebody does who restores a backup without stopping the service."""
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("db.sqlite", Path.unlink),
        ("objects.sqlite", Path.unlink),
        ("kv.sqlite", replace),
        ("objects.sqlite-wal", Path.unlink),
        ("", shutil.rmtree),
    ],
)
def test_nothing_is_acknowledged_any_more(tmp_path: Path, upstreams: dict[str, str], name: str, harm: Any) -> None:
    """One ERROR line and `/readyz` name the file and the fix. Every write is a 503, and the process can be stopped."""
    data = tmp_path / "data"
    secret = "a-hook-secret-for-tests"
    with running(ServiceProcess(data, CHAINHOOK_SECRET=secret, **upstreams)) as service:
        until(lambda: ask(f"{service.url}/readyz")[0] == 200)
        harm(data / name)
        reason = until(lambda: not_ready(service, "was deleted or replaced"))
        refused = answers(service)
        until(lambda: ask(f"{service.url}/healthz")[0] == 200)
        service.signal(signal.SIGTERM)
        code, out, error = service.end()

    assert str(data / name) in reason
    assert "restore a backup" in reason
    assert [status for status, _ in refused] == [503] * len(refused)
    for _, body in refused:
        assert body["error"]
        assert body["code"] in {"scheduler_unavailable", "store_unavailable", "db_unavailable"}
        assert body["retryable"] is True
    errors = [line for line in map(json.loads, out.splitlines()) if line["level"] == "ERROR"]
    assert [line["event"] for line in errors] == ["store.file_lost"]
    assert errors[0]["file"] == str(data / name)
    assert code == 0, error


def test_a_file_that_is_put_back_ends_the_trouble(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """The same file, moved away and back: it is ready again, and takes writes."""
    with running(ServiceProcess(tmp_path, **upstreams)) as service:
        until(lambda: ask(f"{service.url}/readyz")[0] == 200)
        (tmp_path / "db.sqlite").rename(tmp_path / "elsewhere")
        until(lambda: not_ready(service, "db.sqlite was deleted or replaced"))
        (tmp_path / "elsewhere").rename(tmp_path / "db.sqlite")
        until(lambda: ask(f"{service.url}/readyz")[0] == 200)
        admin = f"{service.url}/api/admin/scheduler?action=refresh&task=tenero"

        assert ask(admin, body={}, headers={"X-Admin-Key": ADMIN_KEY})[0] == 200


def test_a_deleted_lock_file_is_reported(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """The fix is a restart. A second process is still refused, and nothing is lost, so writes continue."""
    with running(ServiceProcess(tmp_path, **upstreams)) as service:
        until(lambda: ask(f"{service.url}/readyz")[0] == 200)
        (tmp_path / "tocsin.lock").unlink()
        reason = until(lambda: not_ready(service, "tocsin.lock was deleted or replaced"))
        second, _out, sentence = ServiceProcess(tmp_path, **upstreams).end()
        admin = f"{service.url}/api/admin/scheduler?action=refresh&task=tenero"

        assert "Restart the program" in reason
        assert (second, "is in use by another process" in sentence) == (1, True)
        assert ask(admin, body={}, headers={"X-Admin-Key": ADMIN_KEY})[0] == 200


def test_the_status_says_that_the_disk_is_full(tmp_path: Path, upstreams: dict[str, str]) -> None:
    """The cause comes first, although the object cannot answer; with free space, everything continues."""
    mount = 'mount -t tmpfs -o size=16m none "$TOCSIN_DATA_DIR"; exec "$@"'
    namespace = mount_namespace(mount, TOCSIN_DATA_DIR=str(tmp_path))
    command = [*namespace, "sh", "-ec", mount, "sh", str(TOCSIN), "serve"]
    with running(ServiceProcess(tmp_path, command=command, **upstreams)) as service:
        until(lambda: ask(f"{service.url}/readyz")[0] == 200)
        port = urlsplit(service.url).port or 0
        filler = Path(f"/proc/{service.pid}/root{tmp_path}/filler")
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        until(lambda: not_ready(service, "the store cannot be written"))
        full = tocsin("status", port=port, ADMIN_KEY=ADMIN_KEY)
        filler.unlink()
        until(lambda: ask(f"{service.url}/readyz")[0] == 200)
        free = tocsin("status", port=port, ADMIN_KEY=ADMIN_KEY)

    assert full.stdout == "Not ready (broken): the store cannot be written: KV.put: database or disk is full\n"
    assert (full.returncode, full.stderr) == (1, "The scheduler did not answer: try again soon; /readyz says why.\n")
    assert (free.returncode, free.stdout[:5]) == (0, "Ready")
