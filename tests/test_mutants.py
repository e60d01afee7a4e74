"""The deliberate bugs of `tests/mutants` apply to the current code, and so do the mutants listed as equivalent.

`make mutants` shows that each bug is caught.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from mutants.all_bugs import BUGS, PAGE, page_with_table
from mutants.bug import Bug

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_applies(bug: Bug) -> None:
    """Its text occurs once, the result compiles, and the tests that must catch it exist."""
    assert bug.applied(bug.path(ROOT).read_text())
    for test in bug.tests:
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert f"def {name.partition('[')[0]}(" in text


def test_each_equivalent_mutant_is_of_a_line_that_exists() -> None:
    """The rest of the list would hide mutants that nobody has judged. The table in the docs has the same reasons."""
    listed = json.loads((ROOT / "tools/mutation/equivalent.json").read_text())
    gone = [
        (module, change)
        for module, changes in listed.items()
        for change in changes
        if one_line(change.partition(" -> ")[0]) not in one_line((ROOT / "src/tocsin" / module).read_text())
    ]
    documented = (ROOT / "docs/mutation.md").read_text()

    assert gone == []
    assert {
        reason for changes in listed.values() for reason in changes.values() if reason not in documented
    } == set()


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_each_bug_has_a_name_of_its_own() -> None:
    """At least sixty of them."""
    assert [name for name, times in Counter(bug.name for bug in BUGS).items() if times > 1] == []
    assert len(BUGS) >= 60


def test_a_bug_that_no_longer_applies_is_told() -> None:
    """With its name and what to do."""
    bug = Bug("gone", "clock.py", "old", "new", "a review", "a promise", ("test_mutants.py",))

    with pytest.raises(
        ValueError, match=r"gone no longer applies: its text occurs 2 times in src/tocsin/clock\.py"
    ):
        bug.applied("old and old")


def test_the_docs_list_every_bug() -> None:
    """`make mutants DOCS=1` writes the table."""
    page = (ROOT / PAGE).read_text()

    assert page == page_with_table(page)
