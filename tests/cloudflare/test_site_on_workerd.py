"""The whole site in the real runtime: what the sweep stores, and what visitors and operators get."""

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from examples.verify_job import verify

from holdfast.subrequests import RESERVED_FOR_STORES, SUBREQUESTS_MAX
from support import answers
from support.asgi import Answer
from support.patience import PATIENCE_S
from support.processes import root_of, running_simulator, until
from support.service_states import CASES, NOW, check, entries_of
from support.workerd import Workerd, require_workerd, running
from tocsin.web.events import STREAMS_MAX
from tocsin.web.limits import BODY_MAX

ADMIN = {"X-Admin-Key": "an-admin-key-for-tests"}
VIEWER = {"X-Admin-Key": "a-viewers-key-for-tests"}
ELSEWHERE = {"cf-connecting-ip": "203.0.113.99"}  # a client that has not guessed yet
LOOKUP = {"X-Api-Key": "a-programs-key-for-tests"}
SCHEDULER = "/api/admin/scheduler"
PUBLIC = "https://board.example"
JOB_SECRET = "a-long-random-text-of-the-site"
SWAPS = """
SELECT txid, sender, contract_id, function_name, token_in, amount_in, token_out, amount_out, burn_block_time,
  block_height FROM swaps ORDER BY block_height, txid"""


@dataclass
class DeployedSite:
    """A deployment with a stopped chain, swept once."""

    workerd: Workerd
    simulator: str
    refreshed: Answer

    def simulated(self, path: str, values: Any = None) -> Any:
        body = None if values is None else json.dumps(values).encode()
        sent = Request(f"{self.simulator}/{path}", body, {"Content-Type": "application/json"})
        with urlopen(sent) as response:
            return json.load(response)

    def act(self, action: str) -> Answer:
        return self.workerd.ask(f"{SCHEDULER}?action={action}", method="POST", headers=ADMIN)

    def finished_runs(self) -> list[dict[str, Any]]:
        """Return all runs so far, after waiting for those the alarm has started."""
        while True:
            runs = self.workerd.ask(f"{SCHEDULER}/runs?limit=500", headers=ADMIN).json()["runs"]
            if all(run["outcome"] != "running" for run in runs):
                return list(runs)
            time.sleep(0.05)

    def submit(self, txid: str) -> Answer:
        body = json.dumps({"txid": txid}).encode()
        return self.workerd.ask("/api/competition/trades", method="POST", body=body)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedSite]:
    require_workerd()
    with running_simulator(wallets=12, history_hours=0.5, speed=0) as upstreams:
        keys = {"ADMIN_KEY": f"alice:{ADMIN['X-Admin-Key']}", "TOCSIN_VIEWER_KEY": f"carol:{VIEWER['X-Admin-Key']}"}
        keys["TOCSIN_LOOKUP_KEY"] = f"site:40%:{LOOKUP['X-Api-Key']}"
        keys["TOCSIN_JOB_SECRETS"] = f"site:{JOB_SECRET}"
        settings = {**upstreams, **keys, "TOCSIN_PUBLIC_URL": PUBLIC}
        with running(tmp_path_factory.mktemp("site"), settings, optimized=True) as workerd:
            simulator = root_of(upstreams)
            workerd.migrate()
            with urlopen(f"{simulator}/_agents") as lines:
                workerd.import_agents(lines.read().decode())
            deployed = DeployedSite(workerd, simulator, Answer(0, {}, b""))
            deployed.refreshed = deployed.act("refresh&task=all")
            yield deployed


def test_who_may_do_what_and_who_did_it(site: DeployedSite) -> None:
    """A viewer may look but not act; an operator's actions are on record; a reload is a deployment here."""
    until = site.act("pause&for=1h&reason=a%20test").json()["pausedUntil"]
    site.act("resume")
    refused = site.workerd.ask(f"{SCHEDULER}?action=resume", method="POST", headers=VIEWER)
    looked = site.workerd.ask(SCHEDULER, headers=VIEWER)
    reload = site.act("reload")
    records = site.workerd.ask(f"{SCHEDULER}/audit", headers=VIEWER).json()["records"]

    assert (refused.status, refused.json()["code"]) == (403, "read_only_key")
    assert looked.json()["caller"] == {"name": "carol", "role": "viewer"}
    assert (reload.status, reload.json()["code"]) == (409, "reload_is_a_deployment")
    assert [(record["action"], record["outcome"], record["reason"]) for record in records] == [
        ("resume", "done", None),
        ("pause", "done", "a test"),
        ("refresh", "done", None),
    ]
    assert {record["key"] for record in records} == {"alice"}
    assert records[1]["endedAt"] < until


