"""The manifest of a backup: what it holds, and how to verify that it is complete."""

from dataclasses import dataclass

from tocsin.shapes.base import Shape


@dataclass(frozen=True, slots=True)
class BackupFile(Shape):
    """One database. `migration` is the last one that was applied to it, null before the first."""

    bytes: int
    sha256: str
    migration: str | None
    rows: dict[str, int]  # by table


@dataclass(frozen=True, slots=True)
class BackupManifest(Shape):
    """`format` is the layout of the archive, `version` the release that made it, `taken_at` the time of its data."""

    format: int
    version: str
    taken_at: int
    files: dict[str, BackupFile]
