"""Transactions that people saved: every form that Hiro sends, shortened ones, and anything else in a file."""

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_fetch import example
from tocsin.commands.explain import SavedTransaction, any_transaction
from tocsin.errors import MalformedBody
from tocsin.stacks import ContractCall, MinedAt

V1: dict[str, Any] = example("hiro/swap_simple_synthetic")["body"]
V3: dict[str, Any] = example("hiro/v3_transaction_synthetic")["body"]
PENDING: dict[str, Any] = example("hiro/pending_synthetic")["body"]
SENDER = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
POOL = "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M.stableswap-stx-ststx-v-1-2"
TX_ID = V1["tx_id"]
NO_EVENTS: dict[str, Any] = {"event_count": 0}
EXAMPLES = ("hiro/swap_simple_synthetic", "hiro/v3_transaction_synthetic", "hiro/pending_synthetic")
odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 10**400, 1e400, "", "\0", "9" * 5000, [], [[]], {}, {"a": {}}, {"tx_id": 1}]
)


def changed(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(body), **fields}


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in copy.deepcopy(body).items() if name not in names}


def v3_event(index: int, **asset: Any) -> dict[str, Any]:
    named = {"type": "transfer", "sender": SENDER, "recipient": POOL, "amount": "5", **asset}
    return {"event_index": index, "type": "stx_asset", "stx_asset": named, "tx_id": TX_ID}


@pytest.mark.parametrize(
    "call",
    [
        None,
        {},
        {"contract_id": POOL},
        {"function_name": "swap"},
        {"contract_id": 7, "function_name": "swap"},
        {"contract_id": POOL, "function_name": None},
        "a call",
    ],
)
@pytest.mark.parametrize("body", [V1, V3])
def test_a_call_whose_contract_cannot_be_read_is_a_call_of_nothing(body: dict[str, Any], call: Any) -> None:
    """It stays a contract call, and names neither."""
    found = any_transaction(changed(body, contract_call=call)).transaction

    assert (found.type, found.contract_call) == ("contract_call", None)


@pytest.mark.parametrize("body", [V1, V3, PENDING])
def test_a_complete_call_keeps_its_contract(body: dict[str, Any]) -> None:
    """In both forms, and in the mempool."""
    found = any_transaction(copy.deepcopy(body)).transaction

    assert (found.type, found.contract_call) == ("contract_call", ContractCall(POOL, "swap-x-for-y"))


def test_a_transfer_without_a_call_is_a_transfer() -> None:
    """Only a call needs a contract."""
    found = any_transaction(changed(without(V1, "contract_call"), tx_type="token_transfer")).transaction

    assert (found.type, found.contract_call) == ("token_transfer", None)


@pytest.mark.parametrize(
    "wrapped",
    [
        {"tx": V1},
        {"transaction": V1},
        {"result": V1},
        {"body": V1},
        {TX_ID: {"found": True, "result": V1}},
        {"body": {TX_ID: {"found": True, "result": V1}}},
    ],
)
def test_a_wrapped_transaction_is_found(wrapped: dict[str, Any]) -> None:
    """As `tx/multiple` has it, as our own examples do, or as a v3 answer with its events beside it."""
    found = any_transaction(copy.deepcopy(wrapped))

    assert found.transaction.tx_id == TX_ID
    assert found.events is not None
    assert len(found.events) == 2


def test_more_than_three_wrappers_are_not_looked_through() -> None:
    """Nobody saves that, and reading an endless body must end."""
    with pytest.raises(MalformedBody):
        any_transaction({"body": {"body": {"body": {"body": {"body": V1}}}}})


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "tx_id: expected the body of one transaction"),
        ({"a": 1, "b": 2}, "tx_id: expected the body of one transaction"),
        ({TX_ID: {"found": False}}, "found: Hiro did not know this transaction"),
        ([], "body"),
    ],
)
def test_what_is_not_one_transaction_is_refused_with_the_reason(body: Any, part: str) -> None:
    """The file may be anything."""
    with pytest.raises(MalformedBody, match=part):
        any_transaction(body)


