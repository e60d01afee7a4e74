"""The figures that docs/competition.md names are those of the code."""

from pathlib import Path

import pytest

from tocsin.swaps import chainhook, feed, pool, position, store, submit, sweep, trades, verify
from tocsin.upstream import hiro

PAGE = (Path(__file__).parents[2] / "docs" / "competition.md").read_text()
HOUR_MS = 3_600_000


def figures() -> dict[str, bool]:
    return {
        "It reads at most 40 pages per run": feed.PAGES_MAX == 40,
        "the lists of four wallets a day": 24 * HOUR_MS / (15 * 60_000) / sweep.SWEEPS_PER_WALLET == 4,
        "checked four times over half an hour": verify.LOOKS_MIN == 4 and sum(verify.RETRY_MS) == HOUR_MS / 2,
        "verified again once a day until it is three days old": (sweep.RECHECK_DAYS, position.DAY_MS)
        == (3, 24 * HOUR_MS),
        "The queue holds 10,000 submitted trades": store.QUEUED_MAX[store.SUBMITTED] == 10_000,
        "The queue holds 10,000 pushed transactions": store.QUEUED_MAX[store.PUSHED] == 10_000,
        "a transaction that Hiro does not know is dismissed after three attempts": verify.PUSHED_LOOKS_MAX == 3,
        "20,000 transactions in 200 blocks": (chainhook.TRANSACTIONS_MAX, chainhook.BLOCKS_MAX) == (20_000, 200),
        "more than 8 MiB, or with more than 400,000 JSON values": (chainhook.READ_MAX, chainhook.VALUES_MAX)
        == (8 * 2**20, 400_000),
        "reads all events, up to 5,000": hiro.EVENTS_MAX == 5_000,
    }


@pytest.mark.parametrize("words", figures())
def test_a_figure_is_what_the_page_says(words: str) -> None:
    """A change of one is a change of the other."""
    assert words in PAGE
    assert figures()[words]


def test_what_bounds_a_run_is_as_it_was_measured() -> None:
    """The budgets of the plans are calculated with these: a run that asks for more would not be paid for."""
    assert (feed.HEAD_MS, feed.GAPS_MAX) == (300_000, 8)
    assert (feed.VISITS_MAX, feed.VISIT_PAGES_MAX) == (5, 5)
    assert (sweep.URGENT_MAX, sweep.WALLET_PAGES_MAX, sweep.LISTS_AT_ONCE, sweep.RETRACTED_MAX) == (100, 20, 60, 2_000)
    assert (verify.ALONE_AFTER, verify.RETRY_MS) == (4, (60_000, 240_000, 1_500_000))
    assert (verify.PENDING_MS, store.WAIT_MAX_MS, verify.DISMISS_AFTER_MS) == (300_000, 6 * HOUR_MS, 7 * 24 * HOUR_MS)
    assert (pool.IN_FLIGHT_MAX, pool.FAILURE_MAX) == (6, 200)
    assert (submit.NOT_FOUND_S, submit.NOT_FOUND_MAX) == (60, 10_000)
    assert feed.ASK_AGAIN_MS == HOUR_MS
    assert (position.TRUSTED_SWEEPS, position.TRUSTED_MIN_MS) == (2, 180_000)
    assert (sweep.PAGES_AT_ONCE, sweep.CONTRACTS_PER_WALLET) == (5, 3)
    assert (sweep.TURNS_PER_DAY_MAX, sweep.TURN_LOOKS) == (44, 400)
    assert trades.REFUSALS_MAX == 500
