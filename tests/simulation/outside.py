"""Everything around the service: the chain, the two upstreams with the quotas of our keys, the participants, the rules.

Others may use up a part of a month, a month may start over, and an upstream may ignore a key.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from math import inf
from random import Random
from typing import Any, cast

from simulation.answers import AlertReceiver, SpoiltAnswers
from simulation.checks import CallChecks
from simulation.jobs import SECRET
from simulation.machine import SimulatedTime
from simulation.plan import Plan
from stacks_simulator.calls import LISTED_CALLS, OFF_LIST_CONTRACT
from stacks_simulator.chain import Chain
from stacks_simulator.chain_records import ChainTransaction
from stacks_simulator.faults import SimulatedFault
from stacks_simulator.hiro_hooks import HOOK_UUID, HookState
from stacks_simulator.http_messages import UpstreamName
from stacks_simulator.rate_limits import (
    HIRO_ANONYMOUS,
    HIRO_KEYED,
    TENERO_ANONYMOUS,
    HiroRateLimit,
    TeneroRateLimit,
    UpstreamRateLimit,
)
from stacks_simulator.simulator import Simulator
from stacks_simulator.tenero_api import LIQUIDITY_USD, VOLUME_USD
from stacks_simulator.tokens import TRADED_TOKENS
from stacks_simulator.traffic import Traffic, start_tenures, start_traffic
from stacks_simulator.truth import Campaign, TrueSwap
from stacks_simulator.wallets import Wallet, WalletTier
from support.simulated_fetch import SimulatedFetch
from tocsin.settings import AccessKey, Settings
from tocsin.upstream.budget import Quota

HEADERS: Mapping[str, str] = {"hiro": "x-ratelimit-remaining-stacks-month", "tenero": "x-ratelimit-month-remaining"}
PROBE_S = 3_600.0  # between two calls while the month is used up
UNDER_WAY_S = 10.0  # how long a call permitted before the month was known to be used up may be under way
ADMIN = AccessKey(name="alice", secret="the-admin-key-of-alice", role="operator")
CHAINHOOK = AccessKey(name="chainhook", secret="the-secret-of-chainhook", role="chainhook")
LEAD_S = 3_600  # the chain is older than the service, so that no reorg is as deep as the chain
ANOTHER_HOOK = "11111111-2222-4333-8444-555555555555"
HOOK_RUN_S = 300.0  # a run of the hook's task takes less
CAMPAIGN_AFTER_S = 7_200  # the campaign begins when the service has been running for a while


class UpstreamAccounts:
    """The limits of both upstreams, as they count them."""

    def __init__(self, hiro_month: int | None, tenero_month: int | None) -> None:
        self.hiro = HiroRateLimit(HIRO_KEYED, HIRO_ANONYMOUS)
        self.tenero = TeneroRateLimit(TENERO_ANONYMOUS, TENERO_ANONYMOUS)
        for limit, month in ((self.hiro, hiro_month), (self.tenero, tenero_month)):
            if month is not None:
                limit.keyed = replace(limit.keyed, month=month)
                limit.anonymous = replace(limit.anonymous, month=month)

    def change(self, values: Mapping[str, Any], now_ms: int) -> None:
        limit = self._of(values["upstream"])
        match values["what"]:
            case "others":
                for key in _keys(limit):
                    left = limit._usage(key, now_ms).remaining("month", limit.plan(key))
                    limit._usage(key, now_ms).used["month"] += int(left * values["share"])
            case "new_month":
                for key in _keys(limit):
                    limit._usage(key, now_ms).used["month"] = 0
            case "key_ignored":
                self.hiro.keys_ignored = values["share"] > 0.5

    def calm(self, now_ms: int) -> None:
        self.hiro.keyed, self.hiro.anonymous = HIRO_KEYED, HIRO_ANONYMOUS
        self.tenero.keyed = self.tenero.anonymous = TENERO_ANONYMOUS
        self.hiro.keys_ignored = False
        for upstream in ("hiro", "tenero"):
            self.change({"upstream": upstream, "what": "new_month"}, now_ms)

    def _of(self, upstream: UpstreamName) -> UpstreamRateLimit:
        return self.hiro if upstream == "hiro" else self.tenero


def _keys(limit: UpstreamRateLimit) -> list[str]:
    return sorted(limit._usages)


@dataclass
class MonthChecks:
    """Checks that an upstream which reports its month as used up is called once an hour."""

    used_up_s: float | None = None  # since when we know
    used_up_ms: int = 0  # the same by the clock of the machine
    called_s: float | None = None  # the last call since then
    left: int = 10**9
    offsets_ms: set[int] = field(default_factory=lambda: {0})  # of its months, that we may know of
    key_and_plan: tuple[str | None, Quota] | None = None  # of the process

    def told(self, upstream: str, headers: Mapping[str, str], now_s: float, wall_ms: int) -> None:
        told = headers.get(HEADERS[upstream], "")
        if not told.isdecimal():
            return
        before, self.left = self.left, int(told)
        if self.left > before:
            self.offsets_ms.add(wall_ms - _starts_ms(wall_ms))
        if self.left:
            self.forget()
        elif self.used_up_s is None:
            self.used_up_s, self.used_up_ms = now_s, wall_ms

    def process_began(self, key: str | None, plan: Quota) -> None:
        """Start over with another key or plan: calls that the settings promise are tried."""
        if self.key_and_plan != (key, plan):
            self.key_and_plan = key, plan
            self.forget()

    def forget(self) -> None:
        """Start over: the stored budget was lost, the key or the plan changed, or the clock was set."""
        self.used_up_s = self.called_s = None

    def called(self, now_s: float, wall_ms: int) -> str | None:
        """Return a sentence if this call comes too soon."""
        if self.used_up_s is None or now_s - self.used_up_s < UNDER_WAY_S:
            return None
        if any(_starts_ms(wall_ms - by) != _starts_ms(self.used_up_ms - by) for by in self.offsets_ms):
            self.forget()
            return None
        before_s, self.called_s = self.called_s, now_s
        if before_s is not None and now_s - before_s < PROBE_S - 1.0:
            return f"a call {now_s - before_s:.1f} s after the last one, and the month is used up"
        return None


def _starts_ms(wall_ms: int) -> int:
    """Return when the calendar month began."""
    at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return int(datetime(at.year, at.month, 1, tzinfo=UTC).timestamp()) * 1000


class Outside:
    """The world without the service."""

    def __init__(self, plan: Plan, time: SimulatedTime) -> None:
        world = plan.world
        self.time = time
        chain = Chain(seed=plan.seed, start_ms=time.start_ms - LEAD_S * 1000, wallets=world.wallets)
        traffic = Traffic(
            swaps=world.swaps_per_hour,
            strangers=world.swaps_per_hour / 3,
            transfers=world.swaps_per_hour / 2,
            floods=0.01,
            reorgs=0.03,
            network=world.network_per_hour,
            tenures=True,
        )
        start_traffic(chain, traffic)
        chain.advance(time.start_ms)
        self.chain = chain
        self.accounts = UpstreamAccounts(world.hiro_month, world.tenero_month)
        self.simulator = Simulator(
            chain, self.time, hiro_rate_limit=self.accounts.hiro, tenero_rate_limit=self.accounts.tenero
        )
        self.fetch = SimulatedFetch(self.simulator)
        self.receiver = AlertReceiver(self.time)
        self.spoilt = SpoiltAnswers()
        self.rng = Random(f"{plan.seed}:outside")
        self.eligible = {wallet.address for wallet in chain.wallets if wallet.tier == "eligible"}
        self.agents = list(chain.wallets)
        self.campaign_start_s = time.start_ms // 1000 + (CAMPAIGN_AFTER_S if plan.days >= 1 else -CAMPAIGN_AFTER_S)
        self.has_longer_list = False
        self.last_prices_ms: int | None = None  # when Tenero answered, by the clock of the machine
        self.prices_before_ms = 0  # when it last answered before that clock was set
        self.rules_changed_s = 0.0
        self.demoted: set[str] = set()  # all that ever were
        self._omitted_max = 0.0
        self._hook_changed_s = 0.0
        self._new_ids = count(1_001)
        self._ids = {wallet.address: wallet.erc8004_agent_id for wallet in chain.wallets}
        self._eligible_since = dict.fromkeys(self.eligible, time.start_ms // 1000 - LEAD_S)

    def clock_was_set(self) -> None:
        """Note that older prices keep their times, which may now be in the future."""
        self.prices_before_ms = max(self.prices_before_ms, self.last_prices_ms or 0)
        self.last_prices_ms = None

    def truth(self, senders: Collection[str] = ()) -> list[TrueSwap]:
        """Return the swaps that must be recorded: of eligible and of these senders, under the current rules."""
        self.simulator.advance()
        allowed = dict(LISTED_CALLS)
        if self.has_longer_list:
            allowed[OFF_LIST_CONTRACT] = frozenset(self.off_list_functions())
        return self.chain.truth(
            senders=self.eligible | set(senders), allowlist=allowed, campaign=Campaign(self.campaign_start_s)
        )

    @staticmethod
    def off_list_functions() -> set[str]:
        return {"swap-helper-a"}

    def settings(self, settings: Settings) -> Settings:
        """Return the settings with the current rules."""
        added = None
        if self.has_longer_list:
            functions = ", ".join(f'"{name}"' for name in sorted(self.off_list_functions()))
            added = f'{{"contracts": {{"{OFF_LIST_CONTRACT}": [{functions}]}}}}'
        return replace(
            settings,
            competition_start=self.campaign_start_s,
            allowlist=added,
            admin_key=(ADMIN,),
            chainhook_secret=(CHAINHOOK,),
            job_secrets=(SECRET,),
        )

    def call_checks(self, settings: Settings, before: dict[str, CallChecks]) -> dict[str, CallChecks]:
        """Return the call counters for the limits of the key; they are kept while these stay the same."""
        hiro = HIRO_KEYED if settings.hiro_api_key else HIRO_ANONYMOUS
        limits = {"hiro": {1.0: hiro.second, 60.0: hiro.minute}, "tenero": {60.0: TENERO_ANONYMOUS.minute}}
        made = {name: CallChecks(limit) for name, limit in limits.items()}
        return {
            name: before[name] if name in before and before[name].limits == check.limits else check
            for name, check in made.items()
        }

    def recent(self, count: int, rng: Random) -> list[ChainTransaction]:
        """Return some of the newest transactions, mined or not."""
        self.simulator.advance()
        newest = list(self.chain.transactions.values())[-60:]
        return rng.sample(newest, min(count, len(newest)))

    def promote(self, rng: Random) -> Wallet | None:
        """Make a wallet of any tier eligible."""
        others = [w for w in (*self.agents, *self.chain.strangers[:6]) if w.address not in self.eligible]
        if not others:
            return None
        chosen = rng.choice(others)
        self.eligible.add(chosen.address)
        self._eligible_since[chosen.address] = self.time.now() // 1000
        btc_address = chosen.btc_address or f"bc1{chosen.address}"
        number = self._ids[chosen.address] = self._ids.get(chosen.address) or next(self._new_ids)
        return Wallet(chosen.address, "eligible", btc_address, erc8004_agent_id=number)

    def demote(self, rng: Random) -> Wallet | None:
        """Make an agent ineligible; at least one stays eligible."""
        if len(self.eligible) < 2:
            return None
        address = rng.choice(sorted(self.eligible))
        self.eligible.discard(address)
        self.demoted.add(address)
        known = next((w for w in (*self.agents, *self.chain.strangers) if w.address == address), None)
        btc_address = (known and known.btc_address) or f"bc1{address}"
        tier: WalletTier = rng.choice(("genesis", "registered"))
        return Wallet(address, tier, btc_address, erc8004_agent_id=None if tier == "genesis" else self._ids[address])

    def counted_since_s(self, sender: str) -> float:
        """Return since when the current rules and the sender's tier make its swaps count (unix s)."""
        return max(self._eligible_since[sender], self.time.start_ms / 1000 + self.rules_changed_s)

    def mined_s(self, txid: str) -> int:
        block = self.chain.transactions[txid].block
        assert block is not None, "only swaps that are mined are true"
        return block.time_s

    def move_market(self, what: str, rng: Random) -> None:
        """Make a token thin or its price jump, or return it to normal."""
        tenero, token = self.simulator.tenero, rng.choice(TRADED_TOKENS)
        factors = {"spike": 20.0, "crash": 0.05}
        pools: dict[str, tuple[float | None, float | None]] = {"thin": (800.0, 20.0), "untold": (None, None)}
        tenero.set_price(token.id, token.base_price * factors[what] if what in factors else None)
        tenero.set_pool(token.id, *pools.get(what, (LIQUIDITY_USD, VOLUME_USD)))

    def break_list(self, how: str, values: Mapping[str, Any], rng: Random) -> None:
        """Make the network's list stand still or seem unchanged for a while, or send a wrong page."""
        simulator, chain, hiro = self.simulator, self.chain, self.simulator.hiro
        simulator.advance()
        if how == "wrong_page":  # only a list of several pages has a cursor to follow
            chain.dust(rng.choice(chain.strangers), values["transactions"])
            path, times = "/extended/v3/transactions", values["times"]
            until_ms = chain.now_ms + 86_400_000
            fault = SimulatedFault(kind=values["fault"], path=path, times=times, until_ms=until_ms)
            simulator.faults.add(fault)
            return
        ends_ms = chain.now_ms + int(values["for_s"] * 1000)
        if how == "stuck_etag":
            hiro.etag_stuck = True
            chain.schedule(ends_ms, lambda: setattr(hiro, "etag_stuck", False))
        else:
            hiro.list_stopped_ms = chain.now_ms
            chain.schedule(ends_ms, lambda: setattr(hiro, "list_stopped_ms", None))

    def omit(self, share: float) -> None:
        """Make the network's list leave out a share of the transactions from now on."""
        self.simulator.hiro.omitted_share = share
        self._omitted_max = max(self._omitted_max, share)

    def may_be_unseen(self, txid: str, listed_s: float = inf, lowest: int | None = None) -> bool:
        """Return whether the network's list may have left it out without a trace.

        A later transaction of its sender shows a gap in the nonces, if it was listed itself and mined by `listed_s`.
        Below the `lowest` nonce seen there is no gap.
        """
        transaction = self.chain.transactions[txid]
        if not self.may_be_left_out(txid):
            return False
        return (lowest is not None and transaction.nonce < lowest) or not any(
            other.sender == transaction.sender
            and other.nonce > transaction.nonce
            and other.state == "mined"
            and other.block is not None
            and other.block.time_s <= listed_s
            and not self.may_be_left_out(other.tx_id)
            for other in self.chain.transactions.values()
        )

    def may_be_left_out(self, txid: str) -> bool:
        """Judge by the largest share so far; the simulator chooses by the id."""
        return int(txid[2:14], 16) < self._omitted_max * 16**12

    def set_hook(self, state: str) -> None:
        """Set a state of Hiro's, or `disabled` by hand, or `deleted`: Hiro no longer knows its id."""
        hooks = self.simulator.hiro.hooks
        hooks.uuid = ANOTHER_HOOK if state == "deleted" else HOOK_UUID
        hooks.state = "streaming" if state in {"deleted", "disabled"} else cast("HookState", state)
        hooks.enabled = hooks.enabled and state != "disabled"
        self._hook_changed_s = self.time.now_s

    def hook_is_broken(self) -> bool:
        """Return whether no push has come for some minutes, and no call about the hook is older than that."""
        hooks = self.simulator.hiro.hooks
        streams = hooks.uuid == HOOK_UUID and hooks.enabled and hooks.state in {"new", "streaming"}
        return not streams and self.time.now_s - self._hook_changed_s > HOOK_RUN_S

    def reorg(self, depth: int, rng: Random) -> None:
        self.simulator.advance()
        self.chain.reorg(depth, "mixed", rng)

    def calm(self) -> None:
        """End all faults and all traffic but the miners', so that there is one truth to compare with."""
        simulator = self.simulator
        simulator.faults.clear()
        simulator.hiro.index_lag_ms = simulator.hiro.list_lag_ms = 0
        simulator.hiro.etag_stuck, simulator.hiro.list_stopped_ms = False, None
        simulator.hiro.network_list = "served"
        self.omit(0.0)
        self.set_hook("streaming")
        self.accounts.calm(self.time.now())
        self.receiver.mode = "takes"
        self.spoilt.until_s = 0.0
        simulator.advance()
        self.chain._agenda.clear()
        start_tenures(self.chain)

    def counts(self) -> dict[str, Any]:
        return {"transactions": len(self.chain.transactions), "alerts": self.receiver.taken, "swaps": len(self.truth())}
