"""Finds where a replay differs from its recording.

It compares the order and content of everything that the objects did; every result and error that the client
got, and their order; what reached the network; which alarm rang (identified by the call that set it); retry
counts; and the time between events, within a tolerance. For retries it is 2 s x 2^n plus up to a quarter.
Instants are compared by the call that set them, not as numbers.
"""

import itertools
import re
from typing import Any

Event = dict[str, Any]
Scenario = dict[str, Any]

SLACK_MS = 450  # the recordings were made on a busy machine, where first calls took up to 250 ms
JITTER = 0.27  # the share by which two retry delays may differ, each being longer by up to a quarter
START_SLACK_MS = 8_000  # the start of a process depends on the machine
RETRY_SLACK_MS = 60  # between the last event of the failing code and the time that the runtime reads

# Error texts with the same meaning: workerd's, ours. All others must be equal.
MESSAGES = [
    (r"^setAlarm\(\) cannot be called with an alarm time <= 0", r"set_alarm\(\) cannot .* <= 0"),
    (r"not a valid Date", r"it is not a time"),
    (r"parameter 1 is not of type 'date'", r"set_alarm\(\) takes unix milliseconds"),
    (r"doesn't support dates after 2189", r"after the year 2189"),
    (r"must have an alarm\(\) handler", r"must have an alarm\(\) handler"),
    (r"constraints were violated: FOREIGN KEY", r"rolled back to its last committed state: FOREIGN KEY"),
    (r"^A call to blockConcurrencyWhile\(\) .* too long", r"block_concurrency_while\(\) .* too long"),
    (r"^Cannot call deleteAll\(\) within a transaction", r"^Cannot call delete_all\(\) within a transaction"),
    (r"^List limit must be positive", r"list\(\) takes a limit"),
    (r"both start and startAfter", r"start or start_after, not both"),
    (r"could not be cloned|Could not serialize", r"is of type"),
    (r"not valid for this namespace", r"was not made by the namespace"),
    (r"must be 64 hex digits", r"64 hex digits"),
    (r"Failed to execute 'get' on", r"get\(\) takes an id"),
    (r"^To execute a transaction, please", r"^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE) is reserved for the platform"),
    (r"^cannot VACUUM from within", r"^VACUUM is reserved for the platform"),
    (r"^not authorized", r"is reserved for the platform|is not available|are the platform's"),
    (r"^Wrong number of parameter bindings", r"Incorrect number of bindings supplied"),
    (r"^Application called abort\(\)", r"called abort\(\)"),
]
# Fields of results that depend on the machine or on JavaScript.
UNCOMPARED = {"hex", "empty", "json", "idFromNameNum", "undef", "instanceofError", "ctor", "code", "afterMs"}


def quiet(events: list[Event]) -> list[Event]:
    """What the recordings keep of a scenario with many calls."""
    return [e for e in events if e["ev"] == "constructor" or (e["ev"] == "recv" and e["label"] == "final")]


def differences(scenario: Scenario, theirs: list[Event], ours: list[Event]) -> list[str]:
    if scenario.get("quiet"):
        ours = quiet(ours)
    problems: list[str] = []
    their_names, our_names = Instants(theirs), Instants(ours)
    for source in ("do", "client", "net"):
        left = [e for e in theirs if e["src"] == source]
        right = [e for e in ours if e["src"] == source]
        for a, b in zip(left, right, strict=False):
            problems += _event(a, b, their_names, our_names)
        for missing in left[len(right) :]:
            problems.append(f"missing: {_short(missing)}")
        for extra in right[len(left) :]:
            problems.append(f"too many: {_short(extra)}")
        if source != "net":
            problems += _gaps(left, right, real_time=bool(scenario.get("restart")))
    return problems + _rule_violations(ours)


class Instants:
    """Names instants after the calls that set them. Several calls may have set the same one."""

    def __init__(self, events: list[Event]) -> None:
        self._names: dict[int, set[str]] = {}
        count = 0
        for event in events:
            at = event.get("reqRel") if event["ev"] == "setAlarm" else None
            if event["ev"] == "setAlarmRaw":
                at = event["valRel"]
            if at is not None:
                count += 1
                self._names.setdefault(at, set()).add(f"set {count}")

    def name(self, at: int) -> set[str]:
        return self._names.get(at, set())


