"""The reports of a look and a sweep: every counter, and how they ended."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tocsin.swaps import feed as feed_report
from tocsin.swaps import sweep as sweep_report
from tocsin.swaps.codes import MEANINGS, Code
from tocsin.swaps.feed import FeedCounts, blocks_behind, feed_counters, feed_result
from tocsin.swaps.feed_state import FeedGap, FeedMark, FeedState, MeasuredTraffic, choose_way, measured, network_calls
from tocsin.swaps.pool import StopReason
from tocsin.swaps.proof import ProofFacts, completeness_of, proven_block
from tocsin.swaps.sweep import SweepCounts, counters_of, sweep_result
from tocsin.swaps.verify import Tally
from tocsin.swaps.walk import Anchor

NOW = 1_778_700_600_000
MINUTE = 60_000
DAY = 86_400_000
SWEEP_MS = 15 * MINUTE
TALLY = Tally(1, 2, 3, 4, 5, Counter({Code.TX_FAILED: 2, Code.INCOMPLETE_EVENTS: 1}))
LIMITED = StopReason("calls are refused", limited_until=NOW + MINUTE, by_budget=True)


def anchor(height: int) -> Anchor:
    return Anchor(f"0x{height}", f"0xb{height}", height, 0)


READ = FeedMark((anchor(100), anchor(90)))
BEHIND = FeedMark((anchor(100), anchor(90)), (FeedGap("cursor", (95, 0)),))


# A look at the network's list


def test_the_counters_of_a_look() -> None:
    """Each in its own field; contracts that are not listed are no refusals of the competition."""
    counts = FeedCounts(pages=6, transactions=7, found=8, visited=9)
    counts.refused = {"0x1": Code.TX_FAILED, "0x2": Code.CONTRACT_NOT_ALLOWLISTED, "0x3": Code.BEFORE_COMP_START}
    counts.facts = ProofFacts(True, 10, None, 0, None)
    state = FeedState(reason="why", mark=BEHIND, traffic=MeasuredTraffic(NOW, 5, 4_000))

    assert feed_counters(counts, state, TALLY, 2) == {
        "way": "network",
        "reason": "why",
        "pages": 6,
        "transactions": 7,
        "found": 8,
        "inserted": 1,
        "alreadyKnown": 2,
        "pending": 3,
        "withdrawn": 4,
        "rejected": 7,
        "rejectionReasons": {"before_comp_start": 1, "incomplete_events": 1, "tx_failed": 3, "verify_threw": 2},
        "failed": 5,
        "visited": 9,
        "missingNonces": 10,
        "completeUntilBlock": 90,
        "blocksBehind": 10,
        "transactionsPerDay": 4_000,
    }


def test_a_look_that_did_nothing_counts_nothing() -> None:
    """As the result of a run that was cut off before it began."""
    counters = feed_counters(FeedCounts(), FeedState(), Tally(), 0)

    assert counters == feed_report.EMPTY_RESULT


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (FeedState(mark=BEHIND), 10),
        (FeedState(mark=READ), 0),
        (FeedState(mark=BEHIND, way="contracts"), 0),
        (FeedState(), 0),
        (FeedState(mark=FeedMark((anchor(100),), (FeedGap("cursor", (95, 0)),))), 0),
    ],
)
def test_how_many_blocks_a_list_is_behind(state: FeedState, expected: int) -> None:
    """None where it is not followed, or nothing is known to be complete."""
    assert blocks_behind(state) == expected


def ended(
    counts: FeedCounts | None = None, mark: FeedMark = READ, stop: StopReason | None = None, failure: str | None = None
) -> Any:
    return feed_result(counts or FeedCounts(), {"a": 1}, FeedState(mark=mark), stop, failure)


def test_a_look_that_read_everything_is_complete() -> None:
    """With its counters; a failure of one unit makes it incomplete."""
    done, failed = ended(), ended(failure="no answer for one")

    assert (done.counters, done.incomplete, done.error, done.limited_until) == ({"a": 1}, None, None, None)
    assert (failed.incomplete, failed.error) == ("no answer for one", None)


@pytest.mark.parametrize("kind", ["Unauthorised", "Gone"])
def test_an_answer_that_will_not_change_fails_a_look(kind: str) -> None:
    """Others only stop it."""
    lasting = ended(stop=StopReason("the key is refused", error_kind=kind))
    passing = ended(stop=StopReason("no answer", error_kind="Unavailable"))

    assert (lasting.error, lasting.error_kind) == ("the key is refused", kind)
    assert (passing.error, passing.incomplete) == (None, "not everything was done; no answer")


def test_what_a_look_left_is_said() -> None:
    """How far behind, which wallets, how many transactions, and why."""
    counts = FeedCounts(pages=1, failed_visits=2, unverified=3)
    result = ended(counts, BEHIND, LIMITED)

    assert result.incomplete == (
        "the network's list is read up to block 90, 10 blocks behind, wallets whose list could not be read: 2,"
        " transactions that could not be verified: 3; calls are refused"
    )
    assert (result.limited_until, result.by_budget, result.progressed) == (NOW + MINUTE, True, True)


@pytest.mark.parametrize(
    ("counts", "progressed"),
    [
        (FeedCounts(unverified=1), False),
        (FeedCounts(unverified=1, pages=1), True),
        (FeedCounts(unverified=1, verified=1), True),
    ],
)
def test_a_look_has_come_further_if_it_did_anything(counts: FeedCounts, *, progressed: bool) -> None:
    """A page or a verified transaction; only then is a limit not a failure."""
    result = ended(counts)

    assert (result.progressed, result.by_budget, result.limited_until) == (progressed, False, None)


# The proof


@pytest.mark.parametrize(
    ("facts", "block"),
    [
        (ProofFacts(True, 0, None, 0, None), 100),
        (ProofFacts(True, 1, 80, 0, None), 80),
        (ProofFacts(True, 1, 80, 1, 70), 70),
        (ProofFacts(True, 0, None, 1, 99), 99),
        (ProofFacts(True, 1, 0, 0, None), None),
        (ProofFacts(True, 1, 1, 0, None), 1),
        (ProofFacts(False, 0, None, 0, None), None),
    ],
)
def test_the_record_is_proven_up_to_the_least_of_its_limits(facts: ProofFacts, block: int | None) -> None:
    """What was read, what has all its nonces, what is verified; a block that does not exist proves nothing."""
    assert proven_block(FeedState(mark=READ), facts) == block
    assert proven_block(FeedState(mark=READ, way="contracts"), facts) is None
    assert proven_block(FeedState(), facts) is None


def test_what_keeps_the_proof_from_the_newest_block_is_named() -> None:
    """Everything that does, in one sentence."""
    state = FeedState(mark=BEHIND, started_at=NOW, looked_at=NOW - 5, complete_at=NOW - 5, newest_s=1_778_786_400)
    told = completeness_of(state, ProofFacts(True, 2, 80, 3, 70))

    assert (told.until_block, told.as_of, told.missing_nonces) == (70, NOW - 5, 2)
    assert told.obstacle == (
        "a part of the network's list is unread, transactions of eligible wallets that no list has shown: 2,"
        " transactions that wait to be verified: 3"
    )
    proven = ProofFacts(True, 0, None, 0, None)
    read = replace(state, mark=READ)
    assert completeness_of(read, proven).obstacle is None
    old = completeness_of(replace(read, looked_at=NOW), proven).obstacle
    assert old == "the newest block that Hiro lists is of 2026-05-14 19:20 UTC"
    dropped = completeness_of(replace(read, looked_at=None), proven).obstacle
    assert dropped == "a part of the network's list is unread"
    unread = completeness_of(state, ProofFacts(False, 0, None, 0, None)).obstacle
    assert unread == "not all lists of contracts and wallets were read yet"


# A sweep


def test_the_counters_of_a_sweep() -> None:
    """Each in its own field."""
    counts = SweepCounts(
        contracts={"a", "b", "c"},
        read={"a", "b"},
        failed_contracts=6,
        wallets={"w"},
        failed_wallets=7,
        found=8,
        found_by_wallets=9,
        cursor="w",
        tally=TALLY,
    )

    assert counters_of(counts, 12, 2) == {
        "scanned": 1,
        "contracts": 12,
        "contractsScanned": 3,
        "contractsRead": 2,
        "found": 8,
        "foundByWallets": 9,
        "inserted": 1,
        "alreadyKnown": 2,
        "pending": 3,
        "withdrawn": 4,
        "rejected": 5,
        "rejectionReasons": {"incomplete_events": 1, "tx_failed": 2, "verify_threw": 2},
        "failed": 5,
        "failedContracts": 6,
        "failedWallets": 7,
        "cursor": "w",
    }
    assert {"way": "contracts", **counters_of(SweepCounts(), 0, 0)} == sweep_report.EMPTY_RESULT


def swept(contracts: int = 2, stop: StopReason | None = None, failure: str | None = None, **counts: Any) -> Any:
    made = SweepCounts(**{"read": {"a", "b"}, **counts})
    return sweep_result(made, {"a": 1}, contracts, stop, failure)


def test_a_sweep_that_read_everything_is_complete() -> None:
    """Even one that has no contracts to read."""
    for result in (swept(), swept(0, read=set())):
        assert (result.counters, result.error, result.incomplete) == ({"a": 1}, None, None)


@pytest.mark.parametrize(
    ("counts", "part"),
    [
        ({"read": {"a"}}, "1 of 2 contracts' lists were read"),
        ({"failed_wallets": 1}, "one wallet's list was not"),
        ({"unread_wallets": 1}, "one wallet's list was not"),
        ({"failed_wallets": 1, "unread_wallets": 2}, "3 wallets' lists were not"),
        ({"unverified": 4}, "transactions that could not be verified: 4"),
        (
            {"read": {"a"}, "unverified": 1},
            "1 of 2 contracts' lists were read, transactions that could not be verified: 1",
        ),
    ],
)
def test_what_a_sweep_left_is_said(counts: dict[str, Any], part: str) -> None:
    """With the first failure, or where to look for it."""
    assert swept(failure="HTTP 503", **counts).incomplete == f"{part}; HTTP 503"
    assert swept(**counts).incomplete == f"{part}; the log has the reason"
    assert swept(**counts).error is None


def test_a_sweep_that_read_not_one_list_has_failed() -> None:
    """With the first failure, or where to look for it."""
    nothing, unexplained = swept(read=set(), failure="HTTP 503"), swept(read=set())

    assert nothing.error == "no contract's list could be read; HTTP 503"
    assert unexplained.error == "no contract's list could be read; the log has the reason"
    assert swept(read={"a"}).error is None


def test_a_sweep_that_was_stopped_is_limited_or_failed() -> None:
    """Limited while calls are refused, whatever it has read; failed by an error that everything would meet."""
    limited = swept(read=set(), stop=LIMITED)
    failed = swept(stop=StopReason("the key is refused", error_kind="Unauthorised"))
    done = swept(stop=LIMITED)

    assert (limited.error, limited.limited_until, limited.by_budget) == (None, NOW + MINUTE, True)
    assert limited.incomplete == "0 of 2 contracts' lists were read; calls are refused"
    assert (failed.error, failed.error_kind) == ("the key is refused", "Unauthorised")
    assert done.incomplete == "not everything was done; calls are refused"


@pytest.mark.parametrize(
    ("counts", "progressed"),
    [
        ({}, False),
        ({"pages": 1}, True),
        ({"tally": Tally(inserted=1)}, True),
        ({"tally": Tally(reasons=Counter({Code.TX_FAILED: 1}))}, True),
        ({"tally": Tally(pending=1)}, False),
    ],
)
def test_a_sweep_has_come_further_if_it_read_or_verified(counts: dict[str, Any], *, progressed: bool) -> None:
    """Only then is a limit not a failure."""
    assert swept(stop=LIMITED, **counts).progressed is progressed


def test_tallies_are_added_field_by_field() -> None:
    """The work of concurrent workers."""
    total = Tally(10, 20, 30, 40, 50, Counter({Code.TX_FAILED: 1}))
    total.add(TALLY)

    assert total == Tally(11, 22, 33, 44, 55, Counter({Code.TX_FAILED: 3, Code.INCOMPLETE_EVENTS: 1}))


# Which way


def test_traffic_is_measured_after_ten_minutes_and_then_every_hour() -> None:
    """By the length of the list; a list that became shorter or a clock that was set back begins again."""
    first = measured(None, NOW, 1_000)
    early = measured(first, NOW + 10 * MINUTE - 1, 1_100)
    known = measured(first, NOW + 10 * MINUTE, 1_100)

    assert (first, early) == (MeasuredTraffic(NOW, 1_000), first)
    assert known == MeasuredTraffic(NOW + 10 * MINUTE, 1_100, 14_400)
    assert measured(known, NOW + 70 * MINUTE - 1, 9_999) == known
    assert measured(known, NOW + 70 * MINUTE, 1_700) == MeasuredTraffic(NOW + 70 * MINUTE, 1_700, 14_400)
    assert measured(known, NOW + 70 * MINUTE, 1_099) == MeasuredTraffic(NOW + 70 * MINUTE, 1_099, 14_400)
    assert measured(known, NOW, 1_100) == MeasuredTraffic(NOW, 1_100, 14_400)
    assert measured(known, NOW + 70 * MINUTE, 1_100) == MeasuredTraffic(NOW + 70 * MINUTE, 1_100, 0)


def test_the_way_that_costs_less_is_used_and_does_not_swing() -> None:
    """Ten contracts are 960 calls a day; the network's list is left at 1,200 of its own, and taken again below 768."""

    def way(now: Any, calls: int) -> str:
        return choose_way(now, (calls - 96) * 50, 10, SWEEP_MS)[0]

    assert network_calls(50_000, SWEEP_MS) == 1_096
    assert [way("network", calls) for calls in (960, 1_200, 1_201)] == ["network", "network", "contracts"]
    assert [way("contracts", calls) for calls in (960, 768, 767)] == ["contracts", "contracts", "network"]
    assert choose_way("network", None, 10, SWEEP_MS) == ("network", "the network's traffic is not measured yet")
    assert choose_way("network", 50_000, 10, SWEEP_MS)[1] == (
        "the network's 50,000 transactions a day are 1,096 calls, the lists of 10 contracts 960"
    )


