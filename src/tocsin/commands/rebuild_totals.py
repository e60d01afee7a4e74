"""`tocsin rebuild`: compares the totals with the swaps, and computes them again."""

import asyncio
from pathlib import Path

from tocsin.commands.data_files import DB_FILE, read_settings
from tocsin.competition import totals
from tocsin.errors import UsageError
from tocsin.platform.local.sqlite.database import SqliteDatabase


def rebuild_totals(data_dir: Path | None) -> dict[str, int]:
    """Compute the totals again; returns how many rows of each table differed."""
    path = Path(read_settings(data_dir=data_dir).data_dir) / DB_FILE
    if not path.is_file():
        raise UsageError(f"There is no {path}: set --data-dir.")

    async def count() -> dict[str, int]:
        db = SqliteDatabase(path)
        try:
            drifted = await totals.drift(db)
            await totals.rebuild(db)
        finally:
            await db.close()
        return drifted

    return asyncio.run(count())
