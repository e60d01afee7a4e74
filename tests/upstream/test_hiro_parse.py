"""The parsers and the example answers agree: on every field that is read, and on what it means."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.types import JSON
from support.examples import POOL, SBTC, STSTX, SWAP, TXID, WALLET
from support.scripted_fetch import example
from support.upstreams import LATEST_S, read_transaction
from tocsin.errors import MalformedBody
from tocsin.stacks import BalanceChange, HookStatus, StxPayment, TransferEvent
from tocsin.upstream import hiro_parse, tenero
from tocsin.upstream.hiro_parse import received, transferred

V1_MINED = (
    "swap_simple_synthetic",
    "swap_multihop_through_wallet_synthetic",
    "swap_dlmm_multibin_synthetic_full",
    "noncanonical_synthetic",
    "abort_by_response_synthetic",
    "abort_by_post_condition_synthetic",
    "problematic_skipped_synthetic",
    "v1_tx_contract_call",
    "v1_tx_token_transfer",
    "v1_tx_coinbase",
)
V1_UNMINED = ("pending_synthetic", "dropped_synthetic")
PARSERS: list[tuple[Callable[[Any], object], tuple[str, ...]]] = [
    (lambda body: hiro_parse.principal_page_v3(body, LATEST_S, "SP"), ("hiro/v3_principal_transactions_synthetic",)),
    (lambda body: hiro_parse.network_page_v3(body, LATEST_S), ("hiro/v3_transactions_synthetic",)),
    (lambda body: hiro_parse.balance_changes_v3(body, [TXID]), ("hiro/v3_principal_balance_changes_synthetic",)),
    (read_transaction, tuple(f"hiro/{name}" for name in V1_MINED + V1_UNMINED)),
    (hiro_parse.events_v1, tuple(f"hiro/{name}" for name in V1_MINED if name != "v1_tx_coinbase")),
    (lambda body: hiro_parse.transactions_with_events_v1(body, list(body), LATEST_S), ("hiro/v1_tx_multiple",)),
    (lambda body: tenero.token_price(body, SBTC, SBTC), ("tenero/token", "tenero/token_price_string")),
    (tenero.list_page, ("tenero/tokens_list_page",)),
]


class Watched(dict[str, Any]):
    """A JSON object that remembers which of its fields were asked for, and whether they were there."""

    def __init__(self, value: dict[str, Any], path: str, reads: dict[str, bool]) -> None:
        super().__init__({key: watch(item, _below(path, key), reads) for key, item in value.items()})
        self._path, self._reads = path, reads

    def get(self, key: str, default: Any = None) -> Any:
        name = _below(self._path, key)
        self._reads[name] = self._reads.get(name, False) or key in self
        return super().get(key, default)


def _below(path: str, key: str) -> str:
    return f"{path}.{'txid' if key.startswith('0x') else key}"


def watch(value: Any, path: str, reads: dict[str, bool]) -> Any:
    if isinstance(value, dict):
        return Watched(value, path, reads)
    if isinstance(value, list):
        return [watch(item, f"{path}[]", reads) for item in value]
    return value


@pytest.mark.parametrize(("parse", "names"), PARSERS)
def test_every_field_that_is_read_is_in_the_examples(parse: Callable[[Any], object], names: tuple[str, ...]) -> None:
    """No parser relies on a field that the upstream was never seen to send."""
    reads: dict[str, bool] = {}
    for name in names:
        parse(watch(example(name)["body"], "", reads))

    assert len(reads) >= 3
    only_shown = {".txid.result.block_time"}  # may be absent
    assert [name for name, found in reads.items() if not found and name not in only_shown] == []


def test_v3_examples_mean_what_we_think() -> None:
    """Principal's page and balance changes of the one example swap."""
    body = example("hiro/v3_principal_transactions_synthetic")["body"]
    page = hiro_parse.principal_page_v3(body, LATEST_S, "SP").value
    assert [item.tx_id for item in page.items] == [TXID]
    assert page.items[0].event_count is None
    assert page.next_cursor is None

    body = example("hiro/v3_principal_balance_changes_synthetic")["body"]
    changes = hiro_parse.balance_changes_v3(body, [TXID]).changes
    assert changes == (BalanceChange(TXID, "stx", 1003000, 0), BalanceChange(TXID, STSTX, 0, 859839))
    assert [change.net for change in changes] == [-1003000, 859839]


def test_v1_examples_mean_what_we_think() -> None:
    """Transaction and transfers of the one example swap."""
    body = example("hiro/swap_simple_synthetic")["body"]

    assert read_transaction(body) == SWAP
    assert hiro_parse.events_v1(body) == (
        TransferEvent(1, "transfer", "stx", WALLET, POOL, 1000000),
        TransferEvent(2, "transfer", STSTX, POOL, WALLET, 859839),
    )


