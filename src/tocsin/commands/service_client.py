"""Calls the running service over HTTP or HTTPS: on this machine, behind a proxy or on Cloudflare.

Certificates are checked against the system's, or those of SSL_CERT_FILE; nothing turns that off. A key is sent only to
an address from the same source as the key, over TLS or within this machine. Redirects are not followed: they would
receive the key.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

from tocsin.bindings import JSON
from tocsin.commands.service_address import ServiceAddress, address_of, is_this_machine
from tocsin.commands.setting_sources import SettingSources
from tocsin.errors import MalformedShape, RequestRefused, ServiceUnreachable, UsageError
from tocsin.shapes.base import SnakeShape

AnyShape = TypeVar("AnyShape", bound=SnakeShape)

ANSWER_S = 15.0
REFRESH_S = 1_800.0  # longer than any time slice
FOLLOW_S = 60.0  # a stream sends something every 15 seconds
QUIET_S = 1.0
SCHEDULER = "/api/admin/scheduler"
GIVE_ADDRESS = "Give its --url, or its --host and --port."


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """Calls raise `ServiceUnreachable`, or `RequestRefused` with the service's own sentence."""

    address: ServiceAddress
    key: str | None = field(repr=False)
    key_refusal: str | None = None  # why the key must not be sent there

    def get(self, path: str, query: Mapping[str, str] | None = None, *, keyed: bool = False) -> JSON:
        return self._ask("GET", path, query or {}, keyed=keyed, timeout_s=ANSWER_S)

    def post(self, path: str, query: Mapping[str, str], *, timeout_s: float = ANSWER_S) -> JSON:
        return self._ask("POST", path, query, keyed=True, timeout_s=timeout_s)

    def send(self, path: str, body: JSON, query: Mapping[str, str]) -> JSON:
        """Post JSON."""
        return self._ask("POST", path, query, keyed=True, timeout_s=REFRESH_S, body=json.dumps(body).encode())

    def events(self, path: str, *, follow: bool) -> Iterator[str]:
        """The data of server-sent events, one by one; without `follow`, until there is a pause."""
        connection = self._connection(ANSWER_S)
        try:
            connection.request("GET", f"{self.address.prefix}{path}", headers=self._key())
            answer = connection.getresponse()
            if answer.status != 200:
                self._read(answer.status, answer.read())
            if connection.sock is not None:
                connection.sock.settimeout(FOLLOW_S if follow else QUIET_S)
            yield from _data_of(answer)
        except TimeoutError as error:
            if follow:
                raise self._unreachable(error, FOLLOW_S) from error
        except (OSError, HTTPException, UnicodeError) as error:
            raise self._unreachable(error, ANSWER_S) from error
        finally:
            connection.close()

    def read(self, shape: type[AnyShape], answer: JSON) -> AnyShape:
        """The answer as this shape."""
        try:
            return shape.from_json(answer)
        except MalformedShape as error:
            raise ServiceUnreachable(
                f"The server at {self.address} does not answer like this version of Tocsin ({error})."
                " If it is another program, give the --url or the --port of Tocsin; if it is Tocsin, update both."
            ) from error

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        keyed: bool,
        timeout_s: float,
        body: bytes | None = None,
    ) -> JSON:
        headers = {"Accept": "application/json", **(self._key() if keyed else {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = f"{self.address.prefix}{path}"
        connection = self._connection(timeout_s)
        try:
            target = f"{target}?{urlencode(query)}" if query else target
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            status, location, text = answer.status, answer.getheader("Location", ""), answer.read()
        except (OSError, HTTPException, UnicodeError) as error:
            raise self._unreachable(error, timeout_s) from error
        finally:
            connection.close()
        if 300 <= status < 400:
            raise self._redirected(location)
        return self._read(status, text)

    def _connection(self, timeout_s: float) -> HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.tls:
            return HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        return HTTPConnection(host, port, timeout=timeout_s)

    def _unreachable(self, error: Exception, timeout_s: float) -> ServiceUnreachable:
        match error:
            case TimeoutError():
                sentence = (
                    f"The service at {self.address} did not answer within {timeout_s:.0f} s: see its log."
                )
            case ssl.SSLCertVerificationError():
                sentence = (
                    f"The certificate of {self.address} is not trusted ({error.verify_message.rstrip('.')})."
                    " If it was issued by a CA of your own, set SSL_CERT_FILE to that CA's certificate."
                )
            case ssl.SSLError():
                reason = (error.reason or str(error)).lower().replace("_", " ")
                sentence = f"No TLS connection to {self.address} ({reason}). Give --url with http:// if it has no TLS."
            case OSError():
                sentence = (
                    f"No service answers at {self.address} ({error.strerror or error})."
                    " Start it with `tocsin serve`, or give its --url, or its --host and --port."
                )
            case UnicodeError():
                sentence = f"{self.address} has an invalid host name. {GIVE_ADDRESS}"
            case _:
                sentence = f"The program at {self.address} does not speak HTTP. {GIVE_ADDRESS}"
        return ServiceUnreachable(sentence)

    def _redirected(self, location: str) -> ServiceUnreachable:
        """An error that names only the scheme and host of the target: the rest may hold a secret."""
        try:
            to = urlsplit(location)
            origin = f"{to.scheme}://{to.hostname}" if to.scheme in {"http", "https"} and to.hostname else ""
        except ValueError:
            origin = ""
        leads = f" to {origin[:100]}" if origin.isascii() and origin.isprintable() and origin else ""
        return ServiceUnreachable(
            f"The server at {self.address} redirects{leads}. Redirects are not followed, because they could"
            " send the key elsewhere: give the final address as --url or TOCSIN_URL."
        )

    def _read(self, status: int, body: bytes) -> JSON:
        try:
            value: JSON = json.loads(body)
        except ValueError as error:
            if status >= 500:
                raise ServiceUnreachable(
                    f"The server at {self.address} answers {status} without a reason: a proxy could not reach"
                    " the service, or did not wait for its answer. Try `tocsin status`."
                ) from error
            raise ServiceUnreachable(f"The server at {self.address} is not Tocsin. {GIVE_ADDRESS}") from error
        if status < 400:
            return value
        if status == 401:
            wrong = (
                f"The service at {self.address} does not accept this key: set ADMIN_KEY to the service's key."
            )
            raise RequestRefused(status, "unauthorised", wrong)
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
            raise UsageError(f"{self.key_refusal}, or give --host and --port, or --url.")
        if not (self.key.isascii() and self.key.isprintable()):
            raise UsageError("ADMIN_KEY must be printable ASCII.")
        if not (self.address.tls or is_this_machine(self.address.host)):
            raise UsageError(
                f"The key would be sent to {self.address} unencrypted. Give --url with https://, or use a tunnel:"
                f" ssh -L 8787:127.0.0.1:8787 {self.address.host}, then --port 8787."
            )
        return {"X-Admin-Key": self.key}


def client_of(
    environment: Mapping[str, str],
    dotenv: Path,
    *,
    url: str | None = None,
    host: str | None = None,
    port: int | None = None,
) -> ServiceClient:
    """A client configured by options, else by the environment, else by the `.env` file, else by default."""
    sources = SettingSources(environment, dotenv)
    known = sources.values
    address, used = address_of(known, address_url=url, host=host, port=port)
    of = "ADMIN_KEY" if known.get("ADMIN_KEY") else "TOCSIN_VIEWER_KEY"
    return ServiceClient(address, _first_key(known.get(of, "")), key_refusal=sources.parted(of, used))


def _data_of(answer: HTTPResponse) -> Iterator[str]:
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield line[6:].decode().rstrip("\n")


def _first_key(keys: str) -> str | None:
    """The first key, without its name. A viewer's key is enough to read."""
    return keys.split(",", maxsplit=1)[0].strip().rpartition(":")[2] or None
