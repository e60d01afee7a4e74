"""The commands of `/_control`: JSON in, JSON out. Each changes what the simulator does next.

The parameters of a command are the fields that it accepts, and their types are checked. A command that returns nothing
is answered with the state.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import signature
from math import inf
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from holdfast.errors import UsageError
from holdfast.types import JSON
from stacks_simulator.chain import Fate
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.hiro_api import NetworkListState
from stacks_simulator.hiro_hooks import HookState
from stacks_simulator.http_messages import UPSTREAM_NAMES, UpstreamName
from stacks_simulator.rate_limits import LimitPlan
from stacks_simulator.simulator import Simulator
from stacks_simulator.tokens import Quoting

CommandValues = Mapping[str, JSON]
Txids: TypeAlias = dict[str, JSON]
Plan: TypeAlias = Mapping[str, int]  # a part of a `LimitPlan`

AMOUNT_DIGITS_MAX = 40
UNCHANGED: Any = object()

# The least and the largest value of a number, by the name of its field.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "count": (1, 1_000),  # transactions of one command
    "depth": (1, 1_000),  # blocks of a reorg
    "times": (1, 10**6),
    "share": (0, 1),
    "status": (200, 599),
    "retry_after": (0, 31 * 86_400),
    "seconds": (0, 3_600),
    "size": (0, 2**30),
    "omitted_share": (0, 1),
    **dict.fromkeys(("from_ms", "until_ms"), (0, 10**15)),
    **dict.fromkeys(("index_lag_ms", "list_lag_ms"), (0, 7 * 86_400_000)),
    **dict.fromkeys(("second", "minute", "month", "spend"), (0, 10**9)),
    **dict.fromkeys(("usd", "liquidity", "volume"), (0, 1e12)),
}

# Each switch: the attribute of the simulator, and its type.
SWITCHES: Mapping[str, tuple[str, Any]] = {
    "keys_ignored": ("hiro_rate_limit.keys_ignored", bool),
    "index_lag_ms": ("hiro.index_lag_ms", int),
    "network_list": ("hiro.network_list", NetworkListState),
    "omitted_share": ("hiro.omitted_share", float),
    "list_lag_ms": ("hiro.list_lag_ms", int),
    "etag_stuck": ("hiro.etag_stuck", bool),
    "hook": ("hiro.hooks.state", HookState),
}


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
        **{_camel_case(name): attrgetter(path)(simulator) for name, (path, _) in SWITCHES.items()},
    }


def fault(simulator: Simulator, **values: Any) -> None:  # noqa: ANN401 - the fields of a fault
    """Add a fault; what is not named is as usual."""
    simulator.faults.add(SimulatedFault(**values))


def calm(simulator: Simulator) -> None:
    """Clear all faults and the schedule of faults, and restore the plans."""
    simulator.faults.clear()
    for name in UPSTREAM_NAMES:
        simulator.rate_limit(name).restore()


def switch(simulator: Simulator, **changes: JSON) -> None:
    for name, value in changes.items():
        owner, _, attribute = SWITCHES[name][0].rpartition(".")
        setattr(attrgetter(owner)(simulator), attribute, value)


def limits(
    simulator: Simulator,
    *,
    upstream: UpstreamName,
    keyed: Plan | None = None,
    anonymous: Plan | None = None,
    spend: int = 0,
    key: str = "",
) -> None:
    """Change an upstream's plans, or spend calls as another caller with the same key or address would."""
    limit, plan = simulator.rate_limit(upstream), get_type_hints(LimitPlan)
    changed, others = _read(keyed or {}, plan), _read(anonymous or {}, plan)
    limit.keyed, limit.anonymous = replace(limit.keyed, **changed), replace(limit.anonymous, **others)
    limit.spend(spend, simulator.clock.now(), key)


def price(
    simulator: Simulator,
    *,
    token: str,
    quoting: Quoting | None = None,
    usd: float | None = UNCHANGED,
    liquidity: float | None = UNCHANGED,
    volume: float | None = UNCHANGED,
) -> None:
    """Change how Tenero quotes a token, or fix its price (null: let it drift again).

    `liquidity` and `volume` fix what its pools hold and trade in a day (null: Tenero does not report it).
    """
    simulator.tenero.price(token, simulator.chain.now_ms)  # raises for an unknown token
    if quoting is not None:
        simulator.tenero.quote(token, quoting)
    if usd is not UNCHANGED:
        simulator.tenero.set_price(token, usd)
    if liquidity is not UNCHANGED or volume is not UNCHANGED:
        simulator.tenero.set_pool(token, *(None if usd is UNCHANGED else usd for usd in (liquidity, volume)))


