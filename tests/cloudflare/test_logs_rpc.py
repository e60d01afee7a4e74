"""The `Logs` binding over RPC: which errors of JavaScript mean that a batch can never be accepted."""

import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tocsin.errors import LogsError
from tocsin.logs import LogEntry


class JsError(Exception):
    """Stands in for Pyodide's JsException."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


@pytest.fixture
def rpc_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class `RpcLogs`, imported on stand-ins for the runtime's own modules."""
    before = set(sys.modules)
    js, ffi = ModuleType("js"), ModuleType("pyodide.ffi")
    js.JSON = SimpleNamespace(parse=json.loads)  # type: ignore[attr-defined]
    ffi.JsException = JsError  # type: ignore[attr-defined]
    for name in ("create_once_callable", "create_proxy", "to_js"):
        setattr(ffi, name, None)
    for name, module in (("js", js), ("pyodide", ModuleType("pyodide")), ("pyodide.ffi", ffi)):
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module("tocsin.cloudflare.logs").RpcLogs
    for name in set(sys.modules) - before:
        if name.startswith(("tocsin.cloudflare", "holdfast.cloudflare")):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "retryable"), [("Error", True), ("TypeError", False), ("RangeError", False), ("DataCloneError", False)]
)
async def test_an_error_about_the_values_is_a_refusal(rpc_logs: Any, name: str, *, retryable: bool) -> None:
    """A lost connection is worth another attempt; a batch that cannot be sent or processed is not."""

    async def log_batch(_app_id: str, _batch: Any) -> None:
        raise JsError(name, "why")

    with pytest.raises(LogsError, match=r"LOGS\.logBatch: why") as caught:
        await rpc_logs(SimpleNamespace(logBatch=log_batch)).log_batch("app", [LogEntry("INFO", "a", {})])

    assert caught.value.retryable is retryable
