"""KV: the rules for keys, values, expiry and pages. The limits are Cloudflare's."""

from collections.abc import Sequence

from tocsin.errors import UsageError, ValueRefused

KEY_BYTES_MAX = 512
VALUE_BYTES_MAX = 25 * 1024 * 1024
TTL_MIN_S = 60
TTL_MAX_S = 10**10  # 317 years; a larger number is probably not in seconds
GET_MANY_MAX = 100
LIST_MAX = 1000


def check_keys(keys: Sequence[str]) -> None:
    for key in keys:
        check_key(key)
    if len(keys) > GET_MANY_MAX:
        raise UsageError(f"KV.get_many takes {GET_MANY_MAX} keys at most, not {len(keys)}: split the call")


def check_entry(key: str, value: object, ttl: object) -> None:
    check_key(key)
    if not isinstance(value, str):
        raise ValueRefused(f"KV.put {key!r}: the value is of type {type(value).__name__}; KV holds text")
    if (size := utf8_size(value, f"the value of {key!r}")) > VALUE_BYTES_MAX:
        raise ValueRefused(
            f"KV.put {key!r}: the value has {size} bytes; at most {VALUE_BYTES_MAX} are allowed"
        )
    check_ttl(key, ttl)


def check_page(prefix: str, limit: int) -> None:
    if not 1 <= limit <= LIST_MAX:
        raise UsageError(f"KV.list: limit is {limit}; give 1 to {LIST_MAX}")
    utf8_size(prefix, "the prefix")


def check_key(key: object) -> None:
    if not isinstance(key, str) or key in {"", ".", ".."}:
        raise UsageError(f"KV: {key!r} cannot be a key; use any other text")
    if (size := utf8_size(key, "the key")) > KEY_BYTES_MAX:
        raise UsageError(f"KV: the key {key[:40]!r}… has {size} bytes; at most {KEY_BYTES_MAX} are allowed")


def check_ttl(key: str, ttl: object) -> None:
    if ttl is None:
        return
    if not isinstance(ttl, int) or isinstance(ttl, bool) or not TTL_MIN_S <= ttl <= TTL_MAX_S:
        raise UsageError(
            f"KV.put {key!r}: expiration_ttl is {ttl!r}; give whole seconds, {TTL_MIN_S} to {TTL_MAX_S}"
        )


def utf8_size(text: str, what: str) -> int:
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueRefused(
            f"KV: {what} is not valid Unicode: a lone surrogate at position {error.start}"
        ) from error