def test_a_preview_has_the_public_address(site: DeployedSite) -> None:
    """It is a setting; the host of the request is another one."""
    sender = site.simulated("_truth")["swaps"][0]["sender"]
    page = site.workerd.ask(f"/agents/{sender}").body.decode()

    assert f'<meta property="og:url" content="{PUBLIC}/agents/{sender}">' in page
    assert "127.0.0.1" not in page


def test_a_feed_and_a_sweep_store_exactly_the_true_swaps(site: DeployedSite) -> None:
    """D1 has exactly the swaps that the simulated chain made, to the last digit, and each was recorded once."""
    truth = site.simulated("_truth")["swaps"]
    [stored] = site.workerd.sql((SWAPS, []))
    runs = site.finished_runs()
    assert stored == truth
    assert sum(run["result"].get("inserted", 0) for run in runs) == len(truth) > 50
    assert {run["task"] for run in runs} >= {"feed", "sweep"}
    assert {run["outcome"] for run in runs} == {"ok"}


def test_prices_of_traded_tokens_are_kept_and_shown(site: DeployedSite) -> None:
    """The next refresh prices the tokens that the sweep found. KV and the route have the same price."""
    assert site.act("refresh&task=tenero").json()["result"]["failed"] == 0
    shown = site.workerd.ask("/api/prices").json()
    token_id = next(token_id for token_id in shown["prices"] if token_id != "stx")
    cached = json.loads(site.workerd.call("CONTRACT", "x", "kv_get", f"tenero:price:{token_id}"))
    assert len(shown["prices"]) > 3
    assert shown["prices"][token_id]["priceUsd"] == cached["priceUsd"]


def test_the_board_and_trades_show_what_was_swept(site: DeployedSite) -> None:
    """The board has as many trades as the chain, and an agent's list has all of its trades."""
    truth = site.simulated("_truth")["swaps"]
    rows = site.workerd.ask("/api/competition/leaderboard?limit=200").json()["rows"]
    first = rows[0]["stxAddress"]
    trades = site.workerd.ask(f"/api/competition/trades?address={first}&limit=200").json()
    assert sum(row["tradeCount"] for row in rows) == len(truth)
    assert len(trades["trades"]) == rows[0]["tradeCount"] == sum(swap["sender"] == first for swap in truth)


def test_an_operator_pauses_resumes_and_refreshes(site: DeployedSite) -> None:
    """With the admin routes and the key. The status shows the change."""
    until = site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]["now"] + 60_000
    assert site.act(f"pause&until={until}").json() == {"name": "v1", "pausedUntil": until}
    assert site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]["pausedUntil"] == until
    assert site.act("resume").json() == {"name": "v1", "resumed": True}
    assert site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]["pausedUntil"] is None
    assert site.act("refresh&task=sweep").json()["result"]["inserted"] == 0
    assert site.act("refresh&task=nothing").status == 400
    assert site.workerd.ask(SCHEDULER).status == 401


def test_the_feed_finds_a_swap_and_keeps_nonces(site: DeployedSite) -> None:
    """A look at the network's list, in the real runtime: the swap is in D1, and the list is read to its anchor."""
    site.act("pause&for=1h")  # otherwise a scheduled run may find it first
    try:
        site.finished_runs()
        txids = site.simulated("_control/swap", {"wallet": 0, "count": 3})["txids"]
        site.simulated("_control/mine", {})
        before = len(site.simulated("_truth")["swaps"])
        result = site.act("refresh&task=feed").json()["result"]
        again = site.act("refresh&task=feed").json()["result"]
    finally:
        site.act("resume")
    [stored] = site.workerd.sql((SWAPS, []))
    [nonces] = site.workerd.sql(("SELECT wallet, missing FROM nonces", []))
    assert (result["run"]["outcome"], result["way"], result["blocksBehind"]) == ("ok", "network", 0)
    assert {row["txid"] for row in stored} >= set(txids)
    assert len(stored) == before
    assert result["found"] >= 3
    assert (again["inserted"], again["pages"]) == (0, 1)
    assert nonces
    assert {row["missing"] for row in nonces} == {0}


