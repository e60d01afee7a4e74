"""The allow-list: complete, versioned by its content, and explained when it is wrong."""

import json
from pathlib import Path

import pytest

from tocsin.chain_model import ContractCall
from tocsin.competition.allowlist import AllowList, built_in, parse, with_added
from tocsin.errors import StartError, UsageError
from tocsin.simulator.contracts import LISTED_CALLS, OFF_LIST_CONTRACT, OFF_LIST_FUNCTION

CONTRACT = "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR.router-stableswap-xyk-v-1-3"
DATA = Path(__file__).parent.parent / "data"


def test_the_built_in_list_is_complete() -> None:
    """Forty contracts and 139 functions, the same ones that the reference lists."""
    found = built_in()
    reference = json.loads((DATA / "allowlist.json").read_text())

    assert found.to_json()["entries"] == {k: sorted(v) for k, v in reference["contracts"].items()}
    assert (found.to_json()["total_contracts"], found.to_json()["total_functions"]) == (40, 139)
    assert found.provider_address == reference["provider_address"]
    assert found.attribution == set(reference["provider_attribution_contracts"])


def test_a_call_is_allowed_by_contract_and_function() -> None:
    """Both must be listed, spelled exactly so."""
    found = built_in()

    assert all(found.allows(ContractCall(c, f)) for c, functions in LISTED_CALLS.items() for f in functions)
    assert not found.allows(ContractCall(*OFF_LIST_FUNCTION))
    assert not found.allows(ContractCall(OFF_LIST_CONTRACT, "swap-helper-a"))
    assert not found.allows(ContractCall(next(iter(LISTED_CALLS)).upper(), "swap-x-for-y"))


def test_an_operator_adds_a_contract_and_the_version_follows() -> None:
    """The file's entries join the built-in ones; the version tells the content, whatever its order."""
    known = next(iter(LISTED_CALLS))
    added = parse(json.dumps({"contracts": {CONTRACT: ["swap-helper-a"], known: ["swap-new"]}}), "extra.json")
    grown = built_in().plus(added)

    assert grown.allows(ContractCall(CONTRACT, "swap-helper-a"))
    assert grown.allows(ContractCall(known, "swap-new"))
    assert grown.allows(ContractCall(known, "swap-x-for-y"))
    assert grown.provider_address == built_in().provider_address
    assert grown.version != built_in().version == built_in().plus(AllowList({})).version
    assert AllowList(dict(reversed(list(grown.contracts.items())))).version == grown.version


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no object `contracts`"),
        ('{"contracts": []}', "no object `contracts`"),
        ('{"contracts": {}, "kontracts": {}}', "`kontracts`"),
        ('{"contracts": {"SP1.router": ["a"]}}', "no contract id"),
        (json.dumps({"contracts": {CONTRACT: []}}), "an empty list"),
        (json.dumps({"contracts": {CONTRACT: ["swap helper"]}}), "'swap helper'"),
        (json.dumps({"contracts": {CONTRACT: "swap-helper-a"}}), "must be a list of texts"),
        (f'{{"contracts": {{"{CONTRACT}": ["a"], "{CONTRACT}": ["b"]}}}}', "is there twice"),
        ('{"contracts": {}, "provider_address": "bc1q"}', "Stacks address"),
        ('{"contracts": {}, "provider_attribution_contracts": [1]}', "must be a list of texts"),
    ],
)
def test_a_wrong_file_is_explained(text: str, said: str) -> None:
    """The message names the file and the entry, and says what would be right."""
    with pytest.raises(UsageError, match=r"extra\.json") as refused:
        parse(text, "extra.json")

    assert said in str(refused.value)


def test_a_deployment_adds_to_the_list(tmp_path: Path) -> None:
    """By a file, or by the JSON itself where there are no files; what does not fit stops the start."""
    text = json.dumps({"contracts": {CONTRACT: ["swap-helper-a"]}})
    file = tmp_path / "more.json"
    file.write_text(text)

    assert with_added(None) == built_in()
    assert with_added(str(file)) == with_added(text)
    assert with_added(text).allows(ContractCall(CONTRACT, "swap-helper-a"))
    for wrong in ("{}", str(tmp_path / "missing.json"), str(tmp_path)):
        with pytest.raises(StartError, match="TOCSIN_ALLOWLIST"):
            with_added(wrong)
