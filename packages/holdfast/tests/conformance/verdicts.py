"""How each scenario is judged: compared, different on purpose, or only about JavaScript."""

from typing import Any

from conformance.compare import differences

Event = dict[str, Any]

# Scenarios about features of JavaScript or of old compatibility dates.
NOT_APPLICABLE = {
    "E20": "an old compatibility flag under which delete_all() keeps the alarm",
    "E23": "sizes of JavaScript values; ours are JSON and have one documented limit of 2 MiB",
    "E24": "JavaScript's own value types; tests/test_values.py has ours",
    "E26": "`allowUnconfirmed`, which we do not offer: every write is confirmed",
    "E27": "sizes of JavaScript values; as E23",
}

# Scenarios in which our runtime differs on purpose, and what it must do.
DELIBERATE = {
    "C04": "an alarm set between retries rings at its own time, as a new one; workerd makes it wait",
    "S13": "the object is reset at once, and its code ends; in workerd the code goes on until its commit fails",
    "S15": "delete_all() is part of its turn, which the abort undoes; in workerd it takes effect at once",
    "R04": "the retry count and the back-off are stored with the alarm; workerd forgets both in a restart",
}


def verdict(scenario: dict[str, Any], theirs: list[Event], ours: list[Event]) -> list[str]:
    """Return the problems of a replay; empty if it passes."""
    key = scenario["id"].split("_")[0]
    if key == "C04":
        return _fires_at_its_own_time(ours)
    if key == "R04":
        return _keeps_counting(ours)
    if key in {"S13", "S15"}:
        return _keeps_what_was_before(ours, entry={"S13": None, "S15": 1}[key])
    return differences(scenario, theirs, ours)


def state(scenario: dict[str, Any]) -> tuple[str, str]:
    """Return how the scenario is judged, and why."""
    key = scenario["id"].split("_")[0]
    if key in NOT_APPLICABLE:
        return "not applicable", NOT_APPLICABLE[key]
    if key in DELIBERATE:
        return "different on purpose", DELIBERATE[key]
    return "same", ""


def _runs(events: list[Event]) -> list[Event]:
    return [event for event in events if event["ev"] == "alarm.start"]


def _fires_at_its_own_time(ours: list[Event]) -> list[str]:
    asked = [event["reqRel"] for event in ours if event["ev"] == "setAlarm"]
    expected = [(asked[0], 0), (asked[1], 0)]
    got = [(event["schedRel"], event["retryCount"]) for event in _runs(ours)]
    late = [event["t"] - event["schedRel"] for event in _runs(ours)]
    return [] if got == expected and max(late) < 100 else [f"should ring as {expected}, rang {got}, {late} ms late"]


def _keeps_what_was_before(ours: list[Event], entry: int | None) -> list[str]:
    """The second call fails, and the third finds only what the first one wrote."""
    _, failed, found = [event["result"] for event in ours if event["ev"] == "recv"]
    kept = found["value"] == [[{"id": 1, "a": "kept"}], entry]
    return [] if not failed["ok"] and kept else [f"the call should fail and change nothing: {failed}, then {found}"]


def _keeps_counting(ours: list[Event]) -> list[str]:
    runs = _runs(ours)
    counts = [(event["inc"], event["retryCount"]) for event in runs]
    if counts != [(1, 0), (1, 1), (2, 2)]:
        return [f"runs (process, retry count) should be (1, 0), (1, 1), (2, 2), are {counts}"]
    wait = runs[2]["t"] - runs[1]["t"]
    return [] if 4000 <= wait <= 5300 else [f"the second retry came after {wait} ms, not 4 s + 0..25 %"]
