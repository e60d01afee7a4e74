"""Write every file that pins a package: `make lock`, or `make lock UPGRADE=1` for the newest versions.

    python tools/lock.py [--upgrade]

Without `--upgrade`, a pin stays as long as it satisfies pyproject.toml. Packages are pinned with their hashes,
and no file names the package index.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKER = ROOT / "deploy" / "cloudflare" / "pyproject.toml"
WORKER_TESTS = ROOT / "tests" / "cloudflare" / "requirements.txt"
# The dependencies that the Worker imports. The others need sockets, threads or native code.
WORKER_NEEDS = ("starlette", "mashumaro")
SDK = "workers-runtime-sdk"
FUZZ = "tools/requirements-fuzz.txt"  # only for `make fuzz`, in its own environment
MUTATION = "tools/requirements-mutation.txt"  # for `make mutation`, which also runs the tests
CLIENT = "tools/requirements-client.txt"  # a validator and a generator of clients, only for `make client`
MCP = "tools/requirements-mcp.txt"  # the official client of the protocol, only for `make mcp`
OURS = ("--no-emit-package=holdfast", "--no-emit-package=stacks-simulator")  # installed from the checkout
COMPILE = ("pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-emit-index-url")


def main() -> None:
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv[1:] else []
    with tempfile.TemporaryDirectory() as directory:
        uv = shutil.which("uv") or _install_uv(Path(directory))
        universal = [uv, *COMPILE, "--universal", "--python-version=3.11", *upgrade]
        _lock(universal, "requirements.txt")
        _lock([*universal, "--extra=dev", "-c", "requirements.txt"], "requirements-dev.txt")
        _run([*universal, "-", "-o", FUZZ], "schemathesis")
        _run([*universal, "-c", "requirements-dev.txt", "-", "-o", MUTATION], "cosmic-ray\ncoverage")
        _run([*universal, "-", "-o", MCP], "mcp")
        _run([*universal, "-", "-o", CLIENT], "openapi-python-client\nopenapi-spec-validator")
        _lock_worker(uv)
    print(
        f"requirements.txt, requirements-dev.txt, {FUZZ}, {MUTATION}, {MCP}, {CLIENT}, tests/cloudflare and"
        " deploy/cloudflare are up to date"
    )


def _install_uv(directory: Path) -> str:
    """Install uv for this run only, because nothing else here needs it."""
    _run([sys.executable, "-m", "venv", str(directory)])
    _run([str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(directory / "bin" / "uv")


def _lock(command: list[str], name: str) -> None:
    """Lock what the project and its demo need to run, and what an installation from a checkout needs."""
    build: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    _run([*command, *OURS, "--extra=demo", "pyproject.toml", "-", "-o", name], "\n".join(build))


def _lock_worker(uv: str) -> None:
    """Give the Worker the same versions as the service. Its SDK is pinned by hand in its project."""
    project = tomllib.loads(WORKER.read_text())
    [sdk] = [line for line in project["dependency-groups"]["dev"] if line.startswith(f"{SDK}==")]
    python = (WORKER.parent / ".python-version").read_text().strip()
    for_worker = [uv, *COMPILE, f"--python-version={python}", "--only-binary=:all:", "--no-annotate"]
    pinned = _run([*for_worker, "-c", "requirements.txt", "-"], "\n".join((*WORKER_NEEDS, sdk)))
    WORKER_TESTS.write_text(pinned)
    names = [name for name in re.findall(r"^[\w.-]+==\S+", pinned, re.MULTILINE) if name != sdk]
    listed = "".join(f'  "{name}",\n' for name in names)
    text, count = re.subn(
        r"(?m)^(dependencies = \[[^\n]*\n)(?:  [^\n]*\n)*(?=\])", rf"\g<1>{listed}", WORKER.read_text()
    )
    assert count == 1, f"{WORKER} has no list of dependencies"
    WORKER.write_text(text)


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout


if __name__ == "__main__":
    main()
