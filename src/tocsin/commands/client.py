"""Calls the running service over HTTP or HTTPS: on this machine, behind a proxy or on Cloudflare.

Certificates are checked against the system's, or those of SSL_CERT_FILE; nothing turns that off. Redirects are not
followed: they would receive the key. A key is sent only over TLS or within this machine, and only to an address from
the same source as the key: a `.env` file may come from a directory that somebody else created, and could name the
address to which a key from the environment is sent.
"""

import json
import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode, urlsplit

from holdfast.errors import HoldfastError, UsageError
from holdfast.types import JSON
from tocsin.errors import RequestRefused, ServiceUnreachable
from tocsin.settings import URL_FOR_COMMANDS, Settings, SettingsError, read_env_file, url

ANSWER_S = 15.0
REFRESH_S = 1_800.0  # longer than any time slice
FOLLOW_S = 60.0  # a stream sends something every 15 seconds
QUIET_S = 1.0
SCHEDULER = "/api/admin/scheduler"
GIVE_ADDRESS = "Give its --url, or its --host and --port."
PAGE_MAX = 500  # runs in one answer

PORT = Settings().port
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - where it listens, not where we call
ENVIRONMENT = "the environment"
FILE = ".env"
DEMO_DIR = Path("demo-data")  # where `make demo` keeps its data
NAMED_BY_DEMO = (
    *(URL_FOR_COMMANDS, "TOCSIN_HOST", "TOCSIN_PORT", "TOCSIN_DATA_DIR", "ADMIN_KEY", "TOCSIN_VIEWER_KEY"),
    *("HIRO_API_URL", "HIRO_API_KEY", "TENERO_API_URL", "TENERO_API_KEY"),
)
ADDRESS_OF_KEY = {
    "HIRO_API_KEY": "HIRO_API_URL",
    "TENERO_API_KEY": "TENERO_API_URL",
    "WORKER_LOGS_KEY": "WORKER_LOGS_URL",
    "TOCSIN_ALERT_KEY": "TOCSIN_ALERT_URL",
}

Query: TypeAlias = Mapping[str, str | int | None]  # without those that are None
Answer: TypeAlias = Any  # JSON of the service, as /openapi.json describes it


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A host and a port, and for a URL the prefix of every path."""

    host: str
    port: int
    prefix: str = ""
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https://' if self.tls else ''}{host}:{self.port}{self.prefix}"


def parse_url(text: str, name: str) -> ServiceAddress:
    """The address of a URL. `name` tells where it was given; the URL is not repeated, as it may hold a password."""
    try:
        parts = urlsplit(url(text))
        if parts.port == 0:
            raise ValueError("has the port 0")  # noqa: TRY301 - one sentence for every problem
    except ValueError as error:
        raise UsageError(f"{name} {error}. Example: https://tocsin.example.org/prefix") from None
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    return ServiceAddress(ANYWHERE.get(host, host), parts.port or (443 if tls else 80), parts.path, tls)


def address_of(
    known: Mapping[str, str], *, address_url: str | None, host: str | None, port: int | None
) -> tuple[ServiceAddress, list[str]]:
    """The address by options, else by settings; a URL wins over host and port. Also the names of the settings used."""
    if address_url is not None:
        if host is not None or port is not None:
            raise UsageError("Give --url, or --host and --port, but not both.")
        return parse_url(address_url, "--url"), []
    if host is None and port is None and known.get(URL_FOR_COMMANDS):
        return parse_url(known[URL_FOR_COMMANDS], URL_FOR_COMMANDS), [URL_FOR_COMMANDS]
    at = host or known.get("TOCSIN_HOST", "127.0.0.1")
    set_port = known.get("TOCSIN_PORT", str(PORT))
    if port is None and not (set_port.isdecimal() and 0 < int(set_port[:6]) < 65_536):
        raise UsageError(f"TOCSIN_PORT is {set_port!r}; give a number from 1 to 65535, such as {PORT}.")
    used = [name for name, option in (("TOCSIN_HOST", host), ("TOCSIN_PORT", port)) if option is None]
    return ServiceAddress(ANYWHERE.get(at, at), port or int(set_port)), used


def is_this_machine(host: str) -> bool:
    """Whether data sent to this host stays on this machine. Sends nothing, except to look up a name."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> bool:
    """A loopback address, or one of this machine's: the kernel connects to those from the same address."""
    if ip_address(str(address[0]).partition("%")[0]).is_loopback:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # a datagram socket: nothing is sent
        except OSError:
            return False
        return bool(probe.getsockname()[0] == probe.getpeername()[0])


