"""Every reply of the simulator has the fields and types of the real upstream's example."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT, OFF_LIST_FUNCTION
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.http_messages import SimulatedReply
from stacks_simulator.rate_limits import HIRO_KEYED, HiroRateLimit, LimitPlan, TeneroRateLimit
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import AEUSDC, STSTX, STX, SUSDT, TOKENS_BY_ID, USDA, USDCX
from support.examples import DATA, example, shape_differences
from support.simulated import HandClock, ask, ask_json, quiet_simulator

V1 = "/extended/v1"
V3 = "/extended/v3"


def mined(simulator: Simulator, kind: str = "simple") -> ChainTransaction:
    wallet = simulator.chain.wallets[0]
    tx = simulator.chain.swap(wallet, kind, token_in=STX.id, token_out=STSTX.id)
    simulator.chain.mine()
    return tx


def tx_body(simulator: Simulator, tx: ChainTransaction, query: str = "") -> Any:
    return ask_json(simulator, f"{V1}/tx/{tx.tx_id}{query}")


@pytest.mark.parametrize(
    ("name", "kind", "query"),
    [
        ("swap_simple_synthetic", "simple", ""),
        ("swap_multihop_through_wallet_synthetic", "multihop", ""),
        ("swap_dlmm_multibin_synthetic_default_page", "multibin", ""),
        ("swap_dlmm_multibin_synthetic_full", "multibin", "?event_limit=100"),
        ("abort_by_response_synthetic", "abort_by_response", ""),
        ("abort_by_post_condition_synthetic", "abort_by_post_condition", ""),
        ("problematic_skipped_synthetic", "problematic_skipped", ""),
    ],
)
def test_mined_transactions_have_the_examples_fields(name: str, kind: str, query: str, simulator: Simulator) -> None:
    """A mined transaction has every field of the example, with the same type, and no other."""
    tx = mined(simulator, kind)

    body = tx_body(simulator, tx, query)

    assert shape_differences(example(f"hiro/{name}")["body"], body) == []
    assert body["tx_status"] == example(f"hiro/{name}")["body"]["tx_status"]


def _pending(simulator: Simulator) -> ChainTransaction:
    return simulator.chain.swap()


def _dropped(simulator: Simulator) -> ChainTransaction:
    tx = simulator.chain.swap()
    simulator.chain.drop(tx)
    return tx


def _forked(simulator: Simulator) -> ChainTransaction:
    tx = mined(simulator)
    simulator.chain.reorg(1, "forked")
    return tx


@pytest.mark.parametrize(
    ("name", "make"),
    [("pending_synthetic", _pending), ("dropped_synthetic", _dropped), ("noncanonical_synthetic", _forked)],
)
def test_transactions_off_the_chain_have_the_examples_fields(
    name: str, make: Callable[[Simulator], ChainTransaction], simulator: Simulator
) -> None:
    """Waiting and dropped transactions lack the fields of the block; one on a fork is not canonical."""
    tx = make(simulator)

    body = tx_body(simulator, tx)

    expected = example(f"hiro/{name}")["body"]
    log_event = {"event_type": "smart_contract_log", "event_index": 0, "tx_id": "", "contract_log": None}
    if "events" in expected:
        expected["events"].append(log_event)
    assert shape_differences(expected, body) == []
    assert body["tx_status"] == expected["tx_status"]
    assert body.get("canonical") == expected.get("canonical")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("address_tx_list_synthetic", f"{V1}/address/{{wallet}}/transactions"),
        ("v3_principal_transactions_synthetic", f"{V3}/principals/{{wallet}}/transactions"),
        ("v3_principal_balance_changes_synthetic", f"{V3}/principals/{{wallet}}/balance-changes?tx_id={{tx}}"),
    ],
)
def test_lists_and_v3_replies_have_the_examples_fields(name: str, path: str, simulator: Simulator) -> None:
    """Pages and v3 rows have the example's fields and types, and no other."""
    tx = mined(simulator)

    body = ask_json(simulator, path.format(wallet=tx.sender, tx=tx.tx_id))

    assert shape_differences(example(f"hiro/{name}")["body"], body) == []


