"""A file that a command writes: readable by this user only, and complete or not there at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from tocsin.errors import UsageError
from tocsin.platform.local.sqlite.sqlite_file import sync_directory


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content replaces the file, or creates it, when the block ends without an error."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise UsageError(f"{path} exists and is not a regular file. Choose another name.")
    try:
        with TemporaryDirectory(prefix=".tocsin-output-", dir=target.parent) as made:
            draft = Path(made) / target.name
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(fd)
            draft.replace(target)
            sync_directory(target.parent)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. Choose another file."
        ) from error
