"""The command, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from support.scripted_scheduler import ADMIN_KEY

TOCSIN = Path(sys.executable).parent / "tocsin"


def tocsin(
    *arguments: str, port: int, directory: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command, with the port and the key unless the environment has others."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    known = {**kept, "TOCSIN_PORT": str(port), "ADMIN_KEY": ADMIN_KEY, **environment}
    return subprocess.run(
        [TOCSIN, *arguments],
        capture_output=True,
        text=True,
        env=known,
        cwd=directory,
        timeout=60,
        check=False,
    )
