"""An HTTP server in a thread, with or without TLS, for programs that call one."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeAlias

Answer: TypeAlias = tuple[int, Mapping[str, str], bytes]  # status, headers and body


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore errors: some tests make the client abandon the handshake."""


@contextmanager
def answering(
    respond: Callable[[BaseHTTPRequestHandler], Answer], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Answer every request as `respond` says. Yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = respond(self)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            # The handshake happens in the thread of the request: a failed one must not stop the server.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
