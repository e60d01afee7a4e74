"""KV, as an object's code sees it."""

from typing import Any

from contract.contract_do import ContractDO, case, refusal
from holdfast.types import JSON


@case(["é😀", None, "2", None, {"e:a": "2"}])
async def texts_are_kept_under_keys(self: ContractDO) -> JSON:
    """Read, overwrite, delete. Several at once return those that exist."""
    kv = self.env.KV
    await kv.put("e:a", "é😀")
    seen = [await kv.get("e:a"), await kv.get("e:nothing")]
    await kv.put("e:a", "2", expiration_ttl=60)
    seen.append(await kv.get("e:a"))
    await kv.put("e:b", "3")
    await kv.delete("e:b")
    await kv.delete("e:b")
    seen.append(await kv.get("e:b"))
    return [*seen, await kv.get_many(["e:b", "e:a", "e:nothing", "e:a"])]


@case([["l:1", "l:2"], ["l:3", "l:é"], None, []])
async def lists_have_pages(self: ContractDO) -> JSON:
    """Names in byte order. The cursor leads to the next page, and is None on the last."""
    kv = self.env.KV
    for name in ("l:é", "l:3", "l:1", "l:2", "m:1"):
        await kv.put(name, "x")
    first = await kv.list(prefix="l:", limit=2)
    second = await kv.list(prefix="l:", limit=2, cursor=first.cursor)
    return [first.keys, second.keys, second.cursor, (await kv.list(prefix="none:")).keys]


@case(
    [
        "UsageError: KV: '' cannot be a key; use any other text",
        "UsageError: KV.put 'k': expiration_ttl is 59; give whole seconds, 60 to 10000000000",
        "ValueRefused: KV.put 'k': the value is of type int; KV holds text",
        "UsageError: KV.list: limit is 1001; give 1 to 1000",
        "UsageError: KV.get_many takes 100 keys at most, not 101: split the call",
    ]
)
async def misuse_of_kv_is_refused(self: ContractDO) -> JSON:
    """With the same error texts."""
    kv: Any = self.env.KV
    return [
        await refusal(lambda: kv.get("")),
        await refusal(lambda: kv.put("k", "v", expiration_ttl=59)),
        await refusal(lambda: kv.put("k", 1)),
        await refusal(lambda: kv.list(limit=1001)),
        await refusal(lambda: kv.get_many([str(number) for number in range(101)])),
    ]
