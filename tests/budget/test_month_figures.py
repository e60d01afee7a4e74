"""The month in figures: tokens, waits and rollovers to the last call and the last millisecond."""

from dataclasses import replace

import pytest

from tocsin.upstream.budget import Lane, Moment, Month, span_of

DAY_MS = 86_400_000
JUNE = 1_780_272_000_000  # its first instant
AT = Moment(JUNE - 10 * DAY_MS, 5_000)  # ten days before the end of May
MONTH = Month(span_of(AT.wall_ms), AT).primed(AT, 1_000, 0.2)


def tokens(month: Month) -> tuple[float, float]:
    return round(month.task_tokens, 6), round(month.request_tokens, 6)


def later(ms: int, wall_ms: int | None = None) -> Moment:
    return Moment(AT.wall_ms + (ms if wall_ms is None else wall_ms), AT.monotonic_ms + ms)


@pytest.mark.parametrize(
    ("wall_ms", "offset_ms", "expected"),
    [
        (JUNE - 1, 0, ("2026-05", 1_777_593_600_000, JUNE)),
        (JUNE, 0, ("2026-06", JUNE, 1_782_864_000_000)),
        (JUNE + DAY_MS - 1, DAY_MS, ("2026-05", 1_777_593_600_000 + DAY_MS, JUNE + DAY_MS)),
        (JUNE + DAY_MS, DAY_MS, ("2026-06", JUNE + DAY_MS, 1_782_864_000_000 + DAY_MS)),
        (1_795_000_000_000, 0, ("2026-11", 1_793_491_200_000, 1_796_083_200_000)),
        (1_798_700_000_000, 0, ("2026-12", 1_796_083_200_000, 1_798_761_600_000)),
        (-5, 0, ("1970-01", 0, 2_678_400_000)),
        (10**18, 0, ("2100-01", 4_102_444_800_000, 4_105_123_200_000)),
    ],
)
def test_a_month_has_a_label_a_start_and_an_end(wall_ms: int, offset_ms: int, expected: tuple[str, int, int]) -> None:
    assert span_of(wall_ms, offset_ms) == expected


