"""What a deployment gives: settings from its vars and secrets, and the bindings, each checked for what it is.

A binding that is missing or of the wrong kind is a line in the log and an error where it is needed; it never
keeps the rest from working.
"""

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tocsin import bindings, settings
from tocsin.bindings import Clock, Database, Level, Logger
from tocsin.errors import BindingMissing
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.database import D1Database
from tocsin.platform.cloudflare.fetch import CloudflareFetch
from tocsin.platform.cloudflare.kv import WorkersKV
from tocsin.platform.cloudflare.log_sender import BackgroundLogSender
from tocsin.platform.cloudflare.logs import ConsoleLogger, RpcLogs, is_logs_rpc, open_logger
from tocsin.platform.shared.log_delivery import LOG_APP_ID
from tocsin.platform.shared.redaction import Redactor
from tocsin.scheduler.config import SchedulerEnv, scheduler_config
from tocsin.scheduler.task import RequestJob, Task
from tocsin.settings import Settings
from tocsin.upstream.registry import upstreams

T = TypeVar("T")
Tasks = Callable[[Settings], Sequence[Task]]
Jobs = Callable[[Settings], Mapping[str, RequestJob]]


def texts(env: Any) -> dict[str, str]:
    """The vars and secrets. Numbers and yes/no of a configuration file arrive as such; both become text."""
    found: dict[str, str] = {}
    for name in javascript.to_json(javascript.js.Object.keys(env)):
        value = getattr(env, name)
        if isinstance(value, bool):
            found[name] = "yes" if value else "no"
        elif isinstance(value, str | int | float):
            found[name] = str(value)
    return found


def open_env_logger(
    env: Any, read: Settings, clock: Clock, wait_until: Callable[[Coroutine[Any, Any, None]], None]
) -> ConsoleLogger:
    """A logger to the console and, where LOGS is bound, to the log service."""
    redact = Redactor(settings.secret_values(read))
    level_min: Level = read.log_level
    console = open_logger(clock, redact, level_min=level_min)
    binding = getattr(env, "LOGS", None)
    if is_logs_rpc(binding):
        sender = BackgroundLogSender(RpcLogs(binding), LOG_APP_ID, clock, console, wait_until)
        return open_logger(clock, redact, level_min=level_min, tee=sender.offer)
    if javascript.kind(binding) != "missing":
        console.error("binding.unusable", binding="LOGS", reason=_misfit("LOGS", binding, "the log service"))
    return console


def open_database(env: Any, logger: Logger) -> Database:
    return _opened(env, "DB", "D1Database", "a D1 database", D1Database, logger)


def open_kv(env: Any, logger: Logger) -> bindings.KV:
    return _opened(env, "KV", "KvNamespace", "a KV namespace", WorkersKV, logger)


class Unusable:
    """Stands in for a binding that is missing or of the wrong kind: whoever uses it is told what is wrong."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence

    def __getattr__(self, name: str) -> Any:
        raise BindingMissing(self._sentence)


def _opened(
    env: Any, name: str, js_class: str, wanted: str, adapter: Callable[[Any], T], logger: Logger
) -> T:
    binding = getattr(env, name, None)
    kind = javascript.kind(binding)
    if kind == js_class:
        return adapter(binding)
    if kind == "missing":
        event, sentence = (
            "binding.missing",
            f"The binding {name} is missing: add {wanted} named {name} to the deployment.",
        )
    else:
        event, sentence = "binding.unusable", _misfit(name, binding, wanted)
    logger.error(event, binding=name, reason=sentence)
    return cast("T", Unusable(sentence))


def _misfit(name: str, binding: Any, wanted: str) -> str:
    return f"The binding {name} is {javascript.kind(binding)}, not {wanted}: correct it in wrangler.jsonc."


@dataclass(frozen=True, slots=True)
class SchedulerParts:
    """What the scheduler of this deployment does."""

    tasks: Tasks
    request_jobs: Jobs


def scheduler_env(
    env: Any, read: Settings, logger: Logger, clock: Clock, parts: SchedulerParts
) -> SchedulerEnv:
    return SchedulerEnv(
        fetch=CloudflareFetch(),
        clock=clock,
        logger=logger,
        random=random.random,
        config=scheduler_config(read),
        upstreams=upstreams(read),
        tasks=parts.tasks(read),
        request_jobs=parts.request_jobs(read),
        DB=open_database(env, logger),
        KV=open_kv(env, logger),
    )
