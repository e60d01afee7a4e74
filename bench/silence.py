"""A logger that a benchmark does not measure."""

from tocsin.bindings import JSON


class Silence:
    """Takes every line and keeps none."""

    def debug(self, event: str, /, **fields: JSON) -> None: ...
    def info(self, event: str, /, **fields: JSON) -> None: ...
    def warn(self, event: str, /, **fields: JSON) -> None: ...
    def error(self, event: str, /, **fields: JSON) -> None: ...
    def bind(self, **_fields: JSON) -> "Silence":
        return self
