"""The actions of operators on rounds. An action needs a round in the right status; it is done whole or refused."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import get_args

from tocsin.errors import RequestRefused, UsageError
from tocsin.rounds import preparation_store, round_store
from tocsin.rounds.action_fields import (
    check_fields,
    checked_token,
    need_reason,
    new_rules,
    round_id_of,
    rule_of,
    usd_of,
)
from tocsin.rounds.advance import RoundWork, capture_round, close_round, finalize_round, look_ahead
from tocsin.rounds.capture import captured_inputs, prices_of_end
from tocsin.rounds.closing_prices import known_decimals
from tocsin.rounds.round_store import iso_time, refused, the_round
from tocsin.rounds.scoring import scoring
from tocsin.rounds.small_steps import with_pauses
from tocsin.rounds.token_values import check_price
from tocsin.shapes.round_views import RoundAction, RoundAnswer, RoundRow
from tocsin.shapes.rounds import CATEGORIES, FlagKind, RoundOutcome, RoundPrice

KINDS = tuple(kind for kind in get_args(FlagKind) if kind != "operator")

_VOID = """
UPDATE competition_rounds SET status = 'void', note = ?, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ? AND status IN ('open', 'closed', 'finalizing', 'finalized')"""
_VOID_REWARDS = """
UPDATE competition_rewards SET status = 'void'
WHERE round_id = ?1 AND EXISTS (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status = 'void')"""
_IS_VOID = "AND EXISTS (SELECT 1 FROM competition_rounds r WHERE r.round_id = ?1 AND r.status = 'void')"
_REOPEN = """
UPDATE competition_rounds SET status = 'closed', version = version + 1, digest = NULL, finalized_at = NULL,
  captured_at = NULL, note = ?1, waiting_reason = NULL, waiting_since = NULL
