"""The whole site in the real runtime: what the sweep stores, what visitors and operators are answered."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from support.asgi import Answer
from support.simulator_process import root_of, running_simulator
from support.workerd import Workerd, require_workerd, running
from tocsin.platform.cloudflare.subrequests import RESERVED_FOR_STORES, SUBREQUESTS_MAX
from tocsin.web.event_streams import STREAMS_MAX
from tocsin.web.request_limits import BODY_MAX

ADMIN = {"X-Admin-Key": "an-admin-key-for-tests"}
SCHEDULER = "/api/admin/scheduler"
SWAPS = """
SELECT txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height FROM swaps ORDER BY block_height, txid"""
AGENTS = """
INSERT INTO agents (btc_address, stx_address, display_name, erc8004_agent_id)
SELECT json_extract(value, '$.btc_address'), json_extract(value, '$.stx_address'),
  json_extract(value, '$.display_name'), json_extract(value, '$.erc8004_agent_id') FROM json_each(?)"""
CLAIMS = """
INSERT INTO claims (btc_address, status)
SELECT json_extract(value, '$.btc_address'), json_extract(value, '$.claim.status') FROM json_each(?)
WHERE json_extract(value, '$.claim') IS NOT NULL"""


@dataclass
class DeployedSite:
    """A deployment beside a chain that stands still, swept once."""

    workerd: Workerd
    simulator: str
    refreshed: Answer

    def simulated(self, path: str, values: Any = None) -> Any:
        body = None if values is None else json.dumps(values).encode()
        with urlopen(Request(f"{self.simulator}/{path}", body)) as answer:
            return json.load(answer)

    def act(self, action: str) -> Answer:
        return self.workerd.ask(f"{SCHEDULER}?action={action}", method="POST", headers=ADMIN)

    def submit(self, txid: str) -> Answer:
        body = json.dumps({"txid": txid}).encode()
        return self.workerd.ask("/api/competition/trades", method="POST", body=body)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedSite]:
    require_workerd()
    with running_simulator(wallets=12, history_hours=0.5, speed=0) as upstreams:
        settings = {**upstreams, "ADMIN_KEY": ADMIN["X-Admin-Key"]}
        with running(tmp_path_factory.mktemp("site"), settings) as workerd:
            simulator = root_of(upstreams)
            with urlopen(f"{simulator}/_agents") as lines:
                agents = json.dumps([json.loads(line) for line in lines])
            workerd.migrate()
            workerd.sql((AGENTS, [agents]), (CLAIMS, [agents]))
            made = DeployedSite(workerd, simulator, Answer(0, {}, b""))
            made.refreshed = made.act("refresh&task=all")
            yield made


def test_a_sweep_stores_exactly_the_true_swaps(site: DeployedSite) -> None:
    """What the chain's generator meant to be swaps is in D1, and nothing else, to the last digit."""
    truth = site.simulated("_truth")["swaps"]
    [stored] = site.workerd.sql((SWAPS, []))
    assert stored == truth
    assert site.refreshed.json()["result"]["sweep"]["inserted"] == len(truth) > 50


def test_prices_of_traded_tokens_are_kept_and_shown(site: DeployedSite) -> None:
    """The tokens that the sweep found are priced by the next refresh; KV and the route say the same."""
    assert site.act("refresh&task=tenero").json()["result"]["failed"] == 0
    shown = site.workerd.ask("/api/prices").json()
    token_id = next(token_id for token_id in shown["prices"] if token_id != "stx")
    cached = json.loads(site.workerd.call("CONTRACT", "x", "kv_get", f"tenero:price:{token_id}"))
    assert len(shown["prices"]) > 3
    assert shown["prices"][token_id]["priceUsd"] == cached["priceUsd"]


def test_the_board_and_trades_show_what_was_swept(site: DeployedSite) -> None:
    """As many trades as the truth has, with the trades of each agent."""
    truth = site.simulated("_truth")["swaps"]
    rows = site.workerd.ask("/api/competition/leaderboard?limit=200").json()["rows"]
    first = rows[0]["stxAddress"]
    trades = site.workerd.ask(f"/api/competition/trades?address={first}&limit=200").json()
    assert sum(row["tradeCount"] for row in rows) == len(truth)
    assert len(trades["trades"]) == rows[0]["tradeCount"] == sum(swap["sender"] == first for swap in truth)


