"""The output of commands: tables and lines made from the service's shapes.

A command imports the shapes that it shows, so this module imports them for their types only: `tocsin status` starts in
half the time.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape as without_markup
from rich.table import Table

from tocsin.text import short_duration, shown_ago, shown_instant, shown_until, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import JustifyMethod, RenderableType

    from tocsin.board.types import AgentView, Board
    from tocsin.commands.rows import ImportReport
    from tocsin.prices.price import PriceList
    from tocsin.rounds.file import RecountReport
    from tocsin.rounds.round import (
        AgentFlag,
        AgentResult,
        RewardRow,
        RoundAgent,
        RoundAnswer,
        RoundDetail,
        RoundList,
        RoundReward,
        RoundRow,
    )
    from tocsin.scheduler.jobs import JobList, JobView
    from tocsin.scheduler.types import AuditList, DayList, Health, RefreshResult, Reloaded, RunList, Status, TaskStatus
    from tocsin.shape import FreeForm
    from tocsin.swaps.types import RecentRefusal, RefusalPage, SubmitAnswer, TradeVerdict

OUTCOME_COLORS = {
    "ok": "green",
    "partial": "yellow",
    "limited": "yellow",
    "failed": "red",
    "interrupted": "red",
    "stopped": "dim",
}
EVENT_COLUMNS = {"seq", "at", "event"}
NO_COUNTS = {"startedAt", "durationMs", "cursor"}
PIPE_WIDTH = 200  # columns; a file or a pipe has no width of its own


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, emoji=False)


def status(status: Status, health: Health) -> Iterable[RenderableType]:
    now = status.now
    yield from verdict(health, is_paused=(status.paused_until or 0) > now)
    yield f"Next alarm: {shown_until(status.next_alarm_at, now)} ({shown_instant(status.next_alarm_at)})"
    if status.paused_until is not None and status.paused_until > now:
        yield f"[bold yellow]Paused until {shown_instant(status.paused_until)}[/]: `tocsin resume` ends the pause"
    tasks = table_of("task", "state", "last complete", "next", "every", "failures", "last error")
    for name, task in status.tasks.items():
        tasks.add_row(
            name,
            _state(task),
            shown_ago(task.last_success_at, now),
            shown_until(task.next_due_at, now),  # a back-off is in it
            short_duration(task.effective_cadence_ms),
            str(status.consecutive_failures.get(name, 0)),
            escape(str(task.last_error or "")),
        )
    yield tasks
    for name, task in status.tasks.items():
        if task.effective_cadence_ms != task.cadence_ms:
            yield f"{name}: {escape(task.cadence_reason)} (set: every {short_duration(task.cadence_ms)})"
    budgets = table_of(
        "upstream", ">tasks may still use", ">kept for requests", ">expected use", ">spent this minute", "closed until"
    )
    for name, budget in status.budgets.items():
        left, for_tasks = budget.left.month, budget.left.for_tasks
        budgets.add_row(
            name,
            _number(for_tasks),
            _number(None if left is None or for_tasks is None else left - for_tasks),
            _number(None if budget.forecast is None else budget.forecast.used_at_end),
            _number(budget.spent.minute),
            shown_until(budget.closed_until, now),
        )
    yield budgets
    for key, use in status.lookups.items():
        yield (
            f"{escape(key)}: {use.lookups} look-ups, {use.hits} from memory, {use.calls} calls, {use.stale} stale,"
            f" {use.refused} refused, {use.failed} failed"
        )


def verdict(health: Health, *, is_paused: bool = False) -> Iterable[str]:
    """The state of the service as `/readyz` reports it: one line for each cause."""
    # The pause has a line of its own.
    notes = [note for note in health.notes if not (is_paused and " paused until " in note)]
    causes = [escape(cause) for cause in (*health.reasons, *notes)]
    if not health.ready:
        title = f"[bold red]Not ready[/] ({health.state})"
    else:
        title = "[bold green]Ready[/]" if health.state == "ready" else f"[bold yellow]Ready, {health.state}[/]"
    if len(causes) == 1:
        yield f"{title}: {causes[0]}"
        return
    yield title
    for cause in causes:
        yield f"  {cause}"


def refreshed(results: Mapping[str, RefreshResult]) -> Iterable[RenderableType]:
    for task, result in results.items():
        run = result.run
        detail = str(run.error or run.reason or "")
        yield escape(": ".join(filter(None, (f"{task}: {run.outcome}", detail, _counters(result.summary)))))
        if run.paused_until is not None:
            yield f"The scheduler is paused until {shown_instant(run.paused_until)}."


def runs(runs: RunList) -> Iterable[RenderableType]:
    """The runs. In 80 columns only the details are cut."""
    table = table_of("started", "task", "trigger", "outcome", ">took", "details", cut_last=True)
    for run in runs.runs:
        details = "; ".join(filter(None, (str(run.error or run.reason or ""), _counters(run.result))))
        color = OUTCOME_COLORS.get(run.outcome, "cyan")
        table.add_row(
            shown_instant(run.started_at),
            run.task,
            run.trigger,
            f"[{color}]{run.outcome}[/]",
            "-" if run.duration_ms is None else short_duration(run.duration_ms),
            escape(details),
        )
    yield table if runs.runs else "No matching runs."


def days(days: DayList) -> Iterable[RenderableType]:
    table = table_of("day (UTC)", "task", ">runs", "outcomes", ">calls", ">items", ">mean", ">longest")
    for day in days.days:
        for task, totals in sorted(day.tasks.items()):
            table.add_row(
                escape(day.day),
                escape(task),
                _number(totals.runs),
                escape(" ".join(f"{name}={count}" for name, count in sorted(totals.outcomes.items()))),
                _number(totals.calls),
                _number(totals.items),
                short_duration(totals.duration_ms / max(1, totals.runs)),
                short_duration(totals.duration_max_ms),
            )
    yield table if days.days else "No runs yet."


def jobs(found: JobList) -> Iterable[RenderableType]:
    table = table_of("job", "runs", "next", "calls")
    for view in found.jobs:
        each = view.job
        when = f"every {each.every}" if each.every is not None else f"{each.cron} ({each.zone})"
        at = shown_instant(view.next_at[0]) if view.next_at and each.enabled else "paused" if view.next_at else "never"
        table.add_row(each.name, when, at, escape(each.url))
    yield table if found.jobs else "No jobs yet: `tocsin job add NAME --to URL --every 15m` adds one."


def job(view: JobView) -> Iterable[RenderableType]:
    table = table_of("field", "value")
    for name, value in view.job.to_json().items():
        if value not in {None, ""}:
            table.add_row(name, escape(str(value)))
    yield table
    yield f"Next: {', '.join(map(shown_instant, view.next_at)) or 'never: this release cannot run it'}"


def audit(audit: AuditList) -> Iterable[RenderableType]:
    table = table_of("at", "key", "client", "action", "target", "outcome", "detail", "reason")
    for record in audit.records:
        table.add_row(
            shown_instant(record.at),
            escape(record.key),
            escape(record.client),
            record.action,
            escape(record.target or ""),
            record.outcome,
            escape(record.detail or ""),
            escape(record.reason or ""),
        )
    yield table if audit.records else "No actions yet."


def reloaded(reloaded: Reloaded) -> Iterable[str]:
    yield (
        f"Applied: {', '.join(reloaded.applied)}."
        if reloaded.applied
        else "No setting that a reload applies has changed."
    )
    if reloaded.needs_restart:
        yield f"[bold yellow]Needs a restart[/]: {', '.join(reloaded.needs_restart)}."
    if reloaded.overridden:
        names = ", ".join(reloaded.overridden)
        yield f"Not used: {names} in .env. The environment or the command line of the service has another value."


def prices(prices: PriceList, now: int) -> Iterable[RenderableType]:
    table = table_of("token", ">USD", ">decimals", ">age", "source")
    for token, price in prices.prices.items():
        age = "-" if price.source == "peg" else shown_ago(price.fetched_at, now)
        table.add_row(
            escape(token),
            "none" if price.price_usd is None else f"{price.price_usd:,.10g}",
            _number(price.decimals),
            f"[yellow]{age}, stale[/]" if price.stale else age,
            price.source,
        )
    yield table
    if prices.missing:
        yield f"Not priced yet: {escape(', '.join(prices.missing))}"


def board(board: Board) -> Iterable[RenderableType]:
    table = table_of(">#", "agent", ">trades", ">volume USD", ">P&L USD", ">P&L %", ">at trade USD", "latest")
    for row in board.rows:
        table.add_row(
            str(row.rank),
            shown_name(row.stx_address, row.display_name, row.bns_name),
            _number(row.trade_count),
            _money(row.volume_usd),
            _money(row.pnl_usd),
            _money(row.pnl_percent),
            _money(row.pnl_at_trade_usd),
            shown_instant(row.latest_trade_at),
        )
    if not board.rows:
        yield "Nobody has traded yet."
        return
    yield table
    prices = "the end of the competition" if board.final else "now"
    yield (
        f"P&L is at the prices of {prices}, and P&L % is a percentage of the capital used;"
        " at trade values each swap at the prices of its own time."
    )
    thin = sorted({token for row in board.rows for token in row.thin_tokens})
    if thin:
        yield f"Thin, and not counted: {escape(', '.join(thin))}"


def recounted(agents: Iterable[RoundAgent], counted: RecountReport) -> Iterable[RenderableType]:
    names = {agent.erc8004_agent_id: agent.display_name for agent in agents}
    if counted.results:
        yield standings(counted.results, counted.rewards, counted.flags, names)
    else:
        yield "Nobody traded in this round."
    yield f"Digest: {counted.digest}"
    for one in counted.differences:
        yield escape(f"{one.where}: {one.in_file or 'none'} in the file, {one.counted or 'none'} by the recount")
    yield (
        f"[bold green]The same[/]: the recount of {escape(counted.round_id)} has the file's results, rewards and flags."
        if counted.same
        else f"[bold red]Different[/]: the recount of {escape(counted.round_id)} differs from the file, as listed."
    )


def explained(verdict: TradeVerdict) -> Iterable[RenderableType]:
    steps = Table.grid(padding=(0, 2))
    for step in verdict.steps:
        mark = "[green]✓[/]" if step.ok else "[red]✗[/]"
        steps.add_row(mark, step.name, escape(step.detail))
    yield steps
    if verdict.swap is None:
        for leg in verdict.legs or ():
            yield f"   {leg.role}: {leg.amount} of {escape(leg.token)}"
    if verdict.code is None:
        yield f"[bold green]Verified[/]: {escape(verdict.reason)}."
    else:
        yield f"[bold]{verdict.status.capitalize()}[/] ({verdict.code}): {escape(verdict.sentence or verdict.reason)}"


def rechecked(answer: SubmitAnswer) -> Iterable[str]:
    if answer.trade is not None:
        yield "[bold green]Recorded[/]: the swap counts."
    else:
        yield f"[bold]Not recorded[/] ({answer.code}): {escape(answer.reason)}. {escape(answer.sentence)}"


def imported(report: ImportReport) -> Iterable[str]:
    for table, counts in report.imported.items():
        yield f"{table}: {counts.new:,} new, {counts.updated:,} updated, {counts.unchanged:,} unchanged"


def prepared_for_d1(counts: Mapping[str, int], output: str) -> Iterable[str]:
    """The counts of what was written, and the command that loads it."""
    rows = ", ".join(f"{count:,} {table}" for table, count in counts.items())
    yield f"{output}: {rows}. Nothing is loaded yet. Next:"
    yield f'npx wrangler d1 execute tocsin --remote --env="" --file {shlex.quote(output)}'


def import_refused(file: str, report: ImportReport) -> Iterable[str]:
    """Plain text, for stderr."""
    for error in report.refused:
        yield printable(f"{file}, {report.unit} {error.line}: {error.reason}")
    hidden = report.refused_count - len(report.refused)
    more = f" ({hidden:,} more are not shown)" if hidden else ""
    yield f"{report.refused_count:,} refused{more}: nothing was written. Fix the file and import it again."


def agent(view: AgentView) -> Iterable[RenderableType]:
    name = shown_name(view.address, view.display_name, view.bns_name)
    identity = "" if view.agent_id is None else f", agent {view.agent_id}"
    yield f"[bold]{name}[/] ({escape(view.address)}{identity}): {view.tier}"
    for step in view.missing:
        yield f"  missing: {escape(step)}"
    if view.row is not None and view.ranks is not None:
        ranks = ", ".join(f"{order} #{rank}" for order, rank in view.ranks.items())
        yield f"Rank of {view.ranked:,}: {ranks}"
        row = view.row
        values = {"volume": row.volume_usd, "P&L": row.pnl_usd}
        shown = ", ".join(f"{name} {'-' if usd is None else f'{usd:,.2f} USD'}" for name, usd in values.items())
        yield f"{row.trade_count:,} trades, {shown}; the latest {shown_instant(row.latest_trade_at)}"
    if view.last_refusals:
        yield _refusals(view.last_refusals)


def refusals(page: RefusalPage) -> Iterable[RenderableType]:
    yield _refusals(page.refusals) if page.refusals else "Nothing was refused."


def _refusals(listed: Iterable[RecentRefusal]) -> RenderableType:
    table = table_of("refused", "transaction", "code", "reason")
    for refusal in listed:
        table.add_row(shown_instant(refusal.refused_at), refusal.txid, refusal.code, escape(refusal.reason))
    return table


def event(text: str) -> str:
    """One line for an event in JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return escape(text)
    if not isinstance(value, dict):
        return escape(text)
    at = value.get("at")
    fields = " ".join(
        f"{name}={content if isinstance(content, str) else json.dumps(content)}"
        for name, content in value.items()
        if name not in EVENT_COLUMNS and content is not None
    )
    when = shown_instant(at if isinstance(at, int) else None)
    return escape(f"{when} {value.get('event')} {fields}")


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