@pytest.mark.parametrize(
    ("left_ms", "limit", "spent", "expected"),
    [
        (10 * DAY_MS, 1_000, 0, (80, 20)),
        (10 * DAY_MS, 1_000, 500, (40, 10)),
        (DAY_MS // 2, 1_000, 0, (800, 200)),
        (10 * DAY_MS, 10, 0, (1, 1)),
        (10 * DAY_MS, 9, 0, (1, 0)),  # a fifth of it is less than two calls
        (10 * DAY_MS, 1_000, 1_000, (0, 0)),
        (10 * DAY_MS, 1_000, 2_000, (0, 0)),
        (DAY_MS // 2, 10, 0, (8, 2)),
    ],
)
def test_a_month_begins_with_a_days_worth_of_tokens(
    left_ms: int, limit: int, spent: int, expected: tuple[float, float]
) -> None:
    at = Moment(JUNE - left_ms, 0)
    assert tokens(replace(MONTH, spent=spent).primed(at, limit, 0.2)) == expected
    assert MONTH.primed(at, 1_000, 0.2).seen == at


def test_both_lanes_together_never_have_more_than_the_calls_left() -> None:
    assert tokens(Month(span_of(AT.wall_ms), AT).primed(AT, 3, 0.9)) == (1.0, 1.0)
    assert tokens(Month(span_of(AT.wall_ms), AT).primed(Moment(JUNE - 1, 0), 3, 0.9)) == (0.3, 2.7)


@pytest.mark.parametrize(
    ("month", "moment", "expected"),
    [
        (MONTH, later(0), (80, 20)),
        (MONTH, later(DAY_MS), (152, 38)),
        (MONTH, later(DAY_MS, 0), (152, 38)),  # by the monotonic clock
        (MONTH, later(DAY_MS, -60_000), (152, 38)),
        (MONTH, later(DAY_MS, -60_001), (79.994_445, 19.998_611)),  # a jump back: as if it began
        (MONTH, Moment(AT.wall_ms, 0), (80, 20)),
        (MONTH, later(20 * DAY_MS, 0), (800, 200)),
        (replace(MONTH, task_tokens=5, request_tokens=195), later(DAY_MS), (80, 200)),  # the rest overflows
        (replace(MONTH, spent=990), later(DAY_MS), (8, 2)),
        (replace(MONTH, spent=950), later(0), (40, 10)),
    ],
)
def test_tokens_come_back_evenly(month: Month, moment: Moment, expected: tuple[float, float]) -> None:
    refilled = month.at(moment, 1_000, 0.2)
    assert tokens(refilled) == expected
    assert refilled.seen == moment


def test_the_next_month_has_its_own_count_and_the_last_one_is_kept() -> None:
    past = {f"{year}-{month:02}": 7 for year in (2024, 2025) for month in range(1, 13)}
    may = replace(MONTH, spent=400, used_by_others=50, past={**past, "2026-06": 3})
    june = may.at(Moment(JUNE, 0), 1_000, 0.2)

    assert (june.span.label, june.spent, june.used_by_others) == ("2026-06", 3, 0)
    assert june.past == {**{label: 7 for label in past if label != "2024-01"}, "2026-05": 400}
    assert MONTH.counted(Moment(JUNE, 0)).spent == 0
    assert may.counted(Moment(JUNE - 1, 0)) == may
    assert may.counted(Moment(JUNE, 0)).spent == 3
    assert june.at(Moment(JUNE - 1, 0), 1_000, 0.2).spent == 400
    assert june.counted(Moment(JUNE - 1, 0)).span.label == "2026-05"
    assert tokens(june) == (26.586_667, 6.646_667)


@pytest.mark.parametrize(
    ("month", "lane", "limit", "expected_ms"),
    [
        (MONTH, Lane.TASK, 1_000, 0),
        (replace(MONTH, task_tokens=1.0), Lane.TASK, 1_000, 0),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.5), Lane.TASK, 1_000, 540_542),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.0), Lane.REQUEST, 1_000, 4_322_163),
        (replace(MONTH, task_tokens=9, request_tokens=0.5), Lane.REQUEST, 1_000, 2_180_718),
        (replace(MONTH, task_tokens=0.5), Lane.REQUEST, 9, 864_000_000),  # both lanes have one bucket
        (replace(MONTH, task_tokens=0, request_tokens=0), Lane.REQUEST, 9, 96_000_001),
        (replace(MONTH, task_tokens=0, request_tokens=0), Lane.TASK, 1, 864_000_000),
        (replace(MONTH, task_tokens=0, request_tokens=0), Lane.TASK, 2, 432_000_001),
        (replace(MONTH, spent=1_000), Lane.TASK, 1_000, 864_000_000),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.5), Lane.TASK, 1, 864_000_000),
        (replace(MONTH, task_tokens=0.5, request_tokens=0.5), Lane.TASK, 2, 432_000_001),
    ],
)
def test_a_call_waits_for_its_token(month: Month, lane: Lane, limit: int, expected_ms: int) -> None:
    assert month.wait_ms(lane, limit, 0.2, probing=False) == expected_ms


@pytest.mark.parametrize(
    ("ago_ms", "expected_ms"), [(None, 0), (0, 3_600_000), (3_599_999, 1), (3_600_000, 0), (-1, 0), (1, 3_599_999)]
)
def test_an_empty_month_is_looked_at_once_an_hour(ago_ms: int | None, expected_ms: int) -> None:
    """A grant in the future means that the clock was set back."""
    granted_at = None if ago_ms is None else AT.wall_ms - ago_ms
    empty = replace(MONTH, used_by_others=1_000, granted_at=granted_at)
    assert empty.wait_ms(Lane.TASK, 1_000, 0.2, probing=True) == expected_ms


def test_a_call_takes_a_token_of_its_lane() -> None:
    for lane, limit, held, expected in (
        (Lane.TASK, 1_000, 80, (79, 20)),
        (Lane.REQUEST, 1_000, 20, (80, 19)),
        (Lane.REQUEST, 9, 80, (79, 20)),  # the task bucket, when the share would be less than two calls
        (Lane.REQUEST, 10, 20, (80, 19)),
    ):
        spent = MONTH.spend(lane, limit, 0.2)
        assert (tokens(spent), spent.spent, spent.granted_at) == (expected, 1, AT.wall_ms)
        assert MONTH.tokens(lane, limit, 0.2) == held
    empty = replace(MONTH, task_tokens=0.5, request_tokens=0.5)
    assert tokens(empty.spend(Lane.TASK, 1_000, 0.2)) == (0, 0.5)
    assert tokens(empty.spend(Lane.REQUEST, 1_000, 0.2)) == (0.5, 0)