@pytest.mark.parametrize(
    ("state", "age_ms", "sweep_ms", "relied"),
    [
        (FeedState(complete_at=NOW), 30 * MINUTE, SWEEP_MS, True),
        (FeedState(complete_at=NOW), 30 * MINUTE + 1, SWEEP_MS, False),
        (FeedState(complete_at=NOW), 3 * MINUTE, MINUTE, True),
        (FeedState(complete_at=NOW), 3 * MINUTE + 1, MINUTE, False),
        (FeedState(limited_at=NOW), 30 * MINUTE, SWEEP_MS, True),
        (FeedState(complete_at=NOW), -1, SWEEP_MS, False),
        (FeedState(complete_at=NOW, way="contracts"), 0, SWEEP_MS, False),
        (FeedState(), 0, SWEEP_MS, False),
    ],
)
def test_the_sweep_relies_on_the_feed_for_two_of_its_cadences(
    state: FeedState, age_ms: int, sweep_ms: int, *, relied: bool
) -> None:
    """Three minutes at least; then it reads the contracts' lists itself."""
    assert state.finds_swaps(NOW + age_ms, sweep_ms) is relied


# Codes


def test_every_code_has_its_status_and_says_whether_to_try_again() -> None:
    """The public contract: what a client program decides by."""
    shown = {
        str(code): (meaning.status, meaning.retryable, meaning.final, meaning.retry_s, meaning.reopened_by)
        for code, meaning in MEANINGS.items()
    }

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
