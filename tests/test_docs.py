"""Documentation that the code can check: log events, and the files that CONTRIBUTING names."""

import ast
import configparser
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.local import data_dir
from tocsin.scheduler.types import RunList, Status
from tocsin.shape import schemas_of

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "tocsin"
HOLDFAST = ROOT / "packages" / "holdfast" / "src"

_EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
# Texts of the same form that are not events: ASGI messages, a name in an example.
_NOT_EVENTS = {"http.request", "http.disconnect", "websocket.close", "slyfox.btc"}
_ASGI = {"http.response.start", "http.response.body"}


def _events_in_code() -> set[str]:
    """Every text constant of the service that has the form of an event, except for file names and modules."""
    events: set[str] = set()
    for path in (*SRC.rglob("*.py"), *HOLDFAST.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _EVENT.fullmatch(node.value):
                events.add(node.value)
    suffixes = {"json", "sqlite", "py", "sql", "html", "svg", "css", "js", "lock", "sock"}
    names = {event for event in events if event.split(".")[1] in suffixes or event.startswith("tocsin.")}
    return events - names - _NOT_EVENTS - _ASGI


@pytest.mark.slow
def test_every_log_event_is_documented() -> None:
    """docs/events.md lists exactly the events that the code emits."""
    page = (ROOT / "docs" / "events.md").read_text()
    documented = {
        name
        for line in page.splitlines()
        if line.startswith("|")
        for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", line.split("|")[1])
    }

    assert documented == _events_in_code()


def test_the_files_that_contributing_names_exist() -> None:
    """The table "I want to …" leads to files that are there."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("|") and "`" in line]
    named = {name for line in table for name in re.findall(r"`([\w./-]+/[\w./-]+|[\w-]+\.(?:py|md|json))`", line)}
    missing = sorted(name for name in named if not (ROOT / name).exists())

    assert len(table) >= 14
    assert missing == []


def test_every_package_has_a_layer() -> None:
    """The import contract names every top-level module, and refuses new ones that have no layer."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    contract = config["importlinter:contract:down"]
    layers = set(re.findall(r"\w+", contract["layers"]))
    modules = {
        path.stem if path.is_file() else path.name
        for path in SRC.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.name.startswith("__")
    }

    assert contract["exhaustive"] == "True"
    assert layers == modules


def test_default_cadences_stand_in_the_settings_only() -> None:
    """No other module of the package repeats a default cadence or slice."""
    repeated = [
        f"{path.relative_to(SRC)}: {line.strip()}"
        for path in SRC.rglob("*.py")
        if path.name != "settings.py"
        for line in path.read_text().splitlines()
        if re.search(r"(CADENCE|SLICE)_MS\s*(:\s*\w+\s*)?=\s*[\d(]", line)
    ]

    assert repeated == []


def test_the_api_page_lists_the_fields_of_the_status() -> None:
    """docs/api.md has every field of a status, a task and a run, and no other."""
    page = (ROOT / "docs" / "api.md").read_text()
    section = page[page.index("### The status") : page.index("A browser's `EventSource`")]
    parts = re.split(r"\n(?=A task has|A run has)", section)
    documented = [
        {
            name
            for line in part.splitlines()
            if line.startswith("| `")
            for name in re.findall(r"`(\w+)`", line.split("|")[1])
        }
        for part in parts
    ]
    schemas: dict[str, Any] = dict(schemas_of([Status, RunList]))
    own = {
        "lastTeneroRunAt",
        "lastTeneroResult",
        "lastFeedRunAt",
        "lastFeedResult",
        "lastSweepRunAt",
        "lastSweepResult",
        "lastRoundsRunAt",
        "lastRoundsResult",
        *schemas["Status"]["properties"],
    }

    assert documented == [own, set(schemas["TaskStatus"]["properties"]), set(schemas["RunRecord"]["properties"])]


def _refusals() -> list[str]:
    """What a start says of a data directory that it refuses: each cause of the system, and each kind of damage."""
    causes = [cause.removeprefix("cannot be created: ") for _, cause in sorted(data_dir._CAUSES.items())]
    return [
        *(re.split(r"[.(:]|, or", cause)[0].strip() for cause in causes),
        "is damaged",
        "is empty",
        "is not a SQLite database",
        "is missing but its log",
        "is newer than this code",
        "differs from what its migrations created",
    ]


@pytest.mark.parametrize("sentence", _refusals())
def test_every_refusal_of_a_data_directory_is_explained(sentence: str) -> None:
    """The table in docs/data.md has it."""
    assert sentence in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
