"""Who is asked for in a round."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.virtual_time import START_MS
from tocsin.model import TokenPrice
from tocsin.prices.rotation import RELIST_MS, Note, Round, notes_from_json, notes_to_json, plan_round

NOW = START_MS


def test_tokens_never_asked_for_are_sought_in_the_list_in_the_order_given() -> None:
    """Static tokens and then the most traded ones, as the active set has them."""
    assert plan_round(["a", "b"], {}, NOW) == Round(("a", "b"), (), single_first=False)


def test_the_longest_unasked_come_first() -> None:
    """In the list and among the single ones alike."""
    notes = {
        "a": Note(asked_at=NOW - 1),
        "b": Note(asked_at=NOW - 9),
        "c": Note(asked_at=NOW - 2, unlisted_at=NOW - 99),
        "d": Note(asked_at=NOW - 3, unlisted_at=NOW - 99),
    }
    assert plan_round("abcd", notes, NOW) == Round(("b", "a"), ("d", "c"), single_first=False)


def test_single_tokens_go_before_the_list_when_they_waited_longer() -> None:
    """A list that uses up what the budget has cannot starve them."""
    notes = {"a": Note(asked_at=NOW - 1), "b": Note(asked_at=NOW - 2, unlisted_at=NOW - 5)}
    assert plan_round("ab", notes, NOW).single_first


@pytest.mark.parametrize("unlisted_at", [NOW - RELIST_MS, NOW + 1])
def test_once_a_day_all_are_sought_in_the_list(unlisted_at: int) -> None:
    """When the pages are read for one of them, they are read for all; a clock set back does no harm."""
    notes = {"a": Note(NOW, unlisted_at), "b": Note(NOW - 1, NOW - 5), "c": Note(NOW - 2)}
    assert plan_round("abc", notes, NOW) == Round(("c", "b", "a"), (), single_first=False)


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.builds(
            Note,
            st.integers(0, NOW + 9),
            st.none() | st.integers(0, NOW + 9),
            st.none()
            | st.builds(TokenPrice, st.just("?"), st.floats(1e-9, 1e9), st.none() | st.integers(0, 38)),
        ),
    )
)
def test_every_token_is_in_exactly_one_part_and_notes_survive_being_stored(notes: dict[str, Note]) -> None:
    """No token is forgotten or asked for twice, whatever is remembered of it."""
    plan = plan_round("abcdefgh", notes, NOW)
    assert sorted([*plan.listed, *plan.single]) == list("abcdefgh")

    stored = json.loads(json.dumps(notes_to_json(notes)))

    assert plan_round("abcdefgh", notes_from_json(stored, "abcdefgh"), NOW) == plan
    for token_id, note in notes_from_json(stored, "abcdefgh").items():
        assert (note.held is None) == (notes[token_id].held is None)


@pytest.mark.parametrize("stored", [None, 7, {"a": 1}, {"a": [1, 2]}, {"a": ["x", None, None]}])
def test_notes_that_are_none_of_ours_are_refused(stored: object) -> None:
    """The reader of them begins anew then, and says so."""
    with pytest.raises((TypeError, ValueError, KeyError)):
        notes_from_json(stored, ["a"])