def test_a_trade_is_submitted(site: DeployedSite) -> None:
    """A trade is verified at once, known the second time, and anything else is refused with a reason."""
    site.act("pause&for=1h")  # otherwise a scheduled run may find it first
    try:
        [txid] = site.simulated("_control/swap", {"wallet": 0})["txids"]
        in_mempool = site.submit(txid)
        site.simulated("_control/mine", {})
        first, second = site.submit(txid), site.submit(txid)
    finally:
        site.act("resume")
    assert in_mempool.status == 202
    assert (first.status, first.json()["txid"]) == (200, txid)
    assert (second.status, second.json()["existing_row"]["txid"]) == (409, txid)
    assert site.submit("0x" + "0" * 64).status == 404
    assert site.submit("no txid").status == 400
    assert site.submit(f"  {txid.upper().replace('0X', '')}\n").status == 409


def test_a_body_needs_its_type_only_from_another_site(site: DeployedSite) -> None:
    """Programs and agents may leave it out. A page of another site needs permission, which it gets only for reads."""
    body, path = json.dumps({"txid": "0x" + "0" * 64}).encode(), "/api/competition/trades"
    plain = {"Content-Type": "text/plain"}
    elsewhere = {"Origin": "https://elsewhere.test"}
    preflight = {**elsewhere, "Access-Control-Request-Method": "POST"}

    by_program = site.workerd.ask(path, method="POST", headers=plain, body=body)
    by_page = site.workerd.ask(path, method="POST", headers={**plain, **elsewhere}, body=body)
    asked = site.workerd.ask(path, method="OPTIONS", headers=preflight)
    read = site.workerd.ask("/api/prices", headers=elsewhere)

    assert (by_program.status, by_program.headers["retry-after"]) == (404, "60")
    assert by_page.status == 415
    assert "access-control-allow-origin" not in asked.headers
    assert read.headers["access-control-allow-origin"] == "*"


def test_a_sweep_at_its_subrequest_limit_continues_in_the_next_run(site: DeployedSite) -> None:
    """It ends as partial, which is not a failure. Its work is kept, and in the end nothing is missing."""
    site.act("pause&for=1h")  # no scheduled sweep does a part of it in the meantime
    site.simulated("_control/swap", {"wallet": 0, "count": 700})
    site.simulated("_control/mine", {})
    site.workerd.limit_subrequests(RESERVED_FOR_STORES + 210)
    outcomes: list[str] = []
    try:
        while outcomes[-1:] != ["ok"]:
            result = site.act("refresh&task=sweep").json()["result"]
            outcomes.append(result["run"]["outcome"])
            assert len(outcomes) < 20, site.workerd.output()
    finally:
        site.workerd.limit_subrequests(SUBREQUESTS_MAX)
        site.act("resume")
    [stored] = site.workerd.sql((SWAPS, []))
    status = site.workerd.ask(SCHEDULER, headers=ADMIN).json()["status"]
    assert set(outcomes[:-1]) == {"partial"}
    assert stored == site.simulated("_truth")["swaps"]
    assert status["consecutiveFailures"]["sweep"] == 0


def test_an_unavailable_database_has_the_sites_shape(site: DeployedSite) -> None:
    """As on one machine: the site's clients compare `error` with this word."""
    site.workerd.sql(("ALTER TABLE sender_totals RENAME TO hidden", []))
    try:
        answer = site.workerd.ask("/api/competition/status?address=SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE")
    finally:
        site.workerd.sql(("ALTER TABLE hidden RENAME TO sender_totals", []))
    body = answer.json()
    assert (answer.status, body["error"], body["retry_after"]) == (503, "transient_d1_unavailable", 5)


def test_responses_follow_http(site: DeployedSite) -> None:
    """HEAD has no body, an unchanged resource is a 304, and a wrong method gets the allowed ones."""
    whole = site.workerd.ask("/api/prices")
    head = site.workerd.ask("/api/prices", method="HEAD")
    known = site.workerd.ask("/api/prices", headers={"If-None-Match": whole.headers["etag"]})
    wrong = site.workerd.ask("/api/prices", method="DELETE")
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", whole.headers["etag"])
    assert (known.status, known.body) == (304, b"")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert whole.headers["x-content-type-options"] == "nosniff"


def test_a_body_is_refused_before_it_is_read(site: DeployedSite) -> None:
    """With a length that is too large, at once. Without a length, as soon as it is too large."""
    connection = http.client.HTTPConnection("127.0.0.1", site.workerd.port, timeout=PATIENCE_S)
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


