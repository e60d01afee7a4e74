"""Every file that pins a package agrees with pyproject.toml and the others; `make lock` writes them all."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = "out of date: run `make lock`"
PINNED = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
LOCKS = [path for path in sorted(ROOT.glob("*/**/package-lock.json")) if "node_modules" not in path.parts]
WORKER = "deploy/cloudflare/pyproject.toml"
PROJECTS = ("pyproject.toml", "packages/holdfast/pyproject.toml", "packages/stacks-simulator/pyproject.toml")


def project(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text())


def pins(name: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / name).read_text()))


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_dependency_is_pinned_in_an_allowed_version(name: str) -> None:
    """What is needed to install and run in both files, what is needed to develop in one."""
    projects = [project(each) for each in PROJECTS]
    ours = {each["project"]["name"] for each in projects}
    wanted = [
        needed for each in projects for needed in (*each["project"]["dependencies"], *each["build-system"]["requires"])
    ]
    if name == "requirements-dev.txt":
        wanted += projects[0]["project"]["optional-dependencies"]["dev"]
    pinned = pins(name)
    assert not ours & pinned.keys(), "our own packages are installed from the checkout"
    for requirement in map(Requirement, wanted):
        if requirement.name in ours:
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{name} is {LOCK}; it has no {requirement.name}"
        assert version in requirement.specifier, f"{name} is {LOCK}; {requirement} is pinned as {version}"


def test_developers_run_the_versions_that_the_service_runs_on() -> None:
    """What is installed on top for development changes nothing of the runtime."""
    assert pins("requirements.txt").items() <= pins("requirements-dev.txt").items(), f"a file is {LOCK}"


def test_the_worker_is_tested_and_deployed_with_the_versions_that_the_service_runs_on() -> None:
    """The SDK is pinned by hand, in the Worker's project; the rest by `make lock`."""
    worker = project(WORKER)
    [sdk] = [line for line in worker["dependency-groups"]["dev"] if line.startswith("workers-runtime-sdk==")]
    deployed = dict(PINNED.findall("\n".join(worker["project"]["dependencies"])))
    assert pins("tests/cloudflare/requirements.txt") == {**deployed, **dict(PINNED.findall(sdk))}, (
        f"tests/cloudflare/requirements.txt or {WORKER} is {LOCK}"
    )
    assert deployed.items() <= pins("requirements.txt").items(), f"{WORKER} is {LOCK}"


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "requirements-dev.txt",
        "tests/cloudflare/requirements.txt",
        "tools/requirements-fuzz.txt",
        "tools/requirements-mutation.txt",
    ],
)
def test_every_pin_has_its_hashes_and_no_index_is_named(name: str) -> None:
    """A package is what it was when it was pinned, wherever it is fetched from."""
    text = (ROOT / name).read_text()
    for block in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, f"{name} is {LOCK}"
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.name)
def test_no_package_lock_names_a_registry(lock: Path) -> None:
    """Packages come from the registry that npm is configured for, with the content that was pinned."""
    assert '"resolved"' not in lock.read_text()


def test_the_worker_is_deployed_on_the_python_that_it_is_tested_on() -> None:
    """Pyodide 314 is Python 3.14. uv reads `.python-version`, pywrangler the project."""
    packages = json.loads((ROOT / "tests/cloudflare/package.json").read_text())["dependencies"]
    major, minor = packages["pyodide"].split(".")[0][0], packages["pyodide"].split(".")[0][1:]
    python = f"{major}.{minor}"
    assert (ROOT / "deploy/cloudflare/.python-version").read_text().strip() == python
    assert project(WORKER)["project"]["requires-python"] == f">={python},<{major}.{int(minor) + 1}"
