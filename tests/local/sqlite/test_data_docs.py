"""docs/data.md is correct: its backup works while a process runs, and its table has every refusal."""

import asyncio
import errno
import re
import subprocess
from pathlib import Path

import pytest

from support.local_store import ITEMS, item_names, open_database
from tocsin.platform.local.sqlite import data_dir
from tocsin.platform.local.sqlite.database import SqliteDatabase

DOCS = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")


def run_shell(command: str, directory: Path) -> None:
    subprocess.run(command, shell=True, cwd=directory, check=True)


async def test_the_documented_backup_copies_a_database_in_use(tmp_path: Path) -> None:
    """The command on the page also copies what is only in the log, and the copy can be opened."""
    (command,) = re.findall(r"```sh\n(.*?)```", DOCS, re.DOTALL)
    (tmp_path / "data").mkdir()
    async with open_database(tmp_path / "data", ITEMS) as database:
        await database.prepare("INSERT INTO items (name) VALUES ('a'), ('b')").run()
        await asyncio.get_running_loop().run_in_executor(None, lambda: run_shell(command, tmp_path))
        await database.prepare("INSERT INTO items (name) VALUES ('later')").run()
    copy = SqliteDatabase(tmp_path / "backup-db.sqlite")
    names = await item_names(copy)
    await copy.close()

    assert names == ["a", "b"]


@pytest.mark.parametrize("code", sorted(data_dir._CAUSES))
def test_every_cause_of_the_system_is_in_the_table(code: int) -> None:
    """The page has the message for this errno."""
    sentence = re.split(r"[.(:]|, or", data_dir._CAUSES[code].removeprefix("cannot be made: "))[0].strip()

    assert sentence in DOCS, errno.errorcode[code]
