"""`tocsin export`, `import` and `rebuild`: what is written and printed, exact and complete, and what is refused."""

import asyncio
import csv
import io
import json
import re
import sqlite3
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from holdfast.errors import SchemaMismatch, UsageError
from holdfast.local import sqlite_file
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import split
from holdfast_testing.stores import migrated
from support.local_store import open_competition
from support.patience import PATIENCE_S
from support.processes import ADMIN_KEY, ServiceProcess, ask, running, running_simulator, until
from support.roster import address, line, open_roster, rows
from support.tocsin_command import TOCSIN, tocsin_here
from support.web_thread import one_trade
from tocsin.cli import app
from tocsin.commands.rows import ImportReport, import_file, import_rows, import_source, write_d1_sql
from tocsin.errors import FileRefused
from tocsin.swaps import COMPETITION_MIGRATIONS
from tocsin.swaps.agents import TABLES, ImportRow, Table, d1_statement, lines_of, read_line

HOSTILE = "O'Brien''; COMMIT; BEGIN TRANSACTION; é🔔\n\r\n-- /* \\ \" \\u0027 ?1 %s"
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


def exported(data: Path, what: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in export(data, what).splitlines()]


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(keepends=True)))


def test_exported_agents_can_be_imported_again(data: Path) -> None:
    """Every field of both tables is the same in a new database, and nothing changes in the old one."""
    file, new = data / "agents.jsonl", data / "new"
    new.mkdir()
    printed = export(data, "agents", "--output", str(file))
    with open_roster(new) as copied, closing(sqlite_file.connect(data / "db.sqlite")) as connection:
        import_file(copied, import_source(file))
        again = import_file(connection, import_source(file))
        for name in TABLES:
            assert rows(copied, name) == rows(connection, name)

    assert printed == f"{file}: 2 agents.\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {name: counts.unchanged for name, counts in again.imported.items()} == {"agents": 2, "claims": 1}


def test_swaps_are_in_the_order_of_the_chain_and_amounts_are_text(data: Path) -> None:
    swaps = exported(data, "swaps")

    assert [(swap["block_height"], swap["tx_index"]) for swap in swaps] == [(8, 5), (9, 1), (9, 2)]
    assert [swap["amount_in"] for swap in swaps] == ["7", "12", HUGE]
    assert [swap["amount_in"] for swap in table(export(data, "swaps", "--format", "csv"))] == ["7", "12", HUGE]


def test_refusals_are_in_the_order_of_their_time(data: Path) -> None:
    refusals = exported(data, "refusals")

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
        seen = len(exported(data, "swaps"))
        writer.execute("COMMIT")

    assert (seen, len(exported(data, "swaps"))) == (3, 4)


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


def prepare(directory: Path, *lines: str, name: str = "agents.jsonl") -> tuple[ImportReport, Path]:
    file, output = directory / name, directory / f"{name}.d1.sql"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return write_d1_sql(import_source(file), output)[0], output


def tables(connection: sqlite3.Connection) -> dict[str, list[dict[str, Any]]]:
    return {table: rows(connection, table) for table in TABLES}


def load(connection: sqlite3.Connection, sql: Path) -> int:
    """Run a file as D1 does, in one transaction. Returns how many rows changed."""
    before = connection.total_changes
    with connection:
        connection.execute("BEGIN")
        for statement in split(sql.read_text(encoding="utf-8")):
            connection.execute(statement)
    return connection.total_changes - before


def test_the_sql_writes_what_an_import_writes(tmp_path: Path) -> None:
    """New agents, changed ones and unchanged ones, fields that are not given, nulls, and texts of any kind."""
    first = [
        line(1, display_name=HOSTILE, erc8004_agent_id=2**63 - 1, claim={"status": "pending", "tweet_url": HOSTILE}),
        line(2, description="kept", owner="kept", claim={"status": "verified", "reward_satoshis": 0}),
        line(3),
    ]
    second = [line(2, owner=None, claim={"status": "rewarded"}), line(3), line(4, description=HOSTILE * 100)]
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    with open_roster(tmp_path / "here") as here, open_roster(tmp_path / "there") as there:
        for number, lines in enumerate((first, second, second)):
            _, sql = prepare(tmp_path, *lines, name=f"{number}.jsonl")
            report = import_file(here, import_source(tmp_path / f"{number}.jsonl"))
            here.execute("DROP TABLE temp.incoming")
            changed = load(there, sql)

            assert tables(here) == tables(there)
            assert changed == sum(counts.new + counts.updated for counts in report.imported.values())
        written = tables(there)

    assert [agent["btc_address"] for agent in written["agents"]] == ["bc1q1", "bc1q2", "bc1q3", "bc1q4"]
    assert (written["agents"][0]["display_name"], written["agents"][0]["erc8004_agent_id"]) == (HOSTILE, 2**63 - 1)
    assert (written["agents"][1]["description"], written["agents"][1]["owner"]) == ("kept", None)
    assert written["claims"][1]["reward_satoshis"] == 0


