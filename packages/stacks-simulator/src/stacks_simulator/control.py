"""The commands of `/_control`: JSON in, JSON out. Each changes what the simulator does next."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar, get_args

from holdfast.errors import UsageError
from holdfast.types import JSON
from stacks_simulator.chain import Chain, Fate
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import FAULT_KINDS, SimulatedFault
from stacks_simulator.http_messages import UPSTREAM_NAMES
from stacks_simulator.rate_limits import LimitPlan
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import Quoting

CommandValues = Mapping[str, JSON]
T = TypeVar("T")

COUNT_MAX = 1_000  # transactions of one command
DEPTH_MAX = 1_000  # blocks of a reorg
LAG_MAX_MS = 7 * 86_400_000
CALLS_MAX = 10**9
TIMES_MAX = 10**6
INSTANT_MAX_MS = 10**15
RETRY_AFTER_MAX_S = 31 * 86_400
SECONDS_MAX = 3_600.0
SIZE_MAX = 2**30
USD_MAX = 1e12
AMOUNT_DIGITS_MAX = 40

SWITCHES = ("keys_ignored", "index_lag_ms", "network_list", "omitted_share", "list_lag_ms", "etag_stuck", "hook")


def state(simulator: Simulator) -> dict[str, JSON]:
    """The chain's progress, and the faults and switches that are on."""
    simulator.advance()
    chain = simulator.chain
    return {
        "seed": chain.seed,
        "chainNow": chain.now_ms,
        "speed": simulator.speed,
        "tipHeight": chain.tip_height,
        "transactions": len(chain.transactions),
        "requests": len(simulator.requests),
        "faults": [{"kind": fault.kind, "upstream": fault.upstream} for fault in simulator.faults.active],
        "badTimes": simulator.faults.schedule is not None,
        "otherPlans": [name for name in UPSTREAM_NAMES if simulator.rate_limit(name).is_changed],
        "keysIgnored": simulator.hiro_rate_limit.keys_ignored,
        "indexLagMs": simulator.hiro.index_lag_ms,
        "networkList": simulator.hiro.network_list,
        "omittedShare": simulator.hiro.omitted_share,
        "listLagMs": simulator.hiro.list_lag_ms,
        "etagStuck": simulator.hiro.etag_stuck,
        "hook": simulator.hiro.hooks.state,
    }


