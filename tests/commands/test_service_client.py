"""The client of the running service: where it is, over TLS, to whom a key is sent, and bad answers."""

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from holdfast.errors import UsageError
from support.answers import Answer, answering
from support.missing import OPENSSL, require
from support.patience import PATIENCE_S
from support.web_thread import Running
from support.world import ADMIN_KEY
from tocsin.cli import main
from tocsin.commands import client as service_client
from tocsin.commands.client import ServiceAddress, ServiceClient, client_of, is_this_machine, parse_url
from tocsin.commands.files import read_settings
from tocsin.commands.refresh import refresh_with_progress
from tocsin.errors import RequestRefused, ServiceUnreachable
from tocsin.settings import Settings, SettingsError, read

# A proxy with TLS and a path prefix, in front of a service on loopback, with its own CA


@dataclass
class Proxy:
    """The requests it got: their paths, and whether they carried a key."""

    port: int
    asked: list[tuple[str, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Certificate:
    """For `localhost`, signed by the CA of the file `ca`."""

    ca: Path
    file: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    require(shutil.which("openssl") is not None, OPENSSL)
    ca, ca_key, file, key = (directory / name for name in ("ca", "ca.key", "it", "it.key"))
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    # Python 3.13 checks as RFC 5280 demands: a CA must say that it may sign.
    may_sign = ("-addext", "keyUsage=critical,keyCertSign")
    name = ("-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE")
    _openssl(*new, "-subj", "/CN=a CA of a test", *may_sign, "-keyout", ca_key, "-out", ca)
    signed = ("-CA", ca, "-CAkey", ca_key)
    _openssl(*new, "-subj", "/CN=localhost", *name, *signed, "-keyout", key, "-out", file)
    return Certificate(ca, file, key)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@contextmanager
def proxied(service_port: int, prefix: str, certificate: Certificate) -> Iterator[Proxy]:
    """Pass on requests below the prefix, without the prefix. Everything else gets a 404."""

    def respond(request: BaseHTTPRequestHandler) -> Answer:
        made.asked.append((request.path, "X-Admin-Key" in request.headers))
        if not request.path.startswith(f"{prefix}/"):
            return 404, {}, b""
        with closing(http.client.HTTPConnection("127.0.0.1", service_port, timeout=PATIENCE_S)) as service:
            service.request(request.command, request.path.removeprefix(prefix), headers=dict(request.headers))
            answer = service.getresponse()
            return answer.status, {"Content-Type": answer.getheader("Content-Type", "")}, answer.read()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    made = Proxy(0)
    with answering(respond, context) as made.port:
        yield made


# The commands


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def proxy(running: Running, certificate: Certificate) -> Iterator[Proxy]:
    with proxied(running.port, "/some/where", certificate) as made:
        yield made


class Command:
    """The command in this process, in an empty directory with a key in the environment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        with self._monkeypatch.context() as patched:
            for name, value in {"ADMIN_KEY": ADMIN_KEY, **environment}.items():
                patched.setenv(name, value)
            patched.setattr(sys, "argv", ["tocsin", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        printed = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("status", "Next alarm:"),
        ("runs --limit 5", "2026-05-13 19:30:00 UTC"),
        ("runs --daily", "failed=1 ok=2"),
        ("refresh rounds", "rounds: ok"),
        ("pause --for 2h", "Paused until "),
        ("resume --reason done", "Nothing was paused."),
        ("audit", "alice"),
        ("prices stx", "0.85"),
        ("board", "1,234.50"),
    ],
)
def test_every_command_works_over_tls_behind_a_prefix(
    arguments: str, shown: str, command: Command, proxy: Proxy, certificate: Certificate
) -> None:
    url = f"https://localhost:{proxy.port}/some/where/"
    command("resume", "--url", url, SSL_CERT_FILE=str(certificate.ca))  # something to find in the audit log
    proxy.asked.clear()

    by_option = command(*arguments.split(), "--url", url, SSL_CERT_FILE=str(certificate.ca))
    by_setting = command(*arguments.split(), TOCSIN_URL=url, SSL_CERT_FILE=str(certificate.ca))

    assert (by_option[0], by_option[2]) == (by_setting[0], by_setting[2]) == (0, "")
    assert shown in by_option[1]
    assert shown in by_setting[1]
    is_public = arguments.split(maxsplit=1)[0] in {"prices", "board"}
    assert {(path.startswith("/some/where/api/"), keyed) for path, keyed in proxy.asked} == {(True, not is_public)}


@pytest.mark.parametrize(
    ("host", "trusts", "reason"),
    [("localhost", False, "unable to get local issuer certificate"), ("127.0.0.1", True, "IP address mismatch")],
)
def test_a_certificate_that_does_not_fit_gets_nothing_and_a_sentence(
    host: str, trusts: bool, reason: str, command: Command, proxy: Proxy, certificate: Certificate
) -> None:
    """A certificate of an unknown CA, and one for another name. The request with the key is not sent."""
    proxy.asked.clear()
    environment = {"SSL_CERT_FILE": str(certificate.ca)} if trusts else {}

    code, out, error = command("status", "--url", f"https://{host}:{proxy.port}/some/where", **environment)

    assert (code, out) == (1, "")
    assert error.startswith(f"The certificate of https://{host}:{proxy.port}/some/where is not trusted (")
    assert reason in error
    assert error.endswith("set SSL_CERT_FILE to that CA's certificate.\n")
    assert proxy.asked == []


def test_tls_to_a_port_without_it_is_a_sentence(command: Command, running: Running) -> None:
    code, _, error = command("status", "--url", f"https://127.0.0.1:{running.port}")

    assert code == 1
    assert error.startswith(f"No TLS connection to https://127.0.0.1:{running.port} (")
    assert error.endswith("Give --url with http:// if it has no TLS.\n")


def test_http_to_a_prefix_works_on_this_machine_and_the_wrong_prefix_is_a_sentence(
    command: Command, running: Running
) -> None:
    """404 with the service's own sentence, not a traceback."""
    fine = command("prices", "--json", "--url", f"http://localhost:{running.port}")
    wrong = command("prices", "--url", f"http://127.0.0.1:{running.port}/else/where")

    assert json.loads(fine[1])["prices"]["stx"]["priceUsd"] == 0.85
    assert (wrong[0], "Traceback" in wrong[2]) == (1, False)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int, command: Command) -> None:
    """The key would be sent along. The sentence names the host, and nothing that may be secret."""
    asked: list[str] = []

    def respond(request: BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return 200, {}, b"{}"

    with answering(respond) as there:
        to = f"http://u:hunter2@127.0.0.1:{there}/x?token=hunter3"
        with answering(lambda _: (status, {"Location": to}, b"")) as here:
            code, _, error = command("pause", "--for", "1h", "--url", f"http://127.0.0.1:{here}")

    assert (code, asked) == (1, [])
    assert f"The server at 127.0.0.1:{here} redirects to http://127.0.0.1. Redirects are not followed" in error
    assert "hunter" not in error


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(502, "answers 502 without a reason: a proxy"), (504, "answers 504"), (200, "is not Tocsin. Give its --url")],
)
def test_a_page_of_a_proxy_is_a_sentence(status: int, sentence: str, command: Command) -> None:
    with answering(lambda _: (status, {}, b"<html>")) as port:
        code, _, error = command("board", "--url", f"http://127.0.0.1:{port}")

    assert code == 1
    assert sentence in error


