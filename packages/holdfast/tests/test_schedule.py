"""When jobs run: the grid, cron expressions, and the nights in which a clock is changed."""

import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast import Cron, Every
from holdfast.errors import UsageError
from holdfast.schedule import _time_zone

MINUTE = 60_000
# Nights in which a clock is set forward or back: by an hour, by half an hour, at midnight, by a whole day.
CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("UTC", "2026-12-31T23:00Z"),
]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def times(schedule: Every | Cron, begin: str, count: int) -> list[str]:
    """The next times after `begin`, in UTC."""
    at, found = ms(begin), list[str]()
    for _ in range(count):
        at = schedule.after(at)
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("after", "expected"),
    [(0, 300_000), (299_999, 300_000), (300_000, 600_000), (1_000_000_000_001, 1_000_000_200_000), (-1, 0)],
)
def test_the_grid_does_not_depend_on_when_it_ran(after: int, expected: int) -> None:
    """Every five minutes is at full five minutes, and never at the instant itself."""
    assert Every(300_000).after(after) == expected


@pytest.mark.parametrize("period", [0, -1, 1.5, True])
def test_a_period_is_a_whole_number(period: int) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="use a whole number, 1 or more"):
        Every(period)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 * * * *", ["11-20 00:00", "11-20 01:00", "11-20 02:00"]),
        ("*/20 23 * * *", ["11-20 23:00", "11-20 23:20", "11-20 23:40"]),
        ("5,10-12,58/1 7 * * *", ["11-20 07:05", "11-20 07:10", "11-20 07:11"]),
        ("0 9-17/4 * * *", ["11-20 09:00", "11-20 13:00", "11-20 17:00"]),
        ("0 0 1 jan,JUL *", ["01-01 00:00", "07-01 00:00", "01-01 00:00"]),
        ("0 0 31 * *", ["12-31 00:00", "01-31 00:00", "03-31 00:00"]),
        ("0 0 * * mon-wed", ["11-23 00:00", "11-24 00:00", "11-25 00:00"]),
        ("0 0 * * sat-sun", ["11-21 00:00", "11-22 00:00", "11-28 00:00"]),
        ("0 0 * * 7", ["11-22 00:00", "11-29 00:00", "12-06 00:00"]),
        ("0 0 * * 0", ["11-22 00:00", "11-29 00:00", "12-06 00:00"]),
        ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00", "02-29 00:00"]),
        ("0 0 1 * fri", ["11-20 00:00", "11-27 00:00", "12-01 00:00"]),  # either day
        ("0 0 */2 * fri", ["11-27 00:00", "12-11 00:00", "12-25 00:00"]),  # both days, as one begins with *
        ("0 0 13 * */5", ["12-13 00:00", "06-13 00:00", "08-13 00:00"]),
    ],
)
def test_cron_expressions(text: str, expected: list[str]) -> None:
    """Lists, ranges, steps and names; the first time is after the given one."""
    assert times(Cron(text), "2026-11-19T23:59Z", 3) == expected


