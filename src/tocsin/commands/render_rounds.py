"""The output of `tocsin round`."""

from collections.abc import Iterable

from rich.console import RenderableType

from tocsin.commands.render import escape, table_of
from tocsin.commands.times import shown_instant, shown_until
from tocsin.shapes.round_views import RewardRow, RoundAnswer, RoundDetail, RoundList, RoundRow
from tocsin.shapes.rounds import RoundOutcome, RoundReward


def rounds(listed: RoundList) -> Iterable[RenderableType]:
    if listed.rule is None:
        yield "There is no rule that adds rounds: `tocsin round every 7d --start …` sets one."
    else:
        rule = listed.rule
        first = shown_instant(rule.first_starts_at * 1000)
        days = f"{rule.period_s / 86_400:g} days"
        yield f"Rounds {escape(rule.prefix)}-… follow each other every {days}, starting {first}."
    shown = table_of("round", "status", "starts", "ends", "version", "differs", "waits for")
    for each in listed.rounds:
        round_ = each.round
        shown.add_row(
            escape(round_.round_id),
            round_.status,
            shown_instant(round_.starts_at * 1000),
            _end(round_, listed.now),
            str(round_.version),
            str(each.discrepancies or "-"),
            escape(round_.waiting_reason or "-"),
        )
    yield shown


def _end(round_: RoundRow, now_s: int) -> str:
    left = shown_until(round_.ends_at * 1000, now_s * 1000)
    return f"{shown_instant(round_.ends_at * 1000)}{f' ({left})' if round_.status == 'open' else ''}"


def detail(detail: RoundDetail) -> Iterable[RenderableType]:
    round_ = detail.round
    yield f"[bold]{escape(round_.round_id)}[/] {round_.status}, version {round_.version}, digest {round_.digest}"
    yield results(RoundOutcome([row.exact for row in detail.results], [], []))
    for reward in detail.rewards:
        yield f"{_prize(reward)}, {reward.status}"
    for flag in detail.flags:
        cleared = ", cleared by an operator" if flag.cleared else ""
        yield f"flag {flag.kind} of #{flag.erc8004_agent_id}{cleared}: {escape(flag.reason)}"
    for each in detail.discrepancies:
        yield f"[yellow]{each.kind}[/] {escape(each.subject)}: {escape(each.detail)}"


def _prize(reward: RoundReward | RewardRow) -> str:
    return f"{reward.category}: #{reward.erc8004_agent_id} {reward.stx_address}, {reward.amount_sats:,} sats"


def results(outcome: RoundOutcome) -> RenderableType:
    shown = table_of("rank", "identity", "address", "P&L", "volume", "trades")
    for row in outcome.results:
        shown.add_row(
            str(row.rank),
            f"#{row.erc8004_agent_id}",
            row.stx_address,
            row.pnl_usd,
            row.volume_usd,
            f"{row.priced_trade_count} of {row.trade_count} priced",
        )
    return shown


def done(answer: RoundAnswer) -> Iterable[RenderableType]:
    name = "" if answer.round is None else f" {escape(answer.round.round_id)}"
    would = "Nothing was written. " if answer.dry_run else ""
    yield f"{would}{answer.action}{name}: {escape(answer.detail or 'done')}"
    if answer.outcome is not None:
        outcome = RoundOutcome.from_json(answer.outcome)
        yield results(outcome)
        for reward in outcome.rewards:
            yield _prize(reward)