def test_posts_are_limited_by_the_address_from_cloudflare(site: DeployedSite) -> None:
    """One client uses up its posts. Another still has all of its own."""

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
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
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


def test_events_arrive_as_they_happen(site: DeployedSite) -> None:
    """A stream that was open before shows the start and the end of a run."""
    events = Events(site.workerd.port)
    events.until(b"retry: 2000")
    run = site.act("refresh&task=tenero").json()["result"]["run"]["id"]
    seen = events.until(b'"run":%d}' % run)  # the end of the last event of a run
    assert b"HTTP/1.1 200 OK" in seen
    assert seen.count(b'"run.ended","task":"tenero"') >= 1
    assert b'"run.started","task":"tenero","run":%d' % run in seen
    events.close()


def test_streams_of_disconnected_clients_are_freed(site: DeployedSite) -> None:
    """More clients than the limit connect one after the other. A disconnect may be noticed a moment later."""
    opened = attempts = 0
    while opened < STREAMS_MAX + 4:
        events = Events(site.workerd.port)
        opened += events.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        events.close()
        attempts += 1
        assert attempts < 500
        site.workerd.ask("/healthz")


def test_health_is_that_of_the_scheduler(site: DeployedSite) -> None:
    """Alive, ready, and in metrics. There are no metrics of a process, because none is ours."""
    metrics = site.workerd.ask("/metrics").body.decode()
    assert site.workerd.ask("/healthz").json()["ok"] is True
    assert site.workerd.ask("/readyz").json() == {"ready": True, "state": "ready", "reasons": [], "notes": []}
    assert "tocsin_ready 1\n" in metrics
    assert "tocsin_scheduler_up 1\n" in metrics
    assert re.search(r'tocsin_run_duration_seconds_count\{task="tenero"\} [1-9]', metrics)
    assert re.search(r'tocsin_upstream_call_duration_seconds_count\{upstream="\w+",answer="ok"\} [1-9]', metrics)
    assert re.search(r"tocsin_alarm_lateness_seconds_count [1-9]", metrics)
    assert "tocsin_http_requests_total{route=" in metrics
    assert not [line for line in metrics.splitlines() if line.startswith("tocsin_loop_tick_age_seconds")]


@pytest.mark.parametrize(("number", "name"), list(enumerate(CASES, 1)))
def test_everything_says_the_same_in_every_state(site: DeployedSite, number: int, name: str) -> None:
    """Readiness, status, board and metrics, as on the local platform."""
    case, workerd = CASES[name], site.workerd
    workerd.set_clock(NOW)
    try:
        workerd.native_call("SCHEDULER", "v1", "load", json.dumps(entries_of(case)), NOW + 240_000)
        readyz, overview = workerd.ask("/readyz"), workerd.ask(SCHEDULER, headers=ADMIN).json()
        board = workerd.ask(f"/api/competition/leaderboard?limit={number}").json()  # none is kept of another
        workerd.set_clock(NOW + 1_000 * number)  # metrics are kept for a second
        metrics = workerd.ask("/metrics").body.decode()
    finally:
        workerd.set_clock(None)

    check(case, readyz, overview, board, metrics)


@pytest.mark.slow
def test_without_any_binding_every_response_names_what_is_missing(tmp_path: Path) -> None:
    """No DB, KV, LOGS, SCHEDULER and no key: each route that needs one names it, the others work."""
    require_workerd()
    with running(tmp_path, {}, "not") as workerd:
        responses = {
            path: (response.status, response.json().get("error", ""))
            for path in (
                "/healthz",
                "/readyz",
                "/api/prices",
                "/api/competition/leaderboard",
                "/api/competition/status?address=SP000000000000000000002Q6VF78",
                SCHEDULER,
            )
            for response in [workerd.ask(path)]
        }
        responses["hook"] = (hook := workerd.ask("/api/deployed", method="POST")).status, hook.json()["error"]
        events = {(line["event"], line.get("binding")) for line in workerd.console()}

    no_db = "The binding DB is missing: add a D1 database named DB to the deployment."
    no_kv = "The binding KV is missing: add a KV namespace named KV to the deployment."
    no_scheduler = "The binding SCHEDULER is missing: bind the class SchedulerDO as SCHEDULER in wrangler.jsonc."
    assert responses["/healthz"] == (200, "")
    assert responses["/api/prices"] == (503, no_kv)
    assert responses["/api/competition/leaderboard"] == (503, no_kv)
    assert responses["/api/competition/status?address=SP000000000000000000002Q6VF78"] == (503, no_db)
    assert responses[SCHEDULER][0] == 503
    assert "set ADMIN_KEY" in responses[SCHEDULER][1]
    assert responses["hook"] == (503, no_scheduler)
    assert responses["/readyz"][0] == 503
    assert all(sentence in responses["/readyz"][1] for sentence in (no_db, no_kv, no_scheduler))
    assert {("binding.missing", "DB"), ("binding.missing", "KV"), ("scheduler.not_armed", None)} <= events