def test_an_operator_pauses_resumes_and_refreshes(site: DeployedSite) -> None:
    """By the admin routes, for whoever has the key; the status follows."""
    until = site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]["now"] + 60_000
    assert site.act(f"pause&until={until}").json() == {"name": "v1", "pausedUntil": until}
    assert site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]["pausedUntil"] == until
    assert site.act("resume").json() == {"name": "v1", "resumed": True}
    assert site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]["pausedUntil"] is None
    assert site.act("refresh&task=sweep").json()["result"]["inserted"] == 0
    assert site.act("refresh&task=nothing").status == 400
    assert site.workerd.ask(SCHEDULER).status == 401


def test_a_trade_is_submitted(site: DeployedSite) -> None:
    """Verified at once, known the second time, and refused with a reason where it is none."""
    [txid] = site.simulated("_control/swap", {"wallet": 0})["txids"]
    assert site.submit(txid).status == 202  # in the mempool
    site.simulated("_control/mine", {})
    first, second = site.submit(txid), site.submit(txid)
    assert (first.status, first.json()["txid"]) == (200, txid)
    assert (second.status, second.json()["existing_row"]["txid"]) == (409, txid)
    assert site.submit("0x" + "0" * 64).status == 404
    assert site.submit("no txid").status == 400


def test_a_sweep_that_may_ask_for_no_more_goes_on_in_the_next_run(site: DeployedSite) -> None:
    """It ends as stopped, which is no failure; what it found is kept, and in the end nothing is missing."""
    site.simulated("_control/swap", {"wallet": 0, "count": 400})
    site.simulated("_control/mine", {})
    site.workerd.limit_subrequests(RESERVED_FOR_STORES + 180)
    outcomes: list[str] = []
    while outcomes[-1:] != ["ok"]:
        result = site.act("refresh&task=sweep").json()["result"]
        outcomes.append(result["run"]["outcome"])
        assert len(outcomes) < 20, site.workerd.output()
    site.workerd.limit_subrequests(SUBREQUESTS_MAX)
    [stored] = site.workerd.sql((SWAPS, []))
    status = site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]
    assert set(outcomes[:-1]) == {"stopped"}
    assert stored == site.simulated("_truth")["swaps"]
    assert status["consecutiveFailures"]["sweep"] == 0


def test_requests_are_answered_as_http_has_it(site: DeployedSite) -> None:
    """A HEAD has no body, what is known is not sent again, and a wrong method is told the right one."""
    whole = site.workerd.ask("/api/prices")
    head = site.workerd.ask("/api/prices", method="HEAD")
    known = site.workerd.ask("/api/prices", headers={"If-None-Match": whole.headers["etag"]})
    wrong = site.workerd.ask("/api/prices", method="DELETE")
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", whole.headers["etag"])
    assert (known.status, known.body) == (304, b"")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert whole.headers["x-content-type-options"] == "nosniff"


