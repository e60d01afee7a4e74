"""Every setting: its name, its values, its default and its purpose; docs/settings.md lists them. Pure.

`read` takes the environment as a mapping and returns all settings, or raises an error that lists every problem: the
name, what is wrong with the value (never a secret value itself), and an example. Defaults are defined only here. A
parser reads one text, or raises ValueError with what is wrong with it.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_network
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from holdfast.errors import StartError
from holdfast.types import ALARM_LIMIT_MS, Level
from tocsin.text import long_duration, parse_duration

# A run must end, and the next alarm must ring, before the handler that started the run reaches its limit.
SLICE_MAX_MS = ALARM_AHEAD_MAX_MS = ALARM_LIMIT_MS - 60_000
CADENCE_MIN_MS = 1_000
CADENCE_MAX_MS = 7 * 86_400_000
SLICE_MIN_MS = 100
OWN_KEY_MIN = 16  # characters
Role: TypeAlias = Literal["operator", "viewer", "cron", "chainhook", "lookup", "job"]
KEYS_MAX = 20  # for people who may open the console
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,31}")
MINUTE_MS = 60_000
OWN_PREFIX = "TOCSIN_"
SHARE_DEFAULT = 0.3  # of Hiro's calls, for the look-ups of one program
SHARES_MAX = 0.8  # of all of them: a tenth is for other requests, and a tenth at least for tasks
LOOKUP_PATHS = (
    "hiro/v1/names/*=6h,hiro/v1/addresses/stacks/*=6h,hiro/extended/v1/tokens/nft/holdings=6h,"
    "hiro/metadata/v1/nft/*/*=6h,hiro/metadata/v1/ft/*=6h,"
    "hiro/v2/contracts/interface/*/*=6h,hiro/v2/contracts/source/*/*=6h,"
    "hiro/v2/contracts/call-read/SP2QEZ06AGJ3RKJPBV14SY1V5BBFNAW33D96YPGZF/BNS-V2/*=6h,"
    "hiro/v2/contracts/call-read/*/*/*=10m,"
    "hiro/extended/v1/address/*/balances=1m,hiro/extended/v1/address/*/stx=1m,"
    "hiro/extended/v2/addresses/*/balances/stx=1m,hiro/extended/v2/addresses/*/balances/ft=1m,"
    "hiro/extended/v1/tx/*=30s,"
    "tenero/v1/stacks/tokens=5m,tenero/v1/stacks/tokens/*=5m,tenero/v1/stacks/tokens/*/ohlc=5m"
)
URL_FOR_COMMANDS = "TOCSIN_URL"  # where commands find the service; the service itself does not use it


def integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,15}", text.strip()) or not low <= int(text) <= high:
            raise ValueError(f"is not a whole number from {low} to {high}")
        return int(text)

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text.strip()) or not low <= float(text) <= high:
            raise ValueError(f"is not a number from {low:g} to {high:g}")
        return float(text)

    return parse


def limit(text: str) -> int | None:
    """Calls of a plan: a number, or "none" if the plan has no such limit."""
    return None if text.strip() == "none" else integer(1, 10**9)(text)


def yes_or_no(text: str) -> bool:
    words = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}
    if text.strip().lower() not in words:
        raise ValueError("is neither yes nor no")
    return words[text.strip().lower()]


def cadence(text: str) -> int:
    ms = parse_duration(text)
    if not CADENCE_MIN_MS <= ms <= CADENCE_MAX_MS:
        bounds = f"from {long_duration(CADENCE_MIN_MS)} to {long_duration(CADENCE_MAX_MS)}"
        raise ValueError(f"is not a duration {bounds}")
    return ms


def time_slice(text: str) -> int:
    """A time slice. Its upper bound depends on the cadence, and is checked with it."""
    ms = parse_duration(text)
    if ms < SLICE_MIN_MS:
        raise ValueError(f"is not a duration of at least {SLICE_MIN_MS} ms")
    return ms


def url(text: str) -> str:
    given = text.strip()
    if not re.fullmatch(r"[!-~]*", given):
        raise ValueError("has a space, a line break or another character that a URL cannot have")
    if not re.match(r"https?://", given):
        raise ValueError("does not begin with https:// or http://")
    try:
        parts = urlsplit(given)
        has_host, _ = bool(parts.hostname), parts.port
    except ValueError:
        raise ValueError("is not a URL: its host or its port is wrong") from None
    if not has_host:
        raise ValueError("has no host")
    if "@" in parts.netloc:
        raise ValueError("has a user name or a password, which Tocsin does not send: leave out everything up to the @")
    if parts.query or parts.fragment:
        raise ValueError("has a query or a fragment: leave out everything from the ? or # on")
    return given.rstrip("/")


def api_url(own_path: str) -> Callable[[str], str]:
    """The URL of an API; paths that Tocsin adds itself are refused."""

    def parse(text: str) -> str:
        given = url(text)
        found = re.search(own_path, given)
        if found is not None:
            raise ValueError(f"ends with {found[0]}, which Tocsin adds itself: leave it out")
        return given

    return parse


hiro_url = api_url(r"/extended(?:/v\d+)?$")
tenero_url = api_url(r"/v1(?:/stacks)?$")


def call_url(text: str) -> str:
    """A URL that we send something to: over TLS, or on this machine."""
    stripped = text.strip()
    if not re.fullmatch(r"https?://[!-~]+", stripped) or not _is_safe_target(stripped):
        raise ValueError("is not an https URL, or an http URL of this machine")
    return stripped


def _is_safe_target(address: str) -> bool:
    try:
        parts = urlsplit(address)
        complete = bool(parts.hostname) and parts.port != 0 and not parts.fragment and "@" not in parts.netloc
    except ValueError:
        return False
    return complete and (parts.scheme == "https" or parts.hostname in {"127.0.0.1", "::1", "localhost"})


def one_of(*values: str) -> Callable[[str], str]:
    """One of these words, in any case."""

    def parse(text: str) -> str:
        for value in values:
            if text.strip().lower() == value.lower():
                return value
        raise ValueError(f"is not one of {', '.join(values)}")

    return parse


def matching(pattern: str, problem: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text.strip()):
            raise ValueError(problem)
        return text.strip()

    return parse


# A hook at Hiro: its UUID, or its path there.
hook_id = matching(
    r"((/[a-z0-9_-]+)+/)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "is neither a UUID nor a path that ends with one"
)
host_name = matching(r"(?=.{1,253}$)[A-Za-z0-9_:-]{1,63}(\.[A-Za-z0-9_:-]{1,63})*", "is not an address or a host name")
word = matching(r"[a-z][a-z0-9-]{0,31}", "is not a short lower-case word")


def secret(text: str) -> str:
    if not 4 <= len(text) <= 256 or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("must have 4 to 256 printable ASCII characters, and no spaces around them")
    return text


def own_key(text: str) -> str:
    """A key that others must send to us, which nobody must be able to guess."""
    if len(secret(text)) < OWN_KEY_MIN:
        raise ValueError(f"is too short: give at least {OWN_KEY_MIN} characters; `openssl rand -hex 16` makes a key")
    return text


def networks(text: str) -> tuple[str, ...]:
    """Addresses and networks, separated by commas."""
    try:
        return tuple(str(ip_network(part.strip(), strict=False)) for part in text.split(","))
    except ValueError:
        raise ValueError("is not a list of IP addresses or networks") from None


def origins(text: str) -> tuple[str, ...]:
    """Origins, separated by commas; `*` for any, `none` for none."""
    if text.strip() == "none":
        return ()
    found = tuple(part.strip().lower() for part in text.split(","))
    for each in found:
        if each != "*" and not re.fullmatch(r"https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?", each):
            raise ValueError("is not a list of origins such as https://aibtc.com, nor * or none")
    return found


def without_credentials(text: str) -> str:
    """A text for an error message, without a possible password before an @ or a key in a query."""
    head, slashes, rest = text.partition("//")
    if not slashes:
        head, rest = "", text
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    return head + slashes + re.sub(r"[?#].*", "?***", rest, flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class AccessKey:
    """One key. Two may have the same name while one replaces the other."""

    name: str
    role: Role
    secret: str = field(repr=False)
    share: float = 0.0  # of Hiro's calls, for look-ups


def matching_key(sent: str, keys: Iterable[AccessKey]) -> AccessKey | None:
    """The key that was sent, if it is one of these. The time it takes does not depend on what was sent.

    Every key is compared, by digests of equal length, so not even the length of a key is revealed.
    """
    digest = _digest(sent)
    matching = [key for key in keys if compare_digest(digest, _digest(key.secret))]
    return matching[0] if matching else None


def access_keys(
    role: Role, bare_name: str, keys_max: int, *, named: bool = True
) -> Callable[[str], tuple[AccessKey, ...]]:
    """Make a parser of `alice:KEY,bob:KEY` or bare keys, which get `bare_name`. No error shows any part of the text."""

    def parse(text: str) -> tuple[AccessKey, ...]:
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > keys_max:
            raise ValueError(f"has more than {keys_max} keys, separated by commas")
        found: list[AccessKey] = []
        for number, part in enumerate(parts, 1):
            try:
                found.append(_key(part, role, bare_name, named=named))
            except ValueError as error:
                raise ValueError(f"{error} (key {number} of {len(parts)})" if parts[1:] else str(error)) from None
        if len({key.secret for key in found}) < len(found):
            raise ValueError("has the same key twice")
        return tuple(found)

    return parse


def _key(text: str, role: Role, bare_name: str, *, named: bool) -> AccessKey:
    name, colon, secret = text.partition(":")
    if not named or not colon:
        return AccessKey(bare_name, role, own_key(text))
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            "has a colon, but the text before it is not a name: give NAME:KEY with a name of at most 32 letters,"
            " digits, dots and dashes"
        )
    return AccessKey(name, role, own_key(secret))


def lookup_keys(text: str) -> tuple[AccessKey, ...]:
    """Keys with a share each: `site:40%:KEY`."""
    bare = re.sub(r"(^|,)(\s*[^:,]*):\d+%:", r"\1\2:", text)
    named = re.finditer(r"(?:^|,)\s*([^:,]*):(\d+)%:", text)
    shares = {found[1]: int(found[2]) / 100 for found in named}
    keys = access_keys("lookup", "site", KEYS_MAX)(bare)
    shared = tuple(replace(key, share=shares.get(key.name, SHARE_DEFAULT)) for key in keys)
    if not all(key.share > 0 for key in shared) or lookup_share(shared) > SHARES_MAX:
        raise ValueError(f"has shares that are 0% or together more than {SHARES_MAX:.0%}")
    return shared


def lookup_share(keys: Iterable[AccessKey]) -> float:
    """The share of all programs that look up. Two keys of one name, while one replaces the other, have one share."""
    return round(sum({key.name: key.share for key in keys}.values()), 2)


@dataclass(frozen=True, slots=True)
class LookupPath:
    """Paths of an upstream that other programs may ask for, and for how long an answer is fresh.

    In `pattern`, `*` stands for one part of a path.
    """

    upstream: str
    pattern: str
    fresh_s: int

    def allows(self, upstream: str, path: str) -> bool:
        """Whether this is such a path. No part of it may be `.` or `..`, or have a character with a meaning in URLs."""
        part = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._:~-]{1,300}"
        pattern = "/".join(part if each == "*" else re.escape(each) for each in self.pattern.split("/"))
        return upstream == self.upstream and re.fullmatch(pattern, path) is not None


def lookup_paths(text: str) -> tuple[LookupPath, ...]:
    """Paths with a time each, separated by commas."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(hiro|tenero)((?:/(?:\*|[A-Za-z0-9][A-Za-z0-9._-]*))+)=(\w+)", part.strip())
        if match is None:
            raise ValueError(f"has {part.strip()[:80]!r}, which is not an upstream's path with a time")
        found.append(LookupPath(match[1], match[2], cadence(match[3]) // 1000))
    return tuple(found)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()


class SettingsError(StartError):
    """One or more settings are wrong; each of the `problems` names one, what is wrong with it and an example."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(["The settings need a change:", *(f"  {problem}" for problem in problems)]))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    parse: Callable[[str], Any]  # each setting has its own type
    example: str
    text: str
    secret: bool = False
    reload: bool = False  # whether a reload applies it; otherwise it needs a restart


def _setting(
    name: str,
    parse: Callable[[str], Any],
    default: object,
    example: str,
    text: str,
    *,
    is_secret: bool = False,
    reload: bool = False,
) -> Any:  # noqa: ANN401 - as `field` does: the attribute declares its type
    setting = Setting(name, parse, example, text, is_secret, reload)
    return field(default=default, repr=not is_secret, metadata={"setting": setting})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, typed. A field has the name of its setting in lower case, without TOCSIN_."""

    admin_key: tuple[AccessKey, ...] = _setting(
        "ADMIN_KEY", access_keys("operator", "admin", KEYS_MAX), (), "alice:a-long-random-text,bob:another-random-text",
        "grants access to the console and the admin routes: one key, or several with names; without it, no access",
        is_secret=True, reload=True,
    )  # fmt: skip
    viewer_key: tuple[AccessKey, ...] = _setting(
        "TOCSIN_VIEWER_KEY", access_keys("viewer", "viewer", KEYS_MAX), (), "carol:a-third-random-text",
        "grants read-only access to the console and the admin routes; actions are refused", is_secret=True, reload=True,
    )  # fmt: skip
    cron_secret: tuple[AccessKey, ...] = _setting(
        "CRON_SECRET", access_keys("cron", "cron", 2), (), "a-long-random-text",
        "secret of POST /api/competition/cron; give two while replacing one; without it, the route refuses requests",
        is_secret=True, reload=True,
    )  # fmt: skip
    chainhook_secret: tuple[AccessKey, ...] = _setting(
        "CHAINHOOK_SECRET", access_keys("chainhook", "chainhook", 2, named=False), (),
        "a-long-random-text,the-one-before-it",
        "bearer secret of POST /api/chainhook; give two while replacing one", is_secret=True, reload=True,
    )  # fmt: skip
    lookup_key: tuple[AccessKey, ...] = _setting(
        "TOCSIN_LOOKUP_KEY", lookup_keys, (), "site:40%:a-long-random-text",
        "keys of programs that may ask Hiro and Tenero through /api/upstream, each with its share of Hiro's calls (30%"
        " unless given)", is_secret=True,
    )  # fmt: skip
    lookup_paths: tuple[LookupPath, ...] = _setting(
        "TOCSIN_LOOKUP_PATHS", lookup_paths, lookup_paths(LOOKUP_PATHS), "hiro/v1/names/*=6h,hiro/extended/v1/tx/*=30s",
        "what they may ask for, and for how long an answer is fresh; `*` is one part of a path, the first match counts",
    )  # fmt: skip
    job_secrets: tuple[AccessKey, ...] = _setting(
        "TOCSIN_JOB_SECRETS", access_keys("job", "job", KEYS_MAX), (), "site:a-long-random-text",
        "keys that sign the calls of jobs, by the names that the jobs give; a bare key has the name job",
        is_secret=True, reload=True,
    )  # fmt: skip
    hiro_api_key: str | None = _setting(
        "HIRO_API_KEY", secret, None, "0123456789abcdef", "raises Hiro's limits", is_secret=True
    )
    tenero_api_key: str | None = _setting(
        "TENERO_API_KEY", secret, None, "0123456789abcdef",
        "key of Tenero's Starter plan, which lowers the limits to 10 calls a minute", is_secret=True,
    )  # fmt: skip
    hiro_api_url: str = _setting(
        "HIRO_API_URL", hiro_url, "https://api.mainnet.hiro.so", "https://api.mainnet.hiro.so", "URL of Hiro's API"
    )  # fmt: skip
    tenero_api_url: str = _setting(
        "TENERO_API_URL", tenero_url, "https://api.tenero.io", "https://api.tenero.io", "URL of Tenero's API"
    )
    worker_logs_url: str | None = _setting(
        "WORKER_LOGS_URL", url, None, "https://logs.aibtc.com", "the log service; without it, logs go to stdout only"
    )  # fmt: skip
    worker_logs_key: str | None = _setting(
        "WORKER_LOGS_KEY", secret, None, "a-long-random-text", "key of the log service", is_secret=True
    )
    competition_start: int = _setting(
        "COMPETITION_START", integer(0, 10**11), 1_778_700_600, "1778700600",
        "first second of the campaign, by burn block time", reload=True,
    )  # fmt: skip
    competition_end: int | None = _setting(
        "COMPETITION_END", integer(0, 10**11), None, "1786476600", "second at which the campaign ends; none: no end",
        reload=True,
    )  # fmt: skip
    host: str = _setting("TOCSIN_HOST", host_name, "127.0.0.1", "0.0.0.0", "address to listen on")  # noqa: S104 - an example
    port: int = _setting("TOCSIN_PORT", integer(0, 65_535), 8787, "8787", "port to listen on; 0: any free one")
    trusted_proxies: tuple[str, ...] = _setting(
        "TOCSIN_TRUSTED_PROXIES", networks, (), "127.0.0.1,10.0.0.0/8",
        "reverse proxies whose X-Forwarded headers count; without it, all visitors behind a proxy count as one client",
    )  # fmt: skip
    public_url: str | None = _setting(
        "TOCSIN_PUBLIC_URL", url, None, "https://tocsin.example.org",
        "where visitors reach the service; previews of shared links need it for their picture",
    )  # fmt: skip
    cors_origins: tuple[str, ...] = _setting(
        "TOCSIN_CORS_ORIGINS", origins, ("*",), "https://aibtc.com,https://www.aibtc.com",
        "sites whose pages may read the public API in a browser; *: any, none: no site",
    )  # fmt: skip
    reads_per_minute: int = _setting(
        "TOCSIN_READS_PER_MINUTE", integer(0, 10**9), 300, "300",
        "reads of the public API by one client per minute; of requests of any kind, ten times as many; 0: no limits",
    )  # fmt: skip
    data_dir: str = _setting("TOCSIN_DATA_DIR", str.strip, "data", "/var/lib/tocsin", "the data directory")
    log_level: Level = _setting(  # noqa: RUF009 - a field, like the others
        "TOCSIN_LOG_LEVEL", one_of(*get_args(Level)), "INFO", "DEBUG", "lines below this are not written"
    )
    instance: str = _setting("TOCSIN_INSTANCE", word, "v1", "v2", "the active scheduler instance; all others stop")
    tenero_enabled: bool = _setting("TOCSIN_TENERO_ENABLED", yes_or_no, True, "no", "refresh prices", reload=True)
    tenero_cadence: int = _setting(
        "TOCSIN_TENERO_CADENCE", cadence, 5 * MINUTE_MS, "5m",
        "how often prices are refreshed; one list page per run fits the smallest plan", reload=True,
    )  # fmt: skip
    tenero_slice: int = _setting(
        "TOCSIN_TENERO_SLICE", time_slice, 4 * MINUTE_MS, "4m", "the longest a price refresh may take", reload=True
    )  # fmt: skip
    tenero_plan_minute: int | None = _setting(
        "TOCSIN_TENERO_PLAN_MINUTE", limit, 100, "10", "Tenero calls a minute; corrected by its headers"
    )
    tenero_plan_month: int | None = _setting(
        "TOCSIN_TENERO_PLAN_MONTH", limit, 50_000, "10000", "Tenero calls a month; spread over the month"
    )
    tenero_plan_cap: bool = _setting(
        "TOCSIN_TENERO_PLAN_CAP", yes_or_no, False, "yes",
        "never make more Tenero calls than the plan has, whatever the headers report: for a key that others use too",
    )  # fmt: skip
    price_jump_factor: float = _setting(
        "TOCSIN_PRICE_JUMP_FACTOR", number(1.1, 1000), 5.0, "5",
        "a price that moves by more than this factor is held back until it is seen twice, in a pool that is not thin",
        reload=True,
    )  # fmt: skip
    min_liquidity_usd: float = _setting(
        "TOCSIN_MIN_LIQUIDITY_USD", number(0, 1e12), 10_000.0, "10000",
        "a token whose pools hold less does not count; 0: no floor", reload=True,
    )  # fmt: skip
    min_day_volume_usd: float = _setting(
        "TOCSIN_MIN_DAY_VOLUME_USD", number(0, 1e12), 500.0, "500",
        "a token with a lower daily volume does not count; 0: no floor", reload=True,
    )  # fmt: skip
    history_hourly_days: int = _setting(
        "TOCSIN_HISTORY_HOURLY_DAYS", integer(1, 3_650), 90, "90",
        "how many days of history are kept in full; after that, one point per agent a day and one price an hour",
        reload=True,
    )  # fmt: skip
    feed_enabled: bool = _setting(
        "TOCSIN_FEED_ENABLED", yes_or_no, True, "no",
        "follow the network's list of transactions; if not, every sweep reads every contract's list", reload=True,
    )  # fmt: skip
    feed_cadence: int = _setting(
        "TOCSIN_FEED_CADENCE", cadence, MINUTE_MS, "1m",
        "how often the network's list is read: about the time until a swap is found", reload=True,
    )  # fmt: skip
    block_age_max: int = _setting(
        "TOCSIN_BLOCK_AGE_MAX", cadence, 30 * MINUTE_MS, "30m",
        "how old Hiro's newest Stacks block may be; if it is older, the feed's runs are incomplete", reload=True,
    )  # fmt: skip
    sweep_enabled: bool = _setting(
        "TOCSIN_SWEEP_ENABLED",
        yes_or_no,
        True,
        "no",
        "sweep for swaps; if not, the feed does not run either",
        reload=True,
    )
    sweep_cadence: int = _setting(
        "TOCSIN_SWEEP_CADENCE", cadence, 15 * MINUTE_MS, "15m",
        "how often lists of contracts and wallets are read, to prove that nothing was missed", reload=True,
    )  # fmt: skip
    sweep_slice: int = _setting(
        "TOCSIN_SWEEP_SLICE", time_slice, 14 * MINUTE_MS, "14m", "the longest a sweep may take", reload=True
    )
    hiro_plan_second: int | None = _setting("TOCSIN_HIRO_PLAN_SECOND", limit, 20, "20", "Hiro calls a second")
    hiro_plan_minute: int | None = _setting(
        "TOCSIN_HIRO_PLAN_MINUTE", limit, 50, "500", "Hiro calls a minute: 50 without a key, 500 with one"
    )
    hiro_plan_month: int | None = _setting("TOCSIN_HIRO_PLAN_MONTH", limit, 150_000, "150000", "Hiro calls a month")
    hiro_plan_cap: bool = _setting(
        "TOCSIN_HIRO_PLAN_CAP", yes_or_no, False, "yes",
        "never make more Hiro calls than the plan has, whatever the headers report: for a key that others use too",
    )  # fmt: skip
    allowlist: str | None = _setting(
        "TOCSIN_ALLOWLIST", str.strip, None, "allowlist.json",
        "contracts that count in addition to the built-in ones: a file, or the JSON itself", reload=True,
    )  # fmt: skip
    breaker_failures: int = _setting(
        "TOCSIN_BREAKER_FAILURES", integer(0, 1000), 0, "6",
        "after this many failures in a row, a task waits an hour before it tries again; 0: never",
    )  # fmt: skip
    heartbeat_url: str | None = _setting(
        "TOCSIN_HEARTBEAT_URL", call_url, None, "https://hc-ping.com/your-check",
        "called after each ring of the alarm while the service is ready, at most once a minute", is_secret=True,
    )  # fmt: skip
    alert_url: str | None = _setting(
        "TOCSIN_ALERT_URL", call_url, None, "https://hooks.example.org/services/T0/B0/x1",
        "gets a POST when the service becomes not ready, and when it is ready again", is_secret=True,
    )  # fmt: skip
    alert_format: str = _setting(
        "TOCSIN_ALERT_FORMAT", one_of("json", "slack", "pagerduty"), "json", "slack",
        "format of the alerts: json, slack or pagerduty",
    )  # fmt: skip
    alert_key: str | None = _setting(
        "TOCSIN_ALERT_KEY", secret, None, "0123456789abcdef",
        "json: the bearer secret; pagerduty: the routing key", is_secret=True,
    )  # fmt: skip
    alert_name: str = _setting("TOCSIN_ALERT_NAME", word, "tocsin", "tocsin-staging", "name of this service in alerts")
    chainhook_id: str | None = _setting(
        "TOCSIN_CHAINHOOK_ID", hook_id, None, "be4ab3ed-b606-4fe0-97c4-6c0b1ac9b185",
        "the hook to watch, once an hour: its UUID, or its path at Hiro if it is not one of the usual two",
    )  # fmt: skip
    chainhook_reenable: bool = _setting(
        "TOCSIN_CHAINHOOK_REENABLE", yes_or_no, False, "yes", "enable that hook again after Hiro interrupted it"
    )


def setting_of(setting: Field[Any]) -> Setting:
    found: Setting = setting.metadata["setting"]
    return found


ALL = tuple(setting_of(setting) for setting in fields(Settings))


def read(environment: Mapping[str, str]) -> Settings:
    """Read all settings; raises `SettingsError` with every problem."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for setting in fields(Settings):
        known = setting_of(setting)
        text = environment.get(known.name)
        if text is None or text == "":
            continue
        try:
            values[setting.name] = known.parse(text)
        except ValueError as error:
            shown = "its value" if known.secret else repr(without_credentials(text)[:80])
            problems.append(f"{known.name}: {shown} {error}. Example: {known.name}={known.example}")
    names = [*(known.name for known in ALL), URL_FOR_COMMANDS]
    own = [name.removeprefix(OWN_PREFIX) for name in names if name.startswith(OWN_PREFIX)]
    for name in environment:
        if name.startswith(OWN_PREFIX) and name not in names:
            near = difflib.get_close_matches(name.removeprefix(OWN_PREFIX), own, 1, cutoff=0.75)
            hint = f" Did you mean {OWN_PREFIX}{near[0]}?" if near else " docs/settings.md lists all names."
            problems.append(f"{name}: there is no such setting.{hint}")
    settings = Settings(**values)
    problems += [*_misfits(settings), *_half_set(settings), *_shared_keys(settings)]
    if problems:
        raise SettingsError(*problems)
    return settings


# Problems with values that are valid alone but not together


def _misfits(settings: Settings) -> Iterator[str]:
    for task, cadence_ms, slice_ms in (
        ("TENERO", settings.tenero_cadence, settings.tenero_slice),
        ("SWEEP", settings.sweep_cadence, settings.sweep_slice),
    ):
        if slice_ms >= cadence_ms:
            yield f"TOCSIN_{task}_SLICE: must be shorter than TOCSIN_{task}_CADENCE. Example: 4m for 5m"
        if slice_ms > SLICE_MAX_MS:
            yield (
                f"TOCSIN_{task}_SLICE: may be {long_duration(SLICE_MAX_MS)} at most, whatever the cadence: an alarm's"
                f" handler ends after {long_duration(ALARM_LIMIT_MS)}. Example: TOCSIN_{task}_SLICE=14m"
            )
    if settings.competition_end is not None and settings.competition_end <= settings.competition_start:
        yield "COMPETITION_END: must be after COMPETITION_START"
    if not PurePath(settings.data_dir).name:
        yield "TOCSIN_DATA_DIR: is not the name of a directory. Example: TOCSIN_DATA_DIR=data"


def _half_set(settings: Settings) -> Iterator[str]:
    if (settings.worker_logs_url is None) != (settings.worker_logs_key is None):
        yield "WORKER_LOGS_URL and WORKER_LOGS_KEY: give both or neither"
    if settings.alert_url is None and (settings.alert_key is not None or settings.alert_format != "json"):
        yield "TOCSIN_ALERT_URL: is not set, but other alert settings are. Set it, or remove them"
    if settings.alert_format == "pagerduty" and settings.alert_key is None:
        yield "TOCSIN_ALERT_KEY: pagerduty needs its routing key. Set it to the key of the integration"
    if settings.chainhook_id is not None and settings.hiro_api_key is None:
        yield "TOCSIN_CHAINHOOK_ID: Hiro shows a hook to its owner only. Set HIRO_API_KEY as well"
    if settings.chainhook_id is None and settings.chainhook_reenable:
        yield "TOCSIN_CHAINHOOK_REENABLE: there is no hook to enable. Set TOCSIN_CHAINHOOK_ID to its UUID"


def _shared_keys(settings: Settings) -> Iterator[str]:
    admins, viewers, programs = (
        {key.secret for key in keys} for keys in (settings.admin_key, settings.viewer_key, settings.lookup_key)
    )
    if admins & viewers:
        yield "TOCSIN_VIEWER_KEY: shares a key with ADMIN_KEY. Give each role a key of its own"
    if programs & (admins | viewers):
        yield "TOCSIN_LOOKUP_KEY: shares a key with ADMIN_KEY or TOCSIN_VIEWER_KEY. Give each role a key of its own"


def secret_values(settings: Settings) -> list[str]:
    """Every value that must never be shown."""
    values: list[str] = []
    for setting in fields(Settings):
        if setting_of(setting).secret:
            value = getattr(settings, setting.name)
            if isinstance(value, tuple):
                values += [key.secret for key in value]
            elif value is not None:
                values.append(value)
    return values


def read_env_file(content: bytes) -> dict[str, str]:
    """Read the NAME=value lines of a `.env` file; it may have comments, blank lines, `export` and quotes."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(".env: is not UTF-8; save it as UTF-8") from None
    for number_, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ").strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            wrong.append(f".env, line {number_}: expected NAME=value")
            continue
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name.strip()] = value
    if wrong:
        raise SettingsError(*wrong)
    return found
