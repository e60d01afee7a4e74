"""The actions of operators on rounds, as a request job, and the rule by which rounds follow each other.

An action needs a round in the right status; it is done whole or refused. It refuses the fields of other actions, and an
error states how to give a missing or invalid field. It runs in the object because that is the only writer.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import get_args

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.errors import RequestRefused
from tocsin.prices.price import PoolFloors
from tocsin.rounds import store
from tocsin.rounds.accounts import check_price
from tocsin.rounds.capture import captured_inputs, known_decimals, prices_of_end
from tocsin.rounds.round import (
    CATEGORIES,
    FlagKind,
    RoundAction,
    RoundAnswer,
    RoundOutcome,
    RoundPrice,
    RoundRow,
    RoundRule,
    RoundRules,
)
from tocsin.rounds.score import scoring, with_pauses
from tocsin.rounds.steps import RoundWork, capture_round, close_round, finalize_round, look_ahead
from tocsin.rounds.store import iso_time, refused, the_round
from tocsin.scheduler.task import RequestJob, WorkContext
from tocsin.sql import read_queries
from tocsin.stacks import is_token_id
from tocsin.swaps.rules import Rules
from tocsin.text import camel_case, decimal_of_float, decimal_text, read_decimal, short_duration

SQL = read_queries(__file__)

ROUND = "round"  # the name of the job
AHEAD = 1  # rounds that are listed before they start
MADE_MAX = 20  # rounds added in one run
DAY_S, YEAR_S = 86_400, 366 * 86_400
SATS_MAX = 21 * 10**14
FLAG_KINDS = tuple(kind for kind in get_args(FlagKind) if kind != "operator")

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_PREFIX = re.compile(r"[a-z][a-z0-9]{0,19}")


_STEP = frozenset(("token_ids", "decimals_map"))  # as the site sends them; only a snapshot needs them
_RULED = frozenset(("grace_s", "min_volume_usd", "min_priced_trade_count", "rewards"))
_RULE = _RULED | {"first_starts_at", "period_s", "prefix", "first_number"}


def round_jobs(rules: Rules, *, feed_runs: bool) -> Mapping[str, RequestJob]:
    """Return the job. It takes `{action, by, dry_run}` and answers with a `RoundAnswer`, even if it refuses."""

    async def act(context: WorkContext, argument: JSON) -> JSON:
        asked = argument if isinstance(argument, dict) else {}
        action = RoundAction.from_json(asked.get("action"))
        dry_run = asked.get("dry_run") is True
        work = RoundWork(context.db, context.clock, context.logger, rules, feed_runs)
        actions = RoundActions(work, str(asked.get("by")), dry_run=dry_run)
        try:
            return (await actions.act(action)).to_json()
        except RequestRefused as refusal:
            status, code, sentence = refusal.status, refusal.code, str(refusal)
        except UsageError as error:
            status, code, sentence = 400, "bad_request", str(error)
        answer = RoundAnswer(
            ok=False, action=action.action, dry_run=dry_run, detail=sentence, http_status=status, code=code
        )
        return answer.to_json()

    return {ROUND: act}


class RoundActions:
    """An action of an operator, whose key is named `by`."""

    def __init__(self, work: RoundWork, by: str, *, dry_run: bool) -> None:
        self._work = work
        self._db = work.db
        self._by = by
        self._dry = dry_run
        self._outcome: RoundOutcome | None = None  # what the action has computed

    async def act(self, action: RoundAction) -> RoundAnswer:
        check_fields(action)
        found: RoundRow | None = None
        if action.action == "rule":
            detail = await self._rule(action)
        else:
            round_id = checked_round_id(action)
            detail = await (self._add(action, round_id) if action.action == "add" else self._act_on(round_id, action))
            found = await store.find_round(self._db, round_id)
        outcome = None if self._outcome is None else self._outcome.to_json()
        return RoundAnswer(
            ok=True, action=action.action, dry_run=self._dry, round=found, detail=detail, outcome=outcome
        )

    async def _act_on(self, round_id: str, action: RoundAction) -> str:
        """Do an action on a round, and return what it did."""
        found, kind = await the_round(self._db, round_id), _KINDS[action.action]
        if action.action == "reopen" and found.status in {"partially_paid", "paid"}:
            raise refused(409, "already_paid", f"Prizes of {round_id} were paid: its result stays as it is.")
        if self._dry and action.action == "finalize" and found.status in {"open", "closed"}:
            return await self._look_ahead(found)
        if found.status not in kind.statuses:
            raise _wrong_status(found, *kind.statuses)
        if kind.needs_reason or action.force:
            need_reason(action)
        return await kind.act(self, action, found)

    # The steps, by hand

    async def close(self, _action: RoundAction, round_: RoundRow) -> str:
        if self._work.clock.now() < round_.grace_ends_at * 1000:
            at = iso_time(round_.grace_ends_at * 1000)
            raise refused(409, "grace_period_active", f"{round_.round_id} can be closed from {at} on.")
        if not self._dry:
            await self._changed(await close_round(self._work, round_), round_, "open")
        return "closed"

    async def snapshot(self, action: RoundAction, round_: RoundRow) -> str:
        if action.decimals_map:
            await self._check_decimals(action.decimals_map, round_)
        if self._dry:
            return await self._look_ahead(round_)
        tokens = [checked_token(token) for token in action.token_ids or ()]
        reason = await capture_round(self._work, round_, tokens=tokens, forced=action.force)
        if reason is not None:
            status, code = (503, "empty_price_cache") if reason.startswith("the price") else (409, "data_incomplete")
            advice = "With force and a reason it is captured as it is."
            raise refused(status, code, f"{round_.round_id} waits: {reason}. {advice}")
        return "captured"

    async def _check_decimals(self, decimals: Mapping[str, int], round_: RoundRow) -> None:
        """Refuse decimals that differ from the known ones: they would change the sums."""
        tokens = [checked_token(token) for token in decimals]
        for price in await prices_of_end(self._db, round_.rules, tokens):
            if decimals.get(price.token_id, price.decimals) != price.decimals:
                raise _wrong_decimals(price.token_id, decimals[price.token_id], price.decimals)

    async def finalize(self, _action: RoundAction, round_: RoundRow) -> str:
        if self._dry:
            self._outcome = await with_pauses(scoring(await captured_inputs(self._db, round_)))
        else:
            self._outcome = await finalize_round(self._work, round_)
        if self._outcome is None:
            raise _wrong_status(await the_round(self._db, round_.round_id), "finalizing")
        return f"{len(self._outcome.results)} agents"

    async def _look_ahead(self, round_: RoundRow) -> str:
        inputs, self._outcome, waits = await look_ahead(self._work, round_)
        if self._work.clock.now() < round_.ends_at * 1000:
            return f"as if it ended now: {len(inputs.swaps):,} swaps, {len(inputs.prices)} prices"
        return waits or f"{len(inputs.swaps)} swaps and {len(inputs.prices)} prices would be captured"

    # What operators decide

    async def _add(self, action: RoundAction, round_id: str) -> str:
        starts_at, ends_at = _time(action.starts_at, "startsAt"), _time(action.ends_at, "endsAt")
        if not starts_at < ends_at <= starts_at + YEAR_S:
            raise UsageError("endsAt must be later than startsAt, by at most a year.")
        rule = _checked_rule(replace(action, first_starts_at=starts_at, period_s=ends_at - starts_at))
        rules = round_under(rule, round_id, starts_at, self._work.rules.floors)
        if await store.find_round(self._db, round_id) is not None:
            raise refused(409, "round_exists", f"The round {round_id} already exists.")
        if not self._dry:
            await store.add(self._db, rules, self._work.clock.now()).run()
        return "added"

    async def _rule(self, action: RoundAction) -> str:
        """Set the rule, or end it."""
        rule = wanted_rule(action)
        if not self._dry:
            await store.set_rule(self._db, rule, self._by, self._work.clock.now()).run()
        if rule is None:
            return "the rule has ended"
        return f"{rule.prefix}-… every {short_duration(rule.period_s * 1000)}"

    async def void(self, action: RoundAction, round_: RoundRow) -> str:
        if not self._dry:
            rewards = self._db.prepare(SQL["void_rewards"]).bind(round_.round_id)
            void = self._db.prepare(SQL["void_round"]).bind(action.reason, round_.round_id)
            made = await self._db.batch([void, rewards])
            await self._changed(made[0].meta.changes, round_, "open")
        return "void"

    async def reopen(self, action: RoundAction, round_: RoundRow) -> str:
        """Have the result computed again as a new version. Refused if a prize was paid."""
        if not self._dry:
            await self._write(SQL["reopen"], (action.reason, round_.round_id, round_.version), round_, "finalized")
        return f"version {round_.version + 1} is next"

    async def price(self, action: RoundAction, round_: RoundRow) -> str:
        token = checked_token(action.token_id or "")
        price, decimals = checked_usd(action.price_usd), await self._decimals(action, token, round_)
        check_price(RoundPrice(token, price, decimals, "manual_admin", 0))
        if not self._dry:
            values = (round_.round_id, token, price, decimals, action.reason, self._by, self._at())
            await self._write(SQL["set_price"], values, round_, "closed")
        return f"{token} is {price} USD, with {decimals} decimals"

    async def _decimals(self, action: RoundAction, token: str, round_: RoundRow) -> int:
        """Return the known decimals of the token, else the given ones. They are never guessed."""
        known, given = await known_decimals(self._db, token, round_.ends_at), action.decimals
        if known is not None and given is not None and known != given:
            raise _wrong_decimals(token, given, known)
        decimals = known if given is None else given
        if decimals is None:
            raise UsageError(
                f"It is not known how many decimals {token} has: no price of it was ever seen. Give decimals."
            )
        return decimals

    async def flag(self, action: RoundAction, round_: RoundRow) -> str:
        kind = action.kind or ""
        if action.agent_id is None or action.decision not in {"clear", "exclude"}:
            raise UsageError("Give agentId, and as decision clear or exclude.")
        if kind not in {"", *FLAG_KINDS}:
            raise UsageError(f"kind is one of {', '.join(FLAG_KINDS)}, or left out for all.")
        if not self._dry:
            decided = (action.agent_id, kind, action.decision, action.reason, self._by, self._at())
            await self._write(SQL["set_decision"], (round_.round_id, *decided), round_, "closed")
        return f"{action.decision} #{action.agent_id} {kind}".strip()

    async def pay(self, action: RoundAction, round_: RoundRow) -> str:
        status, db, prize = action.status or "paid", self._db, (round_.round_id, action.category)
        if action.category not in CATEGORIES or status not in {"paid", "failed", "void"}:
            raise UsageError(f"category is one of {', '.join(CATEGORIES)}; status is paid, failed or void.")
        if status == "paid" and not action.payout_txid:
            raise UsageError("Give payoutTxid: the transaction that paid the prize.")
        unpaid = await db.prepare(SQL["unpaid"]).bind(*prize).first() is not None
        if unpaid and not self._dry:
            pay = db.prepare(SQL["pay"]).bind(status, action.payout_txid, self._at(), action.reason, *prize)
            made = await db.batch([pay, db.prepare(SQL["paid"]).bind(round_.round_id)])
            unpaid = made[0].meta.changes > 0
        if not unpaid:
            sentence = f"{round_.round_id} has no unpaid prize in the category {action.category}."
            raise refused(409, "no_open_reward", sentence)
        return f"{action.category}: {status}"

    # What they have in common

    async def _write(self, sql: str, values: Sequence[str | int | None], round_: RoundRow, wanted: str) -> None:
        made = await self._db.prepare(sql).bind(*values).run()
        await self._changed(made.meta.changes, round_, wanted)

    async def _changed(self, changes: int, round_: RoundRow, wanted: str) -> None:
        """Refuse the action if somebody else was faster."""
        if not changes:
            raise _wrong_status(await the_round(self._db, round_.round_id), wanted)

    def _at(self) -> str:
        return iso_time(self._work.clock.now())


def _wrong_decimals(token: str, given: int, known: int) -> RequestRefused:
    sentence = f"{token} has {known} decimals, not {given}: amounts would count wrong. Leave its decimals out."
    return refused(409, "wrong_decimals", sentence)


def _wrong_status(round_: RoundRow, *wanted: str) -> RequestRefused:
    sentence = f"{round_.round_id} is {round_.status}; this needs one that is {' or '.join(wanted)}."
    return refused(409, "wrong_status", sentence)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of action: what it does, the status that its round must have, and its fields next to round and reason.

    Other fields are refused: the caller probably meant another action.
    """

    act: Callable[[RoundActions, RoundAction, RoundRow], Awaitable[str]]
    statuses: tuple[str, ...]
    takes: frozenset[str] = frozenset()
    needs_reason: bool = False


