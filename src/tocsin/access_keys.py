"""The keys that others must send to us: their names and roles, and how a setting lists them. Pure."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import Literal, TypeAlias

from tocsin.setting_values import own_key

Role: TypeAlias = Literal["operator", "viewer", "cron", "chainhook"]

KEYS_MAX = 20  # for people who may open the console

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True)
class AccessKey:
    """One key. Two may have the same name while one replaces the other."""

    name: str
    role: Role
    secret: str = field(repr=False)


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
                raise ValueError(
                    f"{error} (key {number} of {len(parts)})" if parts[1:] else str(error)
                ) from None
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


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()
