"""Check what a script can check in the documentation: links, paths, commands, versions, the picture of the rooms."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")
MAKE = re.compile(r"`?\bmake ([a-z][a-z-]*)\b")
PATH = re.compile(r"`((?:src|tests|packages|docs|tools|bench|deploy|examples)/[\w./-]+)")
HELP = re.compile(r"^([a-z.][a-z-]*):.*## ", re.MULTILINE)
VERSIONS = {  # where the version is written
    "pyproject.toml": r'^version = "([^"]+)"',
    "src/tocsin/__init__.py": r'__version__ = "([^"]+)"',
    "CHANGELOG.md": r"^## \[?(\d+\.\d+\.\d+)",
    "deploy/cloudflare/pyproject.toml": r'^version = "([^"]+)"',
}
NOT_OURS = {"deploy/cloudflare/src/heart.py": "the reader writes it"}
LINES_MAX = {"README.md": 120, "CONTRIBUTING.md": 150, "AGENTS.md": 80, "docs/architecture.md": 200}


def pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def findings(page: Path, targets: set[str]) -> list[str]:
    text, name = page.read_text(), str(page.relative_to(ROOT))
    found = [
        f"{name}: the link {target} leads nowhere"
        for target, _ in LINK.findall(text)
        if "://" not in target and not (page.parent / target).exists()
    ]
    found += [
        f"{name}: there is no `make {target}`"
        for line in text.splitlines()
        for target in MAKE.findall(line)
        if f"`make {target}" in line and target not in targets
    ]
    found += [
        f"{name}: there is no {path}"
        for path in PATH.findall(text)
        if path not in NOT_OURS and "decisions" not in page.parts
        if not any((base / path).exists() for base in page.parents)  # of the tree, or of a package
    ]
    lines = text.count("\n")
    if lines > LINES_MAX.get(name, 10**6):
        found.append(f"{name}: {lines} lines; shorten it to {LINES_MAX[name]}")
    return found


def orphans(all_pages: list[Path]) -> list[str]:
    """Every page in docs/ is linked from somewhere."""
    linked = {(page.parent / target).resolve() for page in all_pages for target, _ in LINK.findall(page.read_text())}
    docs = [page for page in all_pages if page.is_relative_to(ROOT / "docs")]
    return [f"{page.relative_to(ROOT)}: no page links to it" for page in docs if page.resolve() not in linked]


def version_findings() -> list[str]:
    versions = {
        name: match[1] if (match := re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)) else "none"
        for name, pattern in VERSIONS.items()
    }
    return [] if len(set(versions.values())) == 1 else [f"versions differ: {versions}"]


def picture_findings() -> list[str]:
    rooms = runpy.run_path(str(ROOT / "tools" / "draw_rooms.py"))
    fresh = rooms["FILE"].exists() and rooms["FILE"].read_text() == rooms["picture"]()
    return [] if fresh else ["docs/rooms.svg is out of date: run `make rooms`"]


def main() -> int:
    targets = set(HELP.findall((ROOT / "Makefile").read_text()))
    all_pages = pages()
    found = [line for page in all_pages for line in findings(page, targets)]
    found += orphans(all_pages) + version_findings() + picture_findings()
    print("\n".join(found) or "docs: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
