"""Bodies that people saved: whatever is in the file, it is a transaction or malformed."""

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_fetch import example
from tocsin.commands.explain import SavedTransaction, any_transaction
from tocsin.errors import MalformedBody

EXAMPLES = ("hiro/swap_simple_synthetic", "hiro/v3_transaction_synthetic", "hiro/pending_synthetic")

odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 10**400, 1e400, "", "\0", "9" * 5000, [], [[]], {}, {"a": {}}, {"tx_id": 1}]
)


@pytest.mark.parametrize("kind", [{}, {"a": 1}, [], [1], 7, None])
def test_an_event_whose_type_is_not_text_is_named(kind: Any) -> None:
    """Not a traceback: the transaction is there, its events are not."""
    body = example("hiro/swap_simple_synthetic")["body"]
    body["events"][0]["event_type"] = kind

    found = any_transaction(body)

    assert found.events is None
    assert "event_type" in (found.unreadable or "")


@given(
    st.sampled_from(EXAMPLES),
    st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=5), odd_values), min_size=1, max_size=3),
)
def test_a_spoiled_body_is_a_transaction_or_malformed(name: str, places: list[tuple[list[int], Any]]) -> None:
    """Any value at any place."""
    body = copy.deepcopy(example(name)["body"])
    for path, value in places:
        body = _with(body, path, value)

    with suppress(MalformedBody):
        assert isinstance(any_transaction(body), SavedTransaction)


def _with(body: Any, path: list[int], value: Any) -> Any:
    """The body, with a value at the place that the numbers lead to."""
    if not path or not isinstance(body, dict | list) or not body:
        return copy.deepcopy(value)
    keys = list(body) if isinstance(body, dict) else list(range(len(body)))
    key = keys[path[0] % len(keys)]
    body[key] = _with(body[key], path[1:], value)
    return body
