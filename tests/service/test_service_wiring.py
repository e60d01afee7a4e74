"""How `Service` puts its parts together: what reaches which part, what ends with it, and in which order.

Each test opens the real service in this process, on a real loop and a real port. All tasks are off, so it needs no
upstream.
"""

import asyncio
import functools
import gc
import gzip
import io
import json
import logging
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ParamSpec

import pytest

from holdfast.errors import StartError, StoreError, StoreUnavailable
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import is_in_use
from holdfast.local.object_id import LocalObjectId
from support.loopback import Request, http, serving
from support.patience import PATIENCE_S
from tocsin import service
from tocsin.local import server as http_server
from tocsin.local.server import HttpServer
from tocsin.scheduler import alerts as process_alerts
from tocsin.scheduler.scheduler_do import SchedulerDO
from tocsin.service import LOCK_WAIT_S, Service, open_machine, run
from tocsin.settings import AccessKey, Settings

P = ParamSpec("P")
KEY = "an-admin-key-of-this-test"
WITH_KEY = {"X-Admin-Key": KEY}
NO_HEADERS = MappingProxyType[str, str]({})
QUIET = Settings(
    port=0,
    hiro_api_url="http://127.0.0.1:9",
    tenero_api_url="http://127.0.0.1:9",
    tenero_enabled=False,
    sweep_enabled=False,
    admin_key=(AccessKey("admin", "operator", KEY),),
)


def settings_in(path: Path, **changes: Any) -> Settings:
    values = {name: getattr(QUIET, name) for name in QUIET.__dataclass_fields__}
    return Settings(**{**values, "data_dir": str(path / "data"), **changes})