@pytest.mark.parametrize(
    ("name", "status", "mined", "canonical"),
    [
        ("pending_synthetic", "pending", False, False),
        ("dropped_synthetic", "dropped_replace_by_fee", False, False),
        ("noncanonical_synthetic", "success", True, False),
        ("problematic_skipped_synthetic", "problematic_skipped", True, True),
        ("abort_by_response_synthetic", "abort_by_response", True, True),
    ],
)
def test_a_transaction_off_the_chain_is_not_canonical(name: str, status: str, mined: bool, canonical: bool) -> None:
    """A success on a fork is not canonical; the mempool has no block."""
    transaction = read_transaction(example(f"hiro/{name}")["body"])

    assert (transaction.status, transaction.mined is not None, transaction.canonical) == (status, mined, canonical)


def test_a_cut_list_of_events_shows_in_its_count() -> None:
    """The default page of 20 events is fewer than `event_count`, which is how a caller can tell."""
    cut = example("hiro/swap_dlmm_multibin_synthetic_default_page")["body"]
    full = example("hiro/swap_dlmm_multibin_synthetic_full")["body"]

    assert read_transaction(cut).event_count == len(full["events"]) > len(cut["events"]) == 20


@pytest.mark.parametrize(
    ("amount", "exact"), [("9007199254740993", 9007199254740993), (str(2**127), 2**127), (str(2**128 - 1), 2**128 - 1)]
)
def test_amounts_are_exact_at_any_size(amount: str, exact: int) -> None:
    """No float on the way."""
    body = example("hiro/swap_simple_synthetic")["body"]
    body["events"][-2]["asset"]["amount"] = amount

    assert hiro_parse.events_v1(body)[0].amount == exact


@pytest.mark.parametrize("amount", ["1e3", "0x10", "-5", "1.5", "", None, 5, 5.0, True, "9" * 40, "٣"])
def test_what_is_not_an_amount_is_refused(amount: object) -> None:
    """Only decimal digits, and not more of them than the chain has."""
    body = example("hiro/swap_simple_synthetic")["body"]
    body["events"][-1]["asset"]["amount"] = amount

    with pytest.raises(MalformedBody, match=r"events\[2\]: amount"):
        hiro_parse.events_v1(body)


def test_mints_and_burns_have_one_side() -> None:
    """A mint without sender and a burn without recipient are events; a transfer without either is not."""
    body = example("hiro/swap_simple_synthetic")["body"]
    asset = body["events"][-1]["asset"]
    for kind, side, gone in (("mint", "sender", ""), ("burn", "recipient", None)):
        body["events"][-1]["asset"] = {**asset, "asset_event_type": kind, side: gone}
        event = hiro_parse.events_v1(body)[-1]
        assert (event.kind, getattr(event, side)) == (kind, None)

    body["events"][-1]["asset"] = {**asset, "sender": ""}
    with pytest.raises(MalformedBody, match="a transfer without sender or recipient"):
        hiro_parse.events_v1(body)


@pytest.mark.parametrize("amount", [None, "5"])
def test_an_event_of_a_new_type_is_passed_over_only_if_it_moves_nothing(amount: str | None) -> None:
    """Left out, a transfer under a new name would make a swap a refusal for good."""
    asset: JSON = {"asset_event_type": "transfer", "sender": "SPA", "recipient": "SPB", "amount": amount}
    body: JSON = {"events": [{"event_index": 0, "event_type": "token_asset_2", "asset": asset}]}
    if amount is None:
        assert hiro_parse.events_v1(body) == ()
    else:
        with pytest.raises(MalformedBody, match="unknown type"):
            hiro_parse.events_v1(body)


@pytest.mark.parametrize(("count", "expected"), [(3, 3), (0, 0), (None, 0)])
def test_the_status_of_a_hook_is_read(count: int | None, expected: int) -> None:
    """Its state, its last block if it has one, and how often it found something."""
    status: Any = {"status": "streaming", "enabled": True, "last_evaluated_block_height": 7, "occurrence_count": count}

    assert hiro_parse.hook_status({"status": status}) == HookStatus("streaming", True, 7, expected)
    fresh = hiro_parse.hook_status({"status": {"status": "new", "enabled": False}})
    assert fresh == HookStatus("new", False, None, 0)
    with pytest.raises(MalformedBody):
        hiro_parse.hook_status({"status": {"status": "new"}})


def test_what_a_transfer_brought_its_recipient() -> None:
    """Only a plain one that succeeded; what cannot be read is none."""
    row: dict[str, Any] = {
        "type": "token_transfer",
        "status": "success",
        "token_transfer": {"recipient": WALLET, "amount": "5"},
    }

    assert transferred(row) == StxPayment(WALLET, 5)
    assert transferred({**row, "type": "contract_call"}) is None
    assert transferred({**row, "status": "abort_by_response"}) is None
    assert transferred({**row, "token_transfer": {"recipient": WALLET}}) is None
    assert transferred({**row, "token_transfer": None}) is None


def test_what_a_transaction_brought_the_principal_of_the_list() -> None:
    """Nothing is no payment."""
    row: dict[str, Any] = {"balance_changes": {"stx": {"sent": "0", "received": "7", "net": "7"}}}

    assert received(row, WALLET) == StxPayment(WALLET, 7)
    assert received({"balance_changes": {"stx": {"received": "0"}}}, WALLET) is None
    assert received({"balance_changes": {}}, WALLET) is None
