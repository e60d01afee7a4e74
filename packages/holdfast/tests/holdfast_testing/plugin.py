"""For a `conftest.py`: files in memory, and profiles of hypothesis."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("contract.suite")

MEMORY = Path("/dev/shm")
MEMORY_FREE_MIN = 2 * 1024**3  # a container often has 64 MB there

# The duration of an example depends on the machine and its load.
settings.register_profile("any_duration", deadline=None)
settings.load_profile("any_duration")
# `make pythons` and `make odd-place` are about the place, not about the examples.
settings.register_profile("few", deadline=None, max_examples=10)
# `make mutants` asks for the same examples every time.
settings.register_profile("reproducible", deadline=None, derandomize=True, database=None)


def files_in_memory() -> None:
    """Keep files in memory where there is enough: most of the time was spent on waiting for a disk."""
    enough = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_FREE_MIN
    if enough and os.access(MEMORY, os.W_OK) and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None
