"""The files that a process has open, and their paths, to notice when a path leads to another file or to none.

A deleted file stays open, and SQLite keeps writing to it: everything seems to work, but nothing survives the process.
Only a comparison of the path with the open file shows it.
"""

from collections.abc import Iterable
from pathlib import Path


class KnownFiles:
    """Remembers the file of each path. Files that SQLite creates later are remembered when they are first seen."""

    def __init__(self, paths: Iterable[Path], later: Iterable[Path]) -> None:
        self._known = {path: _identity(path) for path in paths}
        self._later = list(later)

    def changed(self) -> Path | None:
        """The first path that no longer leads to its file. Costs one stat per path."""
        for path in self._later:
            if path not in self._known and (identity := _identity(path)) is not None:
                self._known[path] = identity
        return next((path for path, known in self._known.items() if _identity(path) != known), None)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, or None if the path leads nowhere. While a file is open, no other one gets its inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
