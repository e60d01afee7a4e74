"""Object ids as Cloudflare makes them: 64 hex digits that prove which namespace they belong to.

The first half is derived from the name, or random. The second half is a MAC of the first under a key of the
namespace. The same name therefore always leads to the same object, even after a restart.
"""

import hashlib
import hmac
import os
import string
from dataclasses import dataclass, field
from functools import lru_cache

from holdfast.errors import ValueRefused

NAMES_CACHED = 1024  # a few names are used again and again

_HALF = 16
_HEX = frozenset(string.hexdigits)


@dataclass(frozen=True, slots=True)
class LocalObjectId:
    """Equal ids are the same object. The name is present only if the id was made from it.

    Namespace and name are stored with an alarm: the object is constructed from them when it rings.
    """

    hex: str
    namespace: str
    name: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.hex

    def equals(self, other: object) -> bool:
        return self == other

    toString = __str__  # noqa: N815 - Cloudflare's name, as `equals` is


class IdFactory:
    """Makes and checks the ids of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._name = namespace
        self._key = hashlib.sha256(namespace.encode()).digest()
        self._cached = lru_cache(NAMES_CACHED)(self._from_name)

    def id_from_name(self, name: str) -> LocalObjectId:
        if type(name) is not str:
            raise ValueRefused(f"an object's name is text, not {type(name).__name__}: id_from_name(str(...))")
        return self._cached(name)

    def id_from_string(self, text: str) -> LocalObjectId:
        if len(text) != 4 * _HALF or not _HEX.issuperset(text):
            raise ValueRefused(f"an object id is {4 * _HALF} hex digits, as str(id) gives them")
        object_id = self._make(bytes.fromhex(text)[:_HALF])
        if object_id.hex != text.lower():
            raise ValueRefused(f"this object id was not made by the namespace {self._name!r}")
        return object_id

    def new_unique_id(self) -> LocalObjectId:
        return self._make(os.urandom(_HALF))

    def _from_name(self, name: str) -> LocalObjectId:
        return self._make(self._mac(name.encode(errors="surrogatepass")), name)

    def _make(self, head: bytes, name: str | None = None) -> LocalObjectId:
        return LocalObjectId((head + self._mac(head)).hex(), self._name, name)

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:_HALF]
