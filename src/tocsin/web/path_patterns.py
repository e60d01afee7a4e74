"""Matches a path to a route: `/api/competition/rounds/week-1` is `/api/competition/rounds/{round_id}`."""

from collections.abc import Iterable
from re import Pattern

from starlette.routing import compile_path


class PathPatterns:
    """The paths of routes. A path without parameters is found without trying the others."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._plain: set[str] = set()
        self._patterns: list[tuple[Pattern[str], str]] = []
        for path in paths:
            if "{" in path:
                self._patterns.append((compile_path(path)[0], path))
            else:
                self._plain.add(path)

    def find(self, path: str) -> str | None:
        """The matching route's path; None when there is none."""
        if path in self._plain:
            return path
        return next((known for pattern, known in self._patterns if pattern.match(path)), None)