def swap(
    simulator: Simulator,
    *,
    wallet: int | str = 0,
    kind: str = "simple",
    count: int = 1,
    token_in: str | None = None,
    token_out: str | None = None,
    amount_in: str = "0",
    amount_out: str = "0",
) -> Txids:
    """Broadcast `count` calls (default 1) of a wallet (number or address). Amounts are decimal text."""
    simulator.advance()
    chain = simulator.chain
    if isinstance(wallet, int):
        if not 0 <= wallet < len(chain.wallets):
            raise UsageError(f"wallet must be an address or a number from 0 to {len(chain.wallets) - 1}")
        wallet = chain.wallets[wallet].address
    given, received = _amount("amount_in", amount_in), _amount("amount_out", amount_out)
    return _tx_ids(
        chain.swap(wallet, kind, token_in=token_in, token_out=token_out, amount_in=given, amount_out=received)
        for _ in range(count)
    )


def mine(simulator: Simulator) -> Txids:
    """Mine a block now with all waiting transactions."""
    simulator.advance()
    return _tx_ids(simulator.chain.mine().transactions)


def reorg(simulator: Simulator, *, depth: int = 3, fate: Fate = "mixed") -> Txids:
    simulator.advance()
    return _tx_ids(simulator.chain.reorg(depth, fate))


_ALL: tuple[Callable[..., Txids | None], ...] = (fault, calm, switch, limits, price, swap, mine, reorg)
COMMANDS = {command.__name__: command for command in _ALL}


def run(simulator: Simulator, name: str, values: JSON) -> dict[str, JSON]:
    """Run a command and return its result. A UsageError lists what is accepted."""
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}; the commands are {', '.join(COMMANDS)}")
    if not isinstance(values, dict):
        raise UsageError("a command takes a JSON object")
    if name == "switch":
        given = _read(values, {switch: kind for switch, (_, kind) in SWITCHES.items()})
    else:
        accepts = SimulatedFault if name == "fault" else COMMANDS[name]
        hints, parameters = get_type_hints(accepts), signature(accepts).parameters.values()
        fields = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        needed = {field.name: None for field in fields if field.default is field.empty}
        given = _read({**needed, **values}, {field.name: hints[field.name] for field in fields})
    result = COMMANDS[name](simulator, **given)
    return state(simulator) if result is None else result


def _read(values: CommandValues, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The values, if each has the type of its field and is within its bounds."""
    if unknown := sorted(set(values) - set(hints)):
        accepted = ", ".join(hints) or "none"
        raise UsageError(f"unknown fields: {', '.join(unknown)}; the accepted fields are: {accepted}")
    return {name: _checked(name, value, hints[name]) for name, value in values.items()}


def _checked(name: str, value: JSON, hint: Any) -> JSON:  # noqa: ANN401 - a type, of any form
    kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    if not any(_is_of(value, kind) for kind in kinds):
        raise UsageError(f"{name} must be {' or '.join(map(_shown, kinds))}, not {value!r:.60}")
    low, high = BOUNDS.get(name, (-inf, inf))
    if isinstance(value, int | float) and not low <= value <= high:
        raise UsageError(f"{name} must be a number from {low:g} to {high:g}, not {value!r:.40}")
    return value


def _is_of(value: JSON, kind: Any) -> bool:  # noqa: ANN401 - a type, of any form
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is Mapping:
        return isinstance(value, dict) and all(_is_of(each, get_args(kind)[1]) for each in value.values())
    return type(value) is kind or (kind is float and type(value) is int)


def _shown(kind: Any) -> str:  # noqa: ANN401 - a type, of any form
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return "null" if kind is NoneType else str(getattr(kind, "__name__", kind))


def _amount(name: str, text: str) -> int | None:
    if len(text) > AMOUNT_DIGITS_MAX or not text.isascii() or not text.isdecimal():
        raise UsageError(f"{name} must be text of 1 to {AMOUNT_DIGITS_MAX} digits, not {text!r:.60}")
    return int(text) or None


def _tx_ids(transactions: Iterable[ChainTransaction]) -> Txids:
    return {"txids": [tx.tx_id for tx in transactions]}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
