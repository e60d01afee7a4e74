"""What counts: the allow-list, and the checks of a transaction with their order, bounds and sentences."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StartError, UsageError
from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT, OFF_LIST_FUNCTION
from tocsin.stacks import ContractCall, MinedAt, Transaction
from tocsin.swaps.rules import (
    MEANINGS,
    AllowList,
    Check,
    Code,
    Rules,
    built_in,
    checks,
    judge,
    parse,
    still_refused,
    with_added,
)

START_S, END_S = 1_777_593_600, 1_780_272_000  # May 2026
CALL = ContractCall("SP1.router", "swap")
RULES = Rules(AllowList({"SP1.router": frozenset({"swap", "also"})}), START_S, END_S)
GOOD = Transaction("0x1", "SP", False, 0, "success", "contract_call", CALL, MinedAt(5, "0x", 0, START_S), True, None)
CONTRACT = "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR.router-stableswap-xyk-v-1-3"
DATA = Path(__file__).parent.parent / "data"


def at(seconds: int) -> dict[str, Any]:
    return {"mined": MinedAt(5, "0x", 0, seconds)}


FAILED, FORKED = "abort_by_response", "it is on a fork that was abandoned, and not mined again yet"
START, END = "2026-05-01 00:00:00 UTC", "2026-06-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("changes", "name", "detail", "code"),
    [
        (at(START_S - 1), "campaign", f"2026-04-30 23:59:59 UTC is before the start, {START}", "before_comp_start"),
        (at(END_S), "campaign", f"{END} is after the end, {END}", "after_comp_end"),
        (at(253_402_300_799), "campaign", f"9999-12-31 23:59:59 UTC is after the end, {END}", "after_comp_end"),
        (at(253_402_300_800), "campaign", f"second 253402300800 is after the end, {END}", "after_comp_end"),
        ({"status": "pending", "mined": None, "canonical": False}, "status", "waiting in the mempool", "pending"),
        (
            {"status": "dropped_problematic", "mined": None},
            *("status", "it left the mempool unmined (dropped_problematic)", "tx_failed"),
        ),
        ({"status": "new"}, "status", "Hiro reports the unknown status new", "malformed_tx"),
        ({"canonical": False}, "status", FORKED, "pending"),
        ({"status": FAILED}, "status", f"it was mined and failed ({FAILED})", "tx_failed"),
        ({"status": FAILED, "canonical": False}, "status", FORKED, "pending"),
        ({"contract_call": None}, "kind", "it does not say which contract it calls", "malformed_tx"),
        ({"contract_call": None, "type": "coinbase"}, "kind", "it is a coinbase, not a contract_call", "malformed_tx"),
        (
            {"contract_call": ContractCall("SP1.router", "steal")},
            *("contract", f"SP1.router::steal is not on list {RULES.allowlist.version}", "contract_not_allowlisted"),
        ),
    ],
)
def test_the_first_failed_check_is_the_reason(changes: dict[str, Any], name: str, detail: str, code: str) -> None:
    assert judge(replace(GOOD, **changes), "eligible", RULES) == Check(name, detail, Code(code))


def test_a_call_counts_until_the_last_second_of_the_campaign() -> None:
    assert judge(GOOD, "eligible", RULES) is None
    assert judge(replace(GOOD, **at(END_S - 1)), "eligible", RULES) is None


def test_all_checks_come_in_their_order() -> None:
    """Those about the block or the call are left out while there is none."""
    assert [(check.name, check.detail, check.code) for check in checks(GOOD, "eligible", RULES)] == [
        ("status", "mined on the canonical chain, and succeeded", None),
        ("campaign", "2026-05-01 00:00:00 UTC is within the campaign", None),
        ("kind", "it is a contract call", None),
        ("sender", "the sender is eligible", None),
        ("contract", "SP1.router::swap is on the list", None),
    ]
    bare = replace(GOOD, mined=None, contract_call=None)
    assert [check.name for check in checks(bare, "genesis", RULES)] == ["status", "kind", "sender"]
    assert judge(GOOD, "registered", RULES) == Check(
        "sender", "the sender's claim is not verified", Code.SENDER_NOT_GENESIS
    )


def test_without_an_end_the_campaign_goes_on() -> None:
    endless = replace(RULES, end_s=None)
    assert judge(replace(GOOD, **at(10**11)), "eligible", endless) is None
    assert still_refused({"code": "before_comp_start", "burn_block_time": START_S}, "eligible", endless) is False


def test_a_campaign_ends_after_it_begins() -> None:
    assert Rules(RULES.allowlist, 5, 6).end_s == 6
    for end_s in (4, 5):
        with pytest.raises(UsageError, match="COMPETITION_END must be later than COMPETITION_START"):
            Rules(RULES.allowlist, 5, end_s)


def test_a_change_of_the_rules_shows_in_their_text() -> None:
    version = RULES.allowlist.version
    assert RULES.version == f"{version}:1777593600:1780272000"
    assert RULES.for_principal("SP1.router") == "1777593600:1780272000:also,swap"
    assert RULES.for_principal("SP2") == "1777593600:1780272000:"


@pytest.mark.parametrize(
    ("refusal", "tier", "refused"),
    [
        ({"code": "before_comp_start", "burn_block_time": START_S - 1}, "eligible", True),
        ({"code": "before_comp_start", "burn_block_time": START_S}, "eligible", False),
        ({"code": "after_comp_end", "burn_block_time": END_S - 1}, "eligible", False),
        ({"code": "after_comp_end", "burn_block_time": END_S}, "eligible", True),
        ({"code": "sender_not_registered"}, "not_registered", True),
        ({"code": "sender_not_registered"}, "genesis", True),
        ({"code": "sender_not_registered"}, "registered", False),
        ({"code": "sender_not_registered"}, "eligible", False),
        ({"code": "sender_not_genesis"}, "registered", True),
        ({"code": "contract_not_allowlisted", "contract_id": "SP1.router", "function_name": "x"}, "eligible", True),
        ({"code": "contract_not_allowlisted", "contract_id": "SP1.router", "function_name": "swap"}, "eligible", False),
        ({"code": "invalid_amount"}, "eligible", True),
    ],
)
def test_a_refusal_stands_until_its_reason_is_gone(refusal: Any, tier: Any, refused: bool) -> None:
    assert still_refused(refusal, tier, RULES) is refused


# The allow-list


def test_the_built_in_list_is_complete() -> None:
    """Forty contracts and 139 functions, the same ones that the reference lists."""
    allowlist = built_in()
    view = allowlist.view()
    reference = json.loads((DATA / "allowlist.json").read_text())

    assert {each.contract_id: each.functions for each in view.entries} == {
        contract: sorted(functions) for contract, functions in reference["contracts"].items()
    }
    assert (view.total_contracts, view.total_functions) == (40, 139)
    assert (allowlist.provider_address, view.provider_address) == (reference["provider_address"],) * 2
    assert allowlist.attribution == set(reference["provider_attribution_contracts"])


def test_a_call_is_allowed_by_contract_and_function() -> None:
    """Both must be listed, spelled exactly like this."""
    allowlist = built_in()

    assert all(allowlist.allows(ContractCall(c, f)) for c, functions in LISTED_CALLS.items() for f in functions)
    assert not allowlist.allows(ContractCall(*OFF_LIST_FUNCTION))
    assert not allowlist.allows(ContractCall(OFF_LIST_CONTRACT, "swap-helper-a"))
    assert not allowlist.allows(ContractCall(next(iter(LISTED_CALLS)).upper(), "swap-x-for-y"))


def test_an_operator_adds_a_contract_and_the_version_follows() -> None:
    """The file's entries join the built-in ones; the version depends on the content, not on its order."""
    known = next(iter(LISTED_CALLS))
    added = parse(json.dumps({"contracts": {CONTRACT: ["swap-helper-a"], known: ["swap-new"]}}), "extra.json")
    grown = built_in().plus(added)

    assert grown.allows(ContractCall(CONTRACT, "swap-helper-a"))
    assert grown.allows(ContractCall(known, "swap-new"))
    assert grown.allows(ContractCall(known, "swap-x-for-y"))
    assert grown.provider_address == built_in().provider_address
    assert grown.version != built_in().version == built_in().plus(AllowList({})).version
    assert AllowList(dict(reversed(list(grown.contracts.items())))).version == grown.version