_KINDS: Mapping[str, _Kind] = {
    "close": _Kind(RoundActions.close, ("open",), _STEP),
    "snapshot": _Kind(RoundActions.snapshot, ("closed",), _STEP | {"force"}),
    "finalize": _Kind(RoundActions.finalize, ("finalizing",), _STEP),
    "void": _Kind(RoundActions.void, ("open", "closed", "finalizing", "finalized"), needs_reason=True),
    "reopen": _Kind(RoundActions.reopen, ("finalized",), needs_reason=True),
    "price": _Kind(
        RoundActions.price, ("open", "closed"), frozenset(("token_id", "price_usd", "decimals")), needs_reason=True
    ),
    "flag": _Kind(
        RoundActions.flag, ("open", "closed"), frozenset(("agent_id", "kind", "decision")), needs_reason=True
    ),
    "pay": _Kind(RoundActions.pay, ("finalized", "partially_paid"), frozenset(("category", "status", "payout_txid"))),
}


# The fields of an action


def check_fields(action: RoundAction) -> None:
    match action.action:
        case "add":
            takes = _RULED | {"round_id", "starts_at", "ends_at"}
        case "rule":
            takes = _RULE | {"end"}
        case on_round:
            takes = _KINDS[on_round].takes | {"round_id"}
    for each in fields(action):
        if each.name not in takes | {"action", "reason"} and getattr(action, each.name) != each.default:
            raise UsageError(f"{action.action} takes no {camel_case(each.name)}.")