def detail(detail: RoundDetail, now_s: int, names: Mapping[int, str | None]) -> Iterable[RenderableType]:
    round_ = detail.round
    if not detail.results:
        yield f"[bold]{escape(round_.round_id)}[/] {round_.status}, ends {_end(round_, now_s)}"
        yield escape(round_.waiting_reason or "It has no result yet: `tocsin board` shows who leads.")
    else:
        yield f"[bold]{escape(round_.round_id)}[/] {round_.status}, version {round_.version}, digest {round_.digest}"
        yield standings((row.exact for row in detail.results), detail.rewards, detail.flags, names)
    for reward in detail.rewards:
        yield f"{_prize(reward, names)}, {reward.status}"
    for flag in detail.flags:
        cleared = ", cleared by an operator" if flag.cleared else ""
        yield f"flag {flag.kind} of #{flag.erc8004_agent_id}{cleared}: {escape(flag.reason)}"
    for each in detail.discrepancies:
        yield f"[yellow]{each.kind}[/] {escape(each.subject)}: {escape(each.detail)}"


def _prize(reward: RoundReward | RewardRow, names: Mapping[int, str | None]) -> str:
    name = shown_name(reward.stx_address, names.get(reward.erc8004_agent_id))
    return f"{reward.category}: #{reward.erc8004_agent_id} {name}, {reward.amount_sats:,} sats"


