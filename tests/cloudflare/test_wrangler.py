"""The real wrangler accepts the deployment: dry runs and D1's migrations, without a warning.

A dry run does everything that a deployment does except the upload. `pywrangler` is not run: to add the dependencies,
it downloads Python and Pyodide.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.missing import NPM, require
from support.patience import PATIENCE_S
from support.workerd import DEPLOYMENT, EXAMPLES, HOLDFAST
from tocsin.swaps import COMPETITION_MIGRATIONS

WRANGLER = DEPLOYMENT / "node_modules" / "wrangler" / "bin" / "wrangler.js"
COLORS = re.compile(r"\x1b\[[0-9;]*m")
MIGRATIONS = sorted(path.name for path in COMPETITION_MIGRATIONS.glob("[0-9]*.sql"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("deployment"))


def make_bundle(directory: Path) -> Path:
    """A copy of the deployment after `bundle.py`."""
    require(WRANGLER.exists() and shutil.which("node") is not None, NPM)
    (directory / "src").mkdir()
    for name in ("wrangler.jsonc", "src/worker.py"):
        shutil.copyfile(DEPLOYMENT / name, directory / name)
    subprocess.run([sys.executable, str(DEPLOYMENT / "bundle.py"), str(directory)], check=True)
    return directory


def wrangler(directory: Path, *arguments: str) -> str:
    """Return its output without colors. It has no account and no settings, and sends no telemetry."""
    done = subprocess.run(
        ["node", str(WRANGLER), *arguments],
        cwd=directory,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "CI": "1",
            "WRANGLER_SEND_METRICS": "false",
            "WRANGLER_HIDE_BANNER": "true",
            "CLOUDFLARE_CF_FETCH_ENABLED": "false",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    printed = COLORS.sub("", done.stdout)
    assert done.returncode == 0, printed
    assert "warning" not in printed.lower(), printed
    return printed


@pytest.mark.parametrize(("env", "instance"), [("", "v1"), ("preview", "preview")], ids=["live", "preview"])
def test_a_dry_run_has_no_warning_and_takes_along_what_the_worker_needs(bundle: Path, env: str, instance: str) -> None:
    """Our package with its own files, the pages, and the bindings of that environment."""
    printed = wrangler(bundle, "deploy", "--dry-run", f"--env={env}")
    assert re.search(r"tocsin/worker\.py +│ python", printed)
    assert re.search(r"tocsin/swaps/allowlist\.json +│ buffer", printed)
    assert re.search(r"tocsin/swaps/queries\.sql +│ text", printed)
    assert "tocsin/local" not in printed
    assert "holdfast/local" not in printed
    assert re.search(r"Read \d\d files from the assets directory", printed)
    for binding in ("SCHEDULER (SchedulerDO)", "KV (", "DB (", f'TOCSIN_INSTANCE ("{instance}")'):
        assert f"env.{binding}" in printed


@pytest.mark.parametrize(("env", "database"), [("", "tocsin"), ("preview", "tocsin-preview")], ids=["live", "preview"])
def test_d1_takes_all_migrations_without_a_warning(bundle: Path, env: str, database: str) -> None:
    """Running it again finds nothing left to apply."""
    applied = wrangler(bundle, "d1", "migrations", "apply", database, "--local", f"--env={env}")
    for name in MIGRATIONS:
        assert re.search(rf"{re.escape(name)} +│ ✅", applied)
    again = wrangler(bundle, "d1", "migrations", "apply", database, "--local", f"--env={env}")
    assert "No migrations to apply" in again


def test_an_object_of_ones_own_is_deployed_beside_the_scheduler(tmp_path: Path) -> None:
    """With the files and the lines of wrangler.jsonc that docs/objects.md names, live and preview."""
    directory = make_bundle(tmp_path)
    shutil.copyfile(HOLDFAST / "examples" / "heart.py", directory / "src" / "heart.py")
    shutil.copyfile(EXAMPLES / "heart_worker.py", directory / "src" / "worker.py")
    guide = (EXAMPLES.parent / "docs" / "objects.md").read_text()
    text = (directory / "wrangler.jsonc").read_text()
    for line in ('{ "name": "HEART", "class_name": "HeartDO" }', '{ "tag": "v2", "new_sqlite_classes": ["HeartDO"] }'):
        assert line in guide
    text = text.replace('"SchedulerDO" }]', '"SchedulerDO" }, { "name": "HEART", "class_name": "HeartDO" }]')
    text = text.replace('["SchedulerDO"] }]', '["SchedulerDO"] }, { "tag": "v2", "new_sqlite_classes": ["HeartDO"] }]')
    (directory / "wrangler.jsonc").write_text(text)
    for env in ("", "preview"):
        printed = wrangler(directory, "deploy", "--dry-run", f"--env={env}")
        assert "env.HEART (HeartDO)" in printed
        assert re.search(r"heart\.py +│ python", printed)
