"""What only Linux has: the open files of a process, and libraries in C between a process and its kernel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc, LD_PRELOAD or timerfd")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def compiled(source: str, directory: Path) -> str:
    """Compile a file of this directory, for LD_PRELOAD. Without a compiler, the test is skipped or fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        reason = "A C compiler is missing: install it (`apt-get install gcc libc6-dev`)"
        if os.environ.get("CI") == "true" or os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    library = directory / f"{source}.so"
    sources = ["-o", str(library), str(Path(__file__).with_name(source))]
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", *sources, "-lpthread", "-ldl"], check=True)
    return str(library)