def test_another_program_looks_up_through_the_object(site: DeployedSite) -> None:
    """The object has the answers, the shares and the counts; a contract call costs two, and no path leads out."""
    [address] = [
        row["address"] for [row] in site.workerd.sql(("SELECT stx_address AS address FROM agents LIMIT 1", []))
    ]
    names = f"/api/upstream/hiro/v1/addresses/stacks/{address}"
    call = "/api/upstream/hiro/v2/contracts/call-read/SP1/names/get"
    first, again = [site.workerd.ask(names, headers=LOOKUP) for _ in range(2)]
    body = b'{"sender":"SP1","arguments":[]}'
    called, kept = [site.workerd.ask(call, method="POST", headers=LOOKUP, body=body) for _ in range(2)]
    absent = site.workerd.ask("/api/upstream/hiro/v1/names/absent.btc", headers=LOOKUP)
    outside = site.workerd.ask("/api/upstream/hiro/v1/names/..%2f..%2fv2%2finfo", headers=LOOKUP)
    unknown = site.workerd.ask(names, headers={"X-Api-Key": "a-wrong-key-for-tests", **ELSEWHERE})
    use = site.workerd.ask(SCHEDULER, headers=VIEWER).json()["status"]["lookups"]["site"]

    assert (first.status, first.body) == (again.status, again.body)
    assert [answer.status for answer in (first, called, absent, outside, unknown)] == [200, 200, 404, 403, 401]
    statuses = [answer.headers["cache-status"] for answer in (first, again, called, kept)]
    assert statuses == ["tocsin; fwd=miss; stored", "tocsin; hit"] * 2
    assert called.json() == {"okay": True, "result": "0x53503130"}
    assert use == {"lookups": 5, "calls": 4, "hits": 2, "stale": 0, "refused": 0, "failed": 0}


def test_a_job_calls_its_url_signed_and_a_hang_ends_within_its_limit(site: DeployedSite) -> None:
    """Stored in the object, run by its alarm at once, and then by hand. A secret in its answer is not in the log."""
    calls: list[tuple[str | None, Any]] = []

    def respond(request: BaseHTTPRequestHandler) -> answers.Answer:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        calls.append((verify(dict(request.headers), body, JOB_SECRET), json.loads(body)))
        if len(calls) == 1:
            time.sleep(2)  # longer than the job's limit
        if len(calls) == 3:
            return 500, {}, f"wrong key: {JOB_SECRET}".encode()
        return 200, {}, b'{"payment": 7}'

    with answers.answering(respond) as port:
        url = f"http://127.0.0.1:{port}/pay"
        job = {"name": "payouts", "url": url, "every": "7d", "limit": "1s", "secret": "site"}

        def change(action: str, **given: Any) -> Answer:
            body = json.dumps({"action": action, **given}).encode()
            return site.workerd.ask("/api/admin/jobs", method="POST", headers=ADMIN, body=body)

        added = change("add", jobs=[job])
        (hung,) = until(lambda: [run for run in site.finished_runs() if run["task"] == "payouts"])
        refreshed = site.act("refresh&task=payouts").json()["result"]
        site.act("refresh&task=payouts")
        removed = change("remove", names=["payouts"]).json()

    assert (added.status, removed["jobs"]) == (200, [])
    assert (hung["outcome"], hung["error"]["class"]) == ("failed", "FetchTimeout")
    assert (refreshed["payment"], refreshed["run"]["outcome"]) == (7, "ok")
    assert [call["trigger"] for _, call in calls] == ["alarm", "refresh", "refresh"]
    assert "wrong key: [redacted]" in site.workerd.output()
    assert JOB_SECRET not in site.workerd.output()
    assert None not in {key for key, _ in calls}