class Opened:
    """An open service and what it has written."""

    service: Service

    def __init__(self, path: Path, settings: Settings) -> None:
        self.data = path / "data"
        self.log = path / "log"
        self.server = HttpServer(settings.host, 0)
        self.settings = settings

    def lines(self, event: str) -> list[dict[str, Any]]:
        """What the log has of this event, once the service is closed."""
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if line["event"] == event]

    async def get(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask; with a body, this is a POST."""

        def ask() -> tuple[int, dict[str, str], bytes]:
            sent = {"Content-Type": "application/json", **headers}
            request = urllib.request.Request(self.server.url + path, body, sent)
            try:
                opened = urllib.request.urlopen(request, timeout=PATIENCE_S)
            except urllib.error.HTTPError as refused:
                opened = refused
            with opened as answer:
                return answer.status, dict(answer.headers.items()), answer.read()

        return await asyncio.to_thread(ask)


@asynccontextmanager
async def opened(path: Path, **changes: Any) -> AsyncIterator[Opened]:
    made = Opened(path, settings_in(path, **changes))
    with made.log.open("w") as stream:
        async with open_machine(made.settings, stream) as machine:
            made.service = Service(made.settings, machine, made.server)
            await made.service.open()
            assert made.service.app.health.seen().scheduler_error is None, "the first request finds a checked service"
            made.service.watch()
            try:
                yield made
            finally:
                await made.service.close()


def in_real_time(scenario: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an async test a plain one, which runs on a real loop."""

    @functools.wraps(scenario)
    def test(*arguments: P.args, **fixtures: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(*arguments, **fixtures)

        asyncio.run(bounded())

    return test


def end_when_open(monkeypatch: pytest.MonkeyPatch, end: Callable[[Service], object]) -> None:
    """Call `end` as soon as a service runs. What this process has loaded is not frozen."""
    whole_watch = Service.watch

    def watch_and_end(self: Service) -> None:
        whole_watch(self)
        end(self)

    monkeypatch.setattr(Service, "watch", watch_and_end)
    monkeypatch.setattr(gc, "freeze", lambda: None)


@pytest.mark.parametrize("name", ["db.sqlite", "kv.sqlite", "objects.sqlite"])
@in_real_time
async def test_no_store_writes_while_a_file_is_lost_and_all_do_when_it_is_back(tmp_path: Path, name: str) -> None:
    """Whichever file it is: the tasks write to several, and what one of them accepts would be lost with it."""
    async with opened(tmp_path) as made:
        kv, db, scheduler = made.service.kv, made.service.db, made.service.scheduler()
        file = made.data / name
        file.rename(tmp_path / "aside")
        await made.service.app.health.check()
        await made.service.app.health.check()
        with pytest.raises(StoreUnavailable, match=f"{name} was deleted or replaced"):
            await kv.put("a", "1")
        with pytest.raises(StoreUnavailable, match=f"{name} was deleted or replaced"):
            await db.prepare("DELETE FROM agents").run()
        with pytest.raises(Exception, match=f"{name} was deleted or replaced"):
            await scheduler.resume()

        (tmp_path / "aside").rename(file)
        await made.service.app.health.check()
        await kv.put("a", "2")
        await db.prepare("DELETE FROM agents").run()
        await made.service.scheduler().resume()

        assert await kv.get("a") == "2"
    assert len(made.lines("store.file_lost")) == len(made.lines("store.files_restored")) == 1


@in_real_time
async def test_a_lost_lock_is_told_and_stops_no_write(tmp_path: Path) -> None:
    """It protects nothing any more, but nothing is lost."""
    async with opened(tmp_path) as made:
        (made.data / "tocsin.lock").unlink()
        await made.service.app.health.check()
        await made.service.kv.put("a", "1")

        assert [line["file"] for line in made.lines("store.file_lost")] == [str(made.data / "tocsin.lock")]
        assert await made.service.kv.get("a") == "1"


@in_real_time
async def test_streams_end_when_the_service_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told to, and end as a whole response does. Otherwise each would hold up the stop for its grace."""
    monkeypatch.setattr(http_server, "GRACE_S", 10_000)
    monkeypatch.setattr(http_server, "ANSWER_S", 0)
    async with opened(tmp_path) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.server.port)
        writer.write(f"GET /api/admin/scheduler/events HTTP/1.1\r\nHost: x\r\nX-Admin-Key: {KEY}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"\n\n")
    rest = await reader.read()
    writer.close()

    assert rest.endswith(b"0\r\n\r\n")


@in_real_time
async def test_nothing_is_left_of_a_closed_service(tmp_path: Path) -> None:
    """No task, no lock, no socket, and no log file that needs a replay."""
    before = asyncio.all_tasks()
    async with opened(tmp_path) as made:
        port = made.server.port
    left = asyncio.all_tasks() - before
    for task in left:  # a cancelled one ends with the next turn of the loop
        await asyncio.wait([task])

    assert [task for task in left if not task.cancelled()] == []
    assert not is_in_use(made.data)
    assert sorted(file.name for file in made.data.iterdir()) == [
        "db.sqlite",
        "kv.sqlite",
        "objects.sqlite",
        "tocsin.lock",
    ]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@in_real_time
async def test_a_start_that_fails_late_leaves_nothing_open(tmp_path: Path) -> None:
    """Here somebody has closed the port: the directory is free for the next start."""
    server = HttpServer("127.0.0.1", 0)
    settings = settings_in(tmp_path)
    with (tmp_path / "log").open("w") as stream:
        async with open_machine(settings, stream) as machine:
            service = Service(settings, machine, server)
            server.close()
            with pytest.raises(OSError, match="Bad file descriptor"):
                await service.open()

    assert not is_in_use(tmp_path / "data")
    async with opened(tmp_path):
        pass


@in_real_time
async def test_a_refused_start_frees_its_port(tmp_path: Path) -> None:
    """The socket is there before the data is looked at. The sentence names the process that holds the directory."""
    async with opened(tmp_path) as made:
        port, began_s = await free_port(), time.monotonic()
        with (
            made.log.open() as stream,
            pytest.raises(StartError, match=rf"{made.data} is in use by process {os.getpid()}"),
        ):
            await run(settings_in(tmp_path, port=port), stream=stream)
        took_s = time.monotonic() - began_s
    HttpServer("127.0.0.1", port).close()
    assert took_s < LOCK_WAIT_S  # only under a supervisor it waits for the process before it


async def accept(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(http(200, b"{}"))


async def free_port() -> int:
    server = HttpServer("127.0.0.1", 0)
    server.close()
    return server.port


@in_real_time
async def test_what_the_routes_are_given(tmp_path: Path) -> None:
    """Other sites, compression, the limit of reads, the instance, and the figures of this process."""
    changes = {"cors_origins": ("https://site.example",), "reads_per_minute": 7, "instance": "blue"}
    async with opened(tmp_path, **changes) as made:
        _, allowed, _ = await made.get("/api/prices", {"Origin": "https://site.example"})
        _, other, _ = await made.get("/api/prices", {"Origin": "https://other.example"})
        _, packed, body = await made.get("/api/docs", {"Accept-Encoding": "gzip"})
        _, _, status = await made.get("/api/admin/scheduler", WITH_KEY)
        _, _, metrics = await made.get("/metrics", WITH_KEY)
        answers = [await made.get("/api/prices") for _ in range(3)]
        more = await asyncio.gather(*(made.get("/api/prices") for _ in range(7)))

    assert allowed["access-control-allow-origin"] == "https://site.example"
    assert "access-control-allow-origin" not in other
    assert packed["content-encoding"] == "gzip"
    assert b"Tocsin" in gzip.decompress(body)
    assert json.loads(status)["name"] == "blue"
    figures = dict(line.rsplit(" ", 1) for line in metrics.decode().splitlines() if line[0] != "#")
    assert figures["tocsin_log_lines_dropped_total"] == figures["tocsin_http_connections_dropped_total"] == "0"
    assert int(figures["tocsin_http_connections"]) >= 1
    assert 0 < float(figures["tocsin_start_timestamp_seconds"]) <= time.time()
    assert int(figures["tocsin_object_calls_total"]) >= 1
    assert [code for code, _, _ in answers] == [200, 200, 200]
    assert 429 in {code for code, _, _ in more}


@in_real_time
async def test_lines_go_to_the_log_service_too_and_secrets_to_neither(tmp_path: Path) -> None:
    """At the level of the settings; those of the last moment are sent before the process ends."""
    async with serving(accept) as receiver:
        changes = {"worker_logs_url": receiver.url, "worker_logs_key": "a-key-of-the-log-service", "log_level": "WARN"}
        async with opened(tmp_path, **changes) as made:
            made.service.machine.logger.info("probe.quiet", text="x")
            made.service.machine.logger.error("probe.loud", text=f"my key is {KEY}")
        sent = b"".join(request.body for request in receiver.requests).decode()

    assert "probe.loud" in sent
    assert len(made.lines("probe.loud")) == 1
    for text in (sent, made.log.read_text()):
        assert "[redacted]" in text
        assert KEY not in text
        assert "probe.quiet" not in text
        assert "service.started" not in text


@in_real_time
async def test_a_problem_of_the_process_reaches_the_receiver_of_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here its database is gone. No secret is in the message, and without a receiver nobody is called."""
    monkeypatch.setattr(process_alerts, "PATIENCE_S", 0.0)
    (tmp_path / "data-is-a-secret-here").mkdir()
    async with serving(accept) as receiver:
        secret = "data-is-a-secret-here"  # part of the path that the message names
        async with opened(
            tmp_path / secret, alert_url=f"{receiver.url}/hook", alert_key=secret, instance="blue"
        ) as made:
            (made.data / "db.sqlite").unlink()
            told: list[dict[str, Any]] = []
            while not told:
                await made.service.app.health.check()
                await asyncio.sleep(0.01)
                sent = [json.loads(request.body) for request in receiver.requests]
                told = [each for each in sent if each["state"] == "broken"]  # the object tells of the tasks
        (alert,) = told

    assert alert["instance"] == "blue"
    assert alert["event"] == "not_ready"
    assert "db.sqlite was deleted or replaced" in json.dumps(alert)
    assert secret not in json.dumps(alert)


@in_real_time
async def test_an_alarm_that_gave_up_is_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And said so: otherwise all periodic work would end without a word."""
    arm, armed = SchedulerDO.arm, list[str]()

    async def noted(self: SchedulerDO) -> int | None:
        armed.append("armed")
        return await arm(self)

    monkeypatch.setattr(SchedulerDO, "arm", noted)
    async with opened(tmp_path, tenero_enabled=True) as made:
        object_id = made.service._namespace.id_from_name("v1")
        assert isinstance(object_id, LocalObjectId)
        again = made.service.runtime._on_exhausted
        assert again is not None
        before = len(armed)
        await again(object_id, ValueError("broken"))

        assert len(armed) == before + 1
    assert [line["error"] for line in made.lines("scheduler.rearmed")] == ["ValueError('broken')"]


@pytest.mark.parametrize(("end", "code"), [("SIGTERM", 0), ("SIGINT", 0), ("sync", 1)])
@in_real_time
async def test_the_exit_code_tells_a_stop_from_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, code: int
) -> None:
    """A supervisor starts the process again after a disk that failed; the log says why."""

    def end_it(service: Service) -> None:
        if end == "sync":
            service.runtime.store._fail(OSError(5, os.strerror(5)))
            service.stop()  # as SIGTERM does, which comes too late to make it a success
        else:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.Signals[end])

    end_when_open(monkeypatch, end_it)
    with (tmp_path / "log").open("w") as stream:
        assert await run(settings_in(tmp_path), stream=stream) == code
    assert ("store.failed" in (tmp_path / "log").read_text()) == (code == 1)


def test_the_command_takes_the_port_that_it_is_given_and_exits_with_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a demo without a port looks for a free one."""
    ports, codes = list[int](), [0, 1]

    async def end(settings: Settings, **_: Any) -> int:
        ports.append(settings.port)
        return codes[len(ports) - 1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service, "run", end)
    service.serve(as_demo=True, bad_times=False, host=None, port=0, data_dir=tmp_path)
    with pytest.raises(SystemExit) as ended:
        service.serve(as_demo=True, bad_times=False, host=None, port=None, data_dir=tmp_path)

    assert (ports[0], ports[1] >= Settings().port, ended.value.code) == (0, True, 1)


@in_real_time
async def test_a_supervisor_is_told_the_state_and_its_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with opened(tmp_path):
            told = receiver.recv(65_536).decode()

    assert told.startswith("READY=1\nSTATUS=disabled: Token prices switched off (TOCSIN_TENERO_ENABLED). ")


@pytest.mark.parametrize("with_key", [True, False])
@in_real_time
async def test_the_welcome_names_the_pages_and_a_missing_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, with_key: bool
) -> None:
    """On stderr while the log goes elsewhere. The key itself is not shown."""
    end_when_open(monkeypatch, Service.stop)
    changes = {} if with_key else {"admin_key": ()}
    with (tmp_path / "log").open("w") as stream:
        await run(settings_in(tmp_path, **changes), stream=stream)
    shown = capsys.readouterr().err

    for page in ("/leaderboard", "/console", "/api/prices", "/api/docs"):
        assert page in shown
    assert ("ADMIN_KEY is not set" in shown) is not with_key
    assert KEY not in shown
    assert "_truth" not in shown


@in_real_time
async def test_on_a_terminal_people_read_the_same_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines for people instead of JSON, and the welcome among them."""

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    end_when_open(monkeypatch, Service.stop)
    with Terminal((tmp_path / "log").open("wb")) as terminal:
        await run(settings_in(tmp_path), stream=terminal)
    shown = (tmp_path / "log").read_text()

    assert "is running. Ctrl-C stops it." in shown
    assert "service.started" in shown
    assert '"event"' not in shown


@in_real_time
async def test_reads_go_on_while_writes_are_refused(tmp_path: Path) -> None:
    """A lost file stops what would be lost, and nothing else."""
    async with opened(tmp_path) as made:
        (made.data / "kv.sqlite").rename(tmp_path / "aside")
        await made.service.app.health.check()
        code, _, _ = await made.get("/api/competition/allowlist")
        with pytest.raises(StoreError):
            await made.service.kv.put("a", "1")
        not_ready, _, _ = await made.get("/readyz")

    assert (code, not_ready) == (200, 503)


@in_real_time
async def test_a_file_that_was_lost_a_moment_ago_is_noticed_by_the_next_post(tmp_path: Path) -> None:
    """Before the next look at the files: nothing is acknowledged."""
    async with opened(tmp_path) as made:
        made.service.app.health._clock = StoppedClock()  # no look comes in between
        (made.data / "db.sqlite").rename(tmp_path / "aside")
        code, _, body = await made.get("/api/admin/scheduler?action=resume", WITH_KEY, b"{}")
        answer = json.loads(body)
        assert code == 503
        assert answer["error"] == "The store cannot be used right now: try again soon."


class StoppedClock(SystemClock):
    """The watch that sleeps by it does not wake up."""

    async def sleep(self, _seconds: float) -> None:
        await asyncio.Event().wait()


@in_real_time
async def test_an_operator_s_reason_is_masked_and_kept(tmp_path: Path) -> None:
    """A key that somebody pastes into a reason is not in the record."""
    async with opened(tmp_path) as made:
        query = f"action=resume&reason=my+key+is+{KEY}"
        await made.get(f"/api/admin/scheduler?{query}", WITH_KEY, b"{}")
        _, _, kept = await made.get("/api/admin/scheduler/audit", WITH_KEY)

    assert [record["reason"] for record in json.loads(kept)["records"]] == ["my key is [redacted]"]


@in_real_time
async def test_the_log_has_the_level_of_the_settings_and_the_errors_of_libraries(tmp_path: Path) -> None:
    """Without a log service too; after the end, libraries no longer write to it."""
    async with opened(tmp_path, log_level="ERROR") as made:
        made.service.machine.logger.warning("probe.quiet")
        logging.getLogger("some.library").error("it broke: %s", KEY)
    logging.getLogger("some.library").error("too late")

    (line,) = [json.loads(each) for each in made.log.read_text().splitlines()]
    assert line["level"] == "ERROR"
    assert "it broke: [redacted]" in json.dumps(line)