WHERE round_id = ?2 AND status = 'finalized' AND version = ?3"""
_FLAG = """
INSERT INTO competition_round_decisions (round_id, erc8004_agent_id, kind, decision, reason, decided_by, decided_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS
  (SELECT 1 FROM competition_rounds WHERE round_id = ?1 AND status IN ('open', 'closed'))
ON CONFLICT (round_id, erc8004_agent_id, kind) DO UPDATE SET decision = excluded.decision, reason = excluded.reason,
  decided_by = excluded.decided_by, decided_at = excluded.decided_at"""
_UNPAID = """
SELECT 1 FROM competition_rewards WHERE round_id = ? AND category = ? AND status IN ('pending', 'failed')"""
_PAY = """
UPDATE competition_rewards SET status = ?1, payout_txid = coalesce(?2, payout_txid),
  paid_at = CASE WHEN ?1 = 'paid' THEN ?3 ELSE paid_at END, notes = coalesce(?4, notes)
WHERE round_id = ?5 AND category = ?6 AND status IN ('pending', 'failed')"""
_PAID = """
UPDATE competition_rounds SET status = iif(
    EXISTS (SELECT 1 FROM competition_rewards WHERE round_id = ?1 AND status IN ('pending', 'failed')),
    'partially_paid', 'paid')
WHERE round_id = ?1 AND status IN ('finalized', 'partially_paid')
  AND EXISTS (SELECT 1 FROM competition_rewards WHERE round_id = ?1 AND status = 'paid')"""


class RoundActions:
    """The actions of one operator, whose key is named `by`."""

    def __init__(self, work: RoundWork, by: str, *, dry_run: bool) -> None:
        self._work = work
        self._by = by
        self._dry = dry_run

    async def act(self, action: RoundAction) -> RoundAnswer:
        check_fields(action)
        by_name: Mapping[str, Callable[[RoundAction], Awaitable[RoundAnswer]]] = {
            "add": self._add,
            "rule": self._rule,
            "close": self._close,
            "snapshot": self._snapshot,
            "finalize": self._finalize,
            "void": self._void,
            "reopen": self._reopen,
            "price": self._price,
            "flag": self._flag,
            "pay": self._pay,
        }
        return await by_name[action.action](action)

    # The steps, by hand

    async def _close(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._in_status(action, "open")
        if self._work.clock.now() < round_.grace_ends_at * 1000:
            at = iso_time(round_.grace_ends_at * 1000)
            raise refused(409, "grace_period_active", f"{round_.round_id} can be closed from {at} on.")
        if not self._dry and not await close_round(self._work, round_):
            raise _wrong_status(await the_round(self._work.db, round_.round_id), "open")
        return await self._done(action, round_.round_id, "closed")

    async def _snapshot(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._in_status(action, "closed")
        if action.force:
            need_reason(action)
        if action.decimals_map:
            await self._check_decimals(action.decimals_map, round_)
        if self._dry:
            return await self._looked_ahead(action, round_)
        tokens = [checked_token(token) for token in action.token_ids or ()]
        reason = await capture_round(self._work, round_, tokens=tokens, forced=action.force)
        if reason is not None:
            is_price = reason.startswith("the price")
            code = "empty_price_cache" if is_price else "data_incomplete"
            raise refused(
                503 if is_price else 409,
                code,
                f"{round_.round_id} waits: {reason}. With force and a reason it is captured as it is.",
            )
        return await self._done(action, round_.round_id, "captured")

    async def _check_decimals(self, decimals: Mapping[str, int], round_: RoundRow) -> None:
        """Refuse decimals that differ from the known ones: they would change the sums."""
        tokens = [checked_token(token) for token in decimals]
        for price in await prices_of_end(self._work.db, round_.rules, tokens):
            if decimals.get(price.token_id, price.decimals) != price.decimals:
                raise _wrong_decimals(price.token_id, decimals[price.token_id], price.decimals)

    async def _finalize(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._round(action)
        if self._dry and round_.status in {"open", "closed"}:
            return await self._looked_ahead(action, round_)
        _check_status(round_, "finalizing")
        if self._dry:
            inputs = await captured_inputs(self._work.db, round_)
            outcome: RoundOutcome | None = await with_pauses(scoring(inputs))
        else:
            outcome = await finalize_round(self._work, round_)
        if outcome is None:
            raise _wrong_status(await the_round(self._work.db, round_.round_id), "finalizing")
        answer = await self._done(action, round_.round_id, f"{len(outcome.results)} agents")
        return replace(answer, outcome=outcome.to_json())

    async def _looked_ahead(self, action: RoundAction, round_: RoundRow) -> RoundAnswer:
        inputs, outcome, waits = await look_ahead(self._work, round_)
        detail = waits or f"{len(inputs.swaps)} swaps and {len(inputs.prices)} prices would be captured"
        return replace(await self._done(action, round_.round_id, detail), outcome=outcome.to_json())

    # What operators decide

    async def _add(self, action: RoundAction) -> RoundAnswer:
        rules = new_rules(action, self._work.rules.floors)
        db = self._work.db
        if await round_store.find_round(db, rules.round_id) is not None:
            raise refused(409, "round_exists", f"The round {rules.round_id} already exists.")
        if not self._dry:
            await round_store.add(db, rules, self._work.clock.now()).run()
        return await self._done(action, rules.round_id, "added")

    async def _rule(self, action: RoundAction) -> RoundAnswer:
        """Set the rule, or end it."""
        rule = rule_of(action)
        if not self._dry:
            await round_store.set_rule(self._work.db, rule, self._by, self._work.clock.now()).run()
        detail = "the rule has ended" if rule is None else f"{rule.prefix} every {rule.period_s} s"
        return RoundAnswer(ok=True, action="rule", dry_run=self._dry, detail=detail)

    async def _void(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._in_status(action, "open", "closed", "finalizing", "finalized")
        reason = need_reason(action)
        if not self._dry:
            db, round_id = self._work.db, round_.round_id
            statements = [
                db.prepare(_VOID).bind(reason, round_id),
                db.prepare(_VOID_REWARDS).bind(round_id),
                *preparation_store.forget(db, round_id, _IS_VOID),
            ]
            await self._changed((await db.batch(statements))[0].meta.changes, round_id, "open")
            await preparation_store.clear_copies(db, round_)
        return await self._done(action, round_.round_id, "void")

    async def _reopen(self, action: RoundAction) -> RoundAnswer:
        """Have the result computed again as a new version. Refused if a prize was paid."""
        round_ = await self._round(action)
        if round_.status in {"partially_paid", "paid"}:
            raise refused(
                409, "already_paid", f"Prizes of {round_.round_id} were paid: its result stays as it is."
            )
        _check_status(round_, "finalized")
        reason = need_reason(action)
        if not self._dry:
            made = await self._work.db.prepare(_REOPEN).bind(reason, round_.round_id, round_.version).run()
            await self._changed(made.meta.changes, round_.round_id, "finalized")
        return await self._done(action, round_.round_id, f"version {round_.version + 1} is next")

    async def _price(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._in_status(action, "open", "closed")
        reason, token = need_reason(action), checked_token(action.token_id or "")
        price, decimals = usd_of(action.price_usd, None), await self._decimals(action, token, round_)
        check_price(RoundPrice(token, price, decimals, "manual_admin", 0))
        if not self._dry:
            values = (round_.round_id, token, price, decimals, reason, self._by, self._at())
            made = await self._work.db.prepare(round_store.OVERRIDE).bind(*values).run()
            await self._changed(made.meta.changes, round_.round_id, "closed")
        detail = f"{token} is {price} USD, with {decimals} decimals"
        return await self._done(action, round_.round_id, detail)

    async def _decimals(self, action: RoundAction, token: str, round_: RoundRow) -> int:
        """Return the known decimals of the token, else the given ones. They are never guessed."""
        known, given = await known_decimals(self._work.db, token, round_.ends_at), action.decimals
        if given is None:
            if known is None:
                raise UsageError(
                    f"It is not known how many decimals {token} has: no price of it was ever seen. Give decimals."
                )
            return known
        if known is not None and known != given:
            raise _wrong_decimals(token, given, known)
        return given

    async def _flag(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._in_status(action, "open", "closed")
        reason, kind = need_reason(action), action.kind or ""
        if action.agent_id is None or action.decision not in {"clear", "exclude"}:
            raise UsageError("Give agentId, and as decision clear or exclude.")
        if kind not in {"", *KINDS}:
            raise UsageError(f"kind is one of {', '.join(KINDS)}, or left out for all.")
        if not self._dry:
            values = (round_.round_id, action.agent_id, kind, action.decision, reason, self._by, self._at())
            made = await self._work.db.prepare(_FLAG).bind(*values).run()
            await self._changed(made.meta.changes, round_.round_id, "closed")
        return await self._done(
            action, round_.round_id, f"{action.decision} #{action.agent_id} {kind}".strip()
        )

    async def _pay(self, action: RoundAction) -> RoundAnswer:
        round_ = await self._in_status(action, "finalized", "partially_paid")
        status = action.status or "paid"
        if action.category not in CATEGORIES or status not in {"paid", "failed", "void"}:
            raise UsageError(f"category is one of {', '.join(CATEGORIES)}; status is paid, failed or void.")
        if status == "paid" and not action.payout_txid:
            raise UsageError("Give payoutTxid: the transaction that paid the prize.")
        db, round_id = self._work.db, round_.round_id
        unpaid = await db.prepare(_UNPAID).bind(round_id, action.category).first() is not None
        if unpaid and not self._dry:
            values = (status, action.payout_txid, self._at(), action.reason, round_id, action.category)
            made = await db.batch([db.prepare(_PAY).bind(*values), db.prepare(_PAID).bind(round_id)])
            unpaid = made[0].meta.changes > 0
        if not unpaid:
            sentence = f"{round_id} has no unpaid prize in the category {action.category}."
            raise refused(409, "no_open_reward", sentence)
        return await self._done(action, round_.round_id, f"{action.category}: {status}")

    # What they have in common

    async def _round(self, action: RoundAction) -> RoundRow:
        return await the_round(self._work.db, round_id_of(action))

    async def _in_status(self, action: RoundAction, *wanted: str) -> RoundRow:
        round_ = await self._round(action)
        _check_status(round_, *wanted)
        return round_

    async def _changed(self, changes: int, round_id: str, wanted: str) -> None:
        """Refuse the action if somebody else was faster."""
        if not changes:
            raise _wrong_status(await the_round(self._work.db, round_id), wanted)

    async def _done(self, action: RoundAction, round_id: str, detail: str) -> RoundAnswer:
        found = await round_store.find_round(self._work.db, round_id)
        return RoundAnswer(ok=True, action=action.action, dry_run=self._dry, round=found, detail=detail)

    def _at(self) -> str:
        return iso_time(self._work.clock.now())


def _check_status(round_: RoundRow, *wanted: str) -> None:
    if round_.status not in wanted:
        raise _wrong_status(round_, *wanted)


def _wrong_decimals(token: str, given: int, known: int) -> RequestRefused:
    sentence = (
        f"{token} has {known} decimals, not {given}: amounts would count wrong. Leave its decimals out."
    )
    return refused(409, "wrong_decimals", sentence)


def _wrong_status(round_: RoundRow, *wanted: str) -> RequestRefused:
    sentence = f"{round_.round_id} is {round_.status}; this needs one that is {' or '.join(wanted)}."
    return refused(409, "wrong_status", sentence)
