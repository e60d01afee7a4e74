"""Agents and claims from lines of JSON: what is imported, what is refused, and the tables afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import StoreUnavailable
from stacks_simulator.wallets import import_lines
from support.competition import trading, verdict_of
from support.roster import address, line, open_roster, rows
from tocsin.commands.rows import (
    ERRORS_MAX,
    LINE_MAX,
    ImportReport,
    TableCounts,
    import_file,
    import_rows,
    import_source,
)
from tocsin.errors import FileRefused
from tocsin.swaps.agents import COLUMNS, TABLES, RowError, lines_of, read_line


def import_into(directory: Path, *lines: str) -> ImportReport:
    with open_roster(directory) as connection:
        return import_rows(connection, lines_of(lines))


def test_the_columns_are_those_of_the_tables(tmp_path: Path) -> None:
    """A column that a migration adds must be added to what can be imported."""
    with open_roster(tmp_path) as connection:
        for table in TABLES:
            columns = connection.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall()
            kinds = {"TEXT": "text", "INTEGER": "whole"}
            assert {name: kinds[kind] for name, kind in columns} == COLUMNS[table]


def test_every_field_is_stored_as_given(tmp_path: Path) -> None:
    """All columns of both tables, exactly, with quotes, line ends and the largest number."""
    agent: dict[str, Any] = {name: f"{name} 'x'\n\"é🔔\"" for name in COLUMNS["agents"]}
    agent |= {"btc_address": "bc1qa", "stx_address": address(1), "erc8004_agent_id": 2**63 - 1}
    claim: dict[str, Any] = {name: f"{name} [b]" for name in COLUMNS["claims"]}
    claim |= {"status": "rewarded", "reward_satoshis": 0}
    del claim["btc_address"]

    report = import_into(tmp_path, json.dumps({**agent, "claim": claim}))

    assert report.imported == {"agents": TableCounts(1, 0, 0), "claims": TableCounts(1, 0, 0)}
    with open_roster(tmp_path) as connection:
        assert rows(connection, "agents") == [agent]
        assert rows(connection, "claims") == [{"btc_address": "bc1qa", **claim}]


def test_importing_again_changes_nothing_and_a_change_changes_only_what_is_given(tmp_path: Path) -> None:
    """A missing field stays unchanged, null clears it, and the counts show it."""
    first = line(1, display_name="Ann", bns_name="ann.btc", claim={"status": "pending", "tweet_url": "u"})
    import_into(tmp_path, first, line(2))

    again = import_into(tmp_path, first, line(2))
    changed = import_into(tmp_path, line(1, bns_name=None, claim={"status": "verified"}), line(3))

    assert again.imported == {"agents": TableCounts(0, 0, 2), "claims": TableCounts(0, 0, 1)}
    assert changed.imported == {"agents": TableCounts(1, 1, 0), "claims": TableCounts(0, 1, 0)}
    with open_roster(tmp_path) as connection:
        ann = rows(connection, "agents")[0]
        (claim,) = rows(connection, "claims")
    assert (ann["display_name"], ann["bns_name"]) == ("Ann", None)
    assert (claim["status"], claim["tweet_url"]) == ("verified", "u")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not an object"),
        ('{"stx_address": "SP"}', "stx_address: expected a Stacks mainnet address, SP… or SM…; 'SP' must be"),
        (json.dumps({"stx_address": address(1)}), "btc_address is missing"),
        (json.dumps({"btc_address": "bc1"}), "stx_address is missing"),
        (json.dumps({"btc_address": "a b", "stx_address": address(1)}), "btc_address: expected"),
        (line(1, stx_address="ST" + "0" * 38), "'ST00000000000000000000000000000000000000' must be SP or SM"),
        (line(1, nickname="x"), "there is no field 'nickname'; the fields are btc_address"),
        (line(1, erc8004_agent_id="7"), "erc8004_agent_id: expected a whole number"),
        (line(1, erc8004_agent_id=True), "erc8004_agent_id: expected a whole number"),
        (line(1, erc8004_agent_id=-1), "erc8004_agent_id: expected a whole number"),
        (line(1, erc8004_agent_id=7.0), "erc8004_agent_id: expected a whole number"),
        (line(1, erc8004_agent_id=2**63), "more than 64 bits"),
        (line(1, display_name=7), "display_name: expected text or null, found 7"),
        (line(1, display_name=["x"]), "display_name: expected text or null, found a list"),
        (line(1, display_name="\0"), "display_name: has a character"),
        (line(1, display_name="\ud800"), "display_name: has a character"),
        (line(1, display_name="x" * 129), "display_name: has 129 characters, at most 128 are allowed; shorten it"),
        (line(1, bns_name="x" * 200_000), "bns_name: has 200000 characters"),
        (line(1, claim={"status": "pending", "display_name": "x" * 129}), "claim.display_name: has 129"),
        (line(1, claim="verified"), "claim: expected an object"),
        (line(1, claim={}), "claim.status: expected one of pending, verified, rewarded, failed"),
        (line(1, claim={"status": "done"}), "found 'done'"),
        (line(1, claim={"status": "verified", "x": 1}), "there is no field claim.'x'"),
        (line(1, claim={"status": "verified", "btc_address": "bc1other"}), "claim: expected an object"),
        (line(1, claim={"status": "verified", "reward_satoshis": 1.5}), "claim.reward_satoshis: expected"),
        ('{"btc_address": "a", "btc_address": "b"}', "'btc_address' is listed twice"),
        ('{"erc8004_agent_id": ' + "9" * 5000 + "}", "Exceeds the limit"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_line_is_refused_with_number_and_reason_and_nothing_is_written(
    text: str, message: str, tmp_path: Path
) -> None:
    """All or nothing: the good lines around it are not imported either."""
    report = import_into(tmp_path, line(8), text, line(9))

    assert [refusal.line for refusal in report.refused] == [2]
    assert message in report.refused[0].reason
    assert report.imported == {}
    with open_roster(tmp_path) as connection:
        assert rows(connection, "agents") == []


def test_a_name_may_have_128_characters(tmp_path: Path) -> None:
    """Characters, not bytes."""
    assert import_into(tmp_path, line(1, display_name="🔔" * 128)).imported["agents"] == TableCounts(1, 0, 0)


def test_an_address_of_39_characters_is_imported_and_a_wrong_character_refused(tmp_path: Path) -> None:
    """One of 234 addresses has 39 characters; one such agent must not stop the whole file."""
    short = "SPG4A1SAV4F6E9GJYPNVH1NDC28STBW9DRHBN37"

    imported = import_into(tmp_path, line(1), line(2, stx_address=short))
    refused = import_into(tmp_path, line(3, stx_address=short[:-1] + "8"))

    assert imported.imported["agents"] == TableCounts(2, 0, 0)
    (refusal,) = refused.refused
    assert refusal.reason == (
        "stx_address: expected a Stacks mainnet address, SP… or SM…; 'SPG4A1SAV4F6E9GJYPNVH1NDC28STBW9DRHBN38'"
        " has a wrong checksum: at least one character is wrong"
    )


def test_duplicates_are_refused_with_both_lines(tmp_path: Path) -> None:
    """Neither a btc_address nor a stx_address may appear twice; all errors are listed, in the file's order."""
    report = import_into(tmp_path, line(1), line(2), line(1), "x", line(3, stx_address=address(2)), line(1))

    assert [(refusal.line, refusal.reason[:49]) for refusal in report.refused] == [
        (3, "bc1q1 is on line 1 already"),
        (4, "it is not JSON: Expecting value at character 1"),
        (5, f"stx_address {address(2)}"[:49]),
        (6, "bc1q1 is on line 1 already"),
    ]
    assert report.refused[2].reason.endswith("is on line 2 already")