@pytest.mark.parametrize(("named", "protocol"), [({"protocol": "alex"}, "alex"), ({}, "other")])
def test_added_contracts_are_shown_under_their_protocol(named: dict[str, str], protocol: str) -> None:
    """The file names it, or it is "other"; the built-in contracts stay under their own."""
    known = next(iter(LISTED_CALLS))
    contracts = {CONTRACT: ["swap-helper-a"], known: ["swap-new"]}
    added = parse(json.dumps({**named, "contracts": contracts}), "extra.json")

    view = built_in().plus(added).view()

    assert view.protocols == {protocol: 1, "bitflow": 40}
    assert {each.protocol for each in view.entries if each.contract_id == CONTRACT} == {protocol}
    assert built_in().view().protocols == {"bitflow": 40}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no object `contracts`"),
        ('{"contracts": []}', "no object `contracts`"),
        ('{"contracts": {}, "kontracts": {}}', "`kontracts`"),
        ('{"contracts": {"SP1.router": ["a"]}}', "not a contract id"),
        (json.dumps({"contracts": {CONTRACT.replace("SM1", "SM2"): ["a"]}}), "the address has a checksum"),
        (json.dumps({"contracts": {CONTRACT: []}}), "an empty list"),
        (json.dumps({"contracts": {CONTRACT: ["swap helper"]}}), "'swap helper'"),
        (json.dumps({"contracts": {CONTRACT: "swap-helper-a"}}), "must be a list of texts"),
        (f'{{"contracts": {{"{CONTRACT}": ["a"], "{CONTRACT}": ["b"]}}}}', "is listed twice"),
        ('{"contracts": {}, "provider_address": "bc1q"}', "Stacks address"),
        (json.dumps({"contracts": {}, "provider_address": f"{CONTRACT[:40]}S"}), "its checksum is part of it"),
        ('{"contracts": {}, "protocol": "Alex"}', "protocol is a short lower-case name such as bitflow, not 'Alex'"),
        ('{"contracts": {}, "protocol": ""}', "protocol is a short lower-case name such as bitflow, not ''"),
        ('{"contracts": {}, "protocol": 7}', "protocol is a short lower-case name such as bitflow, not 7"),
        ('{"contracts": {}, "protocol": null}', "protocol is a short lower-case name such as bitflow, not None"),
        (json.dumps({"contracts": {}, "protocol": "x" * 41}), "protocol is a short lower-case name"),
        ('{"contracts": {}, "provider_attribution_contracts": [1]}', "must be a list of texts"),
    ],
)
def test_a_wrong_file_is_explained(text: str, message: str) -> None:
    """The message names the file, the entry and the expected form."""
    with pytest.raises(UsageError, match=r"extra\.json") as refused:
        parse(text, "extra.json")

    assert message in str(refused.value)


