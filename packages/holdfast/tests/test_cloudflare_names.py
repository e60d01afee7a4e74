"""Programs that were written for Cloudflare's Python, on this machine.

The programs are ours. They use what workers-py's own tests of objects and the public programs use that
docs/cloudflare-programs.md lists.
"""

import http.server
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast.cloudflare
from holdfast.errors import ObjectReset, RemoteError, UsageError
from holdfast.testing import VirtualObjects
from holdfast_testing.processes import python

PROGRAMS = Path(__file__).parent / "cloudflare_programs"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules, for one test only."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    holdfast.cloudflare.install()


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


@pytest.fixture
def program(installed: None) -> ModuleType:
    return load("counter")


@pytest.fixture
def env(program: ModuleType, objects: VirtualObjects) -> Any:
    objects.bind(COUNTER=program.Counter, LOG=program.Table, LEAF=program.Leaf, SILENT=program.Silent)
    objects.bind(BATCHER=program.Batcher, GREETING="hello")
    return holdfast.cloudflare.environment(objects)


@pytest.fixture
def facts(installed: None, objects: VirtualObjects) -> Any:
    objects.bind(FACTS=load("facts").Facts)
    return holdfast.cloudflare.environment(objects).FACTS


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (
            "entries",
            [
                *("text", None, {"a:1": 1, "a:2": 2.5}, {"a:3": True, "a:2": 2.5}, {"a:2": 2.5, "a:3": True}),
                *(True, False, 2, "seven", ["7", "a:3"]),
            ],
        ),
        ("values", [b"\x00\xff", True, [1, 2]]),
        (
            "tables",
            [True, "one", "two", ["id", "name"], True, [1, False, True], [1, 2], 2, [[1, 1], [2, 2]], [5], True],
        ),
        ("entries_without_awaiting", [1, ["k"], True, None]),
        ("transactions", [1, "no", 1, []]),
        ("alarm_times", [None, True, 4_500_000_000_000, None]),
        ("alone", 42),
    ],
)
async def test_what_an_object_sees(facts: Any, fact: str, expected: Any) -> None:
    """Storage, tables, alarm and context, in camelCase and with Cloudflare's options."""
    assert await getattr(facts.getByName("x"), fact)() == expected


async def test_ids_and_stubs(facts: Any) -> None:
    """Names lead to the same id, an id to its text and back, and a stub knows both."""
    one, same, other = facts.idFromName("x"), facts.idFromName("x"), facts.idFromName("y")
    assert (one.equals(same), one.equals(other), one.name) == (True, False, "x")
    assert one.toString() == same.toString() == str(facts.idFromString(one.toString()))
    assert facts.newUniqueId().toString() != facts.newUniqueId().toString()
    stub = facts.get(one)
    assert (stub.id.toString(), stub.name) == (one.toString(), "x")
    assert await stub.who() == [one.toString(), "x"]


async def test_calls_carry_values(facts: Any) -> None:
    """Also bytes, and rows with attributes; a method need not be async. Keywords are refused, as they would be lost."""
    stub = facts.getByName("x")
    for value in ("hello", 42, True, None, b"\xff", [1.5, {"key": "value"}]):
        assert await stub.echo(value) == {"received": value}
    assert (await stub.echo({"key": {"inner": 1}})).received.key.inner == 1
    assert await stub.plain(1) == 2
    with pytest.raises(UsageError, match=r"echo\(\): Cloudflare does not pass arguments by keyword"):
        stub.echo(value=1)
    with pytest.raises(UsageError, match='does not implement the method "missing"'):
        await stub.missing()


async def test_fetch_on_a_stub(facts: Any) -> None:
    """With a URL and options, or a request; the body can be read once."""
    stub = facts.getByName("x")
    pong = await stub.fetch("http://any/ping")
    assert (await pong.text(), pong.status, pong.ok) == ("pong", 200, True)
    with pytest.raises(OSError, match="Body already used"):
        await pong.text()
    other = await stub.fetch("http://any/else", method="POST", body="sent")
    assert (await other.json(), other.status, other.headers["Content-Type"]) == (
        {"path": "/else", "sent": "sent"}, 404, "application/json",
    )  # fmt: skip


