"""The environment of a deployment: settings from its vars and secrets, and its bindings, each checked.

A binding that is missing or of the wrong kind is reported in the log, and raises where it is used. It does
not stop anything else from working.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from tocsin import bindings, settings
from tocsin.bindings import Clock, Database, Level, Logger
from tocsin.errors import BindingMissing
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.database import D1Database
from tocsin.platform.cloudflare.kv import WorkersKV
from tocsin.platform.cloudflare.log_sender import BackgroundLogSender
from tocsin.platform.cloudflare.logs import ConsoleLogger, RpcLogs, is_logs_rpc, open_logger
from tocsin.platform.shared.log_delivery import LOG_APP_ID
from tocsin.platform.shared.redaction import Redactor
from tocsin.settings import Settings

T = TypeVar("T")


def texts(env: Any) -> dict[str, str]:
    """The vars and secrets as text. A configuration file may also have numbers and booleans."""
    variables: dict[str, str] = {}
    for name in javascript.to_json(javascript.js.Object.keys(env)):
        value = getattr(env, name)
        if isinstance(value, bool):
            variables[name] = "yes" if value else "no"
        elif isinstance(value, str | int | float):
            variables[name] = str(value)
    return variables


def open_env_logger(
    env: Any, config: Settings, clock: Clock, wait_until: Callable[[Coroutine[Any, Any, None]], None]
) -> ConsoleLogger:
    """A logger to the console and, where LOGS is bound, to the log service."""
    redact = Redactor(settings.secret_values(config))
    level_min: Level = config.log_level
    console = open_logger(clock, redact, level_min=level_min)
    binding = getattr(env, "LOGS", None)
    if is_logs_rpc(binding):
        sender = BackgroundLogSender(RpcLogs(binding), LOG_APP_ID, clock, console, wait_until)
        return open_logger(clock, redact, level_min=level_min, tee=sender.offer)
    if javascript.kind(binding) != "missing":
        console.error(
            "binding.unusable", binding="LOGS", reason=_wrong_kind("LOGS", binding, "the log service")
        )
    return console


def open_database(env: Any, logger: Logger) -> Database:
    return _opened(env, "DB", "D1Database", "a D1 database", D1Database, logger)


def open_kv(env: Any, logger: Logger) -> bindings.KV:
    return _opened(env, "KV", "KvNamespace", "a KV namespace", WorkersKV, logger)


class Unusable:
    """Stands in for a missing or wrong binding. Any use raises BindingMissing with the fix."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence

    def __getattr__(self, name: str) -> Any:
        raise BindingMissing(self._sentence)


def _opened(
    env: Any, name: str, js_class: str, expected: str, adapter: Callable[[Any], T], logger: Logger
) -> T:
    binding = getattr(env, name, None)
    kind = javascript.kind(binding)
    if kind == js_class:
        return adapter(binding)
    if kind == "missing":
        event = "binding.missing"
        sentence = f"The binding {name} is missing: add {expected} named {name} to the deployment."
    else:
        event, sentence = "binding.unusable", _wrong_kind(name, binding, expected)
    logger.error(event, binding=name, reason=sentence)
    return cast("T", Unusable(sentence))


def _wrong_kind(name: str, binding: Any, expected: str) -> str:
    return f"The binding {name} is {javascript.kind(binding)}, not {expected}: correct it in wrangler.jsonc."