def checked_round_id(action: RoundAction) -> str:
    round_id = action.round_id or ""
    if not _ID.fullmatch(round_id):
        raise UsageError("roundId is lower-case letters, digits and hyphens, such as week-1-2026-05-13.")
    return round_id


def need_reason(action: RoundAction) -> None:
    if not action.reason:
        raise UsageError(f"{action.action} needs a reason: it is published or kept with the round.")


def checked_token(token: str) -> str:
    if not is_token_id(token):
        raise UsageError("A token id is stx, or SP….contract::asset.")
    return token


def checked_usd(text: str | None) -> str:
    """Return a decimal number that is not negative."""
    if text is None or read_decimal(text) < 0:
        raise UsageError("An amount in USD is a decimal number such as 0.85, as text.")
    return text


def _time(at: int | None, name: str) -> int:
    if at is None or not 0 < at < 10**11:
        raise UsageError(f"{name} is a time in unix seconds, such as 1778630400.")
    return at


def wanted_rule(action: RoundAction) -> RoundRule | None:
    """Return the rule to set; None if the action ends it, which it must state."""
    if action.end:
        if any(getattr(action, name) is not None for name in _RULE):
            raise UsageError("end takes no other field: it ends the rule.")
        return None
    if action.first_starts_at is None:
        raise UsageError("Give firstStartsAt, a time in unix seconds, to set the rule, or end: true to end it.")
    _time(action.first_starts_at, "firstStartsAt")
    rule = _checked_rule(action)
    if not 3_600 <= rule.period_s <= YEAR_S:
        raise UsageError("periodS is an hour to a year, in seconds.")
    return rule


