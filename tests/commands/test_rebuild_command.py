"""`tocsin rebuild` as a process: wrong totals are reported and corrected."""

from contextlib import closing
from pathlib import Path

import pytest

from holdfast.local import sqlite_file
from support.local_store import open_competition
from support.processes import Process
from support.web_thread import one_trade


def rebuild(data_dir: Path) -> tuple[int, str, str]:
    return Process("rebuild", "--data-dir", str(data_dir)).end()


@pytest.mark.slow
async def test_wrong_totals_are_counted_again(tmp_path: Path) -> None:
    """The first time it prints what differed, the second time that all totals agree."""
    async with open_competition(tmp_path) as db:
        await one_trade(db)
    with closing(sqlite_file.connect(tmp_path / "db.sqlite")) as connection:
        connection.execute("UPDATE sender_totals SET trades = 99")
        connection.execute("DELETE FROM token_totals")

    first, again = rebuild(tmp_path), rebuild(tmp_path)

    assert first == (0, "sender_totals: 2 rows differed\ntoken_totals: 2 rows differed\nComputed again.\n", "")
    assert again == (0, "All totals agree with the swaps.\n", "")


@pytest.mark.slow
def test_without_a_database_it_prints_where_it_looked(tmp_path: Path) -> None:
    """No file or directory is created."""
    code, out, error = rebuild(tmp_path / "nowhere")

    assert (code, out) == (2, "")
    assert "nowhere" in error
    assert not (tmp_path / "nowhere").exists()
