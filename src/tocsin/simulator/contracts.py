"""The contracts that simulated calls use: some are on the competition's allow-list, some are not."""

from collections.abc import Mapping
from dataclasses import dataclass

from tocsin.simulator.addresses import address_of
from tocsin.simulator.simulated_tokens import (
    AEUSDC,
    ALEX,
    B42,
    DIKO,
    DUST,
    SBTC,
    STSTX,
    STX,
    SUSDT,
    USDA,
    USDCX,
    VELAR,
    WELSH,
    SimulatedToken,
)

_STABLE = "SPQC38PW542EQJ5M11CR25P7BS1CA6QT4TBXGB3M"
_XYK = "SM1793C4R5PZ4NS4VQ4WMP7SKKYVH8JZEWSZ9HCCR"
_DLMM = "SM1FKXGNZJWSTWDWXQZJNF7B5TV5ZB235JTCXYXKD"

XYK_CORE = f"{_XYK}.xyk-core-v-1-2"
XYK_HELPER = f"{_XYK}.xyk-swap-helper-v-1-3"
MULTIHOP_ROUTER = f"{_XYK}.router-stableswap-xyk-multihop-v-1-2"
DLMM_ROUTERS = (f"{_DLMM}.dlmm-swap-router-v-1-1", f"{_DLMM}.dlmm-swap-router-v-1-2")

PROVIDER = "SP1M8KHCJXB3SBRQRDBCG3J3859AA1CN0AWDHN17B"
FEE_COLLECTOR = address_of("fee-collector")
NFT_ASSET = f"{address_of('nft')}.trade-badges::badge"

_PAIR = ("swap-x-for-y", "swap-y-for-x")


@dataclass(frozen=True, slots=True)
class SwapPool:
    """A pair of tokens, the contract to call, and the principal that holds the funds."""

    contract: str
    x: SimulatedToken
    y: SimulatedToken
    vault: str
    functions: tuple[str, str] = _PAIR


def _xyk(x: SimulatedToken, y: SimulatedToken) -> SwapPool:
    return SwapPool(XYK_CORE, x, y, f"{_XYK}.xyk-pool-{x.symbol.lower()}-{y.symbol.lower()}-v-1-1")


def _stable(name: str, x: SimulatedToken, y: SimulatedToken) -> SwapPool:
    return SwapPool(f"{_STABLE}.{name}", x, y, f"{_STABLE}.{name}")


POOLS = (
    _stable("stableswap-stx-ststx-v-1-2", STX, STSTX),
    _stable("stableswap-usda-susdt-v-1-2", USDA, SUSDT),
    _stable("stableswap-aeusdc-susdt-v-1-2", AEUSDC, SUSDT),
    _stable("stableswap-usda-aeusdc-v-1-4", USDA, AEUSDC),
    _xyk(SBTC, STX),
    _xyk(STX, AEUSDC),
    _xyk(STX, USDCX),
    _xyk(STX, WELSH),
    _xyk(STX, B42),
    _xyk(STX, DUST),
    SwapPool(
        f"{_STABLE}.wrapper-alex-v-2-1", STX, ALEX, f"{_STABLE}.wrapper-alex-v-2-1", ("swap-helper",) * 2
    ),
    SwapPool(
        f"{_STABLE}.wrapper-velar-v-1-1",
        STX,
        VELAR,
        f"{_STABLE}.wrapper-velar-v-1-1",
        ("swap-helper-a", "swap-helper-b"),
    ),
    SwapPool(f"{_STABLE}.wrapper-arkadiko-v-1-1", STX, DIKO, f"{_STABLE}.wrapper-arkadiko-v-1-1"),
)

# The calls that count as swaps. A test checks that the competition's allow-list has all of them.
LISTED_CALLS: Mapping[str, frozenset[str]] = {
    **{pool.contract: frozenset(pool.functions) for pool in POOLS},
    XYK_HELPER: frozenset({"swap-helper-a"}),
    MULTIHOP_ROUTER: frozenset({"swap-helper-a"}),
    **{router: frozenset({"swap-simple-multi"}) for router in DLMM_ROUTERS},
}
OFF_LIST_CONTRACT = f"{_XYK}.router-stableswap-xyk-v-1-3"
OFF_LIST_FUNCTION = (XYK_CORE, "swap-x-for-y-via-callback")
