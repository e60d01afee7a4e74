"""The queries of the stores: each is named, described, used, and valid for the tables of the service."""

import re
import sqlite3
from pathlib import Path

import pytest

from holdfast.local.migrations import load
from tocsin.sql import PART, read_queries
from tocsin.swaps import COMPETITION_MIGRATIONS

SOURCE = Path(__file__).parents[1] / "src" / "tocsin"
FILES = sorted(SOURCE.rglob("queries.sql"))
USED = re.compile(r'\bSQL\["(\w+)"\]')


def written(directory: Path, text: str) -> str:
    (directory / "queries.sql").write_text(text, encoding="utf-8")
    return str(directory / "store.py")


def test_queries_are_read_by_name_without_their_descriptions(tmp_path: Path) -> None:
    text = (
        "-- name: one\n-- The first.\nSELECT 1;\n\n-- name: two_2\n-- A second,\n-- in two lines.\nSELECT a\nFROM b\n"
    )
    assert read_queries(written(tmp_path, text)) == {"one": "SELECT 1", "two_2": "SELECT a\nFROM b"}


def test_a_query_may_contain_an_earlier_one(tmp_path: Path) -> None:
    text = "-- name: columns\n-- A part.\na, b\n\n-- name: all_rows\n-- All.\nSELECT {columns} FROM c;\n"
    assert read_queries(written(tmp_path, text))["all_rows"] == "SELECT a, b FROM c"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- name: one\nSELECT 1;\n", "a description"),
        ("-- name: one\n-- The first.\n\n", "and a query"),
        ("SELECT 1;\n", "a_name"),
        ("-- name: one\n-- A.\nSELECT 1;\n\n-- name: one\n-- B.\nSELECT 2;\n", "two queries have the name one"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_queries(written(tmp_path, text))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_each_query_is_used_and_each_used_query_exists(file: Path) -> None:
    modules = [module.read_text(encoding="utf-8") for module in file.parent.glob("*.py")]
    parts = set(PART.findall(file.read_text(encoding="utf-8")))
    assert {name for text in modules for name in USED.findall(text)} | parts == set(read_queries(str(file)))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_each_query_is_valid_for_the_tables(file: Path) -> None:
    connection = sqlite3.connect(":memory:")
    for migration in load(COMPETITION_MIGRATIONS):
        for statement in migration.statements:
            connection.execute(statement)
    parts = set(PART.findall(file.read_text(encoding="utf-8")))
    for name, sql in read_queries(str(file)).items():
        if name in parts:
            continue
        nameless = re.sub(r"\?\d+", "?", sql)  # some Pythons warn about a sequence for numbered values
        try:
            connection.execute(f"EXPLAIN {nameless}", [None] * nameless.count("?"))
        except sqlite3.Error as error:
            pytest.fail(f"{name}: {error}")
    connection.close()
