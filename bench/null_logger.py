"""A logger that costs a benchmark nothing."""

from holdfast.types import JSON


class NullLogger:
    """Discards every line."""

    def debug(self, event: str, /, **fields: JSON) -> None: ...
    def info(self, event: str, /, **fields: JSON) -> None: ...
    def warn(self, event: str, /, **fields: JSON) -> None: ...
    def error(self, event: str, /, **fields: JSON) -> None: ...
    def bind(self, **_fields: JSON) -> "NullLogger":
        return self