@pytest.mark.parametrize(
    ("text", "zone", "begin", "expected"),
    [
        # 02:00 to 03:00 does not exist in Berlin: it is 03:00, 01:00 UTC. Then summer time, an hour earlier in UTC.
        ("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00Z", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
        ("0,20,40 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-29 01:00", "03-30 00:00", "03-30 00:20"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-29 01:00", "03-30 00:00", "03-30 01:00"]),
        # 02:30 exists twice: only the first counts.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["10-25 00:30", "10-26 01:30", "10-27 01:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45Z", ["10-26 01:30"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z", ["10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:30Z", ["03-29 01:00", "03-29 01:30", "03-29 02:00"]),
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", ["03-29 00:30", "03-29 01:30", "03-29 02:30"]),
        ("15 2 * * *", "America/New_York", "2026-03-07T12:00Z", ["03-08 07:00", "03-09 06:15"]),
        ("15 1 * * *", "America/New_York", "2026-10-31T12:00Z", ["11-01 05:15", "11-02 06:15"]),
        # Lord Howe changes by half an hour: 02:00 to 02:30 does not exist, 01:30 to 02:00 exists twice.
        ("10 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00Z", ["10-03 15:30", "10-04 15:10"]),
        ("45 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00Z", ["10-03 15:45", "10-04 15:45"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00Z", ["04-04 14:45", "04-05 15:15"]),
        # Midnight does not exist in São Paulo, a whole Friday not in Samoa.
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00Z", ["11-04 03:00", "11-05 02:00"]),
        ("0 12 * * fri", "Pacific/Apia", "2011-12-28T12:00Z", ["12-30 10:00", "01-05 22:00"]),
    ],
)  # fmt: skip
def test_nights_in_which_the_clock_changes(text: str, zone: str, begin: str, expected: list[str]) -> None:
    """A fixed time of day runs exactly once; a job with * goes on in real time."""
    assert times(Cron(text, zone), begin, len(expected)) == expected


class Expression(NamedTuple):
    """A cron expression and what it means."""

    text: str
    minutes: set[int]
    hours: set[int]
    days: set[int]
    weekdays: set[int]

    def matches(self, wall: datetime) -> bool:
        *_, day, _, weekday = self.text.split()
        matching = (wall.day in self.days, wall.isoweekday() % 7 in self.weekdays)
        either = "*" not in day + weekday
        return wall.minute in self.minutes and wall.hour in self.hours and (any(matching) if either else all(matching))


def field(first: int, last: int) -> st.SearchStrategy[tuple[str, set[int]]]:
    steps = st.integers(1, last).map(lambda step: (f"*/{step}", set(range(first, last + 1, step))))
    few = st.sets(st.integers(first, last), min_size=1, max_size=5).map(lambda few: (",".join(map(str, few)), few))
    bounds = st.tuples(st.integers(first, last), st.integers(first, last)).map(sorted)
    ranges = bounds.map(lambda pair: (f"{pair[0]}-{pair[1]}", set(range(pair[0], pair[1] + 1))))
    every = st.just(("*", set(range(first, last + 1))))
    return st.one_of(every, steps, few, ranges)


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    minute, hour, day, weekday = (draw(field(*bounds)) for bounds in ((0, 59), (0, 23), (1, 31), (0, 6)))
    text = f"{minute[0]} {hour[0]} {day[0]} * {weekday[0]}"
    return Expression(text, minute[1], hour[1], day[1], weekday[1])


@cache  # the same minutes are looked at again and again
def wall_clock(zone: str, at: int) -> datetime:
    return datetime.fromtimestamp(at // 1000, ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def minute_by_minute(expression: Expression, zone: str, begin: int, minutes: int) -> list[int]:
    """The oracle: looks at the wall clock of every minute, and remembers what it has shown."""
    real_time = expression.text.startswith("*") or expression.text.split()[1].startswith("*")
    shown: set[datetime] = set()
    found: list[int] = []
    before: datetime | None = None
    for at in range(begin - 2 * 1440 * MINUTE, begin + (minutes + 1) * MINUTE, MINUTE):
        wall = wall_clock(zone, at)
        new = [wall] if wall not in shown or real_time else []
        if before is not None and not real_time:
            skipped = int((wall - before).total_seconds()) // 60 - 1
            new += [before + timedelta(minutes=n + 1) for n in range(skipped)]
        if any(map(expression.matches, new)) and at > begin:
            found.append(at)
        shown.add(wall)
        before = wall
    return found


@settings(max_examples=50)
@given(st.sampled_from(CHANGES), expressions(), st.integers(-1440, 300), st.integers(0, MINUTE - 1))
def test_every_time_agrees_with_looking_at_the_clock(
    change: tuple[str, str], expression: Expression, minutes: int, rest: int
) -> None:
    """Around a change of the clock, exactly the same times as minute by minute."""
    zone, at = change
    begin = ms(at) + minutes * MINUTE
    expected = minute_by_minute(expression, zone, begin, 1500)
    schedule, found, now = Cron(expression.text, zone), list[int](), begin + rest
    while (now := schedule.after(now)) <= begin + 1500 * MINUTE:
        found.append(now)

    assert found == expected


@given(expressions(), st.integers(ms("1972-01-01T00:00Z"), ms("2100-01-01T00:00Z")), st.integers(0, 10**9))
def test_the_next_time_does_not_depend_on_when_it_is_asked(expression: Expression, at: int, earlier: int) -> None:
    """Nothing runs between an instant and the time after it."""
    schedule = Cron(expression.text, "Europe/Berlin")
    following = schedule.after(at)
    assert following > at
    assume(at + earlier < following)
    assert schedule.after(at + earlier) == following


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("0 0 29 2 *", "UTC", "02-29 00:00"),
        ("0 0 29 2 *", "Europe/Berlin", "02-28 23:00"),
        ("0 12 24 12 *", "America/Sao_Paulo", "12-24 15:00"),
    ],
)
def test_a_rare_time_is_found_in_few_steps(text: str, zone: str, expected: str) -> None:
    """Months that do not match are skipped as a whole: hundreds of schedules must not block a loop."""

    class Counted(Cron):
        steps = 0

        def _runs_at(self, moment: int, local: datetime) -> bool:
            self.steps += 1
            return super()._runs_at(moment, local)

    cron = Counted(text, zone)
    assert times(cron, "2026-05-13T21:15Z", 1) == [expected]
    assert cron.steps < 100


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("*/15 * * * *", 15),
        ("30 8 * * *", 1_440),
        ("0 0 29 2 *", 366 * 1_440),
        ("*/5 8-18 * * *", 5 * 24 / 11),
        ("30 8 * * mon-fri", 366 / 262 * 1_440),
    ],
)
def test_the_mean_of_a_year(text: str, minutes: float) -> None:
    """How far times are apart on average does not depend on when it is asked."""
    assert Cron(text).mean_ms() == int(minutes * MINUTE)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("61 * * * *", "minute 61: use 0 to 59"),
        ("* 24 * * *", "hour 24: use 0 to 23"),
        ("* * 0 * *", "day 0: use 1 to 31"),
        ("* * * 13 *", "month 13: use 1 to 12, or jan, feb, mar"),
        ("* * * * mond", "weekday mond: use 0 to 7, or sun, mon, tue"),
        ("1,,2 * * * *", "minute is empty: use 0 to 59"),
        ("*/0 * * * *", "minute */0: the step after / must be a number, 1 or more"),
        ("*/ * * * *", "minute */: the step after / must be a number, 1 or more"),
        ("30-10 * * * *", "minute 30-10: the range ends before it begins"),
        ("-5 * * * *", "minute is empty: use 0 to 59"),
        ("@daily", "the schedule '@daily' has 1 fields: use five, minute, hour, day, month, weekday"),
        ("0 0 0 * * *", "has 6 fields: use five"),
        ("0 0 30 feb *", "the schedule '0 0 30 feb *' never runs: none of its months has a day 30"),
        ("0 0 31 4,6 *", "never runs: none of its months has a day 31"),
    ],
)
def test_a_wrong_expression_is_refused(text: str, error: str) -> None:
    """With the field, and what it may be."""
    with pytest.raises(UsageError) as refused:
        Cron(text)
    assert error in str(refused.value)


@pytest.mark.parametrize("zone", ["Europe/Bonn", "Europe", "../etc", "", "berlin\0"])
def test_a_wrong_zone_is_refused(zone: str) -> None:
    """With the kind of name that is expected."""
    with pytest.raises(UsageError, match="use a name such as Europe/Berlin, or UTC"):
        Cron("0 0 * * *", zone)


def test_without_data_of_zones_only_utc_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Cloudflare without the package tzdata: the error says what to install."""
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    monkeypatch.setattr(zoneinfo, "ZoneInfo", _no_data)
    _time_zone.cache_clear()
    with pytest.raises(UsageError, match="the time zone 'Europe/Paris' needs the package tzdata here"):
        Cron("0 0 * * *", "Europe/Paris")
    assert Cron("0 0 * * *").after(0) == 86_400_000


def _no_data(key: str) -> ZoneInfo:
    raise zoneinfo.ZoneInfoNotFoundError(key)