def test_many_errors_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    """A file of another kind does not fill the screen."""
    report = import_into(tmp_path, *["x"] * (ERRORS_MAX + 50))

    assert (len(report.refused), report.refused_count) == (ERRORS_MAX, ERRORS_MAX + 50)


def test_an_address_of_another_agent_is_refused(tmp_path: Path) -> None:
    """The agent that has it is named."""
    import_into(tmp_path, line(1))
    report = import_into(tmp_path, line(2, stx_address=address(1)))

    assert report.refused == [RowError(1, f"stx_address {address(1)} is that of the registered agent bc1q1")]


async def test_an_address_with_swaps_is_kept_and_one_without_may_change(tmp_path: Path) -> None:
    """Recorded swaps belong to the address that sent them: they are neither lost nor given to another."""
    async with trading(tmp_path) as (world, chain):
        trader, idle = chain.wallets[:2]
        [tx] = world.trade(trader)
        await world.submit(tx.tx_id)

        refused, moved = (
            import_into(tmp_path, json.dumps({"btc_address": wallet.btc_address, "stx_address": address(7)}))
            for wallet in (trader, idle)
        )
        kept = await world.all("SELECT sender FROM swaps")
        agents = await world.all("SELECT stx_address FROM agents WHERE btc_address = ?", idle.btc_address)

    assert f"has swaps recorded as {trader.address}" in refused.refused[0].reason
    assert moved.imported["agents"] == TableCounts(0, 1, 0)
    assert kept == [{"sender": trader.address}]
    assert agents == [{"stx_address": address(7)}]


async def test_an_import_into_an_open_database_is_seen_by_it_at_once(tmp_path: Path) -> None:
    """Tiers are read from the tables each time: an imported agent counts at once."""
    async with trading(tmp_path) as (world, chain):
        stranger = chain.strangers[0].address
        [tx] = world.trade(stranger)
        before = await world.submit(tx.tx_id)
        import_into(tmp_path, line(1, stx_address=stranger, erc8004_agent_id=1, claim={"status": "verified"}))
        after = await world.submit(tx.tx_id)
        known = import_into(tmp_path, *import_lines(chain.wallets).splitlines())

    assert (before.code, verdict_of(after)) == ("sender_not_registered", "verified")
    assert known.refused == []


