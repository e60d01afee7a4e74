"""Ports that belong to one test."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """Hold a port on which nothing listens and which the system gives to nobody else.

    A server that is given this number can listen there, stop, and listen again.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        if sys.platform != "linux":  # elsewhere a bound port cannot be shared with a server
            held.close()
        yield port
