"""Run the fast tests on every other Python of this machine. Those that are absent are passed over and named."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MINORS = range(11, 15)
ENVIRONMENTS = Path(".venv-pythons")  # kept: the next run needs no installation
PROGRAM = "import sys, ensurepip; print(sys.base_prefix, *sys.version_info[:3])"
INSTALL = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
OURS = ("--editable", "packages/holdfast", "--editable", "packages/stacks-simulator", "--editable", ".")


def candidates() -> Iterator[str]:
    """Programs that may be a Python: on the path, of the system, and of pyenv."""
    for minor in MINORS:
        yield from filter(None, (shutil.which(f"python3.{minor}"), f"/usr/bin/python3.{minor}"))
    yield from sorted(str(path) for path in (Path.home() / ".pyenv" / "versions").glob("3.1*/bin/python3"))


def others() -> dict[tuple[int, ...], str]:
    """The Pythons that can make an environment, by version, except the one of .venv."""
    found: dict[tuple[int, ...], str] = {}
    for program in candidates():
        if Path(program).exists():
            asked = subprocess.run([program, "-c", PROGRAM], capture_output=True, text=True, check=False)
            version = tuple(map(int, asked.stdout.split()[-3:]))
            if len(version) == 3 and version[1] in MINORS and version != sys.version_info[:3]:
                found.setdefault(version, program)
    return dict(sorted(found.items()))


def prepare(version: str, program: str) -> Path:
    """The programs of an environment with what the tests need."""
    environment = ENVIRONMENTS / version
    python = str(environment / "bin" / "python")
    if not Path(python).exists():
        subprocess.run([program, "-m", "venv", environment], check=True)
    subprocess.run([python, *INSTALL, "--require-hashes", "-r", "requirements-dev.txt"], check=True)
    subprocess.run([python, *INSTALL, "--no-deps", "--no-build-isolation", *OURS], check=True)
    return environment / "bin"


def main() -> int:
    found = others()
    passed_over = {f"3.{minor}" for minor in MINORS if minor != sys.version_info.minor}
    failed = []
    for numbers, program in found.items():
        version = ".".join(map(str, numbers))
        passed_over.discard(f"3.{numbers[1]}")
        print(f"Python {version}", flush=True)
        programs = prepare(version, program)
        quick = ["make", "--no-print-directory", "quick", f"BIN={programs}", "PROFILE=few"]
        if subprocess.run(quick, check=False).returncode:
            failed.append(version)
    if passed_over:
        print(f"Not on this machine, or without venv: Python {', '.join(sorted(passed_over))}")
    print(f"Failed: Python {', '.join(failed)}" if failed else f"{len(found)} other Pythons: fine")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
