"""The checker of responses: its quick answer and the one with reasons are the same."""

from typing import Any

import pytest

from support.schemas import fits, violations

DOCUMENT = {
    "components": {
        "schemas": {
            "Tree": {
                "type": "object",
                "properties": {"of": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
                "required": ["of"],
                "additionalProperties": False,
            }
        }
    }
}
TREE = {"$ref": "#/components/schemas/Tree"}
NUMBERED = {"type": "object", "patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({}, {"a": [1]}, True),
        ({"type": "integer"}, 1, True),
        ({"type": "integer"}, True, False),
        ({"type": "number"}, 1, True),
        ({"type": "number"}, 1.5, True),
        ({"type": "integer"}, 1.5, False),
        ({"type": ["string", "null"]}, None, True),
        ({"type": ["string", "null"]}, 0, False),
        ({"enum": ["a", "b"]}, "b", True),
        ({"enum": ["a", "b"]}, "c", False),
        ({"const": 3}, 4, False),
        ({"type": "string", "pattern": "^a+$"}, "aa", True),
        ({"type": "string", "pattern": "^a+$"}, "ab", False),
        ({"type": "integer", "minimum": 0, "maximum": 9}, 9, True),
        ({"type": "integer", "minimum": 0, "maximum": 9}, 10, False),
        ({"type": "number", "exclusiveMinimum": 0}, 0, False),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}]}, [None], True),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}]}, [1], False),
        (TREE, {"of": [{"of": []}]}, True),
        (TREE, {"of": [{"of": [{}]}]}, False),
        (TREE, {"of": [], "more": 1}, False),
        (NUMBERED, {"n1": 1}, True),
        (NUMBERED, {"n1": "1"}, False),
        (NUMBERED, {"m1": 1}, False),
        ({"additionalProperties": {"type": "boolean"}}, {"a": True}, True),
        ({"additionalProperties": {"type": "boolean"}}, {"a": 1}, False),
        ({"propertyNames": {"pattern": "^[a-z]$"}}, {"ab": 1}, False),
    ],
)
def test_the_quick_answer_is_the_one_with_reasons(schema: Any, value: Any, expected: bool) -> None:
    """A value fits exactly when there is no reason against it."""
    assert fits(DOCUMENT, schema, value) is expected
    assert (violations(DOCUMENT, schema, value) == []) is expected
