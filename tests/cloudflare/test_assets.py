"""The pages as Cloudflare serves them, with the router of `wrangler dev`: the same as the local ones."""

import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.testing.virtual_time import run_virtual
from support.asgi import Answer
from support.missing import NPM, require
from support.patience import PATIENCE_S
from support.workerd import DEPLOYMENT, RIG, require_workerd, wrangler_config
from support.world import tocsin_in
from tocsin.web.pages import STATIC
from tocsin.web.response import PAGES

SAME_HEADERS = (
    "cache-control",
    "content-security-policy",
    "content-type",
    "referrer-policy",
    "x-content-type-options",
    "x-frame-options",
)
PATHS = [
    *(f"/{name}" for name in PAGES),
    *(
        f"/static/{file.relative_to(STATIC)}"
        for file in sorted(STATIC.rglob("*"))
        if file.is_file() and file.suffix != ".html"
    ),
]


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[http.client.HTTPConnection]:
    """The directory `public` of the bundle behind the router, with the options of wrangler.jsonc."""
    require_workerd()
    require(shutil.which("node") is not None, NPM)
    bundle = tmp_path_factory.mktemp("bundle")
    subprocess.run([sys.executable, str(DEPLOYMENT / "bundle.py"), str(bundle)], check=True)
    command = ["node", str(RIG / "assets.mjs"), str(bundle / "public"), json.dumps(wrangler_config()["assets"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        connection = http.client.HTTPConnection(urlsplit(process.stdout.readline().strip()).netloc, timeout=PATIENCE_S)
        try:
            yield connection
        finally:
            connection.close()
            process.communicate()  # ends its input, and with it the process


def fetched(connection: http.client.HTTPConnection, path: str) -> Answer:
    connection.request("GET", path)
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def test_every_page_and_file_is_the_local_one_with_the_same_headers(
    assets: http.client.HTTPConnection, tmp_path: Path
) -> None:
    """Path, bytes, type, caching and security headers, for every file of the pages."""

    async def local() -> dict[str, Answer]:
        async with tocsin_in(tmp_path) as made:
            return {path: await made.get(path) for path in PATHS}

    for path, here in run_virtual(local()).items():
        there = fetched(assets, path)
        assert (there.status, there.body) == (here.status, here.body) == (200, here.body), path
        assert [there.headers.get(name) for name in SAME_HEADERS] == [
            here.headers.get(name) for name in SAME_HEADERS
        ], path


@pytest.mark.parametrize(
    "path",
    [
        "/api/prices",
        "/api/admin/scheduler",
        "/healthz",
        "/metrics",
        "/nothing",
        "/static/nothing.js",
        "/",
        "/leaderboard",
        "/leaderboard/",
        "/static/leaderboard.html",
        "/rounds",
        "/console/",
    ],
)
def test_other_paths_go_to_the_worker(assets: http.client.HTTPConnection, path: str) -> None:
    """Unknown paths and redirects too, so that they have the same errors and headers as all others."""
    assert fetched(assets, path).body == b"the Worker"
