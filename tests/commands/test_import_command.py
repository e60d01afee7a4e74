"""`tocsin import` as a process: without a service, with one, and with one of another version."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copytree

import pytest

from holdfast.local import sqlite_file
from support.patience import PATIENCE_S
from support.processes import ADMIN_KEY, Process, ServiceProcess, ask, running, until
from support.roster import line
from support.simulator_process import running_simulator
from tocsin.swaps import COMPETITION_MIGRATIONS


def tocsin(*arguments: str, **environment: str) -> tuple[int, str, str]:
    return Process(*arguments, **environment).end()


def count(data_dir: Path, table: str = "agents") -> int:
    with closing(sqlite_file.connect(data_dir / "db.sqlite")) as connection:
        (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert isinstance(number, int)
    return number


@pytest.mark.slow
def test_a_file_is_imported_into_a_new_directory_and_again_into_the_same(tmp_path: Path) -> None:
    """No service is needed; the counts are printed, and a second time nothing changes."""
    file, data = tmp_path / "agents.jsonl", tmp_path / "data"
    file.write_text(line(1, claim={"status": "verified"}) + "\n" + line(2) + "\n")

    first = tocsin("import", str(file), "--data-dir", str(data))
    again = tocsin("import", str(file), TOCSIN_DATA_DIR=str(data))

    assert first == (0, "agents: 2 new, 0 updated, 0 unchanged\nclaims: 1 new, 0 updated, 0 unchanged\n", "")
    assert again[:2] == (0, "agents: 0 new, 0 updated, 2 unchanged\nclaims: 0 new, 0 updated, 1 unchanged\n")
    assert count(data) == 2


@pytest.mark.slow
def test_a_refused_line_is_named_and_nothing_is_imported(tmp_path: Path) -> None:
    """Exit code 1; each refusal is a line on stderr, without control characters."""
    file = tmp_path / "agents.jsonl"
    file.write_text(line(1) + "\n" + line(2, stx_address="\x1b[2J[bold]") + "\n")

    code, out, error = tocsin("import", str(file), "--data-dir", str(tmp_path / "data"))

    assert (code, out) == (1, "")
    assert f"{file}, line 2: stx_address: expected a Stacks mainnet address, SP… or SM…; '" in error
    assert "1 refused: nothing was written." in error
    assert "\x1b" not in error
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "code", "sentence"),
    [
        ("nothing.jsonl", b"\n", 1, "holds no agents and no claims"),
        ("other.sql", b"CREATE TABLE x (y);", 1, "line 1: it is not JSON"),
        ("none.json", b'[{"results": []}]', 1, "holds no agents and no claims"),
        ("other.json", b"[1, 2]", 1, "it is not what wrangler prints with --json"),
        ("cut.json", b'[{"results": [', 1, "cannot be imported: it is not JSON"),
        ("latin.json", b'["caf\xe9"]', 1, "it is not UTF-8"),
        ("absent.jsonl", None, 2, "does not exist"),
    ],
)
def test_a_file_that_is_not_a_roster_is_refused(
    name: str, content: bytes | None, code: int, sentence: str, tmp_path: Path
) -> None:
    """A sentence and an exit code for each."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    returned, out, error = tocsin("import", str(tmp_path / name), "--data-dir", str(tmp_path / "data"))

    assert (returned, out) == (code, "")
    assert sentence in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_with_a_running_service_agents_count_from_the_next_sweep_on(tmp_path: Path) -> None:
    """The service holds the directory; the command writes to the same database, and the sweep notices."""
    file, data = tmp_path / "agents.jsonl", tmp_path / "data"
    roomy = {f"TOCSIN_HIRO_PLAN_{window}": "none" for window in ("SECOND", "MINUTE", "MONTH")}
    with running_simulator() as upstreams:
        url = upstreams["HIRO_API_URL"].removesuffix("/hiro")
        with urllib.request.urlopen(f"{url}/_agents", timeout=PATIENCE_S) as answer:
            file.write_bytes(answer.read())
        ask(f"{url}/_control/swap", body={"wallet": 0})
        ask(f"{url}/_control/mine", body={})
        swap = ask(f"{url}/_truth")[1]["swaps"][-1]
        with running(ServiceProcess(data, **upstreams, **roomy)) as service:
            until(lambda: service.status()["lastSweepResult"])
            before = count(data, "swaps")
            code, out, error = tocsin("import", str(file), "--data-dir", str(data))
            refresh = f"{service.url}/api/admin/scheduler?action=refresh&task=sweep"
            ask(refresh, headers={"X-Admin-Key": ADMIN_KEY}, body={})
            trades = ask(f"{service.url}/api/competition/trades?address={swap['sender']}")[1]

    assert (before, code, error) == (0, 0, "")
    assert out.startswith("agents: 3 new")
    assert swap["txid"] in str(trades)


@pytest.mark.slow
def test_a_running_service_of_another_version_is_left_alone(tmp_path: Path) -> None:
    """Older or newer: the sentence names which, and the fix."""
    file, data = tmp_path / "agents.jsonl", tmp_path / "data"
    file.write_text(line(1) + "\n")
    migrations = tmp_path / "sql"
    copytree(COMPETITION_MIGRATIONS, migrations)
    newest = max(path for path in migrations.glob("*.sql") if path.name != "schema.sql")
    after = int(newest.name[:4]) + 1
    (migrations / f"{after:04}_add_fans.sql").write_text("CREATE TABLE fans (name TEXT);")
    with holding(data, migrations):
        newer = tocsin("import", str(file), "--data-dir", str(data))
    with holding(tmp_path / "old", tmp_path / "none"):
        older = tocsin("import", str(file), "--data-dir", str(tmp_path / "old"))

    assert (newer[0], older[0]) == (1, 1)
    assert "is newer than this code" in newer[2]
    assert "is in use by an older version of the service" in older[2]
    assert count(data) == 0


@contextmanager
def holding(data: Path, migrations: Path) -> Iterator[None]:
    """Another process that has the directory, with a schema of its own."""
    migrations.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "holdfast_testing.processes", "hold", str(data), f"db.sqlite={migrations}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).parents[2] / "packages" / "holdfast" / "tests",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
        process.communicate("")
