"""Which rounds a rule adds, and when the task looks again, at the turns of rounds and after a clock change."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.round_world import END_S, GRACE_S, ROUND_ID, START_S, round_world
from tocsin.board.standings import round_in_force
from tocsin.prices.price import NO_FLOORS
from tocsin.rounds.actions import next_start_ms, rounds_until
from tocsin.rounds.capture import Preparation
from tocsin.rounds.finalize import is_due
from tocsin.rounds.round import RoundRule, next_look
from tocsin.rounds.store import iso_time, the_round

DAY_S = 86_400
RULE = RoundRule(first_starts_at=START_S, prefix="day", first_number=1, period_s=DAY_S, grace_s=3_600)


def numbers(set_at_s: int, newest_start: int | None, now_s: int) -> list[int]:
    found = rounds_until(RULE, set_at_s, newest_start, now_s, NO_FLOORS)
    return [(rules.starts_at - START_S) // DAY_S for rules in found]


@pytest.mark.parametrize(
    ("set_at_s", "newest", "now_s", "expected"),
    [
        (START_S, None, START_S, [0, 1]),
        (START_S, START_S, START_S + DAY_S - 1, [1]),
        (START_S, START_S + DAY_S, START_S + DAY_S - 1, []),
        (START_S, START_S + DAY_S, START_S + DAY_S, [2]),
        (START_S + 5 * DAY_S, None, START_S + 6 * DAY_S, [5, 6, 7]),
        (START_S + 5 * DAY_S, None, START_S + 2 * DAY_S, [2, 3]),  # the clock was set back
        (START_S, None, START_S + 100 * DAY_S, list(range(20))),  # no more in one run
    ],
)
def test_the_running_round_and_the_next_exist(
    set_at_s: int, newest: int | None, now_s: int, expected: list[int]
) -> None:
    """From the one that ran when the rule was set; at most twenty are added in one run."""
    assert numbers(set_at_s, newest, now_s) == expected


@pytest.mark.parametrize(("now_s", "at"), [(-1, 0), (0, 1), (DAY_S - 1, 1), (DAY_S, 2)])
def test_the_next_turn_of_a_rule_lies_ahead(now_s: int, at: int) -> None:
    """At a turn, it is the one after it."""
    assert next_start_ms(RULE, START_S + now_s) == (START_S + at * DAY_S) * 1000


async def test_the_task_is_woken_only_for_what_lies_ahead(tmp_path: Path) -> None:
    """A grace that ends at this moment is done in this run; a wake-up for now would repeat it for ever."""
    async with round_world(tmp_path) as world:
        round_ = await the_round(world.db, ROUND_ID)
    later = replace(round_, grace_ends_at=GRACE_S + 60)

    assert next_look([round_], (GRACE_S - 1) * 1000, None) == GRACE_S * 1000
    assert next_look([round_], GRACE_S * 1000, None) is None
    assert next_look([round_, later], GRACE_S * 1000, None) == (GRACE_S + 60) * 1000


async def test_a_round_that_ends_now_is_over(tmp_path: Path) -> None:
    """The next one, which begins at this moment, is the running one."""
    async with round_world(tmp_path) as world:
        await world.add_round(roundId="week-2", startsAt=END_S, endsAt=END_S + DAY_S)
        shown = [await round_in_force(world.db, at_s * 1000) for at_s in (END_S - 1, END_S, END_S + DAY_S)]

    assert [each and each.round_id for each in shown] == [ROUND_ID, "week-2", "week-2"]


@pytest.mark.parametrize(
    ("attempts", "since_s", "expected"),
    [(5, 0, True), (6, 119, False), (6, 120, True), (6, -1, True), (9, 959, False), (9, 960, True)],
)
def test_a_preparation_is_tried_again_at_longer_intervals(attempts: int, since_s: int, expected: bool) -> None:
    """After six times; one that was begun in the future, before the clock was set back, does not delay it."""
    begun = Preparation(attempts, iso_time(START_S * 1000), "outdated", frozenset(), None)

    assert is_due(begun, (START_S + since_s) * 1000) == expected
