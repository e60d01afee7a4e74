"""Check what a script can check in the documentation: links, paths, commands, versions, the picture of the rooms."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(#[^)]*)?\)")
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


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub names them."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", page.read_text()))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken_links(page: Path, text: str, name: str) -> list[str]:
    found = []
    for target, anchor in LINK.findall(text):
        path = page.parent / target if target else page
        if "://" in target:
            continue
        if not path.exists():
            found.append(f"{name}: the link {target} leads nowhere")
        elif anchor and path.suffix == ".md" and anchor[1:] not in anchors(path):
            found.append(f"{name}: {target or 'the page'} has no section {anchor}")
    return found


def findings(page: Path, targets: set[str]) -> list[str]:
    text, name = page.read_text(), str(page.relative_to(ROOT))
    found = broken_links(page, text, name)
    found += [
        f"{name}: there is no `make {target}`"
        for line in text.splitlines()
        for target in MAKE.findall(line)
        if f"`make {target}" in line and target not in targets
    ]
    found += [
        f"{name}: there is no {path}"
        for path in PATH.findall(text)
        if path not in NOT_OURS
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
