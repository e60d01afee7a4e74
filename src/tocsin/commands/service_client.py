"""Calls the running service: plain HTTP to the host and port of the settings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

from tocsin.bindings import JSON
from tocsin.commands.setting_sources import SettingSources
from tocsin.errors import MalformedShape, RequestRefused, ServiceUnreachable, UsageError
from tocsin.settings import Settings
from tocsin.shapes.base import SnakeShape

AnyShape = TypeVar("AnyShape", bound=SnakeShape)

ANSWER_S = 15.0
REFRESH_S = 1_800.0  # longer than any time slice
PORT = Settings().port
SCHEDULER = "/api/admin/scheduler"
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where it listens, not where we call


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """Raises `ServiceUnreachable`, or `RequestRefused` with the sentence of the service."""

    host: str
    port: int
    key: str | None = field(repr=False)
    key_refusal: str | None = None  # why the key must not be sent there

    def get(self, path: str, query: Mapping[str, str] | None = None, *, keyed: bool = False) -> JSON:
        return self._ask("GET", path, query or {}, keyed=keyed, timeout_s=ANSWER_S)

    def post(self, path: str, query: Mapping[str, str], *, timeout_s: float = ANSWER_S) -> JSON:
        return self._ask("POST", path, query, keyed=True, timeout_s=timeout_s)

    def read(self, shape: type[AnyShape], answer: JSON) -> AnyShape:
        """The answer as the shape that Tocsin sends."""
        try:
            return shape.from_json(answer)
        except MalformedShape as error:
            raise ServiceUnreachable(
                f"The server at {self._where} answers, but not as this version of Tocsin does ({error})."
                " If it is another program, set TOCSIN_PORT or give --port; if it is Tocsin, update both."
            ) from error

    def _ask(
        self, method: str, path: str, query: Mapping[str, str], *, keyed: bool, timeout_s: float
    ) -> JSON:
        headers = {"Accept": "application/json", **(self._key() if keyed else {})}
        connection = HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, headers=headers)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        except TimeoutError as error:
            raise ServiceUnreachable(
                f"The service at {self._where} gave no answer in {timeout_s:.0f} s: look at its log."
            ) from error
        except OSError as error:
            raise ServiceUnreachable(
                f"No service answers at {self._where} ({error.strerror or error})."
                " Start it with `tocsin serve`, or give its --host and --port."
            ) from error
        except HTTPException as error:
            raise ServiceUnreachable(
                f"The program at {self._where} does not answer in HTTP. Give --host and --port of the service."
            ) from error
        finally:
            connection.close()
        return self._read(status, body)

    def _read(self, status: int, body: bytes) -> JSON:
        try:
            value: JSON = json.loads(body)
        except ValueError as error:
            raise ServiceUnreachable(
                f"The server at {self._where} is not Tocsin. Set TOCSIN_PORT, or give --port."
            ) from error
        if status < 400:
            return value
        body_fields = value if isinstance(value, dict) else {}
        sentence = str(
            body_fields.get("message") or body_fields.get("error", f"the service answered {status}")
        )
        raise RequestRefused(status, str(body_fields.get("code", "")), sentence)

    def _key(self) -> dict[str, str]:
        if not self.key:
            raise UsageError(
                "This command needs the admin key of the service: set ADMIN_KEY, or put it into .env here."
            )
        if self.key_refusal is not None:
            raise UsageError(f"{self.key_refusal}, or give --host and --port.")
        if not (self.key.isascii() and self.key.isprintable()):
            raise UsageError("ADMIN_KEY must be printable ASCII.")
        return {"X-Admin-Key": self.key}

    @property
    def _where(self) -> str:
        return f"{self.host}:{self.port}"


def client_of(
    environment: Mapping[str, str], dotenv: Path, *, host: str | None = None, port: int | None = None
) -> ServiceClient:
    """By options, else by the environment, else by the `.env` file, else by default."""
    sources = SettingSources(environment, dotenv)
    known = sources.values
    at = host or known.get("TOCSIN_HOST", "127.0.0.1")
    set_port = known.get("TOCSIN_PORT", str(PORT))
    unsaid = [name for name, option in (("TOCSIN_HOST", host), ("TOCSIN_PORT", port)) if option is None]
    if port is None and not (set_port.isdecimal() and 0 < int(set_port[:6]) < 65_536):
        raise UsageError(f"TOCSIN_PORT is {set_port!r}; give a number from 1 to 65535, such as {PORT}.")
    of = "ADMIN_KEY" if known.get("ADMIN_KEY") else "TOCSIN_VIEWER_KEY"
    return ServiceClient(
        ANYWHERE.get(at, at),
        port or int(set_port),
        _first_key(known.get(of, "")),
        key_refusal=sources.parted(of, unsaid),
    )


def _first_key(keys: str) -> str | None:
    """Without its name. A viewer's key will do to look."""
    return keys.split(",", maxsplit=1)[0].strip().rpartition(":")[2] or None
