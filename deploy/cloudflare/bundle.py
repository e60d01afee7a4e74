"""Assemble what is deployed: the parts of our packages that run on Cloudflare, migrations, and pages.

    python deploy/cloudflare/bundle.py [DIRECTORY]

This replaces `src/tocsin`, `src/holdfast`, `migrations` and `public` in the directory, by default that of this file.
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TOCSIN = ROOT / "src" / "tocsin"
HOLDFAST = ROOT / "packages" / "holdfast" / "src" / "holdfast"
sys.path[:0] = [str(TOCSIN.parent), str(HOLDFAST.parent)]

from tocsin.web.response import PAGES, static_headers  # noqa: E402 - found by the line above

# These need threads, sockets or SQLite, which a Worker does not have.
LOCAL_ONLY = ("__main__.py", "cli.py", "commands", "local", "service.py", "testing")


def bundle(directory: Path) -> None:
    migrations, public = directory / "migrations", directory / "public"
    for package in (TOCSIN, HOLDFAST):
        _copy(package, directory / "src" / package.name)
    for made in (migrations, public):
        shutil.rmtree(made, ignore_errors=True)
    migrations.mkdir()
    for file in (TOCSIN / "swaps" / "sql").glob("[0-9]*.sql"):
        shutil.copyfile(file, migrations / file.name)
    _pages(public)


def _copy(package: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    for file in sorted(package.rglob("*")):
        name = file.relative_to(package)
        is_read = file.suffix in {".py", ".json"} or file.name in {"queries.sql", "leaderboard.html"}
        if is_read and name.parts[0] not in LOCAL_ONLY:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / name)


def _pages(public: Path) -> None:
    """Copy the pages, with the same paths and headers as locally."""
    shutil.copytree(TOCSIN / "web" / "static", public / "static")
    (public / "static" / "leaderboard.html").unlink()  # the Worker renders it
    for name in PAGES:
        (public / "static" / f"{name}.html").rename(public / f"{name}.html")
    (public / "_headers").write_text(static_headers())


if __name__ == "__main__":
    bundle(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
