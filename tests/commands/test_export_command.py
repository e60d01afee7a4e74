"""`tocsin export`: rows as JSON lines or CSV, exact and complete, while the service runs."""

import csv
import json
import re
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.errors import SchemaMismatch, UsageError
from holdfast.local import sqlite_file
from holdfast.local.kv import KV_MIGRATIONS
from holdfast_testing.stores import migrated
from support.roster import address, line, open_roster, rows
from support.tocsin_command import TOCSIN
from tocsin.cli import app
from tocsin.commands.rows import import_file, import_rows
from tocsin.swaps import COMPETITION_MIGRATIONS
from tocsin.swaps.agents import TABLES, lines_of

HUGE = "340282366920938463463374607431768211455"  # the largest amount on chain: 2**128 - 1
NAME = "=1+1'\"\n,é🔔;@x"
SWAP = """
INSERT INTO swaps (txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out,
  burn_block_time, block_height, block_hash, tx_index, source, allowlist_version, recorded_at)
VALUES ('0x' || printf('%064x', ?), ?, 'SP.pool', 'swap', 'stx', ?, 'SP.t::t', '1', 1778700600, ?, '0xb', ?, 'agent',
  'v', 5)"""
REFUSAL = """
INSERT INTO refusals (txid, code, reason, sender, burn_block_time, block_height, block_hash, legs_json, source,
  allowlist_version, refused_at)
VALUES (?, 'not_a_swap', 'one leg', 'SP1', 1778700600, 3, '0xb', '{"stx": "-5"}', 'cron', 'v', ?)"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with rows of every kind."""
    with open_roster(tmp_path) as connection:
        agents = [
            line(2, display_name=NAME, erc8004_agent_id=2**63 - 1, claim={"status": "verified", "tweet_url": "u"}),
            line(1, description="two\nlines"),
        ]
        import_rows(connection, lines_of(agents))
        for number, amount, height, index in ((1, HUGE, 9, 2), (2, "12", 9, 1), (3, "7", 8, 5)):
            connection.execute(SWAP, (number, address(2), amount, height, index))
        for txid, refused_at in (("0xb", 1), ("0xa", 2)):
            connection.execute(REFUSAL, (txid, refused_at))
    with closing(sqlite_file.connect(migrated(tmp_path / "kv.sqlite", KV_MIGRATIONS))) as connection:
        for key, value, expires_at in (
            ("tenero:price:stx", '{"priceUsd":0.1,"decimals":6,"fetchedAt":7}', None),
            ("tenero:price:SP.t::t", '{"priceUsd":null,"decimals":null,"fetchedAt":8}', 2**50),
            ("tenero:price:expired", '{"priceUsd":1,"decimals":6,"fetchedAt":7}', 1),
            ("tenero:price:broken", "{", None),
            ("tenero:other", "x", None),
            ("tenero:pricf", "x", None),
        ):
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (key, value, expires_at))
    return tmp_path


def export(data: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["export", *arguments, "--data-dir", str(data)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout_bytes.decode()


def lines(data: Path, what: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in export(data, what).splitlines()]


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(keepends=True)))


def test_exported_agents_can_be_imported_again(data: Path) -> None:
    """Every field of both tables is the same in a new database, and nothing changes in the old one."""
    file, new = data / "agents.jsonl", data / "new"
    new.mkdir()
    printed = export(data, "agents", "--output", str(file))
    with open_roster(new) as copied, closing(sqlite_file.connect(data / "db.sqlite")) as connection:
        import_file(copied, file, lambda _: None)
        again = import_file(connection, file, lambda _: None)
        for name in TABLES:
            assert rows(copied, name) == rows(connection, name)

    assert printed == f"{file}: 2 agents.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {name: counts.unchanged for name, counts in again.imported.items()} == {"agents": 2, "claims": 1}


def test_swaps_are_in_the_order_of_the_chain_and_amounts_are_text(data: Path) -> None:
    swaps = lines(data, "swaps")

    assert [(swap["block_height"], swap["tx_index"]) for swap in swaps] == [(8, 5), (9, 1), (9, 2)]
    assert [swap["amount_in"] for swap in swaps] == ["7", "12", HUGE]
    assert [swap["amount_in"] for swap in table(export(data, "swaps", "--format", "csv"))] == ["7", "12", HUGE]


