"""Every recorded scenario on our runtime, and proof that the comparison can fail."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.replay import replay
from conformance.verdicts import state, verdict

DATA = Path(__file__).parent / "data"
SCENARIOS = {s["id"]: s for s in json.loads((DATA / "scenarios.json").read_text())}
TRACES = json.loads((DATA / "traces.json").read_text())["scenarios"]
PLAYED = [name for name, scenario in SCENARIOS.items() if state(scenario)[0] != "not applicable"]


@pytest.mark.parametrize(
    "name",
    [
        # Where the process is restarted, time is real.
        pytest.param(name, marks=[pytest.mark.slow] if SCENARIOS[name].get("restart") else [])
        for name in PLAYED
    ],
)
def test_scenario(name: str) -> None:
    """Our runtime does the same as workerd, or differs as the table describes."""
    events = replay(SCENARIOS[name], TRACES[name]["events"])

    assert verdict(SCENARIOS[name], TRACES[name]["events"], events) == []


def _event(events: list[Any], ev: str, nth: int = 0) -> Any:
    return [event for event in events if event["ev"] == ev][nth]


FORGERIES: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "a retry count": ("C02_throw_twice", lambda e: _event(e, "alarm.start", 1).update(retryCount=2)),
    "one alarm too few": ("B01_set_inside_ok", lambda e: e.remove(_event(e, "alarm.start", 1))),
    "a stored value": ("R08_response_implies_durable", lambda e: _event(e, "get").update(v=2)),
    "a result": ("E01_rmw_storage_only", lambda e: _event(e, "recv")["result"].update(value=[49])),
    "an error's flag": ("F02_bcw_try_catch", lambda e: _event(e, "recv")["result"]["error"].pop("durableObjectReset")),
    "an error's words": (
        "G04_broken_stub",
        lambda e: _event(e, "recv")["result"]["value"]["abort"]["err"].update(message="other"),
    ),
    "which alarm it is": ("A02_override_later", lambda e: _event(e, "getAlarm").update(valRel=None)),
    "the order of two calls": ("G03_order", lambda e: e.insert(2, e.pop(e.index(_event(e, "log", 1))))),
    "the time of a retry": (
        "C02_throw_twice",
        lambda e: [event.update(t=event["t"] + 3000) for event in e[e.index(_event(e, "alarm.start", 1)) :]],
    ),
    "a request that reached the network": (
        "E11_commit_failure_holds_fetch",
        lambda e: e.append({"t": 9, "src": "net", "ev": "request reached network", "path": "/x"}),
    ),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_the_comparison_notices(what: str) -> None:
    """A recording with one change no longer matches."""
    name, forge = FORGERIES[what]
    forged = copy.deepcopy(TRACES[name]["events"])
    forge(forged)

    if SCENARIOS[name].get("restart"):
        ours = copy.deepcopy(TRACES[name]["events"])
    else:
        ours = replay(SCENARIOS[name], TRACES[name]["events"])

    assert verdict(SCENARIOS[name], forged, ours) != []


def test_the_docs_list_every_scenario_that_differs() -> None:
    """docs/conformance.md has the number of scenarios, and the table of those that do not show the same."""
    rows = ["| scenario | what it shows | ours |", "|---|---|---|"]
    for scenario in SCENARIOS.values():
        how, why = state(scenario)
        if how != "same":
            rows.append(f"| {scenario['id']} | {scenario['desc']} | {how}: {why} |")
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()

    assert "\n".join([*rows, ""]) in page
    assert f"Of {len(SCENARIOS)} scenarios, {len(SCENARIOS) - len(rows) + 2} show the same" in page