@pytest.mark.parametrize("arguments", [("--url", "http://198.51.100.1"), ("--host", "198.51.100.1", "--port", "80")])
@pytest.mark.parametrize("name", ["ADMIN_KEY", "TOCSIN_VIEWER_KEY"])
def test_a_key_is_not_sent_unencrypted_to_another_machine(
    arguments: tuple[str, ...], name: str, command: Command
) -> None:
    """By URL or by host; nothing is sent there."""
    code, _, error = command("status", *arguments, **{"ADMIN_KEY": "", name: "the-key-of-alice"})

    assert code == 2
    assert error.startswith("The key would be sent to 198.51.100.1:80 unencrypted. Give --url with https://")
    assert "alice" not in error


def test_what_is_this_machine() -> None:
    """Loopback under any name and the addresses of our own interfaces are local; an unknown name is not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
            own = probe.getsockname()[0]
        except OSError:
            own = "127.0.0.2"  # a machine without a network

    assert [is_this_machine(host) for host in ("127.0.0.1", "localhost", "::1", own)] == [True] * 4
    others = ("198.51.100.1", "2001:db8::1", "no-such-host.invalid", "a..b")
    assert [is_this_machine(host) for host in others] == [False] * 4


def test_a_name_with_another_address_too_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection may go to either, so the key would leave this machine."""
    loopback, other = (
        (socket.AF_INET, socket.SOCK_DGRAM, 17, "", (address, 9)) for address in ("127.0.0.1", "198.51.100.1")
    )
    for found in ([loopback, other], [other, loopback]):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found, **__: found)
        assert is_this_machine("two.example") is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("https://alice:hunter2@example.org", "has a user name or a password"),
        ("https://hunter2@example.org", "has a user name or a password"),
        ("https://example.org/?key=hunter2", "has a query or a fragment"),
        ("https://example.org/#hunter2", "has a query or a fragment"),
        ("example.org", "does not begin with https:// or http://"),
        ("file:///etc/passwd", "does not begin with https:// or http://"),
        ("https://", "has no host"),
        ("https://example.org:0", "has the port 0"),
        ("https://example.org:99999", "its host or its port is wrong"),
        ("https://exa mple.org", "has a space"),
        ("", "does not begin with"),
    ],
)
def test_a_url_that_will_not_do_is_refused_and_not_repeated(url: str, sentence: str, command: Command) -> None:
    code, out, error = command("prices", "--url", url)

    assert (code, out) == (2, "")
    assert error.startswith("--url ")
    assert sentence in error
    assert error.endswith(". Example: https://tocsin.example.org/prefix\n")
    assert "hunter" not in error


