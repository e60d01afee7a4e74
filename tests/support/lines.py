"""A logger that keeps its lines, for tests that read them."""

from dataclasses import dataclass, field

from tocsin.bindings import JSON


@dataclass
class Lines:
    """`events` are (level, event, fields), oldest first; a bound logger writes into the same list."""

    events: list[tuple[str, str, dict[str, JSON]]] = field(default_factory=list)
    bound: dict[str, JSON] = field(default_factory=dict)

    def debug(self, event: str, /, **fields: JSON) -> None:
        self._add("DEBUG", event, fields)

    def info(self, event: str, /, **fields: JSON) -> None:
        self._add("INFO", event, fields)

    def warn(self, event: str, /, **fields: JSON) -> None:
        self._add("WARN", event, fields)

    def error(self, event: str, /, **fields: JSON) -> None:
        self._add("ERROR", event, fields)

    def bind(self, **fields: JSON) -> "Lines":
        return Lines(self.events, {**self.bound, **fields})

    def named(self, event: str) -> list[dict[str, JSON]]:
        return [fields for _, name, fields in self.events if name == event]

    def _add(self, level: str, event: str, fields: dict[str, JSON]) -> None:
        self.events.append((level, event, {**self.bound, **fields}))
