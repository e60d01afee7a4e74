"""Runs the `tocsin` command in a separate process or in this one."""

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from support.patience import PATIENCE_S
from support.world import ADMIN_KEY
from tocsin.cli import main

TOCSIN = Path(sys.executable).parent / "tocsin"


def tocsin(*arguments: str, port: int, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process, with the port and the key unless the environment has others."""
    known = {"TOCSIN_PORT": str(port), "ADMIN_KEY": ADMIN_KEY, **environment}
    return tocsin_here(*arguments, environment=known)


def tocsin_process(
    *arguments: str, port: int, directory: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Do the same in a separate process, whose start takes most of the time."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    known = {**kept, "TZ": "UTC", "TOCSIN_PORT": str(port), "ADMIN_KEY": ADMIN_KEY, **environment}
    return subprocess.run(
        [TOCSIN, *arguments], capture_output=True, text=True, env=known, cwd=directory, timeout=PATIENCE_S, check=False
    )


def tocsin_here(
    *arguments: str, environment: Mapping[str, str], cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process, in an empty directory or in that one, with this environment only."""
    out, error = io.StringIO(), io.StringIO()
    with (
        _time_zone(),
        tempfile.TemporaryDirectory() as empty,
        mock.patch.object(sys, "argv", ["tocsin", *arguments]),
        mock.patch.dict(os.environ, {"TZ": "UTC", **environment}, clear=True),
        chdir(cwd or empty),
        redirect_stdout(out),
        redirect_stderr(error),
    ):
        time.tzset()
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())


def rest_of_terminal(ours: int) -> bytes:
    """Everything that is still written to a terminal, until nobody has its other end open."""
    written = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            piece = b""
        if not piece:
            os.close(ours)
            return written
        written += piece


@contextmanager
def _time_zone() -> Iterator[None]:
    """Restore the time zone of the environment at the end."""
    try:
        yield
    finally:
        time.tzset()
