"""docs/data.md is correct: its table has every refusal."""

import errno
import re
from pathlib import Path

import pytest

from holdfast.local import data_dir

DOCS = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", sorted(data_dir._CAUSES))
def test_every_cause_of_the_system_is_in_the_table(code: int) -> None:
    """The page has the message for this errno."""
    sentence = re.split(r"[.(:]|, or", data_dir._CAUSES[code].removeprefix("cannot be created: "))[0].strip()

    assert sentence in DOCS, errno.errorcode[code]
