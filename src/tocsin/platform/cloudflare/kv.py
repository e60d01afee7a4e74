"""`KV` on Workers KV. Unlike the local one, it may return a value that is up to a minute old."""

from collections.abc import Awaitable, Sequence
from typing import Any

from tocsin.bindings import KVList
from tocsin.errors import StoreUnavailable, UsageError
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.javascript import JsException
from tocsin.platform.cloudflare.subrequests import spend_on_store
from tocsin.platform.shared.kv_rules import LIST_MAX, check_entry, check_key, check_keys, check_page


class WorkersKV:
    """The `KV` binding."""

    def __init__(self, binding: Any) -> None:
        self._js = binding

    async def get(self, key: str) -> str | None:
        check_key(key)
        return javascript.text(await self._result("get", self._js.get(key)))

    async def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        """The values of the keys that exist."""
        check_keys(keys)
        if not keys:
            return {}
        unique = javascript.from_json(list(dict.fromkeys(keys)))
        values = await self._result("get_many", self._js.get(unique))
        pairs = javascript.to_json(javascript.js.Array.from_(values))
        return {key: value for key, value in pairs if value is not None}

    async def put(self, key: str, value: str, *, expiration_ttl: int | None = None) -> None:
        check_entry(key, value, expiration_ttl)
        options = javascript.options({"expirationTtl": expiration_ttl})
        await self._result("put", self._js.put(key, value, options))

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._result("delete", self._js.delete(key))

    async def list(self, *, prefix: str = "", limit: int = LIST_MAX, cursor: str | None = None) -> KVList:
        check_page(prefix, limit)
        options = javascript.options({"prefix": prefix, "limit": limit, "cursor": cursor})
        try:
            page = javascript.to_json(await self._result("list", self._js.list(options)))
        except StoreUnavailable as error:
            if cursor is not None and "400" in str(error):
                raise UsageError("KV.list: this cursor belongs to another list; start without one") from None
            raise
        return KVList([key["name"] for key in page["keys"]], page.get("cursor") or None)

    async def _result(self, call: str, promise: Awaitable[Any]) -> Any:
        spend_on_store()
        try:
            return await promise
        except JsException as error:
            raise StoreUnavailable(f"KV.{call}: {error.message}; try again later") from None