def fault(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    """Add a fault; what is not named is as usual."""
    _check_names(values, *(each.name for each in fields(SimulatedFault)))
    usual = SimulatedFault(kind=_choice(values, "kind", FAULT_KINDS))
    headers = _get(values, "extra_headers", dict, {})
    if not all(isinstance(text, str) for text in headers.values()):
        raise UsageError("extra_headers must be an object of texts")
    simulator.faults.add(
        SimulatedFault(
            kind=usual.kind,
            upstream=_choice(values, "upstream", (None, *UPSTREAM_NAMES)),
            path=_get(values, "path", str, ""),
            times=_integer_or_none(values, "times", None, low=1, high=TIMES_MAX),
            share=_number(values, "share", usual.share, high=1.0),
            from_ms=_integer(values, "from_ms", usual.from_ms, high=INSTANT_MAX_MS),
            until_ms=_integer_or_none(values, "until_ms", None, high=INSTANT_MAX_MS),
            status=_integer(values, "status", usual.status, low=200, high=599),
            retry_after=_integer_or_none(values, "retry_after", usual.retry_after, high=RETRY_AFTER_MAX_S),
            as_date=_get(values, "as_date", bool, usual.as_date),
            seconds=_number(values, "seconds", usual.seconds, high=SECONDS_MAX),
            size=_integer(values, "size", usual.size, high=SIZE_MAX),
            body=_optional_text(values, "body"),
            extra_headers=headers,
        )
    )
    return state(simulator)


def calm(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    """Clear all faults and the schedule of faults, and restore the plans."""
    _check_names(values)
    simulator.faults.clear()
    for name in UPSTREAM_NAMES:
        simulator.rate_limit(name).restore()
    return state(simulator)


def switch(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    _check_names(values, *SWITCHES)
    hiro, rate_limit = simulator.hiro, simulator.hiro_rate_limit
    hiro.index_lag_ms = _integer(values, "index_lag_ms", hiro.index_lag_ms, high=LAG_MAX_MS)
    hiro.etag_stuck = _get(values, "etag_stuck", bool, hiro.etag_stuck)
    hiro.list_lag_ms = _integer(values, "list_lag_ms", hiro.list_lag_ms, high=LAG_MAX_MS)
    hiro.omitted_share = _number(values, "omitted_share", hiro.omitted_share, high=1.0)
    if "network_list" in values:
        hiro.set_network_list(_get(values, "network_list", str, ""))
    if "hook" in values:
        hiro.hooks.set_state(_get(values, "hook", str, ""))
    rate_limit.keys_ignored = _get(values, "keys_ignored", bool, rate_limit.keys_ignored)
    return state(simulator)


def limits(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    """Change an upstream's plans, or spend calls as another caller with the same key or address would."""
    _check_names(values, "upstream", "keyed", "anonymous", "spend", "key")
    rate_limit = simulator.rate_limit(_choice(values, "upstream", UPSTREAM_NAMES))
    rate_limit.keyed = _plan(values, "keyed", rate_limit.keyed)
    rate_limit.anonymous = _plan(values, "anonymous", rate_limit.anonymous)
    spent = _integer(values, "spend", 0, high=CALLS_MAX)
    rate_limit.spend(spent, simulator.clock.now(), _get(values, "key", str, ""))
    return state(simulator)


def price(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    """Change how Tenero quotes a token, or fix its price (null: let it drift again).

    `liquidity` and `volume` fix what its pools hold and trade in a day (null: Tenero does not report it).
    """
    _check_names(values, "token", "quoting", "usd", "liquidity", "volume")
    token = _get(values, "token", str, "")
    simulator.tenero.price(token, simulator.chain.now_ms)  # raises for an unknown token
    if "quoting" in values:
        simulator.tenero.quote(token, _choice(values, "quoting", get_args(Quoting)))
    if "usd" in values:
        usd = None if values["usd"] is None else _number(values, "usd", 0.0, high=USD_MAX)
        simulator.tenero.set_price(token, usd)
    if "liquidity" in values or "volume" in values:
        liquidity, volume = (
            None if values.get(name) is None else _number(values, name, 0.0, high=USD_MAX)
            for name in ("liquidity", "volume")
        )
        simulator.tenero.set_pool(token, liquidity, volume)
    return state(simulator)


def swap(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    """Broadcast `count` calls (default 1) of a wallet (number or address). Amounts are decimal text."""
    _check_names(values, "wallet", "kind", "count", "token_in", "token_out", "amount_in", "amount_out")
    simulator.advance()
    chain = simulator.chain
    wallet, kind = _wallet(chain, values), _get(values, "kind", str, "simple")
    return _tx_ids(
        chain.swap(
            wallet,
            kind,
            token_in=_optional_text(values, "token_in"),
            token_out=_optional_text(values, "token_out"),
            amount_in=_amount(values, "amount_in"),
            amount_out=_amount(values, "amount_out"),
        )
        for _ in range(_integer(values, "count", 1, low=1, high=COUNT_MAX))
    )


def mine(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    """Mine a block now with all waiting transactions."""
    _check_names(values)
    simulator.advance()
    return _tx_ids(simulator.chain.mine().transactions)


def reorg(simulator: Simulator, values: CommandValues) -> dict[str, JSON]:
    _check_names(values, "depth", "fate")
    fate = _choice(values, "fate", get_args(Fate), "mixed")
    simulator.advance()
    return _tx_ids(simulator.chain.reorg(_integer(values, "depth", 3, low=1, high=DEPTH_MAX), fate))


COMMANDS: Mapping[str, Callable[[Simulator, CommandValues], dict[str, JSON]]] = {
    "fault": fault,
    "calm": calm,
    "switch": switch,
    "limits": limits,
    "price": price,
    "swap": swap,
    "mine": mine,
    "reorg": reorg,
}


def run(simulator: Simulator, name: str, values: JSON) -> dict[str, JSON]:
    """Run a command and return its result. A UsageError lists what is accepted."""
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}; the commands are {', '.join(COMMANDS)}")
    if not isinstance(values, dict):
        raise UsageError("a command takes a JSON object")
    return COMMANDS[name](simulator, values)


def _check_names(values: CommandValues, *names: str) -> None:
    if unknown := sorted(set(values) - set(names)):
        accepted = ", ".join(names) or "none"
        raise UsageError(f"unknown fields: {', '.join(unknown)}; the accepted fields are: {accepted}")


def _get(values: CommandValues, name: str, kind: type[T], default: T) -> T:
    value = values.get(name, default)
    if type(value) is not kind:
        raise UsageError(f"{name} must be {kind.__name__}, not {value!r}")
    return value


def _optional_text(values: CommandValues, name: str) -> str | None:
    return None if values.get(name) is None else _get(values, name, str, "")


def _choice(values: CommandValues, name: str, choices: Sequence[T], default: T | None = None) -> T:
    value = values.get(name, default)
    for choice in choices:
        if value == choice:
            return choice
    raise UsageError(f"{name} must be one of {', '.join(map(str, choices))}")


def _integer(values: CommandValues, name: str, default: int, *, low: int = 0, high: int) -> int:
    value = _get(values, name, int, default)
    if not low <= value <= high:
        raise UsageError(f"{name} must be a number from {low} to {high}, not {value:.3g}")
    return value


def _integer_or_none(values: CommandValues, name: str, default: int | None, *, low: int = 0, high: int) -> int | None:
    return None if values.get(name, default) is None else _integer(values, name, default or 0, low=low, high=high)


def _number(values: CommandValues, name: str, default: float, *, low: float = 0.0, high: float) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{name} must be a number from {low:g} to {high:g}, not {value!r:.40}")
    return float(value)


def _amount(values: CommandValues, name: str) -> int | None:
    text = _get(values, name, str, "0")
    if len(text) > AMOUNT_DIGITS_MAX or not text.isascii() or not text.isdecimal():
        raise UsageError(f"{name} must be text of 1 to {AMOUNT_DIGITS_MAX} digits, not {text!r:.60}")
    return int(text) or None


def _plan(values: CommandValues, name: str, current: LimitPlan) -> LimitPlan:
    changes = _get(values, name, dict, {})
    _check_names(changes, "second", "minute", "month")
    return LimitPlan(
        second=_integer(changes, "second", current.second, high=CALLS_MAX),
        minute=_integer(changes, "minute", current.minute, high=CALLS_MAX),
        month=_integer(changes, "month", current.month, high=CALLS_MAX),
    )


def _wallet(chain: Chain, values: CommandValues) -> str:
    wallet = values.get("wallet", 0)
    if isinstance(wallet, str):
        return wallet
    if not isinstance(wallet, int) or not 0 <= wallet < len(chain.wallets):
        raise UsageError(f"wallet must be an address or a number from 0 to {len(chain.wallets) - 1}")
    return chain.wallets[wallet].address


def _tx_ids(transactions: Iterable[ChainTransaction]) -> dict[str, JSON]:
    return {"txids": [tx.tx_id for tx in transactions]}