def _checked_rule(action: RoundAction) -> RoundRule:
    """Return the rule with the fields of an action; fields that are not given have their defaults."""
    rule = RoundRule(**{name: value for name in _RULE if (value := getattr(action, name)) is not None})
    checked_usd(rule.min_volume_usd)
    if not 0 <= rule.min_priced_trade_count <= 1_000_000:
        raise UsageError("minPricedTradeCount is 0 to 1,000,000.")
    if not 0 <= rule.grace_s <= 7 * DAY_S:
        raise UsageError("graceS is 0 to 604800 seconds.")
    for category, sats in rule.rewards.items():
        if category not in CATEGORIES or not 0 <= sats <= SATS_MAX:
            raise UsageError(f"rewards are sats by category: {', '.join(CATEGORIES)}.")
    if not _PREFIX.fullmatch(rule.prefix) or not 0 <= rule.first_number < 10**6:
        raise UsageError("prefix is a lower-case word such as week; firstNumber is 0 to 999999.")
    return rule


# Rounds by a rule


def round_at(rule: RoundRule, number: int, floors: PoolFloors) -> RoundRules:
    """Return the n-th round of a rule (from 0), such as `week-1-2026-05-13`."""
    starts_at = rule.first_starts_at + number * rule.period_s
    day = datetime.fromtimestamp(starts_at, UTC).strftime("%Y-%m-%d")
    return round_under(rule, f"{rule.prefix}-{rule.first_number + number}-{day}", starts_at, floors)