def test_rows_contain_the_fields_of_older_examples(simulator: Simulator, chain: Chain) -> None:
    """The fields of the repository's own, older examples are still there, besides newer ones."""
    transfer = chain.transfer(chain.wallets[0], chain.wallets[1], 10_000)
    call = chain.swap(chain.wallets[0], "nft_noise")
    chain.mine()
    waiting = chain.transfer(chain.wallets[0], chain.wallets[1], 10_000)

    older = [example(f"hiro/{name}")["body"] for name in ("v1_tx_token_transfer", "v1_tx_contract_call")]
    older.append(example("hiro/v1_mempool_transactions")["body"]["results"][0])
    for expected, tx in zip(older, (transfer, call, waiting), strict=True):
        assert shape_differences(expected, tx_body(simulator, tx), more_allowed=True) == []


def test_multiple_transactions_come_by_id(simulator: Simulator) -> None:
    """`tx/multiple` has an entry for every id, found or not, as in its example."""
    tx = mined(simulator)
    unknown = "0x" + "ab" * 32

    entries = ask_json(simulator, f"{V1}/tx/multiple?tx_id={tx.tx_id},{unknown}&tx_id={tx.tx_id}")

    examples = list(example("hiro/v1_tx_multiple")["body"].values())
    known, missing = (next(entry for entry in examples if entry["found"] is found) for found in (True, False))
    assert set(entries) == {tx.tx_id, unknown}
    assert shape_differences({**known, "result": {}}, entries[tx.tx_id], more_allowed=True) == []
    assert entries[tx.tx_id]["result"] == tx_body(simulator, tx)
    assert entries[unknown] == {**missing, "result": {"tx_id": unknown}}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("tx_404", f"{V1}/tx/0x{'ab' * 32}"),
        ("tx_400_bad_hex", f"{V1}/tx/0x123"),
        ("limit_400", f"{V1}/address/{{wallet}}/transactions?limit=51"),
    ],
)
def test_error_replies_are_word_for_word_the_examples(name: str, target: str, simulator: Simulator) -> None:
    """The status and the body of an error are the real ones."""
    reply = ask(simulator, target.format(wallet=simulator.chain.wallets[0].address))

    assert (reply.status, json.loads(reply.body)) == (
        example(f"hiro/{name}")["status"],
        example(f"hiro/{name}")["body"],
    )


def test_a_route_that_was_switched_off_has_the_examples_reply(simulator: Simulator) -> None:
    simulator.hiro.network_list = "gone"

    reply = ask(simulator, f"{V3}/transactions")

    assert (reply.status, json.loads(reply.body)) == (410, example("hiro/deprecated_410")["body"])


def test_a_database_failure_is_the_examples(simulator: Simulator) -> None:
    """The 503 fault has the body of a database failure."""
    simulator.faults.add(SimulatedFault(kind="status"))

    reply = ask(simulator, "/extended")

    assert (reply.status, json.loads(reply.body)) == (503, example("hiro/db_503")["body"])


def test_hiros_429_is_the_examples() -> None:
    """A 429 has all of the example's headers, and its wording."""
    simulator = quiet_simulator(HandClock())
    simulator.hiro_rate_limit = HiroRateLimit(LimitPlan(second=20, minute=1, month=HIRO_KEYED.month))
    headers = {"x-api-key": "k"}
    ask(simulator, "/extended", headers)

    reply = ask(simulator, "/extended", headers)

    expected = example("hiro/rate_limited_429")
    assert reply.status == expected["status"]
    assert limit_headers(reply) == set(expected["headers"])
    assert re.sub(r"\d+", "N", reply.body.decode()) == re.sub(r"\d+", "N", expected["body"])


