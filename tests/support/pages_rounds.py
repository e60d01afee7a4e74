"""Rounds for the pages: one that runs, one that waits, and one with a result."""

from dataclasses import replace
from typing import Any

from tocsin.rounds.round import (
    CurrentRounds,
    LatestRound,
    ListedRound,
    RoundList,
    RoundRow,
    RoundRule,
    RoundRules,
    RoundWinner,
)

Json = dict[str, Any]
WEEK_S = 604_800
SENTENCE = "Week 1 was won by <b>Sly</b> Fox (rank 2; Iron Raven, rank 1, shares a funder with two agents)"


def round_row(number: int, starts_at: int) -> RoundRow:
    ends_at = starts_at + WEEK_S
    rewards = {"overall_pnl": 50_000, "volume": 25_000, "return": 25_000}
    rules = RoundRules(f"week-{number}", starts_at, ends_at, ends_at + 3_600, rewards=rewards)
    return RoundRow(
        round_id=rules.round_id,
        starts_at=starts_at,
        ends_at=ends_at,
        grace_ends_at=ends_at + 3_600,
        status="open",
        min_volume_usd=50.0,
        min_priced_trade_count=3,
        created_at="2026-05-12T00:00:00.000Z",
        finalized_at=None,
        version=1,
        digest=None,
        closed_at=None,
        captured_at=None,
        allowlist_version=None,
        complete_until_block=None,
        waiting_reason=None,
        waiting_since=None,
        note=None,
        rules=rules,
    )


def no_rounds() -> Json:
    return CurrentRounds(0, None, None, [], None).to_json()


def sample_rounds(now_ms: int) -> tuple[Json, Json]:
    """Return what everybody sees now, and what operators see."""
    now_s = now_ms // 1000
    running = round_row(3, now_s - 86_400)
    waiting = replace(
        round_row(2, now_s - 86_400 - WEEK_S),
        status="closed",
        waiting_reason="transactions that wait to be verified: 2",
        waiting_since=now_ms - 60_000,
    )
    final = replace(
        round_row(1, now_s - 86_400 - 2 * WEEK_S),
        status="finalized",
        finalized_at="2026-05-20T01:01:07.000Z",
        digest="9f" * 32,
    )
    winner = RoundWinner("overall_pnl", "SP4DXVEC16FS6QR7RBKGWZYJKTXPC81W49W0ATJE", 12, "<b>Sly</b> Fox", 50_000)
    current = CurrentRounds(now_s, running, None, [waiting], LatestRound(final, [winner], SENTENCE))
    listed = [ListedRound(running, 0, []), ListedRound(waiting, 0, []), ListedRound(final, 2, [])]
    return current.to_json(), RoundList(now_s, listed, RoundRule(now_s)).to_json()