def test_every_row_is_one_line_and_one_statement(tmp_path: Path) -> None:
    """Agents before their claims, in the order of the file."""
    lines = [line(n, description=HOSTILE, claim={"status": "verified"}) for n in (2, 1)]
    _, sql = prepare(tmp_path, *lines)
    written = sql.read_text(encoding="utf-8").splitlines()

    assert [re.findall(r"^INSERT INTO (\w+) .*(bc1q[0-9])", text) for text in written] == [
        [("agents", "bc1q2")],
        [("agents", "bc1q1")],
        [("claims", "bc1q2")],
        [("claims", "bc1q1")],
    ]
    with open_roster(tmp_path) as connection:
        assert load(connection, sql) == 4


def test_a_row_fits_up_to_the_last_byte_and_one_more_is_refused(tmp_path: Path) -> None:
    """The statement of the longest row has 99,000 bytes with its line end."""
    room = 99_000 - len(d1_statement("agents", json.loads(line(1, description=""))).encode())

    fits, sql = prepare(tmp_path, line(1, description="x" * room))
    refused, none = prepare(tmp_path, line(2), line(1, description="x" * (room + 1)), name="long.jsonl")

    assert fits.refused == []
    assert len(sql.read_bytes()) == 99_000
    [error] = refused.refused
    assert (error.line, error.reason) == (2, "it takes 99,001 bytes of SQL, and D1 accepts 99,000: shorten its texts")
    assert not none.exists()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_survives_and_nothing_ends_the_statement(text: str) -> None:
    """The output has none of the words at which wrangler cuts files, even within quotes."""
    [row] = [row for row in read_line(1, line(1, description=text).encode()) if isinstance(row, ImportRow)]
    statement = d1_statement("agents", row.fields)
    literal = statement[statement.index("json_each('[") + 12 : statement.rindex("]'")]

    assert not {"'", ";", "\n", "\r"} & set(literal)
    assert "BEGIN TRANSACTION" not in literal
    assert json.loads(literal) == row.fields
    assert (statement.count(";"), statement.count("\n"), statement[-2:]) == (1, 1, ";\n")


def test_the_words_that_wrangler_cuts_are_escaped() -> None:
    escaped = r'{"owner":"BEGIN\u0020TRANSACTION\u003b it\u0027s COMMIT\u003b"}'

    assert escaped in d1_statement("agents", {"owner": "BEGIN TRANSACTION; it's COMMIT;"})


@pytest.mark.parametrize("table", ["agents", "claims"])
def test_a_statement_has_no_word_that_keeps_wrangler_from_splitting(table: Table) -> None:
    """After CASE or BEGIN, wrangler takes the rest of the file for one statement."""
    assert re.findall(r"\b(?:CASE|BEGIN)\b", d1_statement(table, {}), re.IGNORECASE) == []


def test_what_an_import_refuses_is_refused_and_no_file_is_written(tmp_path: Path) -> None:
    """The same lines for the same reasons."""
    lines = [
        line(1),
        line(1, stx_address=address(9)),
        line(2, stx_address=address(1)),
        line(3, stx_address="SP123"),
        line(4, claim={"status": "no"}),
        "{",
    ]
    report, sql = prepare(tmp_path, *lines)
    with open_roster(tmp_path) as connection:
        local = import_rows(connection, lines_of(lines))

    assert report.refused == local.refused
    assert report.refused_count == local.refused_count == 5
    assert not sql.exists()


def test_an_older_file_stays_when_a_new_one_is_refused(tmp_path: Path) -> None:
    _, sql = prepare(tmp_path, line(1))
    before = sql.read_bytes()
    prepare(tmp_path, "nonsense")

    assert sql.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents.jsonl", "agents.jsonl.d1.sql"]


@pytest.mark.parametrize(
    ("there", "given", "constraint"),
    [
        ([line(1)], line(2, stx_address=address(1)), "UNIQUE constraint failed: agents.stx_address"),
        ([], None, "FOREIGN KEY constraint failed"),
    ],
)
def test_what_conflicts_with_the_database_is_refused_by_it(
    there: list[str], given: str | None, constraint: str, tmp_path: Path
) -> None:
    """Another agent's address, or a claim without an agent; nothing of the file is written."""
    if given is None:
        claims = [{"results": [{"btc_address": "bc1q7", "status": "verified"}], "success": True}]
        _, sql = prepare(tmp_path, json.dumps(claims), name="claims.json")
    else:
        _, sql = prepare(tmp_path, line(5), given)
    with open_roster(tmp_path) as connection:
        import_rows(connection, lines_of(there))
        before = tables(connection)
        with pytest.raises(sqlite3.IntegrityError, match=constraint):
            load(connection, sql)

        assert tables(connection) == before