def test_what_others_used_is_what_we_did_not_make() -> None:
    month = replace(MONTH, spent=100)
    for remaining, others in ((900, 0), (899, 1), (950, 0), (0, 900), (2_000, 0)):
        told = month.reconcile(remaining, 1_000, 0.2)
        assert (told.used_by_others, told.reported, told.spent) == (others, remaining, 100)
        assert tokens(told) == (80, 20)


def test_calls_that_are_there_again_come_with_tokens() -> None:
    empty = replace(MONTH, spent=100, used_by_others=900, task_tokens=0, request_tokens=0)
    assert tokens(empty.reconcile(500, 1_000, 0.2)) == (40, 10)
    assert tokens(empty.reconcile(0, 1_000, 0.2)) == (0, 0)
    assert tokens(empty.reconcile(1, 1_000, 0.2)) == (1, 0)
    left = replace(empty, used_by_others=899)
    assert tokens(left.reconcile(500, 1_000, 0.2)) == (0, 0)


@pytest.mark.parametrize(
    ("limit", "spent", "reported", "remaining", "rolled_ago_ms", "rolls"),
    [
        (1_000, 900, 100, 200, None, True),
        (1_000, 900, 100, 199, None, False),
        (1_000, 899, 100, 200, None, False),
        (1_000, 900, None, 200, None, False),
        (1_005, 905, 100, 200, None, True),
        (50, 30, 20, 30, None, True),
        (50, 30, 21, 30, None, False),
        (50, 29, 20, 30, None, False),
        (1_000, 900, 100, 200, 27 * DAY_MS, True),
        (1_000, 900, 100, 200, 27 * DAY_MS - 1, False),
        (1_000, 900, 100, 200, 0, False),
        (1_000, 900, 100, 200, -1, True),  # the clock was set back
    ],
)
def test_a_rollover_shows_in_what_remains(
    limit: int, spent: int, reported: int | None, remaining: int, rolled_ago_ms: int | None, rolls: bool
) -> None:
    """It rises by a tenth of the limit, or ten calls, and far fewer count as used than we made."""
    rolled_at = None if rolled_ago_ms is None else AT.wall_ms - rolled_ago_ms
    month = replace(MONTH, spent=spent, reported=reported, rolled_over_at=rolled_at)
    told = month.reconcile(remaining, limit, 0.2)
    assert (told.span.starts_at == AT.wall_ms) is rolls
    assert told.spent == (limit - remaining if rolls else spent)
    assert told.rolled_over_at == (AT.wall_ms if rolls else rolled_at)


def test_after_a_rollover_months_begin_at_that_day() -> None:
    told = replace(MONTH, spent=900, reported=100, task_tokens=0).reconcile(950, 1_000, 0.2)

    assert told.span == ("2026-05", AT.wall_ms, JUNE + 21 * DAY_MS)
    assert (told.offset_ms, told.used_by_others) == (21 * DAY_MS, 0)
    assert tokens(told) == (24.516_129, 6.129_032)
    assert replace(MONTH, spent=900, reported=100).reconcile(1_005, 1_000, 0.2).spent == 0


def test_a_clock_beyond_every_month_does_not_open_an_empty_one() -> None:
    broken = Moment(10**15, 0)
    month = Month.begin(broken, 1_000, 0.2)

    assert tokens(month) == (800, 200)
    assert tokens(month.at(broken, 1_000, 0.2)) == (800, 200)
    assert replace(month, spent=1_000).wait_ms(Lane.TASK, 1_000, 0.2, probing=False) == 1


def test_what_is_left_to_tasks() -> None:
    assert MONTH.for_tasks(1_000, 0.2) == 80 + 900 * 0.8
    assert replace(MONTH, spent=950).for_tasks(1_000, 0.2) == 80
    assert MONTH.time_left_ratio() == 10 / 31
    assert [MONTH.calls_left(limit) for limit in (0, 1_000)] == [0, 1_000]
    assert replace(MONTH, spent=7, used_by_others=5).calls_left(20) == 8


def test_a_stored_month_is_refilled_for_the_time_in_between() -> None:
    stored = replace(MONTH, spent=3, past={"2026-04": 9}).to_stored()
    again = Month.from_stored(stored, Moment(AT.wall_ms + DAY_MS, 500))

    assert again.seen == Moment(AT.wall_ms, 500 - DAY_MS)
    assert again.to_stored() == stored
    assert again.span == MONTH.span
    assert Month.from_stored(stored, Moment(AT.wall_ms - 1, 500)).seen == Moment(AT.wall_ms, 500)
    assert Month(MONTH.span, AT).to_stored() == replace(stored, spent=0, task_tokens=0.0, request_tokens=0.0, past={})