def test_a_host_name_that_cannot_be_is_a_sentence(command: Command) -> None:
    assert "has an invalid host name" in command("prices", "--url", "https://a..b")[2]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://example.org", ServiceAddress("example.org", 443, "", tls=True)),
        ("http://example.org/a/b//", ServiceAddress("example.org", 80, "/a/b")),
        ("http://[::1]:8787/", ServiceAddress("::1", 8787)),
        ("http://0.0.0.0:1", ServiceAddress("127.0.0.1", 1)),
    ],
)
def test_a_url_becomes_an_address(url: str, address: ServiceAddress) -> None:
    assert parse_url(url, "--url") == address


def test_a_url_and_a_port_together_are_refused(command: Command) -> None:
    assert command("status", "--url", "http://127.0.0.1", "--port", "1")[::2] == (
        2,
        "Give --url, or --host and --port, but not both.\n",
    )


def test_a_wrong_tocsin_url_is_named(command: Command) -> None:
    assert command("prices", TOCSIN_URL="localhost:8787")[2].startswith("TOCSIN_URL does not begin with")


@pytest.mark.parametrize(
    "arguments",
    [
        "serve --url http://x",
        "import agents.jsonl --url=http://x",
        "export swaps --url http://x",
        "recount x.jsonl --url http://x",
        "rebuild --url http://x",
        "check --url http://x",
        "doctor --url http://x",
        "backup --url http://x",
        "verify b.tar --url http://x",
        "restore b.tar --url http://x",
        "simulate --url http://x",
    ],
)
def test_a_command_of_this_machine_has_no_url_and_says_so(arguments: str, command: Command) -> None:
    code, out, error = command(*arguments.split())

    assert (code, out) == (2, "")
    assert error.startswith(f"`tocsin {arguments.split(maxsplit=1)[0]}` works on this machine and has no --url: ")


def test_tocsin_url_means_nothing_to_the_service_and_to_commands_of_this_machine(command: Command) -> None:
    """Not even a wrong one stops a start."""
    assert read({"TOCSIN_URL": "not a URL"}) == Settings()
    assert command("rebuild", TOCSIN_URL="not a URL")[2].startswith("There is no data/db.sqlite: set --data-dir.")


def test_a_misspelled_tocsin_url_is_recognized() -> None:
    with pytest.raises(SettingsError, match=r"Did you mean TOCSIN_URL\?"):
        read({"TOCSIN_URLS": "https://example.org"})


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"status": {"now": "x"}, "rows": [{}], "result": 7}'])
@pytest.mark.parametrize(
    "arguments", ["status", "refresh all", "refresh tenero", "pause --for 1h", "resume", "runs", "prices", "board"]
)
def test_another_server_that_answers_json_is_not_taken_for_the_service(
    arguments: str, body: bytes, command: Command
) -> None:
    """A sentence with the port, for every command."""
    with answering(lambda _: (200, {}, body)) as port:
        code, _, error = command(*arguments.split(), "--port", str(port))

    assert code == 1
    assert f"The server at 127.0.0.1:{port} does not answer like this version of Tocsin" in error


@pytest.mark.slow
def test_an_action_may_take_longer_than_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh and a round's action wait for their end; any other call does not. A sentence is shown, not a code."""
    monkeypatch.setattr(service_client, "ANSWER_S", 0.1)
    refusal = {"error": "transient_d1_unavailable", "message": "Try again soon.", "code": "x"}

    def respond(request: BaseHTTPRequestHandler) -> Answer:
        if request.command == "GET":
            return 503, {}, json.dumps(refusal).encode()
        time.sleep(0.5)
        return 200, {}, b'{"done": true}'

    with answering(respond) as port:
        client = ServiceClient(ServiceAddress("127.0.0.1", port), ADMIN_KEY)
        with pytest.raises(RequestRefused, match=r"^Try again soon\.$"):
            client.get("/api/competition/leaderboard")
        refreshed = refresh_with_progress(client, "tenero", None)
        closed = client.send("/api/admin/competition/finalize", {"action": "close"}, {})

    assert refreshed == closed == {"done": True}


