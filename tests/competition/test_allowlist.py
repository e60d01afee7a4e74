"""The allow-list: complete, versioned by its content, and explained when it is wrong."""

import json
from pathlib import Path

import pytest

from holdfast.errors import StartError, UsageError
from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT, OFF_LIST_FUNCTION
from tocsin.stacks import ContractCall
from tocsin.swaps.rules import AllowList, built_in, parse, with_added

CONTRACT = "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR.router-stableswap-xyk-v-1-3"
DATA = Path(__file__).parent.parent / "data"


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
