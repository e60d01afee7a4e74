"""Assemble what is deployed: the parts of our package that run on Cloudflare, migrations, and pages.

    python deploy/cloudflare/bundle.py [DIRECTORY]

This replaces `src/tocsin`, `migrations` and `public` in the directory (by default, the one of this file).
"""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "tocsin"
sys.path.insert(0, str(PACKAGE.parent))

from tocsin.web.security import PAGES, static_headers  # noqa: E402 - found by the line above

# These need threads, sockets or SQLite, which a Worker does not have.
LOCAL_ONLY = (
    "__main__.py",
    "cli.py",
    "commands",
    "platform/local",
    "service.py",
    "simulator",
)


def bundle(directory: Path) -> None:
    package, migrations, public = directory / "src" / "tocsin", directory / "migrations", directory / "public"
    for made in (package, migrations, public):
        shutil.rmtree(made, ignore_errors=True)
    for file in sorted(PACKAGE.rglob("*")):
        name = file.relative_to(PACKAGE)
        if file.suffix in {".py", ".json"} and not str(name).startswith(LOCAL_ONLY):
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, package / name)
    migrations.mkdir()
    for file in (PACKAGE / "competition" / "sql").glob("[0-9]*.sql"):
        shutil.copyfile(file, migrations / file.name)
    _pages(public)


def _pages(public: Path) -> None:
    """Copy the pages, with the same paths and headers as locally."""
    shutil.copytree(PACKAGE / "web" / "static", public / "static")
    for name in PAGES:
        (public / "static" / f"{name}.html").rename(public / f"{name}.html")
    (public / "_headers").write_text(static_headers())


if __name__ == "__main__":
    bundle(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
