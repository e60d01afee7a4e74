"""Who is asked for in a round."""

import json
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.virtual_time import START_MS
from tocsin.chain_model import TokenPrice
from tocsin.prices import rotation
from tocsin.prices.rotation import RELIST_MS, RoundPlan, TokenMemory, notes_from_json, notes_to_json

NOW = START_MS


def plan_round(token_ids: Iterable[str], notes: Mapping[str, TokenMemory], now: int) -> RoundPlan:
    return rotation.plan_round(token_ids, notes, now, pages_max=3)


def unlisted(asked_at: int, missed_at: int) -> TokenMemory:
    return TokenMemory(asked_at, missed_at, unlisted=True)


def test_tokens_never_asked_for_are_sought_in_the_list_in_the_order_given() -> None:
    """Static tokens and then the most traded ones, as the active set has them."""
    assert plan_round(["a", "b"], {}, NOW) == RoundPlan(("a", "b"), (), single_first=False)


def test_the_longest_unasked_come_first() -> None:
    """In the list and among the single ones alike."""
    notes = {
        "a": TokenMemory(asked_at=NOW - 1),
        "b": TokenMemory(asked_at=NOW - 9),
        "c": unlisted(NOW - 2, NOW - 99),
        "d": unlisted(NOW - 3, NOW - 99),
    }
    assert plan_round("abcd", notes, NOW) == RoundPlan(("b", "a"), ("d", "c"), single_first=False)


def test_single_tokens_go_before_the_list_when_they_waited_longer() -> None:
    """A list that uses up what the budget has cannot starve them."""
    notes = {"a": TokenMemory(asked_at=NOW - 1), "b": unlisted(NOW - 2, NOW - 5)}
    assert plan_round("ab", notes, NOW).single_first


@pytest.mark.parametrize("missed_at", [NOW - RELIST_MS, NOW + 1])
def test_once_a_day_all_are_sought_in_the_list(missed_at: int) -> None:
    """When the pages are read for one of them, they are read for all; a clock set back does no harm."""
    notes = {"a": unlisted(NOW, missed_at), "b": unlisted(NOW - 1, NOW - 5), "c": TokenMemory(NOW - 2)}
    assert plan_round("abc", notes, NOW) == RoundPlan(("c", "b", "a"), (), single_first=False)


def test_more_single_tokens_than_pages_are_sought_in_the_list_too() -> None:
    """A list that seemed to lack so many is read again at once; those who waited are asked for before it."""
    notes = {"a": TokenMemory(NOW - 1), **{name: unlisted(NOW - 5, NOW - 9) for name in "bcde"}}

    assert plan_round("abcd", notes, NOW) == RoundPlan(("a",), ("b", "c", "d"), single_first=True)
    assert plan_round("abcde", notes, NOW) == RoundPlan(
        ("b", "c", "d", "e", "a"), ("b", "c", "d", "e"), single_first=True
    )


def test_a_token_that_the_list_did_not_come_to_has_one_turn_alone() -> None:
    """First, and the list is searched for it all the same: nobody has said that it is not in there."""
    notes = {"a": TokenMemory(NOW - 1), "b": TokenMemory(NOW - 5, missed_at=NOW - 2)}

    assert plan_round("ab", notes, NOW) == RoundPlan(("b", "a"), ("b",), single_first=True)


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.builds(
            TokenMemory,
            st.integers(0, NOW + 9),
            st.none() | st.integers(0, NOW + 9),
            st.booleans(),
            st.none()
            | st.builds(TokenPrice, st.just("?"), st.floats(1e-9, 1e9), st.none() | st.integers(0, 38)),
        ),
    )
)
def test_no_token_is_forgotten_and_notes_survive_being_stored(notes: dict[str, TokenMemory]) -> None:
    """Whatever is remembered of it; only single tokens that go first may be sought in the list as well."""
    plan = plan_round("abcdefgh", notes, NOW)
    assert {*plan.listed, *plan.single} == set("abcdefgh")
    assert plan.single_first or not {*plan.listed} & {*plan.single}

    stored = json.loads(json.dumps(notes_to_json(notes)))

    assert plan_round("abcdefgh", notes_from_json(stored, "abcdefgh"), NOW) == plan
    for token_id, note in notes_from_json(stored, "abcdefgh").items():
        assert (note.held is None) == (notes[token_id].held is None)


@pytest.mark.parametrize("stored", [None, 7, {"a": 1}, {"a": [1, 2]}, {"a": ["x", None, False, None]}])
def test_notes_that_are_none_of_ours_are_refused(stored: object) -> None:
    """The reader of them begins anew then, and says so."""
    with pytest.raises((TypeError, ValueError, KeyError)):
        notes_from_json(stored, ["a"])
