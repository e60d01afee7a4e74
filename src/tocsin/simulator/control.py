"""The commands of `/_control`: JSON in, JSON out. Each changes what the simulator does next."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_args

from tocsin.errors import UsageError
from tocsin.simulator.chain import Chain, Fate
from tocsin.simulator.chain_records import ChainTransaction
from tocsin.simulator.faults import FAULT_KINDS, BadTimes, SimulatedFault
from tocsin.simulator.http_messages import UPSTREAM_NAMES
from tocsin.simulator.rate_limits import LimitPlan
from tocsin.simulator.simulator import Simulator

CommandValues = Mapping[str, Any]
T = TypeVar("T")

SWITCHES = (
    "deprecated_gone",
    "v3_absent",
    "keys_ignored",
    "index_lag_ms",
    "network_list",
    "omitted_share",
    "list_lag_ms",
    "hook",
)


def state(simulator: Simulator) -> dict[str, Any]:
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
        "deprecatedGone": simulator.hiro.deprecated_gone,
        "v3Absent": simulator.hiro.v3_absent,
        "keysIgnored": simulator.hiro_rate_limit.keys_ignored,
        "indexLagMs": simulator.hiro.index_lag_ms,
        "networkList": simulator.hiro.network_list,
        "omittedShare": simulator.hiro.omitted_share,
        "listLagMs": simulator.hiro.list_lag_ms,
        "hook": simulator.hiro.hooks.state,
    }


def fault(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    simulator.faults.add(SimulatedFault.of(values))
    return state(simulator)


def calm(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    """Clear all faults and the schedule of faults."""
    _check_names(values)
    simulator.faults.clear()
    return state(simulator)


def bad_times(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    _check_names(values, "seed", "every_s", "lasting_s", "share", "kinds")
    kinds = tuple(_get(values, "kinds", list, list(FAULT_KINDS)))
    if not kinds or not set(kinds) <= set(FAULT_KINDS):
        raise UsageError(f"kinds must be a list of {', '.join(FAULT_KINDS)}")
    simulator.faults.schedule = BadTimes(
        seed=_get(values, "seed", int, simulator.chain.seed),
        every_s=max(1.0, _number(values, "every_s", 1_800.0)),
        lasting_s=_number(values, "lasting_s", 60.0),
        share=_number(values, "share", 0.7),
        kinds=kinds,
    )
    return state(simulator)


def switch(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    _check_names(values, *SWITCHES)
    hiro, rate_limit = simulator.hiro, simulator.hiro_rate_limit
    hiro.deprecated_gone = _get(values, "deprecated_gone", bool, hiro.deprecated_gone)
    hiro.v3_absent = _get(values, "v3_absent", bool, hiro.v3_absent)
    hiro.index_lag_ms = _get(values, "index_lag_ms", int, hiro.index_lag_ms)
    hiro.list_lag_ms = _get(values, "list_lag_ms", int, hiro.list_lag_ms)
    hiro.omitted_share = _share(values, "omitted_share", hiro.omitted_share)
    if "network_list" in values:
        hiro.set_network_list(_get(values, "network_list", str, ""))
    if "hook" in values:
        hiro.hooks.set_state(_get(values, "hook", str, ""))
    rate_limit.keys_ignored = _get(values, "keys_ignored", bool, rate_limit.keys_ignored)
    return state(simulator)


def limits(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    """Change an upstream's plans, or spend calls as another caller with the same key or address would."""
    _check_names(values, "upstream", "keyed", "anonymous", "spend", "key")
    upstream = values.get("upstream")
    if upstream not in UPSTREAM_NAMES:
        raise UsageError(f"upstream must be one of {', '.join(UPSTREAM_NAMES)}")
    rate_limit = simulator.rate_limit(upstream)
    rate_limit.keyed = _plan(values, "keyed", rate_limit.keyed)
    rate_limit.anonymous = _plan(values, "anonymous", rate_limit.anonymous)
    rate_limit.spend(_get(values, "spend", int, 0), simulator.clock.now(), _get(values, "key", str, ""))
    return state(simulator)


