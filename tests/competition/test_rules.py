"""What counts, judged from a transaction alone: the order of the checks, their bounds and their sentences."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import UsageError
from tocsin.stacks import ContractCall, MinedAt, Transaction
from tocsin.swaps.codes import Code
from tocsin.swaps.rules import AllowList, Check, Rules, checks, judge, still_refused

START_S, END_S = 1_777_593_600, 1_780_272_000  # May 2026
CALL = ContractCall("SP1.router", "swap")
RULES = Rules(AllowList({"SP1.router": frozenset({"swap", "also"})}), START_S, END_S)
GOOD = Transaction("0x1", "SP", False, 0, "success", "contract_call", CALL, MinedAt(5, "0x", 0, START_S), True, None)


def at(seconds: int) -> dict[str, Any]:
    return {"mined": MinedAt(5, "0x", 0, seconds)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        (at(END_S - 1), None),
        (
            at(START_S - 1),
            Check(
                "campaign",
                "2026-04-30 23:59:59 UTC is before the start, 2026-05-01 00:00:00 UTC",
                Code.BEFORE_COMP_START,
            ),
        ),
        (
            at(END_S),
            Check("campaign", "2026-06-01 00:00:00 UTC is after the end, 2026-06-01 00:00:00 UTC", Code.AFTER_COMP_END),
        ),
        (
            at(253_402_300_799),
            Check("campaign", "9999-12-31 23:59:59 UTC is after the end, 2026-06-01 00:00:00 UTC", Code.AFTER_COMP_END),
        ),
        (
            at(253_402_300_800),
            Check("campaign", "second 253402300800 is after the end, 2026-06-01 00:00:00 UTC", Code.AFTER_COMP_END),
        ),
        (
            {"status": "pending", "mined": None, "canonical": False},
            Check("status", "waiting in the mempool", Code.PENDING),
        ),
        (
            {"status": "dropped_problematic", "mined": None},
            Check("status", "it left the mempool unmined (dropped_problematic)", Code.TX_FAILED),
        ),
        (
            {"status": "new"},
            Check("status", "Hiro calls it new, a status that Tocsin does not know", Code.MALFORMED_TX),
        ),
        (
            {"canonical": False},
            Check("status", "it is on a fork that was abandoned, and not mined again yet", Code.PENDING),
        ),
        (
            {"status": "abort_by_response"},
            Check("status", "it was mined and failed (abort_by_response)", Code.TX_FAILED),
        ),
        (
            {"status": "abort_by_response", "canonical": False},
            Check("status", "it is on a fork that was abandoned, and not mined again yet", Code.PENDING),
        ),
        ({"contract_call": None}, Check("kind", "it does not say which contract it calls", Code.MALFORMED_TX)),
        (
            {"contract_call": None, "type": "coinbase"},
            Check("kind", "it is a coinbase, not a contract_call", Code.MALFORMED_TX),
        ),
        (
            {"contract_call": ContractCall("SP1.router", "steal")},
            Check(
                "contract", f"SP1.router::steal is not on list {RULES.allowlist.version}", Code.CONTRACT_NOT_ALLOWLISTED
            ),
        ),
    ],
)
def test_the_first_failed_check_is_the_reason(changes: dict[str, Any], expected: Check | None) -> None:
    assert judge(replace(GOOD, **changes), "eligible", RULES) == expected


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