def round_under(rule: RoundRule, round_id: str, starts_at: int, floors: PoolFloors) -> RoundRules:
    ends_at = starts_at + rule.period_s
    liquidity, volume = (decimal_of_float(float(usd)) for usd in (floors.liquidity_usd, floors.day_volume_usd))
    return RoundRules(
        round_id=round_id,
        starts_at=starts_at,
        ends_at=ends_at,
        grace_ends_at=ends_at + rule.grace_s,
        min_volume_usd=rule.min_volume_usd,
        min_priced_trade_count=rule.min_priced_trade_count,
        min_liquidity_usd=decimal_text(liquidity),
        min_day_volume_usd=decimal_text(volume),
        rewards=dict(rule.rewards),
    )


def rounds_until(
    rule: RoundRule, set_at_s: int, newest_start: int | None, now_s: int, floors: PoolFloors
) -> Iterator[RoundRules]:
    """Yield the missing rounds: those after the newest existing one, up to the one after the running one.

    The first is the one that ran when the rule was set: a rule does not reach into the past.
    """
    running = _running(rule, now_s)
    first = min(_running(rule, set_at_s), running)  # the clock may have been set back
    if newest_start is not None:
        first = max(first, (newest_start - rule.first_starts_at) // rule.period_s + 1)
    for number in range(first, min(running + AHEAD, first + MADE_MAX - 1) + 1):
        yield round_at(rule, number, floors)


def latest_start(rule: RoundRule, now_s: int) -> int:
    """Return the start of the last round that must exist now."""
    return rule.first_starts_at + (_running(rule, now_s) + AHEAD) * rule.period_s


def _running(rule: RoundRule, at_s: int) -> int:
    return max(0, (at_s - rule.first_starts_at) // rule.period_s)


def next_start_ms(rule: RoundRule, now_s: int) -> int:
    """Return the time of the rule's next boundary."""
    number = max(0, (now_s - rule.first_starts_at) // rule.period_s + 1)
    return (rule.first_starts_at + number * rule.period_s) * 1000
