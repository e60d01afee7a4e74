"""A proxy with TLS and a path prefix, in front of a service on loopback, with its own CA."""

import http.client
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from support.missing import OPENSSL, require
from support.patience import PATIENCE_S


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

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            proxy.asked.append((self.path, "X-Admin-Key" in self.headers))
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            with closing(http.client.HTTPConnection("127.0.0.1", service_port, timeout=PATIENCE_S)) as service:
                service.request(self.command, self.path.removeprefix(prefix), headers=dict(self.headers))
                answer = service.getresponse()
                body = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", ""))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    with _Server(("127.0.0.1", 0), Handler) as server:
        # The handshake happens in the thread of the request: a failed one must not stop the server.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        proxy = Proxy(server.server_port)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore errors: some tests make the client abandon the handshake."""
