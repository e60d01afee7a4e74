"""Commands that get bad answers: from another server, and rows with impossible values."""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from support.pages_server import World
from support.scripted_scheduler import ADMIN_KEY
from tocsin.board.types import Board
from tocsin.cli import main
from tocsin.commands import client as service_client
from tocsin.commands import render
from tocsin.commands.client import ServiceAddress, ServiceClient
from tocsin.commands.refresh import refresh_with_progress
from tocsin.errors import RequestRefused
from tocsin.shape import FreeForm


class _Answering(BaseHTTPRequestHandler):
    """Another server, which answers everything with the same JSON."""

    body = b"{}"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_GET  # noqa: N815 - the name that http.server calls

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"status": {"now": "x"}, "rows": [{}], "result": 7}'])
@pytest.mark.parametrize(
    "arguments", ["status", "refresh all", "refresh tenero", "pause --for 1h", "resume", "runs", "prices", "board"]
)
def test_another_server_that_answers_json_is_not_taken_for_the_service(
    arguments: str, body: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence with the port, for every command."""
    monkeypatch.setattr(_Answering, "body", body)
    monkeypatch.setenv("ADMIN_KEY", ADMIN_KEY)
    with HTTPServer(("127.0.0.1", 0), _Answering) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        where = f"127.0.0.1:{server.server_port}"
        monkeypatch.setattr(sys, "argv", ["tocsin", *arguments.split(), "--port", str(server.server_port)])
        with pytest.raises(SystemExit) as ended:
            main()
        server.shutdown()

    assert ended.value.code == 1
    assert f"The server at {where} does not answer like this version of Tocsin" in capsys.readouterr().err


class _Slow(BaseHTTPRequestHandler):
    """A service that takes its time for an action, and whose database is away."""

    def do_POST(self) -> None:
        time.sleep(0.5)
        self._answer(200, {"done": True})

    def do_GET(self) -> None:
        self._answer(503, {"error": "transient_d1_unavailable", "message": "Try again soon.", "code": "x"})

    def _answer(self, status: int, body: FreeForm) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""


@pytest.mark.slow
def test_an_action_may_take_longer_than_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh and a round's action wait for their end; any other call does not. A sentence is shown, not a code."""
    monkeypatch.setattr(service_client, "ANSWER_S", 0.1)
    with HTTPServer(("127.0.0.1", 0), _Slow) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        client = ServiceClient(ServiceAddress("127.0.0.1", server.server_port), ADMIN_KEY)
        with pytest.raises(RequestRefused, match=r"^Try again soon\.$"):
            client.get("/api/competition/leaderboard")
        refreshed = refresh_with_progress(client, "tenero", 0.05, {})
        closed = client.send("/api/admin/competition/finalize", {"action": "close"}, {})
        server.shutdown()

    assert refreshed == closed == {"done": True}


def test_a_row_with_an_impossible_time_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The board is printed, even with a trade in the year 31690708 and with a huge gain."""
    sample: Any = World.sample(3).rows
    sample[0] |= {"latestTradeAt": 10**18, "pnlUsd": 1e300}
    service: FreeForm = {"ready": True, "state": "ready", "reasons": [], "notes": []}
    around: FreeForm = {"asOf": 1, "pricesAsOf": None, "next": None, "sweptAt": None, "service": service}
    board = Board.from_json({"rows": sample, **around})
    for line in render.board(board):
        render.console().print(line)

    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5
    assert re.search(r"1e\+300 .* unknown", printed[1])