def test_events_end_at_a_pause_or_follow_until_nothing_comes_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is silent for longer than the service ever is has been lost: that is no end."""
    monkeypatch.setattr(service_client, "QUIET_S", 0.05)
    monkeypatch.setattr(service_client, "FOLLOW_S", 0.5)
    ended = Event()

    def respond(request: BaseHTTPRequestHandler) -> Answer:
        request.wfile.write(b'HTTP/1.0 200 OK\r\n\r\nid: 7\ndata: {"event": "run.ended"}\n\n')
        ended.wait(PATIENCE_S)
        return 200, {}, b""

    with answering(respond) as port:
        client = ServiceClient(ServiceAddress("127.0.0.1", port), ADMIN_KEY)
        shown, followed = list(client.events(follow=False)), client.events(follow=True)
        first, began = next(followed), time.perf_counter()
        with pytest.raises(ServiceUnreachable, match="did not answer within"):
            next(followed)
        waited_s = time.perf_counter() - began
        ended.set()

    assert shown == [first] == ['{"event": "run.ended"}']
    assert waited_s >= 0.4


@pytest.mark.parametrize(
    ("environment", "file", "options"),
    [
        ({"ADMIN_KEY": "secret"}, "TOCSIN_HOST=evil.test", {}),
        ({"ADMIN_KEY": "secret"}, "TOCSIN_PORT=9001", {"host": "127.0.0.1"}),
        ({"ADMIN_KEY": "secret", "TOCSIN_HOST": "127.0.0.1"}, "ADMIN_KEY=x\nTOCSIN_PORT=9001", {}),
        ({"TOCSIN_HOST": "127.0.0.1"}, "ADMIN_KEY=secret", {}),
        ({"ADMIN_KEY": "secret"}, "TOCSIN_URL=https://evil.test", {}),
        ({"ADMIN_KEY": "secret", "TOCSIN_PORT": "1"}, "TOCSIN_URL=https://evil.test", {}),
        ({"TOCSIN_URL": "https://evil.test"}, "ADMIN_KEY=secret", {}),
        ({"TOCSIN_VIEWER_KEY": "secret"}, "TOCSIN_URL=https://evil.test", {}),
    ],
)
def test_a_key_is_not_sent_to_an_address_from_another_place(
    environment: dict[str, str], file: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A `.env` in some directory must not receive the key of the environment at its own address."""
    dotenv = tmp_path / ".env"
    dotenv.write_text(file)
    client = client_of(environment, dotenv, **options)

    with pytest.raises(UsageError, match=r"Set both in one of them, or give --host and --port") as caught:
        client.get("/api/admin/scheduler", keyed=True)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "file", "options"),
    [
        ({"ADMIN_KEY": "k", "TOCSIN_PORT": "1"}, "TOCSIN_PORT=9001", {}),
        ({"ADMIN_KEY": "k"}, "TOCSIN_HOST=evil.test\nTOCSIN_PORT=9001", {"host": "127.0.0.1", "port": 1}),
        ({}, "ADMIN_KEY=k\nTOCSIN_HOST=127.0.0.1\nTOCSIN_PORT=1", {}),
        ({}, "ADMIN_KEY=k", {"port": 1}),
        ({"ADMIN_KEY": "k"}, "TOCSIN_URL=https://evil.test", {"port": 1}),
        ({"ADMIN_KEY": "k"}, "TOCSIN_URL=https://evil.test", {"url": "http://127.0.0.1:1/"}),
        ({"ADMIN_KEY": "k", "TOCSIN_URL": "http://127.0.0.1:1"}, "TOCSIN_URL=https://evil.test", {}),
        ({}, "ADMIN_KEY=k\nTOCSIN_URL=http://127.0.0.1:1/\nTOCSIN_PORT=9001", {}),
    ],
)
def test_a_key_is_sent_to_an_address_from_its_own_place_or_the_command_line(
    environment: dict[str, str], file: str, options: dict[str, Any], tmp_path: Path
) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text(file)
    with pytest.raises(ServiceUnreachable, match=r"No service answers at 127\.0\.0\.1:1 "):
        client_of(environment, dotenv, **options).get("/api/admin/scheduler", keyed=True)


def test_an_upstreams_key_is_not_combined_with_an_address_of_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIRO_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("TOCSIN_ALERT_KEY", "a-routing-key")
    (tmp_path / ".env").write_text("HIRO_API_URL=https://evil.test\nTOCSIN_ALERT_URL=https://evil.test/x\n")

    with pytest.raises(SettingsError) as caught:
        read_settings()

    rule = "a key is sent only to an address from the same source. Set both in one of them"
    assert str(caught.value).splitlines()[1:] == [
        f"  HIRO_API_KEY comes from the environment and HIRO_API_URL from .env: {rule}",
        f"  TOCSIN_ALERT_KEY comes from the environment and TOCSIN_ALERT_URL from .env: {rule}",
    ]