def standings(
    results: Iterable[AgentResult],
    rewards: Iterable[RoundReward | RewardRow],
    flags: Iterable[AgentFlag],
    names: Mapping[int, str | None],
) -> RenderableType:
    """The result of a round, rounded to cents for people."""
    prizes, flagged = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    for reward in rewards:
        prizes[reward.erc8004_agent_id].append(reward.category)
    for flag in flags:
        flagged[flag.erc8004_agent_id].append(f"{flag.kind} (cleared)" if flag.cleared else flag.kind)
    table = table_of(
        ">#", "agent", ">identity", ">priced", ">volume USD", ">P&L USD", ">P&L %", ">capital USD", "prizes", "flags"
    )
    for result in results:
        table.add_row(
            str(result.rank),
            shown_name(result.stx_address, names.get(result.erc8004_agent_id)),
            f"#{result.erc8004_agent_id}",
            f"{result.priced_trade_count:,} of {result.trade_count:,}",
            _exact_money(result.volume_usd),
            _exact_money(result.pnl_usd),
            "-" if result.pnl_percent is None else f"{Decimal(result.pnl_percent) * 100:z,.2f}",
            _exact_money(result.capital_usd),
            ", ".join(prizes[result.erc8004_agent_id]),
            escape(", ".join(flagged[result.erc8004_agent_id])),
        )
    return table


