"""Example answers of the real upstreams, a transaction of them, and a comparison of shapes: same keys, same types."""

import json
from pathlib import Path
from typing import Any

from tocsin.stacks import ContractCall, MinedAt, Transaction

DATA = Path(__file__).parent.parent / "data"
TXID = "0x46bc5587ae56e5bd4453daa2bf63c2a9e0414953fd21a82eb44f2f926f0ee0e4"
WALLET = "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE"
POOL = "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M.stableswap-stx-ststx-v-1-2"
STSTX = "SP4SZE494VC2YC5JYG7AYFQ44F5Q4PYV7DVMDPBG.ststx-token::ststx"
SBTC = "SM3VDXK3WZZSA84XXFKAFAF15NNZX32CTSG82JFQ4.sbtc-token"

SWAP = Transaction(
    tx_id=TXID,
    sender=WALLET,
    sponsored=False,
    fee=3000,
    status="success",
    type="contract_call",
    contract_call=ContractCall(POOL, "swap-x-for-y"),
    mined=MinedAt(7929497, "0x" + "a1" * 32, 3, 1778786400, 1778787000),
    canonical=True,
    event_count=3,
)


def example(name: str) -> dict[str, Any]:
    """An example file such as `hiro/tx_404`: `status`, `headers` and `body`, as far as it has them."""
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return loaded


def shape_differences(expected: Any, actual: Any, *, more_allowed: bool = False, at: str = "$") -> list[str]:
    """Return where the shape of `actual` differs from `expected`; a null on either side matches any type.

    Every item of a list must have the shape of one of the expected items. `more_allowed` is for examples that are
    older than some fields.
    """
    if expected is None or actual is None:
        return []
    if _json_type(expected) != _json_type(actual):
        return [f"{at} is {_json_type(actual)}, not {_json_type(expected)}"]
    if isinstance(expected, dict):
        missing = [f"{at}.{name} is missing" for name in expected.keys() - actual.keys()]
        extra = [] if more_allowed else [f"{at}.{name} is new" for name in actual.keys() - expected.keys()]
        inner = [
            difference
            for name in expected.keys() & actual.keys()
            for difference in shape_differences(
                expected[name], actual[name], more_allowed=more_allowed, at=f"{at}.{name}"
            )
        ]
        return sorted(missing) + sorted(extra) + inner
    if isinstance(expected, list) and expected:
        return [
            difference
            for number, item in enumerate(actual)
            for difference in _closest(expected, item, more_allowed=more_allowed, at=f"{at}[{number}]")
        ]
    return []


def _closest(choices: list[Any], item: Any, *, more_allowed: bool, at: str) -> list[str]:
    tried = [shape_differences(choice, item, more_allowed=more_allowed, at=at) for choice in choices]
    return min(tried, key=len)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    names: dict[type, str] = {str: "text", dict: "object", list: "list"}
    return names[type(value)]
