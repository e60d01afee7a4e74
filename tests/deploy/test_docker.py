"""The container image, judged by its files: no root, no secrets, everything pinned."""

import ast
import json
import re
from pathlib import Path

from tocsin import settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile in order: name and the rest, with continued lines joined."""
    lines = [line for line in (DOCKER / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, _, rest in found]


def all_of(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def test_it_runs_as_a_user_without_rights() -> None:
    """By number, and after everything that needs root."""
    names = [name for name, _ in instructions()]

    assert all_of("USER") == ["10001:10001"]
    assert names.index("USER") > max(n for n, name in enumerate(names) if name in {"RUN", "COPY"})
    assert (all_of("ENTRYPOINT"), all_of("CMD")) == (['["tocsin"]'], ['["serve"]'])


def test_everything_is_pinned() -> None:
    """The base by version and release of Debian, packages by hash; nothing is fetched from an address."""
    (base,) = all_of("ARG")
    assert re.fullmatch(r"PYTHON=python:3\.\d+-slim-[a-z]+", base), base
    assert all_of("FROM") == ["${PYTHON} AS build", "${PYTHON}"]
    assert "ADD" not in [name for name, _ in instructions()]
    assert not any("://" in rest or "curl" in rest or "apt-get" in rest for rest in all_of("RUN"))
    installs = [rest for rest in all_of("RUN") if "pip install" in rest]
    assert all("--require-hashes" in rest or "--no-deps" in rest for rest in installs)
    assert not any("requirements-dev" in rest for _, rest in instructions())


def test_our_packages_come_from_the_checkout() -> None:
    """The build installs each of them without asking an index."""
    [install] = [rest for rest in all_of("RUN") if "--no-build-isolation" in rest]
    ours = [f"./packages/{path.parent.name}" for path in (ROOT / "packages").glob("*/pyproject.toml")]

    assert {*ours, "."} <= set(install.split())


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    """The ignore file lets in exactly what the Dockerfile copies."""
    copied = [source for rest in all_of("COPY") if not rest.startswith("--from") for source in rest.split()[:-1]]
    ignore = (DOCKER / "Dockerfile.dockerignore").read_text().split()

    assert all((ROOT / source).exists() for source in copied)
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == set(copied)
    assert "*" in ignore


def test_the_health_check_is_python_that_asks_for_life() -> None:
    """The image has no curl."""
    [check] = all_of("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])

    assert command[:2] == ["python", "-c"]
    ast.parse(command[2])
    assert "/healthz" in command[2]


def test_its_settings_are_accepted() -> None:
    """The settings of the image, and those of the example file."""
    [environment] = all_of("ENV")
    pairs = dict(part.split("=", 1) for part in environment.split())
    own = {name: value for name, value in pairs.items() if name.startswith("TOCSIN_")}
    example = settings.read_env_file((DOCKER / "tocsin.env.example").read_bytes())
    read = settings.read({**own, **example})

    assert (read.host, read.port, read.data_dir) == ("0.0.0.0", 8787, "/data")
    assert all_of("VOLUME") == ['["/data"]']
    assert not {known.name for known in settings.ALL if known.secret and example.get(known.name)}


def test_compose_drops_every_capability() -> None:
    """Read-only, no capabilities, no new privileges, and only this machine reaches the port."""
    text = (DOCKER / "compose.yml").read_text()

    for line in ("read_only: true", "- ALL", "- no-new-privileges:true", '- "127.0.0.1:8787:8787"'):
        assert line in text
    assert "env_file: tocsin.env" in text
    assert "deploy/docker/tocsin.env" in (ROOT / ".gitignore").read_text()
