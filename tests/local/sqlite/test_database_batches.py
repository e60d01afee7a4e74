"""DB: a batch takes effect completely or not at all, whatever its statements are."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConstraintViolated
from support.local_store import ITEMS, open_database
from support.virtual_time import run_virtual

STATEMENTS = {
    "put": "INSERT INTO items (id, n) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET n = ?2",
    "insert": "INSERT INTO items (id, n) VALUES (?1, ?2)",
    "delete": "DELETE FROM items WHERE id = ?1 AND n <> ?2",
    "add": "UPDATE items SET n = n + ?2 WHERE id = ?1",
}
BATCH = st.lists(st.tuples(st.sampled_from(sorted(STATEMENTS)), st.integers(0, 4), st.integers(-2, 3)), max_size=6)


def in_model(table: dict[int, int], batch: list[tuple[str, int, int]]) -> dict[int, int] | None:
    """The table after the batch, or None if a rule of the schema forbids one of its steps."""
    table = dict(table)
    for verb, key, number in batch:
        if verb == "insert" and key in table:
            return None
        if verb in {"put", "insert"}:
            table[key] = number
        elif verb == "add" and key in table:
            table[key] += number
        elif verb == "delete" and table.get(key) != number:
            table.pop(key, None)
        if table.get(key, 0) < 0:
            return None
    return table


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(BATCH, max_size=6))
def test_batches_take_effect_completely_or_not_at_all(batches: list[list[tuple[str, int, int]]]) -> None:
    """For any mix of statements the table equals a model that applies whole batches."""

    async def scenario(directory: Path) -> None:
        model: dict[int, int] = {}
        async with open_database(directory, ITEMS) as database:
            for batch in batches:
                after = in_model(model, batch)
                prepared = [database.prepare(STATEMENTS[verb]).bind(key, n) for verb, key, n in batch]
                if after is None:
                    with pytest.raises(ConstraintViolated):
                        await database.batch(prepared)
                else:
                    await database.batch(prepared)
                    model = after
                rows = (await database.prepare("SELECT id, n FROM items").all()).results

                assert {row["id"]: row["n"] for row in rows} == model

    with TemporaryDirectory() as directory:
        run_virtual(scenario(Path(directory)))