def price(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    """Change how Tenero quotes a token, or fix its price (null: let it drift again)."""
    _check_names(values, "token", "quoting", "usd")
    token = _get(values, "token", str, "")
    simulator.tenero.price(token, simulator.chain.now_ms)  # raises for an unknown token
    if "quoting" in values:
        simulator.tenero.quote(token, values["quoting"])
    if "usd" in values:
        usd = None if values["usd"] is None else _number(values, "usd", 0.0)
        simulator.tenero.set_price(token, usd)
    return state(simulator)


def swap(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    """Broadcast `count` calls (default 1) of a wallet (number or address). Amounts are decimal text."""
    _check_names(values, "wallet", "kind", "count", "token_in", "token_out", "amount_in", "amount_out")
    simulator.advance()
    chain = simulator.chain
    wallet, kind = _wallet(chain, values), _get(values, "kind", str, "simple")
    return _tx_ids(
        chain.swap(
            wallet,
            kind,
            token_in=values.get("token_in"),
            token_out=values.get("token_out"),
            amount_in=int(_get(values, "amount_in", str, "0")) or None,
            amount_out=int(_get(values, "amount_out", str, "0")) or None,
        )
        for _ in range(_get(values, "count", int, 1))
    )


def dust(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    _check_names(values, "wallet", "count")
    simulator.advance()
    chain = simulator.chain
    return _tx_ids(chain.dust(_wallet(chain, values), _get(values, "count", int, 30)))


def mine(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    """Mine a block now with all waiting transactions."""
    _check_names(values)
    simulator.advance()
    return _tx_ids(simulator.chain.mine().transactions)


def reorg(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    _check_names(values, "depth", "fate")
    fate = values.get("fate", "mixed")
    if fate not in get_args(Fate):
        raise UsageError(f"fate must be one of {', '.join(get_args(Fate))}")
    simulator.advance()
    return _tx_ids(simulator.chain.reorg(_get(values, "depth", int, 3), fate))


def drop(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    _check_names(values, "txid", "status")
    tx = _transaction(simulator, values)
    simulator.chain.drop(tx, _get(values, "status", str, "dropped_replace_by_fee"))
    return _tx_ids([tx])


def rebroadcast(simulator: Simulator, values: CommandValues) -> dict[str, Any]:
    _check_names(values, "txid")
    tx = _transaction(simulator, values)
    simulator.chain.rebroadcast(tx)
    return _tx_ids([tx])


COMMANDS: Mapping[str, Callable[[Simulator, CommandValues], dict[str, Any]]] = {
    "fault": fault,
    "calm": calm,
    "bad-times": bad_times,
    "switch": switch,
    "limits": limits,
    "price": price,
    "swap": swap,
    "dust": dust,
    "mine": mine,
    "reorg": reorg,
    "drop": drop,
    "rebroadcast": rebroadcast,
}


def run(simulator: Simulator, name: str, values: Any) -> dict[str, Any]:
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


def _number(values: CommandValues, name: str, default: float) -> float:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} must be a number, not {value!r}")
    return float(value)


def _share(values: CommandValues, name: str, default: float) -> float:
    share = _number(values, name, default)
    if not 0 <= share <= 1:
        raise UsageError(f"{name} must be a number from 0 to 1, not {share!r}")
    return share


def _plan(values: CommandValues, name: str, current: LimitPlan) -> LimitPlan:
    changes = _get(values, name, dict, {})
    _check_names(changes, "second", "minute", "month")
    return LimitPlan(
        second=_get(changes, "second", int, current.second),
        minute=_get(changes, "minute", int, current.minute),
        month=_get(changes, "month", int, current.month),
    )


def _wallet(chain: Chain, values: CommandValues) -> str:
    wallet = values.get("wallet", 0)
    if isinstance(wallet, str):
        return wallet
    if not isinstance(wallet, int) or not 0 <= wallet < len(chain.wallets):
        raise UsageError(f"wallet must be an address or a number from 0 to {len(chain.wallets) - 1}")
    return chain.wallets[wallet].address


def _transaction(simulator: Simulator, values: CommandValues) -> ChainTransaction:
    simulator.advance()
    tx_id = _get(values, "txid", str, "").lower()
    if tx_id not in simulator.chain.transactions:
        raise UsageError(f"no transaction has the id {tx_id!r}")
    return simulator.chain.transactions[tx_id]


def _tx_ids(transactions: Iterable[ChainTransaction]) -> dict[str, Any]:
    return {"txids": [tx.tx_id for tx in transactions]}
