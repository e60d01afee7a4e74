"""A stored value that cannot be read: the error names the file and the key."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ObjectReset, RemoteError
from holdfast.types import DurableObject
from support.objects import objects


class Shelf(DurableObject):
    """Stores and reads entries."""

    async def put(self, key: str, value: Any) -> None:
        await self.ctx.storage.put(key, value)

    async def get(self, key: str) -> Any:
        return await self.ctx.storage.get(key)

    async def all(self) -> Any:
        return await self.ctx.storage.list()


class Loading(Shelf):
    """Reads everything when it is constructed, as the scheduler does."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        ctx.block_concurrency_while(self.all)


NOT_JSON = "'{\"a\": \"' || char(1) || '\"}'"
NOT_UTF8 = "CAST(x'22c122' AS TEXT)"


async def damaged(directory: Path, value: str) -> None:
    async with objects(directory, Shelf) as made:
        for key in ("a", "good", "z"):
            await made.stub().put(key, [key])
    with closing(sqlite3.connect(directory / "objects.sqlite")) as connection, connection:
        connection.execute(f"UPDATE entries SET value = {value} WHERE key = 'z'")


@pytest.mark.parametrize("value", [NOT_JSON, NOT_UTF8])
async def test_the_error_names_the_file_and_the_key(tmp_path: Path, value: str) -> None:
    """Whether it is requested alone or with others. The other entries can be read."""
    await damaged(tmp_path, value)
    sentence = rf"{tmp_path}/objects.sqlite is damaged: the value of the entry 'z' cannot be read.*Restore"
    async with objects(tmp_path, Shelf) as made:
        with pytest.raises(RemoteError, match=sentence):
            await made.stub().get("z")
        with pytest.raises(RemoteError, match=sentence):
            await made.stub().all()

        assert await made.stub().get("good") == ["good"]


@pytest.mark.parametrize("value", [NOT_JSON, NOT_UTF8])
async def test_an_object_that_cannot_be_loaded_says_why(tmp_path: Path, value: str) -> None:
    """The first call fails with the same sentence."""
    await damaged(tmp_path, value)
    async with objects(tmp_path, Loading) as made:
        with pytest.raises(ObjectReset, match=r"objects.sqlite is damaged: the value of the entry 'z'"):
            await made.stub().get("good")
