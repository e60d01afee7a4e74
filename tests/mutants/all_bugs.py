"""All deliberate bugs, and the table of them."""

from mutants import (
    budget_bugs,
    competition_bugs,
    edge_bugs,
    history_bugs,
    object_bugs,
    reading_bugs,
    rounds_bugs,
    scheduler_bugs,
)
from mutants.bug import Bug

BUGS: tuple[Bug, ...] = (
    *object_bugs.BUGS,
    *scheduler_bugs.BUGS,
    *budget_bugs.BUGS,
    *competition_bugs.BUGS,
    *reading_bugs.BUGS,
    *edge_bugs.BUGS,
    *rounds_bugs.BUGS,
    *history_bugs.BUGS,
)


PAGE = "docs/guarantees.md"
_BEGINS = "<!-- The table of deliberate bugs begins. `make mutants DOCS=1` writes it. -->\n"
_ENDS = "<!-- The table of deliberate bugs ends. -->\n"


def table() -> str:
    """Return the table of every bug and the test that must catch it."""
    rows = [
        f"| `{bug.name}` | {bug.breaks} | {bug.origin} | {', '.join(f'`{test}`' for test in bug.tests)} |\n"
        for bug in BUGS
    ]
    head = "| bug | promise that it breaks | where it comes from | caught by |\n|---|---|---|---|\n"
    return f"{len(BUGS)} bugs:\n\n{head}{''.join(rows)}"


def page_with_table(page: str) -> str:
    """Return the page with the current table between its two markers."""
    before, _, rest = page.partition(_BEGINS)
    _, ends, after = rest.partition(_ENDS)
    if not ends:
        raise ValueError(f"{PAGE} needs these two lines around its table: {_BEGINS}{_ENDS}")
    return f"{before}{_BEGINS}\n{table()}\n{_ENDS}{after}"
