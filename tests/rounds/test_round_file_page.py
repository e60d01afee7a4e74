"""docs/round-file.md: its example is a file, and its script recounts it."""

import re
import subprocess
import sys
from pathlib import Path

from support.tocsin_command import tocsin_here

PAGE = (Path(__file__).parents[2] / "docs/round-file.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_of_the_page_is_a_file_that_recounts(tmp_path: Path) -> None:
    """If the format or the rules change, so does the page."""
    file = tmp_path / "round.jsonl"
    file.write_text(block("jsonl"))
    recounted = tocsin_here("recount", str(file), environment={})
    assert (recounted.returncode, recounted.stderr) == (0, "")


def test_the_script_of_the_page_recounts_the_example(tmp_path: Path) -> None:
    """With the standard library alone."""
    file, script = tmp_path / "round.jsonl", tmp_path / "by_hand.py"
    file.write_text(block("jsonl"))
    script.write_text(block("python"))
    by_hand = subprocess.run(
        [sys.executable, "-I", str(script), str(file)], capture_output=True, text=True, check=False
    )
    assert by_hand.stdout.splitlines() == [
        "1 SP2J6ZY48GV1EZ5V2V5RB9MP66SW86PYKKNRV9EJ7 5.2 right",
        "2 SP3FBR2AGK5H9QBDH3EEN6DF8EK8JY7RX8QJ5SVTE -0.2 right",
    ]