def test_any_name_is_accepted_and_an_id_is_made_canonical() -> None:
    """A saved transaction may be called what its owner likes."""
    assert any_transaction(changed(V1, tx_id="my-swap")).transaction.tx_id == "my-swap"
    assert any_transaction(changed(V1, tx_id=TX_ID[2:].upper())).transaction.tx_id == TX_ID


def test_what_a_shortened_body_lacks_is_filled_in() -> None:
    """Canonical and in the first block; its events are complete if they are there."""
    body = {name: V1[name] for name in ("tx_id", "sender_address", "tx_status", "tx_type", "contract_call", "nonce")}
    short = any_transaction(copy.deepcopy(body))
    events = [{name: value for name, value in event.items() if name != "event_index"} for event in V1["events"]]
    complete = any_transaction(changed(body, events=events))

    assert short.transaction.canonical
    assert complete.transaction.event_count == 3
    assert complete.events is not None
    assert len(complete.events) == 2


@pytest.mark.parametrize("status", ["pending", "dropped_replace_by_fee"])
def test_a_transaction_of_the_mempool_is_in_no_block(status: str) -> None:
    """It is not made canonical, and has no events."""
    found = any_transaction(changed(PENDING, tx_status=status))

    assert found.transaction.canonical is not True
    assert not found.events


def test_a_transaction_that_is_not_canonical_stays_so() -> None:
    """What the body says counts."""
    assert any_transaction(changed(V1, canonical=False)).transaction.canonical is False


@pytest.mark.parametrize("amount", ["", "x", None, -1, "1.5"])
@pytest.mark.parametrize(("place", "role"), [(1, "sender"), (2, "recipient")])
def test_an_amount_of_the_sender_that_is_no_number_is_named(amount: Any, place: int, role: str) -> None:
    """Given or got: then the events are not used, and the reason is there."""
    body = copy.deepcopy(V1)
    assert body["events"][place]["asset"][role] == SENDER
    body["events"][place]["asset"]["amount"] = amount
    found = any_transaction(body)

    assert found.events is None
    assert "amount" in (found.unusable or "")
    assert found.unreadable is None


def test_an_amount_of_somebody_else_need_not_be_readable_to_name_the_transaction() -> None:
    """It is not the sender's; the events are then unreadable, which is another thing."""
    body = copy.deepcopy(V1)
    body["events"][1]["asset"].update(sender=POOL, amount="x")

    assert any_transaction(body).unusable is None


def test_events_of_a_v3_body_are_used_only_if_all_are_there() -> None:
    """A page beside the transaction, as a list or as Hiro's page; each once."""
    events: Any = [v3_event(0), v3_event(1, amount="7")]
    listed = any_transaction(changed(V3, event_count=2, events=copy.deepcopy(events)))
    page = any_transaction(changed(V3, event_count=2, events={"results": copy.deepcopy(events)}))
    beside = any_transaction({"transaction": changed(V3, event_count=2), "events": copy.deepcopy(events)})
    some = any_transaction(changed(V3, event_count=3, events=copy.deepcopy(events)))
    twice = any_transaction(changed(V3, event_count=2, events=[v3_event(0), v3_event(0)]))
    none = any_transaction(changed(V3, **NO_EVENTS))

    assert [each.amount for each in listed.events or ()] == [5, 7]
    assert page.events == beside.events == listed.events
    assert some.events is None
    assert (twice.events, twice.unreadable) == (None, "events: some are listed twice")
    assert none.events == ()


def test_events_that_are_no_list_are_refused() -> None:
    """Text is not a list of events."""
    with pytest.raises(MalformedBody, match="events: expected a list"):
        any_transaction(changed(V1, events="none"))


def test_a_shortened_transaction_is_in_the_first_block() -> None:
    """What is filled in is nothing that anybody could take for a fact."""
    names = ("tx_id", "sender_address", "tx_status", "tx_type", "contract_call")
    found = any_transaction({name: V1[name] for name in names}).transaction

    assert found.mined == MinedAt(height=0, block_hash="0x", tx_index=0, burn_block_time=0)
    assert (found.canonical, found.sponsored, found.fee, found.event_count) == (True, False, 0, None)


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