async def test_a_worker_in_front_of_an_object(program: ModuleType, env: Any) -> None:
    """An entry point, a function with `@handler`, a mixin, state loaded in the constructor, an old constructor."""
    from workers import Request

    request = Request("http://site/increment?by=2", method="POST", headers={"a": "b"})
    answers = [await (await program.Default(None, env).fetch(Request(request))).json() for _ in range(2)]
    assert answers == [{"count": 2, "doubled": 8}, {"count": 4, "doubled": 8}]
    answer = await program.on_fetch(request, env)
    assert (await answer.text(), answer.headers["X-Counter"]) == ("3", "b")


async def test_alarms(env: Any, objects: VirtualObjects) -> None:
    """The handler gets what Cloudflare passes. A class without one may set an alarm."""
    counter = env.COUNTER.getByName("a")
    await counter.soon()
    await objects.advance(seconds=1)
    assert await counter.rang() == [0, False, True]
    assert (await env.SILENT.getByName("a").fetch("http://any/")).status == 200
    await objects.advance(seconds=1)
    assert objects.alarms() == []


async def test_a_batcher(env: Any, objects: VirtualObjects) -> None:
    """Keys that are numbers, a list in reverse, an alarm that calls another object."""
    stub = env.BATCHER.getByName("a")
    numbers = [await (await stub.fetch("http://any/", method="POST", body=text)).text() for text in ("x", "y")]
    await objects.advance(seconds=10)

    assert numbers == ["0", "1"]
    assert await env.LOG.getByName("all").all() == [{"name": "x,y", "value": 1}]


async def test_tables_and_inheritance(env: Any, objects: VirtualObjects) -> None:
    """RETURNING, a table made in the constructor, two levels of classes, the old `on_fetch`; all survives a restart."""
    leaf = env.LEAF.getByName("a")
    assert [await leaf.increment("n") for _ in range(3)] == [1, 2, 3]
    answer = await leaf.fetch("http://any/", method="PUT", body="body")
    assert await answer.text() == "PUT hello a body"
    await objects.restart()
    assert await env.LEAF.getByName("a").increment("n") == 4


async def test_abort(env: Any) -> None:
    """The call fails with the reason, and the next stub reaches a new instance with what was stored."""
    counter = env.COUNTER.getByName("a")
    await counter.fetch("http://any/increment")
    with pytest.raises(ObjectReset, match="enough"):
        await counter.stop()
    assert await (await env.COUNTER.getByName("a").fetch("http://any/")).text() == "1"


class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(418)
        self.end_headers()
        self.wfile.write(body + self.headers["x-sent"].encode())

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


async def test_fetch_leaves_the_machine(installed: None, objects: VirtualObjects, echo: str) -> None:
    """Over HTTP, with any status; other schemes are refused."""
    from workers import fetch

    answer = await fetch(echo, method="POST", headers={"x-sent": "!"}, body="hello")
    assert (answer.status, await answer.text()) == (418, "hello!")
    with pytest.raises(UsageError, match="begins with http:// or https://"):
        await fetch("file:///etc/passwd")


def test_what_is_absent_is_missing_by_name(installed: None) -> None:
    """Python says which name a program needs and holdfast does not have."""
    with pytest.raises(ImportError, match="cannot import name 'WorkflowEntrypoint' from 'workers'"):
        from workers import WorkflowEntrypoint  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'WebSocketPair' from 'js'"):
        from js import WebSocketPair  # noqa: F401
    with pytest.raises(TypeError, match="a body is str or bytes, not dict"):
        sys.modules["workers"].Response({"a": 1})


@pytest.mark.slow
def test_the_page_shows_what_works(tmp_path: Path) -> None:
    """The example of docs/cloudflare-programs.md, with our counter as its program."""
    page = (PROGRAMS.parents[1] / "docs" / "cloudflare-programs.md").read_text()
    (tmp_path / "main.py").write_text(page.split("```python\n")[1].split("```")[0])
    (tmp_path / "entry.py").write_text((PROGRAMS / "counter.py").read_text())
    done = python("main.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1\n", "")


async def test_an_exception_of_the_program_reaches_its_caller(facts: Any) -> None:
    """With its class, if it is a built-in one."""
    with pytest.raises((TypeError, RemoteError), match="concatenate"):
        await facts.getByName("x").plain("text")
