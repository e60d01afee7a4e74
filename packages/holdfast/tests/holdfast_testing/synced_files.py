"""What a power cut leaves: the synced parts of the files of a directory, from a log of `syscall_recorder.c`.

A file keeps the bytes that were written before the start of its last completed sync. A name keeps the file that it had
before the start of the last completed sync of the directory. Later changes may reach the disk in part: of the name
changes, the first ones; of each write, all, a part or nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias

SECTOR = 512

Change: TypeAlias = tuple[int, bytes | None]  # bytes at an offset, or None: the file is cut there
NameChange: TypeAlias = tuple[str, int | None]  # the inode that a name leads to, or None


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the log, and its bytes."""

    kind: str
    inode: int
    offset: int
    path: str
    content: bytes


@dataclass(slots=True)
class _File:
    """The bytes certainly on the disk, and the later writes with their positions in the log."""

    synced: bytearray = field(default_factory=bytearray)
    later: list[tuple[int, Change]] = field(default_factory=list)


class Disk:
    """The disk state of one directory after the records so far."""

    def __init__(self, directory_inode: int) -> None:
        self._directory = directory_inode
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}  # synced
        self._later_names: list[tuple[int, NameChange]] = []
        self._present: dict[str, int] = {}  # as the process sees them
        self._begun: dict[int, int] = {}  # syncs under way, and where in the log they began
        self._records = 0

    def take(self, record: Record) -> None:
        self._records += 1
        match record.kind:
            case "C":
                self._name(record.path, record.inode)
            case "R":
                inode = self._present[record.content.decode()]
                self._name(record.path, inode)
                self._name(record.content.decode(), None)
            case "U":
                self._name(record.path, None)
            case "W":
                self._change(record.inode, (record.offset, record.content))
            case "T":
                self._change(record.inode, (record.offset, None))
            case "S":
                self._begun[record.offset] = self._records
            case "E":
                self._synced(record.inode, self._begun.pop(record.offset))

    def _name(self, name: str, inode: int | None) -> None:
        if self._present.get(name) != inode:
            self._later_names.append((self._records, (name, inode)))
            _rename(self._present, name, inode)

    def _change(self, inode: int, change: Change) -> None:
        self._files.setdefault(inode, _File()).later.append((self._records, change))

    def _synced(self, inode: int, begun: int) -> None:
        if inode == self._directory:
            for _, (name, target) in [entry for entry in self._later_names if entry[0] < begun]:
                _rename(self._names, name, target)
            self._later_names = [entry for entry in self._later_names if entry[0] >= begun]
            return
        file = self._files.setdefault(inode, _File())
        for _, change in [entry for entry in file.later if entry[0] < begun]:
            _apply(file.synced, change)
        file.later = [entry for entry in file.later if entry[0] >= begun]

    def leave(self, directory: Path, chance: Random | None) -> None:
        """Write what a power cut leaves: only synced data, or with `chance` some of the rest as well."""
        names = dict(self._names)
        reached = chance.randint(0, len(self._later_names)) if chance else 0
        for _, (name, target) in self._later_names[:reached]:
            _rename(names, name, target)
        for name, inode in names.items():
            if name.endswith("-shm"):
                continue  # an index in memory, which SQLite rebuilds
            file = self._files.get(inode, _File())
            content = bytearray(file.synced)
            for _, change in file.later if chance else ():
                _apply(content, _reached(change, chance))
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content)


def _rename(names: dict[str, int], name: str, inode: int | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _reached(change: Change, chance: Random | None) -> Change:
    """Return the part of a change that reached the disk: all, nothing, or the first sectors of a write."""
    offset, content = change
    draw = chance.random() if chance else 0.0
    if draw < 0.4:
        return offset, b""
    if content is None or draw < 0.8:
        return change
    return offset, content[: len(content) // 2 // SECTOR * SECTOR]


def _apply(content: bytearray, change: Change) -> None:
    offset, written = change
    if written is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    elif written:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(written)] = written
