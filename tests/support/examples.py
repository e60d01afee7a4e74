"""Example answers of the real upstreams, and a comparison of shapes: the same keys, the same JSON types."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"


def example(name: str) -> dict[str, Any]:
    """An example file such as `hiro/tx_404`: `status`, `headers` and `body`, as far as it has them."""
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return loaded


def shape_differences(expected: Any, actual: Any, *, more_allowed: bool = False, at: str = "$") -> list[str]:
    """Return where the shape of `actual` differs from `expected`; a null on either side matches any type.

    Every item of a list must have the shape of one of the expected items. `more_allowed` is for examples that are
    older than some fields.
    """
    if expected is None or actual is None:
        return []
    if _json_type(expected) != _json_type(actual):
        return [f"{at} is {_json_type(actual)}, not {_json_type(expected)}"]
    if isinstance(expected, dict):
        missing = [f"{at}.{name} is missing" for name in expected.keys() - actual.keys()]
        extra = [] if more_allowed else [f"{at}.{name} is new" for name in actual.keys() - expected.keys()]
        inner = [
            difference
            for name in expected.keys() & actual.keys()
            for difference in shape_differences(
                expected[name], actual[name], more_allowed=more_allowed, at=f"{at}.{name}"
            )
        ]
        return sorted(missing) + sorted(extra) + inner
    if isinstance(expected, list) and expected:
        return [
            difference
            for number, item in enumerate(actual)
            for difference in _closest(expected, item, more_allowed=more_allowed, at=f"{at}[{number}]")
        ]
    return []


def _closest(choices: list[Any], item: Any, *, more_allowed: bool, at: str) -> list[str]:
    tried = [shape_differences(choice, item, more_allowed=more_allowed, at=at) for choice in choices]
    return min(tried, key=len)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    names: dict[type, str] = {str: "text", dict: "object", list: "list"}
    return names[type(value)]