def test_a_database_that_stays_locked_is_an_error_and_nothing_is_imported(tmp_path: Path) -> None:
    """Each side waits for the other for a while; then it is an error that says to try again."""
    with open_roster(tmp_path) as other, open_roster(tmp_path) as connection:
        connection.execute("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"import: database is locked.*try again later"):
            import_rows(connection, lines_of([line(1)]))
        other.execute("COMMIT")
        assert rows(other, "agents") == []

    assert import_into(tmp_path, line(1)).imported["agents"] == TableCounts(1, 0, 0)


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    """A byte order mark, CRLF, empty lines, a line without an end; too long and broken ones are named."""
    file = tmp_path / "agents.jsonl"
    good = [line(number).encode() for number in (1, 2)]
    too_long = b'{"display_name": "' + b"x" * (3 * LINE_MAX) + b'"}'
    file.write_bytes(b"\xef\xbb\xbf" + good[0] + b"\r\n\r\n" + too_long + b"\n\xff\xfe\n  \n" + good[1])

    read = list(import_source(file).rows())

    assert [row.line for row in read] == [1, 3, 4, 6]
    assert [row.reason for row in read if isinstance(row, RowError)] == [
        f"it is longer than {LINE_MAX} bytes",
        "it is not UTF-8: save the file as UTF-8",
    ]


def test_a_line_of_just_over_the_limit_is_not_passed_over(tmp_path: Path) -> None:
    """The rest of the line is empty, but the line is not. A line of the limit is read."""
    file = tmp_path / "agents.jsonl"
    for length in (LINE_MAX, LINE_MAX + 1):
        file.write_bytes(line(1).encode().ljust(length) + b"\n")

        [row] = import_source(file).rows()
        assert isinstance(row, RowError) == (length > LINE_MAX)


@pytest.mark.slow
@given(
    st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.dictionaries(st.sampled_from([*COLUMNS["agents"], "claim", "status"]), inner, max_size=6)
            | st.lists(inner, max_size=3)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_line_gives_rows_or_one_error(raw: bytes) -> None:
    """This holds whatever the line contains; and a row always has its keys."""
    read = list(read_line(1, raw))

    assert len(read) >= 1
    for row in read:
        if isinstance(row, RowError):
            assert len(read) == 1
            assert 0 < len(row.reason) < 600
        else:
            assert row.staged()[2]


def printed(directory: Path, *results: list[dict[str, Any]], start: bytes = b"") -> Path:
    """A file as `wrangler d1 execute --json` writes it, one result for each SELECT."""
    file = directory / "agents.json"
    found = [{"results": rows, "success": True, "meta": {"duration": 0.2}} for rows in results]
    file.write_bytes(start + json.dumps(found, indent=2, ensure_ascii=False).encode())
    return file


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\r\n "])
def test_what_wrangler_prints_is_imported(start: bytes, tmp_path: Path) -> None:
    """Rows of both tables, as one import; a column that only the site has is left out."""
    agents = [{**json.loads(line(n, display_name="it's\nÄnn", owner=None)), "site_only": [1]} for n in (1, 2)]
    claims = [{"btc_address": "bc1q2", "status": "verified", "reward_satoshis": 2**53, "score": 0.5}]
    file = printed(tmp_path, claims, agents, start=start)
    with open_roster(tmp_path) as connection:
        report = import_file(connection, import_source(file))

        assert report.imported == {"agents": TableCounts(2, 0, 0), "claims": TableCounts(1, 0, 0)}
        assert [(agent["btc_address"], agent["display_name"]) for agent in rows(connection, "agents")] == [
            ("bc1q1", "it's\nÄnn"),
            ("bc1q2", "it's\nÄnn"),
        ]
        assert rows(connection, "claims")[0]["reward_satoshis"] == 2**53


def test_a_refused_row_of_wrangler_has_its_number(tmp_path: Path) -> None:
    """Counted from 1 over all results; nothing is imported."""
    agents = [json.loads(line(1)), json.loads(line(2, stx_address="SP1")), json.loads(line(1))]
    file = printed(tmp_path, agents, [{"btc_address": "bc1q1", "status": "lost"}, {}])
    with open_roster(tmp_path) as connection:
        report = import_file(connection, import_source(file))

        assert report.unit == "row"
        assert [(error.line, error.reason.partition(":")[0]) for error in report.refused] == [
            (2, "stx_address"),
            (3, "bc1q1 is on row 1 already"),
            (4, "status"),
            (5, "status"),
        ]
        assert rows(connection, "agents") == []


@pytest.mark.parametrize(
    "text", ["[", "[1]", "[[]]", '[{"results": {}}]', '[{"results": []}, {}]', "[" * 100_000, '[{"results": 1e999}]']
)
def test_another_list_is_refused(text: str, tmp_path: Path) -> None:
    """With the name of the file and what it should be."""
    file = tmp_path / "agents.json"
    file.write_text(text)
    with pytest.raises(FileRefused, match=r"agents\.json cannot be imported: it is not"):
        list(import_source(file).rows())


def test_a_file_has_a_limit(tmp_path: Path) -> None:
    """It is read as a whole."""
    file = tmp_path / "agents.json"
    with file.open("wb") as stream:
        stream.write(b"[")
        stream.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(FileRefused, match="has more than 67108864 bytes: split it"):
        list(import_source(file).rows())
