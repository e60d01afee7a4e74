"""What a terminal shows of the log."""

import json
import re
from io import StringIO

from tocsin.local.logs import TerminalLines

AT = 1_778_700_600_000


def entry(event: str, level: str = "INFO", **fields: object) -> str:
    return json.dumps({"at": AT, "level": level, "event": event, **fields}) + "\n"


def ended(task: str, outcome: str = "ok", level: str = "INFO") -> str:
    return entry("run.ended", level, task=task, run=3, outcome=outcome, durationMs=28)


def shown(*lines: str, columns: int = 100) -> tuple[list[str], str]:
    """Return the lines that stay, without colours and times, and the bottom line, as a terminal finally shows them."""
    stream = StringIO()
    terminal = TerminalLines(stream, lambda: columns)
    for line in lines:
        terminal.write(line)
    rows = [row.rpartition("\r\x1b[2K")[2] for row in stream.getvalue().split("\n")]
    *stay, bottom = [re.sub(r"\x1b\[[0-9]*m|[0-9]{2}:[0-9]{2}:[0-9]{2} ", "", row) for row in rows]
    return stay, bottom


def test_runs_that_end_well_share_the_line_at_the_bottom() -> None:
    """Nothing scrolls while nothing happens."""
    stay, bottom = shown(entry("run.started", task="feed"), ended("feed"), ended("tenero"), ended("feed"))

    assert stay == []
    assert bottom == "feed ok in 28 ms · tenero ok in 28 ms"


def test_a_warning_stays_above_it() -> None:
    """With its fields, except those without information."""
    stay, bottom = shown(
        "Tocsin is running.\n",
        ended("feed"),
        entry("contract.unlisted", "WARN", task="feed", run=3, contract="SP1.pool", note=None, count=2),
        ended("sweep", "partial", "WARN"),
        entry("service.started", url="http://127.0.0.1:1"),
    )

    assert stay == [
        "Tocsin is running.",
        "WARN  contract.unlisted task=feed contract=SP1.pool count=2",
        "WARN  run.ended task=sweep outcome=partial durationMs=28",
        "INFO  service.started url=http://127.0.0.1:1",
    ]
    assert bottom == "feed ok in 28 ms"


def test_a_line_is_cut_at_the_edge_and_cannot_control_the_terminal() -> None:
    """Text from outside has no escape sequences and no line breaks when it is shown."""
    stay, _ = shown(entry("x.y", "ERROR", text="a\x1b[2Jb\nc" + "d" * 200), columns=40)

    assert len(stay) == 1
    assert len(stay[0]) <= 40
    assert "a?[2Jb?c" in stay[0]
    assert stay[0].endswith("…")