def test_a_deployment_adds_to_the_list(tmp_path: Path) -> None:
    """By a file, or by the JSON itself where there are no files; a wrong one stops the start."""
    text = json.dumps({"contracts": {CONTRACT: ["swap-helper-a"]}})
    file = tmp_path / "more.json"
    file.write_text(text)

    assert with_added(None) == built_in()
    assert with_added(str(file)) == with_added(text)
    assert with_added(text).allows(ContractCall(CONTRACT, "swap-helper-a"))
    for wrong in ("{}", str(tmp_path / "missing.json"), str(tmp_path)):
        with pytest.raises(StartError, match="TOCSIN_ALLOWLIST"):
            with_added(wrong)


def test_every_code_has_its_status_and_says_whether_to_try_again() -> None:
    """The public contract: what a client program decides by."""
    shown = {
        str(code): (meaning.status, meaning.retryable, meaning.final, meaning.retry_s, meaning.reopened_by)
        for code, meaning in MEANINGS.items()
    }

    assert all(meaning.sentence.endswith(".") for meaning in MEANINGS.values())
    assert set(MEANINGS) == set(Code)
    assert shown == {
        "malformed_txid": (400, False, False, 5, None),
        "txid_already_verified": (409, False, False, 5, None),
        "pending": (202, True, False, 5, None),
        "tx_not_found": (404, True, False, 60, None),
        "tx_fetch_failed": (502, True, False, 5, None),
        "too_many_requests": (429, True, False, 5, None),
        "malformed_tx": (422, False, True, 5, None),
        "tx_failed": (422, False, True, 5, None),
        "before_comp_start": (422, False, True, 5, "campaign"),
        "after_comp_end": (422, False, True, 5, "campaign"),
        "sender_not_registered": (422, False, True, 5, "sender"),
        "sender_not_genesis": (422, False, True, 5, "sender"),
        "contract_not_allowlisted": (422, False, True, 5, "allowlist"),
        "invalid_amount": (422, False, True, 5, None),
        "incomplete_events": (422, False, True, 5, None),
        "db_unavailable": (503, True, False, 5, None),
        "verify_threw": (500, True, False, 5, None),
    }
