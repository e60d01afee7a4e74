"""The deliberate bugs of `tests/mutants` fit the code of today. `make mutants` shows that each is caught."""

from collections import Counter
from pathlib import Path

import pytest

from mutants.all_bugs import BUGS, PAGE, page_with_table
from mutants.bug import Bug

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_applies(bug: Bug) -> None:
    """Its text occurs once, the result compiles, and the tests that must catch it. it exist."""
    assert bug.applied(bug.path(ROOT).read_text())
    for test in bug.tests:
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert f"def {name.partition('[')[0]}(" in text


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
