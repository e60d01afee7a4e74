"""The examples of a reverse proxy: valid, and with TLS the service sees the client and sends HSTS."""

import http.client
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.missing import CADDY, NGINX, require
from support.patience import PATIENCE_S
from support.processes import ServiceProcess, held_port, running, until
from tocsin.web.chainhook import BODY_MAX

PROXY = Path(__file__).parents[2] / "deploy" / "proxy"
CADDYFILE = (PROXY / "Caddyfile").read_text()
NGINX_CONF = (PROXY / "nginx.conf").read_text()
NOWHERE = {"HIRO_API_URL": "http://127.0.0.1:9", "TENERO_API_URL": "http://127.0.0.1:9"}
YEAR = "max-age=31536000"


def test_the_limits_are_those_of_the_service() -> None:
    """A push of Chainhook is the largest body; idle connections are dropped before the service closes them."""
    assert f"max_size {BODY_MAX // 2**20}MiB" in CADDYFILE
    assert f"client_max_body_size {BODY_MAX // 2**20}m;" in NGINX_CONF
    assert "keepalive 4s" in CADDYFILE  # uvicorn closes after 5 s
    assert "keepalive_timeout 4s;" in NGINX_CONF


@contextmanager
def caddy(directory: Path, service: str) -> Iterator[int]:
    """Caddy with the example, on a free port, with a self-made certificate."""
    require(shutil.which("caddy") is not None, CADDY)
    with held_port() as port, held_port() as http_port, started_caddy(directory, service, port, http_port):
        yield port


@contextmanager
def started_caddy(directory: Path, service: str, port: int, http_port: int) -> Iterator[None]:
    options = f"admin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\thttp_port {http_port}"
    text = CADDYFILE.replace("127.0.0.1:8787", service).replace("{\n\tservers", f"{{\n\t{options}\n\tservers")
    text = text.replace("tocsin.example.org {", f"https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls internal")
    (directory / "Caddyfile").write_text(text)
    command = ["caddy", "run", "--config", str(directory / "Caddyfile"), "--adapter", "caddyfile"]
    home = {"HOME": str(directory), "XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
    with (directory / "caddy.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"], **home})
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def fetch(port: int, path: str) -> http.client.HTTPResponse:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with closing(http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=trusting)) as connection:
        connection.request("GET", path, headers={"X-Forwarded-For": "203.0.113.9"})
        response = connection.getresponse()
        response.read()
        return response


@pytest.mark.slow
def test_behind_caddy_the_service_sends_strict_transport_security(tmp_path: Path) -> None:
    """On responses and on pages, because the proxy is trusted and says https."""
    service = ServiceProcess(tmp_path / "data", TOCSIN_TRUSTED_PROXIES="127.0.0.1", **NOWHERE)
    with running(service) as made, caddy(tmp_path, made.url.removeprefix("http://")) as port:
        until(lambda: fetch(port, "/healthz").status == 200)
        responses = [fetch(port, path) for path in ("/healthz", "/api/prices", "/leaderboard")]

    assert [(each.status, each.headers["strict-transport-security"]) for each in responses] == [(200, YEAR)] * 3


@pytest.mark.slow
def test_nginx_accepts_its_example(tmp_path: Path) -> None:
    """With a certificate that exists, and with ports and directories that any user may use."""
    require(shutil.which("nginx") is not None and shutil.which("openssl") is not None, NGINX)
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tocsin.example.org"]
    subprocess.run([*request, "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=True)
    site = re.sub(r"/etc/letsencrypt/live/[^/]+", str(tmp_path), NGINX_CONF)
    (tmp_path / "site.conf").write_text(re.sub(r"(listen (?:\[::\]:)?)(80|443)\b", r"\g<1>40\2", site))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {tmp_path}/{kind}; " for kind in kinds)
    (tmp_path / "nginx.conf").write_text(
        f"events {{}}\npid {tmp_path}/pid;\nhttp {{ {paths}include {tmp_path}/site.conf; access_log off; }}\n"
    )
    done = subprocess.run(
        ["nginx", "-t", "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "X-Forwarded-For $remote_addr;" in site  # replaced, not appended to
    assert "X-Forwarded-Proto $scheme;" in site
