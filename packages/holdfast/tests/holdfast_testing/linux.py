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


def mount_namespace(script: str, **environment: str) -> list[str]:
    """How to start a program whose mounts nobody else sees. The test is skipped if the system does not allow that."""
    commands = [["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]]
    for command in commands if shutil.which("unshare") else ():
        trial = [*command, "sh", "-ec", script, "sh", "true"]
        if subprocess.run(trial, env={**os.environ, **environment}, capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("this system does not allow a mount namespace (unshare)")


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
