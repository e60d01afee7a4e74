"""Schedules: when a job runs next. Pure: the time is an argument, in unix milliseconds.

    Every(5 * 60_000).after(now)                          # on a grid: 12:00, 12:05, 12:10
    Cron("30 8 * * mon-fri", "Europe/Berlin").after(now)  # half past eight in Berlin, on workdays

A cron expression has five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday). A field
is `*` or a list of numbers, names and ranges, each with a step if needed: `0,30`, `9-17`, `*/15`, `jan,jul`, `fri-sun`.
As in cron, a day matches if one of its two fields does; if one of them begins with `*`, both must match.

When the clock of a zone changes, a job with a fixed time of day runs exactly once: at the first instant after a gap if
its time is skipped, and at the first of two equal times. A job whose minute or hour begins with `*` follows real time:
`*/15 * * * *` runs every 15 minutes in that night too.
"""

import calendar
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache

from holdfast.errors import UsageError

MINUTE_MS = 60_000

# The fields in order, each with its numbers. Weekday 7 is Sunday, like 0.
_FIELDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
_NAMES = {
    "month": {name.lower(): n for n, name in enumerate(calendar.month_abbr) if name},
    "weekday": {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])},
}


class Every:
    """Every `period_ms` on a grid of unix time, whenever the job ran last."""

    def __init__(self, period_ms: int) -> None:
        if type(period_ms) is not int or period_ms < 1:
            raise UsageError(f"a period of {period_ms!r} ms: use a whole number, 1 or more")
        self.period_ms = period_ms

    def after(self, at: int) -> int:
        """The first instant of the grid after this one."""
        return at + self.period_ms - at % self.period_ms


class Cron:
    """The times of a cron expression in a time zone, such as "Europe/Berlin"."""

    def __init__(self, text: str, zone: str = "UTC") -> None:
        fields = text.split()
        if len(fields) != len(_FIELDS):
            raise UsageError(f"the schedule {text!r} has {len(fields)} fields: use five, {', '.join(_FIELDS)}")
        self.text = text
        self.zone = zone
        self._zone = _time_zone(zone)
        self._minutes, self._hours, self._days, self._months, weekdays = map(_numbers, _FIELDS, fields)
        self._weekdays = frozenset(day % 7 for day in weekdays)
        self._either_day = not fields[2].startswith("*") and not fields[4].startswith("*")
        self._follows_real_time = fields[0].startswith("*") or fields[1].startswith("*")
        longest = max(29 if month == 2 else calendar.monthrange(2024, month)[1] for month in self._months)
        if not self._either_day and min(self._days) > longest:
            raise UsageError(f"the schedule {text!r} never runs: none of its months has a day {min(self._days)}")

    def after(self, at: int) -> int:
        """The first time after this instant."""
        moment = at // MINUTE_MS * 60 + 60
        while not self._runs_at(moment, local := datetime.fromtimestamp(moment, self._zone)):
            moment += self._step(moment, local)
        return moment * 1000

    def mean_ms(self) -> int:
        """How far its times are apart on average, in a leap year."""
        days = sum(self._matches_day(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days)) for days in range(366))
        return 366 * 1_440 * MINUTE_MS // max(1, days * len(self._hours) * len(self._minutes))

    def _runs_at(self, moment: int, local: datetime) -> bool:
        if self._follows_real_time:
            return self._matches(local)
        if not local.fold and self._matches(local):
            return True
        before = datetime.fromtimestamp(moment - 60, self._zone)
        if _offset(local) <= _offset(before):
            return False
        skipped = int((_offset(local) - _offset(before)).total_seconds()) // 60
        wall = before.replace(tzinfo=None)
        return any(self._matches(wall + timedelta(minutes=n)) for n in range(1, skipped + 1))

    def _step(self, moment: int, local: datetime) -> int:
        """Seconds to the next minute that may match. Where the clock changes, every minute is looked at."""
        if local.month not in self._months:
            ahead = min((month - local.month) % 12 for month in self._months)
            year, month = divmod(local.year * 12 + local.month - 1 + ahead, 12)
            eve = datetime(year, month + 1, 1, tzinfo=self._zone) - timedelta(days=1)
            if int(eve.timestamp()) > moment:
                return int(eve.timestamp()) - moment
        hour_end = 60 - local.minute
        steps = [hour_end]
        if not self._matches_day(local):
            steps = [hour_end + 60 * (23 - local.hour), hour_end]
        elif local.hour in self._hours:
            steps = [min((m for m in self._minutes if m > local.minute), default=60) - local.minute]
        for minutes in steps:
            if _offset(datetime.fromtimestamp(moment + minutes * 60, self._zone)) == _offset(local):
                return minutes * 60
        return 60

    def _matches(self, local: datetime) -> bool:
        return local.minute in self._minutes and local.hour in self._hours and self._matches_day(local)

    def _matches_day(self, local: datetime) -> bool:
        day, weekday = local.day in self._days, local.isoweekday() % 7 in self._weekdays
        return local.month in self._months and (day or weekday if self._either_day else day and weekday)


def _numbers(field: str, text: str) -> frozenset[int]:
    """All numbers that a field of a cron expression allows."""
    first, last = _FIELDS[field]
    found: set[int] = set()
    for part in text.split(","):
        bounds, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or int(step) == 0):
            raise UsageError(f"{field} {part}: the step after / must be a number, 1 or more")
        begin, dash, end = bounds.partition("-")
        if bounds == "*":
            low, high = first, last - (field == "weekday")
        else:
            low = _number(field, begin)
            high = _number(field, end) if dash else last if slash else low
            if field == "weekday" and dash and high == 0 < low:
                high = 7  # fri-sun
        if high < low:
            raise UsageError(f"{field} {part}: the range ends before it begins")
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(field: str, text: str) -> int:
    first, last = _FIELDS[field]
    names = _NAMES.get(field, {})
    number = names.get(text.lower())
    if number is None and text.isdecimal():
        number = int(text)
    if number is None or not first <= number <= last:
        known = f", or {', '.join(names)}" if names else ""
        raise UsageError(f"{field} {text or 'is empty'}: use {first} to {last}{known}")
    return number


@cache
def _time_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # needs no data
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a directory, such as "Europe"
        if not zoneinfo.available_timezones():
            raise UsageError(f"the time zone {name!r} needs the package tzdata here: install it, or use UTC") from None
        raise UsageError(f"there is no time zone {name!r}: use a name such as Europe/Berlin, or UTC") from None


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta(0)