def test_the_command_prints_what_to_do_next(tmp_path: Path) -> None:
    file, sql = tmp_path / "agents.jsonl", tmp_path / "for d1.sql"
    file.write_text(line(1, claim={"status": "verified"}) + "\n")

    done = CliRunner().invoke(app, ["import", str(file), "--d1-sql", str(sql)])

    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        f"{sql}: 1 agents, 1 claims. Nothing is loaded yet. Next:",
        f"npx wrangler d1 execute tocsin --remote --env=\"\" --file '{sql}'",
    ]
    assert stat.S_IMODE(sql.stat().st_mode) == 0o600


def test_a_data_directory_an_empty_file_and_a_bad_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "agents.jsonl"
    file.write_text("\n")
    both = CliRunner().invoke(app, ["import", str(file), "--d1-sql", "x.sql", "--data-dir", "data"])

    assert isinstance(both.exception, UsageError)
    with pytest.raises(FileRefused, match="holds no agents and no claims"):
        write_d1_sql(import_source(file), tmp_path / "x.sql")
    file.write_text(line(1))
    with pytest.raises(UsageError, match="is not a regular file"):
        write_d1_sql(import_source(file), tmp_path)


def tocsin(*arguments: str, **environment: str) -> tuple[int, str, str]:
    done = tocsin_here(*arguments, environment=environment)
    return done.returncode, done.stdout, done.stderr


def count(data_dir: Path, table: str = "agents") -> int:
    with closing(sqlite_file.connect(data_dir / "db.sqlite")) as connection:
        (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert isinstance(number, int)
    return number


def test_a_file_is_imported_into_a_new_directory_and_again_into_the_same(tmp_path: Path) -> None:
    """No service is needed; the counts are printed, and a second time nothing changes."""
    file, data = tmp_path / "agents.jsonl", tmp_path / "data"
    file.write_text(line(1, claim={"status": "verified"}) + "\n" + line(2) + "\n")

    first = tocsin("import", str(file), "--data-dir", str(data))
    again = tocsin("import", str(file), TOCSIN_DATA_DIR=str(data))

    assert first == (0, "agents: 2 new, 0 updated, 0 unchanged\nclaims: 1 new, 0 updated, 0 unchanged\n", "")
    assert again[:2] == (0, "agents: 0 new, 0 updated, 2 unchanged\nclaims: 0 new, 0 updated, 1 unchanged\n")
    assert count(data) == 2


def test_stdin_is_imported_and_the_answer_can_be_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For containers and scripts."""
    data = ("--data-dir", str(tmp_path / "data"), "--json")

    def imported(*lines: str) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
        done = tocsin_here("import", "-", *data, environment={})
        return done.returncode, json.loads(done.stdout)

    code, taken = imported(line(1), line(2))
    refused_code, refused = imported("{}")

    assert (code, refused_code) == (0, 1)
    assert taken["imported"]["agents"] == {"new": 2, "updated": 0, "unchanged": 0}
    assert (taken["refused"], refused["imported"], refused["refusedCount"]) == ([], {}, 1)
    assert refused["refused"][0]["line"] == 1


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
    (migrations / "0002_add_fans.sql").write_text("CREATE TABLE fans (name TEXT);")
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


def test_wrong_totals_are_counted_again(tmp_path: Path) -> None:
    """The first time it prints what differed, the second time that all totals agree."""

    async def trade() -> None:
        async with open_competition(tmp_path) as db:
            await one_trade(db)

    asyncio.run(trade())
    with closing(sqlite_file.connect(tmp_path / "db.sqlite")) as connection:
        connection.execute("UPDATE sender_totals SET trades = 99")
        connection.execute("DELETE FROM token_totals")

    first, again = (tocsin("rebuild", "--data-dir", str(tmp_path)) for _ in range(2))

    assert first == (0, "sender_totals: 2 rows differed\ntoken_totals: 2 rows differed\nComputed again.\n", "")
    assert again == (0, "All totals agree with the swaps.\n", "")


def test_without_a_database_it_prints_where_it_looked(tmp_path: Path) -> None:
    """No file or directory is created."""
    code, out, error = tocsin("rebuild", "--data-dir", str(tmp_path / "nowhere"))

    assert (code, out) == (2, "")
    assert "nowhere" in error
    assert not (tmp_path / "nowhere").exists()