def test_refusals_are_in_the_order_of_their_time(data: Path) -> None:
    refusals = lines(data, "refusals")

    assert [refusal["txid"] for refusal in refusals] == ["0xb", "0xa"]
    assert (refusals[0]["legs_json"], refusals[0]["contract_id"]) == ('{"stx": "-5"}', None)


def test_prices_are_those_that_are_stored(data: Path) -> None:
    """Expired values are left out; unreadable ones are counted on stderr, not invented."""
    done = CliRunner().invoke(app, ["export", "prices", "--data-dir", str(data)])

    assert [json.loads(text) for text in done.stdout.splitlines()] == [
        {"token_id": "SP.t::t", "price_usd": None, "decimals": None, "fetched_at": 8},
        {"token_id": "stx", "price_usd": 0.1, "decimals": 6, "fetched_at": 7},
    ]
    assert done.stderr == "1 entries could not be read and were left out.\n"


def test_csv_has_a_header_and_no_formula(data: Path) -> None:
    """A name that a spreadsheet would execute gets an apostrophe; everything else is unchanged."""
    agents = table(export(data, "agents", "--format", "csv"))

    assert [agent["btc_address"] for agent in agents] == ["bc1q1", "bc1q2"]
    assert (agents[0]["description"], agents[0]["claim_status"]) == ("two\nlines", "")
    assert (agents[1]["display_name"], agents[1]["claim_status"]) == ("'=1+1'\"\n,é🔔;'@x", "verified")
    assert agents[1]["erc8004_agent_id"] == "9223372036854775807"


def test_the_columns_are_documented(data: Path) -> None:
    """docs/commands.md lists exactly the columns of each, in their order."""
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for what in ("agents", "swaps", "refusals", "prices"):
        found = re.search(rf"^\| {what} \| (.*) \|$", page, re.MULTILINE)
        assert found is not None
        header = export(data, what, "--format", "csv").splitlines()[0]
        assert re.findall(r"`(\w+)`", found[1]) == header.split(",")


def test_an_export_sees_one_instant_while_others_write(data: Path) -> None:
    """The command reads while a writer has the lock, and sees what was committed."""
    with closing(sqlite_file.connect(data / "db.sqlite")) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(SWAP, (4, address(2), "1", 10, 1))
        seen = len(lines(data, "swaps"))
        writer.execute("COMMIT")

    assert (seen, len(lines(data, "swaps"))) == (3, 4)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(data: Path) -> None:
    """A directory, a device and a missing directory are refused; nothing is left behind."""
    file = data / "swaps.csv"
    file.write_text("old")
    export(data, "swaps", "--format", "csv", "--output", str(file))

    assert len(table(file.read_text())) == 3
    for wrong in (data, Path("/dev/null"), data / "none" / "x"):
        with pytest.raises(UsageError, match=r"is not a regular file|cannot be written"):
            export(data, "swaps", "--output", str(wrong))
    assert not [path for path in data.iterdir() if path.name.startswith(".")]


def test_without_a_database_or_with_an_older_one_it_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no .*db\.sqlite: set --data-dir"):
        export(tmp_path / "elsewhere", "swaps")
    (tmp_path / "sql").mkdir()
    for migration in sorted(COMPETITION_MIGRATIONS.glob("0*.sql"))[:-1]:
        copy(migration, tmp_path / "sql")
    (tmp_path / "old").mkdir()
    migrated(tmp_path / "old" / "db.sqlite", tmp_path / "sql")
    with pytest.raises(SchemaMismatch, match=r"is from an older release: it lacks 0"):
        export(tmp_path / "old", "swaps")


@pytest.mark.slow
def test_a_reader_that_stops_early_is_no_error_message(data: Path) -> None:
    """As with `| head -1`."""
    with closing(sqlite_file.connect(data / "db.sqlite")) as connection:
        connection.execute("BEGIN")
        connection.executemany(SWAP, ((n, address(2), HUGE, 10, n) for n in range(100, 5_000)))
        connection.execute("COMMIT")
    command = [str(TOCSIN), "export", "swaps", "--data-dir", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = json.loads(process.stdout.readline())
        process.stdout.close()
        errors = process.stderr.read()

    assert (first["amount_in"], errors) == ("7", "")