def test_a_body_is_refused_before_it_is_read(site: DeployedSite) -> None:
    """One that announces too much at once; one that announces nothing as soon as it is too much."""
    connection = http.client.HTTPConnection("127.0.0.1", site.workerd.port, timeout=20)
    connection.putrequest("POST", "/api/competition/trades")
    connection.putheader("Content-Length", str(10 * 1024 * 1024))
    connection.endheaders()
    announced = connection.getresponse()
    assert (announced.status, json.loads(announced.read())["code"]) == (413, "body_too_large")
    connection.close()

    connection.putrequest("POST", "/api/competition/trades")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    piece = b" " * 16_384
    for _ in range(BODY_MAX // len(piece) + 1):
        connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    silent = connection.getresponse()  # the body has not ended
    assert (silent.status, json.loads(silent.read())["code"]) == (413, "body_too_large")
    connection.close()


def test_posts_are_limited_by_the_address_that_cloudflare_tells(site: DeployedSite) -> None:
    """One client uses up its posts; another has all of its own."""

    def post(address: str) -> int:
        headers = {"cf-connecting-ip": address}
        return site.workerd.ask("/api/competition/trades", method="POST", headers=headers, body=b"{}").status

    taken = 0
    while (status := post("192.0.2.1")) != 429:
        assert status == 400
        taken += 1
    assert taken >= 60  # one more for every second that this took
    assert post("192.0.2.2") == 400


class Events:
    """A client of the event stream."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        head = ["GET /api/admin/scheduler/events HTTP/1.1", "Host: x", f"X-Admin-Key: {ADMIN['X-Admin-Key']}"]
        self._socket.sendall("\r\n".join([*head, "", ""]).encode())
        self._seen = b""

    def until(self, words: bytes) -> bytes:
        while words not in self._seen:
            piece = self._socket.recv(65_536)
            assert piece, self._seen[-500:]
            self._seen += piece
        return self._seen

    def close(self) -> None:
        self._socket.close()


def test_events_come_while_things_happen(site: DeployedSite) -> None:
    """A run is seen to start and to end on a stream that was open before."""
    events = Events(site.workerd.port)
    events.until(b"retry: 2000")
    run = site.act("refresh&task=tenero").json()["result"]["run"]["id"]
    seen = events.until(b'"run":%d}' % run)  # as the last event of a run ends
    assert b"HTTP/1.1 200 OK" in seen
    assert seen.count(b'"run.ended","task":"tenero"') >= 1
    assert b'"run.started","task":"tenero","run":%d' % run in seen
    events.close()


def test_streams_whose_clients_have_gone_make_room(site: DeployedSite) -> None:
    """More clients than may listen at once come and go; that one has gone may take a moment to be noticed."""
    opened = attempts = 0
    while opened < STREAMS_MAX + 4:
        events = Events(site.workerd.port)
        opened += events.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        events.close()
        attempts += 1
        assert attempts < 500
        site.workerd.ask("/healthz")


def test_health_is_what_the_scheduler_says(site: DeployedSite) -> None:
    """Alive, ready, and in numbers; nothing is told of a process that is not ours."""
    metrics = site.workerd.ask("/metrics").body.decode()
    assert site.workerd.ask("/healthz").json()["ok"] is True
    assert site.workerd.ask("/readyz").json() == {"ready": True, "reasons": []}
    assert "tocsin_ready 1\n" in metrics
    assert "tocsin_scheduler_up 1\n" in metrics
    assert not [line for line in metrics.splitlines() if line.startswith("tocsin_loop_tick_age_seconds")]


def test_without_any_binding_every_answer_names_what_is_missing(tmp_path: Path) -> None:
    """No DB, KV, LOGS, SCHEDULER and no key: each route that needs one says so, the others work."""
    require_workerd()
    with running(tmp_path, {}, "not") as workerd:
        told = {
            path: (answer.status, answer.json().get("error", ""))
            for path in ("/healthz", "/readyz", "/api/prices", "/api/competition/leaderboard", SCHEDULER)
            for answer in [workerd.ask(path)]
        }
        told["hook"] = (hook := workerd.ask("/api/deployed", method="POST")).status, hook.json()["error"]
        events = {(line["event"], line.get("binding")) for line in workerd.console()}

    no_db = "The binding DB is missing: add a D1 database named DB to the deployment."
    no_kv = "The binding KV is missing: add a KV namespace named KV to the deployment."
    no_scheduler = (
        "The binding SCHEDULER is missing: bind the class SchedulerDO as SCHEDULER in wrangler.jsonc."
    )
    assert told["/healthz"] == (200, "")
    assert told["/api/prices"] == (503, no_kv)
    assert told["/api/competition/leaderboard"] == (503, no_db)
    assert told[SCHEDULER][0] == 503
    assert "set ADMIN_KEY" in told[SCHEDULER][1]
    assert told["hook"] == (503, no_scheduler)
    assert told["/readyz"][0] == 503
    assert all(sentence in told["/readyz"][1] for sentence in (no_db, no_kv, no_scheduler))
    assert {("binding.missing", "DB"), ("binding.missing", "KV"), ("scheduler.not_armed", None)} <= events
