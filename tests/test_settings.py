"""Settings are read together, and every problem is told with its fix."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import settings as module
from tocsin.settings import ALL, Settings, SettingsError, about, duration, read, read_env_file, secret_values

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def test_nothing_set_gives_the_defaults() -> None:
    """An empty environment is a good one, and the admin routes are closed."""
    assert read({}) == Settings()
    assert read({}).admin_key is None


@pytest.mark.parametrize("known", ALL, ids=lambda known: known.name)
def test_every_example_is_taken(known: module.Setting) -> None:
    """What a message or the docs show as an example works."""
    known.parse(known.example)


def test_all_problems_are_told_at_once_with_an_example_and_without_the_secret() -> None:
    """One start, one list: names, problems, examples; a wrong secret is not repeated."""
    wrong = {
        "TOCSIN_PORT": "eighty",
        "TOCSIN_TENERO_CADENCE": "5 minutes",
        "ADMIN_KEY": "s3\n",
        "HIRO_API_URL": "api.hiro.so",
        "TOCSIN_TENERO_CADENSE": "5m",
    }
    with pytest.raises(SettingsError) as caught:
        read(wrong)

    told = str(caught.value)
    assert len(told.splitlines()) == 1 + 5
    assert "TOCSIN_PORT: 'eighty' is not a whole number from 0 to 65535. Example: TOCSIN_PORT=8787" in told
    assert "Did you mean TOCSIN_TENERO_CADENCE?" in told
    assert "s3" not in told


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"TOCSIN_SWEEP_SLICE": "15m"}, "must be shorter than TOCSIN_SWEEP_CADENCE"),
        ({"TOCSIN_TENERO_CADENCE": "4m"}, "must be shorter than TOCSIN_TENERO_CADENCE"),
        ({"COMPETITION_END": "5"}, "must be after COMPETITION_START"),
        ({"WORKER_LOGS_URL": "https://logs.example"}, "give both or neither"),
    ],
)
def test_what_does_not_fit_together_is_told(given_: dict[str, str], expected: str) -> None:
    """Each value is fine alone."""
    with pytest.raises(SettingsError, match=expected):
        read(given_)


@given(st.dictionaries(st.sampled_from([known.name for known in ALL]), st.text(max_size=30)))
def test_any_text_is_taken_or_refused_with_our_error(environment: dict[str, str]) -> None:
    """No value of any setting raises anything else."""
    told = ""
    try:
        read(environment)
    except SettingsError as error:
        told = str(error)

    problems = [line for line in told.splitlines()[1:] if line.startswith("  ")]
    assert all(re.match(r"  [A-Z_]+( and [A-Z_]+)?: ", line) for line in problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250ms", 250), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_durations(text: str, expected: int) -> None:
    """A number and a unit, in milliseconds."""
    assert duration(text) == expected


def test_an_env_file_is_understood() -> None:
    """Comments, blank lines, export and quotes; a line that is neither is named by number."""
    text = "# keys\n\nexport ADMIN_KEY='a secret key'\nTOCSIN_PORT = 9000\nURL=https://x/?a=b\n"

    assert read_env_file(text.encode()) == {
        "ADMIN_KEY": "a secret key",
        "TOCSIN_PORT": "9000",
        "URL": "https://x/?a=b",
    }
    with pytest.raises(SettingsError, match="line 2"):
        read_env_file(b"A=1\nnonsense\n")


def test_every_secret_is_known_to_be_one() -> None:
    """Redaction covers all keys and secrets, both of a pair too."""
    made: dict[str, Any] = {f.name: f"secret-of-{f.name}" for f in fields(Settings) if about(f).secret}
    made["chainhook_secret"] = ("first-secret", "second-secret")

    assert set(secret_values(Settings(**made))) == {
        *(value for value in made.values() if isinstance(value, str)),
        "first-secret",
        "second-secret",
    }
    assert {f.name for f in fields(Settings) if re.search("key|secret", f.name)} == set(made)


def table() -> str:
    rows = ["| setting | default | example | what for |", "|---|---|---|---|"]
    for setting in fields(Settings):
        known = about(setting)
        default = "none" if setting.default in {None, ()} else _shown(known, setting.default)
        mark = " (secret)" if known.secret else ""
        rows.append(f"| `{known.name}` | {default} | `{known.example}` | {known.text}{mark} |")
    return "\n".join(rows)


def _shown(known: module.Setting, default: Any) -> str:
    if known.parse is duration:
        return f"`{default // 60_000}m`"
    if isinstance(default, bool):
        return "`yes`" if default else "`no`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def test_the_docs_list_every_setting() -> None:
    """docs/settings.md has exactly this table."""
    assert table() in PAGE.read_text()


def test_every_wrong_line_of_a_file_is_told() -> None:
    """Not only the first; and a file in another encoding is told, not a traceback."""
    with pytest.raises(SettingsError, match=r"(?s)line 1:.*line 3:"):
        read_env_file(b"what\nA=1\n1B=2\n")
    with pytest.raises(SettingsError, match="UTF-8"):
        read_env_file("A=ä".encode("latin-1"))