TENERO = [
    ("token", STX.address, "number"),
    ("token_price_string", STX.address, "text"),
    ("token_price_zero", STX.address, "zero"),
]


@pytest.mark.parametrize(("name", "address", "quoting"), TENERO)
def test_tenero_tokens_have_the_examples_fields(name: str, address: str, quoting: Any, simulator: Simulator) -> None:
    """The reply for a token has the example's fields, types and limit headers."""
    simulator.tenero.quote(address, quoting)

    reply = ask(simulator, f"/v1/stacks/tokens/{address}", upstream="tenero")

    assert shape_differences(example(f"tenero/{name}")["body"], json.loads(reply.body)) == []
    assert set(example(f"tenero/{name}")["headers"]) == limit_headers(reply)


def test_tenero_lists_have_the_examples_fields(simulator: Simulator) -> None:
    """A page has the example's fields and types; rows with text prices have those of their own example."""
    body = ask_json(simulator, "/v1/stacks/tokens?limit=100", upstream="tenero")

    expected = example("tenero/tokens_list_page")["body"]
    expected["data"]["rows"].append(example("tenero/token_price_string")["body"]["data"])
    assert shape_differences(expected, body) == []


def test_tenero_error_replies_are_the_examples(simulator: Simulator) -> None:
    """404, a full minute and a full month: body and headers are the real ones."""
    missing = ask(simulator, "/v1/stacks/tokens/SP000.nothing", upstream="tenero")
    simulator.tenero_rate_limit = TeneroRateLimit(anonymous=LimitPlan(minute=0, month=48_000))
    minute = ask(simulator, "/v1/stacks/tokens", upstream="tenero")
    simulator.tenero_rate_limit = TeneroRateLimit(anonymous=LimitPlan(minute=80, month=0))
    month = ask(simulator, "/v1/stacks/tokens", upstream="tenero")

    for reply, name in ((missing, "token_404"), (minute, "rate_429"), (month, "month_429")):
        expected = example(f"tenero/{name}")
        assert (reply.status, json.loads(reply.body)) == (expected["status"], expected["body"])
        assert limit_headers(reply) == set(expected["headers"])


def limit_headers(reply: SimulatedReply) -> set[str]:
    return {name for name in reply.headers if "ratelimit" in name or name == "retry-after"}


def test_the_comparison_reports_every_difference() -> None:
    """A missing field, a new one and one of another type are reported at any depth; null matches any type."""
    expected = {"a": 1, "b": [{"c": "x", "d": None}], "e": {"f": True}}

    differences = shape_differences(expected, {"a": 1.5, "b": [{"c": 3, "d": {}}, {"d": 1}], "g": 0})

    assert differences == ["$.e is missing", "$.g is new", "$.b[0].c is number, not text", "$.b[1].c is missing"]


def test_called_contracts_are_on_the_competitions_allow_list() -> None:
    """The real allow-list has every listed call of the simulator, and none of the off-list calls."""
    allowlist = json.loads((DATA / "allowlist.json").read_text())["contracts"]

    for contract, functions in LISTED_CALLS.items():
        assert functions <= set(allowlist.get(contract, ())), contract
    assert OFF_LIST_CONTRACT not in allowlist
    contract, function = OFF_LIST_FUNCTION
    assert function not in allowlist[contract]


def test_tokens_are_named_as_the_competition_names_them() -> None:
    """Token ids match the pattern; the static and the pegged tokens are traded."""
    static = json.loads((DATA / "static_tokens.json").read_text())
    pegged = json.loads((DATA / "stablecoins.json").read_text())["tokens"]

    assert [id_ for id_ in TOKENS_BY_ID if not re.fullmatch(static["token_id_regex"], id_)] == []
    assert set(static["static_token_ids"]) <= set(TOKENS_BY_ID)
    assert {token.address for token in (USDCX, AEUSDC, USDA, SUSDT)} <= set(pegged)
