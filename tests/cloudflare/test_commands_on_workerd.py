"""The command against the real runtime: agents loaded with the SQL of `tocsin import`, then every command by URL."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from holdfast.local.migrations import split
from support.processes import root_of, running_simulator
from support.roster import line, open_roster, rows
from support.tocsin_command import tocsin
from support.workerd import Workerd, require_workerd, running
from tocsin.commands.rows import D1_STATEMENT_MAX, import_file, import_source, write_d1_sql
from tocsin.swaps.agents import TABLES, d1_statement

KEY = "an-admin-key-for-tests"
HOSTILE = "O'Brien; COMMIT; BEGIN TRANSACTION; é🔔\n-- \\ \""


@dataclass
class DeployedAgents:
    """A deployment whose agents were loaded with the SQL of `tocsin import`."""

    workerd: Workerd

    def tocsin(self, *arguments: str, key: str = KEY) -> "subprocess.CompletedProcess[str]":
        url = f"http://127.0.0.1:{self.workerd.port}"
        return tocsin(*arguments, "--url", url, port=1, ADMIN_KEY=key)

    def load(self, agents: Path) -> None:
        """As `tocsin import --d1-sql` and `wrangler d1 execute --file` do: all statements are one transaction."""
        sql = agents.with_suffix(".d1.sql")
        assert write_d1_sql(import_source(agents), sql)[0].refused == []
        self.workerd.sql(*[(statement, ()) for statement in split(sql.read_text(encoding="utf-8"))])

    def rows(self, table: str) -> list[dict[str, Any]]:
        [found] = self.workerd.sql((f"SELECT * FROM {table} ORDER BY btc_address", ()))
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedAgents]:
    require_workerd()
    with (
        running_simulator(wallets=12, history_hours=0.5, speed=0) as upstreams,
        running(tmp_path_factory.mktemp("site"), {**upstreams, "ADMIN_KEY": f"alice:{KEY}"}) as workerd,
        urlopen(f"{root_of(upstreams)}/_agents") as lines,
    ):
        workerd.migrate()
        made, directory = DeployedAgents(workerd), tmp_path_factory.mktemp("agents")
        (directory / "agents.jsonl").write_bytes(lines.read())
        made.load(directory / "agents.jsonl")
        yield made


def test_d1_has_what_a_local_import_has(site: DeployedAgents, tmp_path: Path) -> None:
    """New, changed and unchanged agents, hostile text, and the longest statements that D1 accepts."""
    longest = D1_STATEMENT_MAX - len(d1_statement("agents", json.loads(line(800, description=""))))
    many = [line(800, description="x" * longest)]
    many += [line(n, description=HOSTILE * (n % 90), claim={"status": "verified"}) for n in range(200)]
    changes = [line(3, owner="new"), line(4, description=None, claim={"status": "failed"}), line(900)]
    file = tmp_path / "agents.jsonl"
    with open_roster(tmp_path) as local:
        for lines in (many, changes, changes):
            file.write_text("\n".join(lines), encoding="utf-8")
            site.load(file)
            import_file(local, import_source(file))
            local.execute("DROP TABLE temp.incoming")

            for table in TABLES:
                imported = {row["btc_address"]: row for row in rows(local, table)}
                loaded = {row["btc_address"]: row for row in site.rows(table) if row["btc_address"] in imported}
                assert loaded == imported
                assert len(imported) >= 200


def test_every_command_works_by_url(site: DeployedAgents) -> None:
    """A sweep finds the swaps of the agents, and the board shows them."""
    refreshed, priced = site.tocsin("refresh", "sweep"), site.tocsin("refresh", "tenero")
    paused, status = site.tocsin("pause", "--for", "1h", "--reason", "a test"), site.tocsin("status")
    resumed, runs, audit = site.tocsin("resume"), site.tocsin("runs"), site.tocsin("audit")
    prices, board = site.tocsin("prices"), site.tocsin("board", "--json", key="")
    reload, wrong = site.tocsin("reload"), site.tocsin("status", key="not-the-right-key")

    done = (refreshed, priced, paused, status, resumed, runs, audit, prices, board)
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * len(done)
    assert "sweep: ok" in refreshed.stdout
    assert "Paused until" in status.stdout
    assert "refresh" in runs.stdout
    assert "a test" in audit.stdout
    assert "stx" in prices.stdout
    assert json.loads(board.stdout)["rows"]
    assert (reload.returncode, wrong.returncode) == (1, 1)
    assert "Traceback" not in reload.stderr + wrong.stderr


def test_d1_refuses_the_address_of_another_agent_and_keeps_all_as_it_was(site: DeployedAgents, tmp_path: Path) -> None:
    """Of a valid and an invalid one, neither is written."""
    taken = site.rows("agents")[0]["stx_address"]
    file = tmp_path / "agents.jsonl"
    file.write_text(f"{line(7_001)}\n{line(7_002, stx_address=taken)}\n")
    before = site.rows("agents")

    with pytest.raises(AssertionError, match=r"UNIQUE constraint failed: agents\.stx_address"):
        site.load(file)

    assert site.rows("agents") == before