def _event(a: Event, b: Event, theirs: Instants, ours: Instants) -> list[str]:
    if a["ev"] != b["ev"] or a.get("label") != b.get("label") or a.get("in") != b.get("in"):
        return [f"expected {_short(a)}, got {_short(b)}"]
    skipped = {"t", "src"} | UNCOMPARED
    problems: list[str] = []
    for field in (a.keys() | b.keys()) - skipped:
        x, y = a.get(field), b.get(field)
        if field.endswith("Rel"):
            same = _same_instant(x, y, a["t"], b["t"], theirs, ours)
        elif field == "error" and isinstance(x, str):
            same = _same_message(x, str(y))
        else:
            same = _same(x, y, (a["t"], b["t"]), theirs, ours)
        if not same:
            problems.append(f"{_short(a)}: {field} should be {x!r}, is {y!r}")
    return problems


def _same(x: Any, y: Any, times: tuple[int, int], theirs: Instants, ours: Instants) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):
        if "message" in x and "name" in x:
            return _same_error(x, y)
        if x.keys() == {"rel"} == y.keys():
            return _same_instant(x["rel"], y["rel"], *times, theirs, ours)
        # Probes of JavaScript's own types are not replayed. Only the fields of our result are compared.
        keys = (y.keys() if len(y) > 8 else x.keys() | y.keys()) - UNCOMPARED
        return all(_same(x.get(k), y.get(k), times, theirs, ours) for k in keys)
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_same(i, j, times, theirs, ours) for i, j in zip(x, y, strict=True))
    return type(x) is type(y) and bool(x == y)


def _same_error(x: dict[str, Any], y: dict[str, Any]) -> bool:
    names = {x["name"], y.get("name")}
    if len(names) > 1 and names != {"DataCloneError", "TypeError"}:
        return False
    flags = ("remote", "overloaded", "durableObjectReset", "retryable")
    return all(x.get(f) == y.get(f) for f in flags) and _same_message(x["message"], str(y.get("message")))


def _same_message(x: str, y: str) -> bool:
    words = re.sub(r"( at offset \d+)?: SQLITE_\w+.*", "", x)  # of SQLite itself; we add the statement
    if words != x and f": {words}; the statement changed nothing" in y:
        return True
    return x == y or any(re.search(a, x) and re.search(b, y) for a, b in MESSAGES)


def _same_instant(x: Any, y: Any, tx: int, ty: int, theirs: Instants, ours: Instants) -> bool:
    if x is None or y is None:
        return x is y
    named = theirs.name(x)
    if named and ours.name(y):
        return bool(named & ours.name(y))
    return bool(abs((x - tx) - (y - ty)) <= SLACK_MS)


def _gaps(left: list[Event], right: list[Event], *, real_time: bool) -> list[str]:
    """Gaps that differ. In real time, a busy machine may be late, but never early."""
    problems = []
    pairs = list(zip(left, right, strict=False))
    for (a0, b0), (a, b) in itertools.pairwise(pairs):
        x, y = a["t"] - a0["t"], b["t"] - b0["t"]
        started = a["ev"] in {"start", "ready"} or a0["ev"] == "ready" or a.get("inc") != a0.get("inc")
        slack = START_SLACK_MS if started or (real_time and y > x) else SLACK_MS
        if abs(x - y) > slack + (JITTER * max(x, y) if max(x, y) > 1500 else 0):
            problems.append(f"{_short(a)}: came {x} ms after {_short(a0)}, here {y} ms")
    return problems


def _rule_violations(ours: list[Event]) -> list[str]:
    """Rules for every run of ours, independent of the recording."""
    problems = [
        f"early: {_short(event)} rang {event['schedRel'] - event['t']} ms before its time"
        for event in ours
        if event["ev"] == "alarm.start" and event["t"] < event["schedRel"]
    ]
    for index, event in enumerate(ours):
        if event["ev"] == "alarm.start" and event["retryCount"] > 0:
            before = [e for e in ours[:index] if e["src"] == "do" and e["ev"] != "constructor"]
            ends = [e for e in before if e["ev"] in {"alarm.throw", "alarm.end", "abort", "bcw.begin"}]
            wait, shortest = event["t"] - ends[-1]["t"], 2000 * 2 ** (event["retryCount"] - 1)
            if not shortest <= wait <= shortest * 1.25 + RETRY_SLACK_MS:
                problems.append(f"retry {event['retryCount']} came after {wait} ms, not {shortest} ms + 0..25 %")
    return problems


def _short(event: Event) -> str:
    label = event.get("in") or event.get("label")
    keys = ("n", "k", "msg", "op", "sig", "want", "got", "retryCount")
    rest = " ".join(f"{k}={event[k]!r}" for k in keys if k in event)
    return f"{event['ev']}{f' in {label}' if label else ''} {rest}".strip() + f" (t={event['t']})"
