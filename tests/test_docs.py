"""Documentation that the code can check: generated tables, log events, texts that an operator looks for."""

import ast
import configparser
import re
import runpy
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.local import data_dir

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SRC = ROOT / "src" / "tocsin"
HOLDFAST = ROOT / "packages" / "holdfast" / "src"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "write_docs.py"))


@pytest.mark.slow
def test_the_lists_of_the_docs_are_those_of_the_code(tool: dict[str, Any]) -> None:
    """`make docs` would change nothing."""
    stale = [page.name for page, text in tool["pages"]().items() if page.read_text() != text]

    assert stale == [], "run `make docs`"


@pytest.mark.slow
def test_every_log_event_is_documented(tool: dict[str, Any]) -> None:
    """docs/events.md has exactly the events of the code, each with its level and a meaning."""
    page = (DOCS / "events.md").read_text()
    written, emitted = tool["written_events"](page), tool["events_in_code"]()
    other = {
        name: (written.get(name), sorted(levels))
        for name, levels in emitted.items()
        if not all(level in written.get(name, "") for level in levels)
    }

    assert set(written) == set(emitted)
    assert other == {}
    assert not re.search(r"(?m)^- `.*:$", page), "an event without a meaning"


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


# What an operator looks for


def general(text: str) -> str:
    """A message without what differs each time: numbers, and the values of an f-string."""
    return re.sub(r"\d+|…", "…", text)


def texts_in_code() -> list[str]:
    found = []
    for path in (*SRC.rglob("*.py"), *HOLDFAST.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append(general("".join(parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(general(node.value))
    return found


def sqlite_says_that_the_disk_is_full() -> str:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.execute("CREATE TABLE one (text)")
    return str(caught.value)


def symptoms() -> list[str]:
    """The first cell of every row below "Symptom"."""
    page = (DOCS / "operations.md").read_text()
    part = page[page.index("## Symptom") : page.index("## Pause, refresh, resume")]
    return [line.split(" | ")[0] for line in part.splitlines() if line.startswith("| ")]


@pytest.mark.slow
def test_the_symptoms_are_what_the_service_says() -> None:
    """Every quoted text is one of the code, or of SQLite."""
    code = [*texts_in_code(), sqlite_says_that_the_disk_is_full()]
    quoted = [text for symptom in symptoms() for text in re.findall(r'"([^"]+)"', symptom)]
    unknown = [text for text in quoted if not any(general(text).rstrip(" …") in each for each in code)]

    assert len(quoted) >= 15
    assert unknown == []


def test_the_symptoms_of_the_most_common_outages_are_there() -> None:
    """A server error, a limit and a wrong key, of an upstream and for visitors."""
    text = "\n".join(symptoms())
    words = ("answered 503", "answered 429", "(401)", "get 503", "get 429", "get 401")

    assert [word for word in words if word not in text] == []


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
    assert sentence in (DOCS / "data.md").read_text(encoding="utf-8")