def of_running_demo(directory: Path) -> Mapping[str, str]:
    """The settings of the demo that runs in this directory; none if there is none."""
    try:
        settings: dict[str, str] = json.loads((directory / "demo.json").read_text())["settings"]
    except (OSError, ValueError, KeyError):
        return {}
    from holdfast.local.data_dir import is_in_use

    return settings if is_in_use(directory) else {}


class SettingSources:
    """The settings and their sources. In `demo`, a directory, those of a demo count only if nothing else names any."""

    def __init__(self, environment: Mapping[str, str], file: Path, demo: Path | None = None) -> None:
        self.in_file: Mapping[str, str] = read_env_file(file.read_bytes()) if file.is_file() else {}
        self.values: Mapping[str, str] = {**self.in_file, **environment}
        self._environment = environment
        if demo is not None and not any(self.values.get(name) for name in NAMED_BY_DEMO):
            given = {name: value for name, value in self.values.items() if value}  # .env.example has empty ones
            self.values = {**of_running_demo(demo), **given}

    def of(self, name: str) -> str | None:
        """Where the setting comes from; None if it is not set."""
        if not self.values.get(name):
            return None
        return ENVIRONMENT if self._environment.get(name) else FILE if self.in_file.get(name) else str(DEMO_DIR)

    def parted(self, key: str, addresses: Iterable[str]) -> str | None:
        """A sentence if the key and a part of its address come from different sources."""
        for address in addresses:
            if self.of(key) and self.of(address) not in (None, self.of(key)):
                return (
                    f"{key} comes from {self.of(key)} and {address} from {self.of(address)}:"
                    " a key is sent only to an address from the same source. Set both in one of them"
                )
        return None

    def checked(self) -> Mapping[str, str]:
        """All values for the service; refuses a key whose address comes from another source."""
        found = [self.parted(key, [address]) for key, address in ADDRESS_OF_KEY.items()]
        problems = [problem for problem in found if problem is not None]
        if problems:
            raise SettingsError(*problems)
        return self.values


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """Calls raise `ServiceUnreachable`, or `RequestRefused` with the service's own sentence."""

    address: ServiceAddress
    key: str | None = field(repr=False)
    key_refusal: str | None = None  # why the key must not be sent there

    def get(self, path: str, query: Query | None = None, *, keyed: bool = False) -> Answer:
        return self._ask("GET", path, query or {}, keyed=keyed, timeout_s=ANSWER_S)

    def scheduler(self, part: str = "", query: Query | None = None) -> Answer:
        """What operators see of the scheduler: its status, or a list such as `/runs`."""
        return self.get(f"{SCHEDULER}{part}", query, keyed=True)

    def act(self, query: Query, *, timeout_s: float = ANSWER_S) -> Answer:
        """Make the scheduler act."""
        return self._ask("POST", SCHEDULER, query, keyed=True, timeout_s=timeout_s)

    def send(self, path: str, body: JSON, query: Query) -> Answer:
        """Post JSON."""
        return self._ask("POST", path, query, keyed=True, timeout_s=REFRESH_S, body=json.dumps(body).encode())

    def events(self, *, follow: bool) -> Iterator[str]:
        """The data of the scheduler's events, one by one; without `follow`, until there is a pause."""
        connection = self._connection(ANSWER_S)
        try:
            connection.request("GET", f"{self.address.prefix}{SCHEDULER}/events", headers=self._key())
            sock = connection.sock  # the connection forgets it if the answer ends with it, as behind some proxies
            answer = connection.getresponse()
            if answer.status != 200:
                self._read(answer.status, answer.read())
            sock.settimeout(FOLLOW_S if follow else QUIET_S)
            yield from _data_of(answer)
        except TimeoutError as error:
            if follow:
                raise self._unreachable(error, FOLLOW_S) from error
        except (OSError, HTTPException, UnicodeError) as error:
            raise self._unreachable(error, ANSWER_S) from error
        finally:
            connection.close()

    def not_understood(self, error: Exception) -> ServiceUnreachable:
        """What to raise when an answer lacks what a command reads."""
        return ServiceUnreachable(
            f"The server at {self.address} does not answer like this version of Tocsin ({error!r})."
            " If it is another program, give the --url or the --port of Tocsin; if it is Tocsin, update both."
        )

    def health(self, error: HoldfastError) -> Answer | None:
        """What `/readyz` knows when the scheduler did not answer because of this error; None if nobody answers."""
        if isinstance(error, RequestRefused) and error.status < 500:
            return None
        try:
            return self._ask("GET", "/readyz", {}, keyed=False, timeout_s=ANSWER_S, accepted=503)
        except HoldfastError:
            return None

    def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        keyed: bool,
        timeout_s: float,
        body: bytes | None = None,
        accepted: int = 200,
    ) -> Answer:
        headers = {"Accept": "application/json", **(self._key() if keyed else {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = f"{self.address.prefix}{path}"
        connection = self._connection(timeout_s)
        try:
            given = {name: value for name, value in query.items() if value is not None}
            target = f"{target}?{urlencode(given)}" if given else target
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            status, location, text = answer.status, answer.getheader("Location", ""), answer.read()
        except (OSError, HTTPException, UnicodeError) as error:
            raise self._unreachable(error, timeout_s) from error
        finally:
            connection.close()
        if 300 <= status < 400:
            raise self._redirected(location)
        return self._read(200 if status == accepted else status, text)

    def _connection(self, timeout_s: float) -> HTTPConnection:
        host, port = self.address.host, self.address.port
        if self.address.tls:
            return HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        return HTTPConnection(host, port, timeout=timeout_s)

    def _unreachable(self, error: Exception, timeout_s: float) -> ServiceUnreachable:
        match error:
            case TimeoutError():
                sentence = f"The service at {self.address} did not answer within {timeout_s:.0f} s: see its log."
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

    def _read(self, status: int, body: bytes) -> Answer:
        try:
            value = json.loads(body)
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
            wrong = f"The service at {self.address} does not accept this key: set ADMIN_KEY to the service's key."
            raise RequestRefused(status, "unauthorised", wrong)
        body_fields = value if isinstance(value, dict) else {}
        sentence = str(body_fields.get("message") or body_fields.get("error", f"the service answered {status}"))
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


def client_here(*, url: str | None, host: str | None, port: int | None) -> ServiceClient:
    """The client of a command in this directory."""
    return client_of(os.environ, Path(".env"), DEMO_DIR, url=url, host=host, port=port)


def client_of(
    environment: Mapping[str, str],
    dotenv: Path,
    demo: Path | None = None,
    *,
    url: str | None = None,
    host: str | None = None,
    port: int | None = None,
) -> ServiceClient:
    """A client configured by options, else by the environment, the `.env` file or a running demo, else by default."""
    sources = SettingSources(environment, dotenv, demo if url is None and host is None and port is None else None)
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


def list_runs(client: ServiceClient, filters: Query, limit: int) -> Answer:
    """The newest matching runs, at most `limit`; `next` is where the list continues. One answer cannot hold 30 days."""
    runs: list[JSON] = []
    cursor: int | None = None
    while True:
        page = {"limit": min(PAGE_MAX, limit - len(runs)), "cursor": cursor}
        answer = client.scheduler("/runs", {**filters, **page})
        runs += answer["runs"]
        cursor = answer["next"]
        if cursor is None or len(runs) >= limit:
            return {**answer, "runs": runs}
