"""The table of scenarios in docs/conformance.md."""

from typing import Any

from conformance.verdicts import state


def table(scenarios: list[dict[str, Any]]) -> str:
    rows = ["| scenario | what it shows | ours |", "|---|---|---|"]
    for scenario in scenarios:
        how, why = state(scenario)
        rows.append(f"| {scenario['id']} | {scenario['desc']} | {how}{f': {why}' if why else ''} |")
    return "\n".join(rows)
