"""A logger that costs a benchmark nothing."""

from holdfast.types import JSON, Level, Levels


class NullLogger(Levels):
    """Discards every line."""

    def _line(self, _level: Level, event: str, fields: dict[str, JSON]) -> None: ...