def done(answer: RoundAnswer) -> Iterable[RenderableType]:
    name = answer.action if answer.round is None else answer.round.round_id
    would = "Nothing was written. " if answer.dry_run else ""
    yield escape(f"{would}{name}: {answer.detail or 'done'}.")
    if answer.outcome is not None:
        from tocsin.rounds.round import RoundOutcome

        outcome = RoundOutcome.from_json(answer.outcome)
        yield standings(outcome.results, outcome.rewards, outcome.flags, {})
        for reward in outcome.rewards:
            yield _prize(reward, {})


def escape(text: str) -> str:
    """Text from outside, such as an agent's name, without markup and control characters."""
    return without_markup(printable(text))


def shown_name(address: str, *names: str | None) -> str:
    """The first of an agent's names that is visible, or its address."""
    return escape(next(filter(None, map(visible, names)), address))


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def table_of(*columns: str, cut_last: bool = False) -> Table:
    """A table with these columns; a column whose name begins with > is right-aligned.

    With `cut_last` each row is one line: on a terminal its last column is cut at the edge.
    """
    is_narrow = cut_last and sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, header_style="bold", expand=is_narrow)
    *figures, last = columns
    for column in figures:
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), overflow="fold", justify=justify, no_wrap=cut_last)
    table.add_column(
        last.removeprefix(">"),
        overflow="ellipsis" if is_narrow else "fold",
        no_wrap=is_narrow,
        ratio=1 if is_narrow else None,
        justify="right" if last.startswith(">") else "left",
    )
    return table


def _state(task: TaskStatus) -> str:
    """Green only for a task that has completed a run and has no problem, whatever it is doing now."""
    is_well = task.condition == "ok" and task.last_success_at is not None
    color = "red" if task.problem is not None else "green" if is_well else "yellow"
    if task.running is not None:
        running = f"running {task.running.done}/{task.running.total}"
        return f"[cyan]{running}[/]" if is_well else f"[{color}]{task.condition}, {running}[/]"
    return f"[{color}]{task.condition}[/]"


def _counters(result: FreeForm) -> str:
    """The counters of a result in words: `9 tokens attempted, 1 failed`. Zeros and what is no count are left out."""
    numbers = {name: value for name, value in result.items() if value and type(value) in {int, float}}
    return ", ".join(
        f"{value:,} {re.sub('[A-Z]', lambda letter: f' {letter[0].lower()}', name)}"
        for name, value in numbers.items()
        if name not in NO_COUNTS
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def _exact_money(value: str) -> str:
    """For people: rounded to cents."""
    return f"{Decimal(value):z,.2f}"


def _money(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if abs(value) < 1e15 else f"{value:.3g}"
