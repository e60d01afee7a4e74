"""The Worker's modules can be imported on Cloudflare: without entropy, threads, clock and native code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.workerd import DEPLOYMENT

HERE = Path(__file__).parent
NOT_ON_CLOUDFLARE = {"aiohttp", "httptools", "rich", "sqlite3", "typer", "uvicorn", "uvloop"}


def import_guarded(*modules: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", str(HERE / "import_guarded.py"), *modules],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(path)},
        check=False,
    )


@pytest.mark.slow
def test_the_deployed_worker_imports_without_entropy_threads_and_clock(tmp_path: Path) -> None:
    """All modules of the bundle and their dependencies, and nothing of the local platform."""
    subprocess.run([sys.executable, str(DEPLOYMENT / "bundle.py"), str(tmp_path)], check=True)
    shutil.copy(DEPLOYMENT / "src" / "worker.py", tmp_path / "src")
    bundled = sorted((tmp_path / "src").rglob("*.py"))
    modules = [".".join(file.relative_to(tmp_path / "src").with_suffix("").parts) for file in bundled]
    done = import_guarded(*(name.removesuffix(".__init__") for name in modules), path=tmp_path / "src")
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert {"tocsin.scheduler.scheduler_do", "tocsin.worker"} <= imported
    assert not {name for name in imported if name.partition(".")[0] in NOT_ON_CLOUDFLARE}
    assert not {name for name in imported if name.startswith(("tocsin.local", "holdfast.local", "stacks_simulator"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "import random; random.random()",
        "import os; os.urandom(8)",
        "import uuid; uuid.uuid4()",
        "import secrets; secrets.token_hex()",
        "import time; time.time()",
        "from time import monotonic; monotonic()",
        "from datetime import datetime, UTC; datetime.now(UTC)",
        "import threading; threading.Thread(target=print).start()",
    ],
)
def test_the_guard_finds_each_of_them(tmp_path: Path, line: str) -> None:
    """A module that uses one while it is imported fails."""
    (tmp_path / "careless.py").write_text(line)
    done = import_guarded("careless", path=tmp_path)
    assert done.returncode != 0
    assert "at import time" in done.stderr
