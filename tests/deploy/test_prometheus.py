"""Alerts and dashboard ask for metrics that the service exports, and promtool accepts all of it."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.missing import PROMTOOL, require
from support.patience import PATIENCE_S
from support.processes import ServiceProcess, ask, running, running_simulator, until

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "tocsin.json").read_text())
OF_PROMETHEUS = {"up", "job", "instance", "le"}
OFTEN_ABSENT = {  # a quiet minute shows none of them, or they are about something that has not happened
    "tocsin_chainhook_push_age_seconds": set(),
    "tocsin_queue_oldest_seconds": set(),
    "tocsin_refusals_last_day": {"code"},
    "tocsin_list_age_seconds": {"contract"},
}
_SELECTOR = re.compile(r"\b(tocsin_\w+)(?:\{([^}]*)\})?")
_BY = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a real service exports after its first runs."""
    directory = tmp_path_factory.mktemp("data")
    with running_simulator() as upstreams, running(ServiceProcess(directory, **upstreams)) as service:

        def scrape() -> str:
            with urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE_S) as answer:
                return str(answer.read().decode())

        def seen() -> bool:  # metrics are up to a second older than the status
            return all(f'tocsin_run_duration_seconds_count{{task="{task}"' in scrape() for task in ("feed", "tenero"))

        until(lambda: service.status()["lastFeedResult"] and service.status()["lastTeneroResult"])
        ask(f"{service.url}/healthz")
        until(seen)
        yield scrape()


def labels_by_name(text: str) -> dict[str, set[str]]:
    """Every name that Prometheus would store, with its labels; also of families without a value."""
    found: dict[str, set[str]] = {name: set() for name in re.findall(r"(?m)^# TYPE (\w+) ", text)}
    for name, labels in re.findall(r"(?m)^(tocsin_\w+)(?:\{(.*)\})? ", text):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return {**found, **OFTEN_ABSENT}


def alerts() -> dict[str, dict[str, str]]:
    """Name to expression and runbook. The file has one layout, and promtool checks that it is YAML."""
    found = {}
    for block in re.split(r"(?m)^      - alert: ", ALERTS.read_text())[1:]:
        name, _, rest = block.partition("\n")
        expression = re.search(r"expr: (.*?)\n        (?:for|labels):", rest, re.DOTALL)
        runbook = re.search(r"runbook: (\S+)", rest)
        assert expression, name
        assert runbook, name
        found[name] = {"expr": expression[1], "runbook": runbook[1]}
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    targets = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*(alert["expr"] for alert in alerts().values()), *targets]


@pytest.mark.slow
def test_alerts_and_dashboard_ask_only_for_what_is_exported(exported: str) -> None:
    """Every name, every label in a selector, and every label that is grouped by."""
    known = labels_by_name(exported)
    wrong = []
    for expression in expressions():
        for name, selector in _SELECTOR.findall(expression):
            asked = set(re.findall(r"(\w+)\s*[=!]~?", selector)) - OF_PROMETHEUS
            grouped = {part.strip() for group in _BY.findall(expression) for part in group.split(",")}
            if name not in known or not asked | grouped - OF_PROMETHEUS <= known[name]:
                wrong.append((name, asked | grouped, expression))

    assert wrong == []


@pytest.mark.slow
def test_prometheus_accepts_the_metrics(exported: str) -> None:
    """The format, the names and the units, by promtool's own rules."""
    require(shutil.which("promtool") is not None, PROMTOOL)
    done = subprocess.run(["promtool", "check", "metrics"], input=exported, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def promtool(*arguments: str, at: Path) -> None:
    require(shutil.which("promtool") is not None, PROMTOOL)
    done = subprocess.run(["promtool", *arguments], cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_alerts_and_configuration() -> None:
    """As they are, side by side."""
    promtool("check", "rules", ALERTS.name, at=ALERTS.parent)
    promtool("check", "config", CONFIG.name, at=CONFIG.parent)


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    """By promtool's unit tests, with series that go wrong at a known time."""
    for file in (ALERTS, Path(__file__).with_name("alerts_test.yml")):
        shutil.copy(file, tmp_path)
    promtool("test", "rules", "alerts_test.yml", at=tmp_path)


def test_each_alert_leads_to_its_section_of_the_operations_page() -> None:
    """The section has the alert's own name."""
    headings = re.findall(r"(?m)^### (\w+)$", (ROOT / "docs" / "operations.md").read_text())
    found = alerts()

    assert len(found) >= 10
    assert {alert["runbook"] for alert in found.values()} == {f"docs/operations.md#{name.lower()}" for name in found}
    assert set(found) <= set(headings)


@pytest.mark.slow
def test_the_dashboard_is_complete() -> None:
    """Ids are unique, no panel covers another, and each has a unit, a query and the chosen data source."""
    boxes = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for box in boxes
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]

    assert (len(set(ids)), len(set(cells))) == (len(ids), len(cells))
    assert max(x for x, _ in cells) < 24
    assert (DASHBOARD["uid"], DASHBOARD["schemaVersion"]) == ("tocsin", 39)
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
