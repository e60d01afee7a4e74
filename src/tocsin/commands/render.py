"""What commands print: tables and lines made of the service's JSON."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape as without_markup
from rich.table import Table

from tocsin.commands.times import shown_ago, shown_duration, shown_instant, shown_until
from tocsin.competition.codes import MEANINGS, Code

PIPE_WIDTH = 200  # a file or a pipe has no edge: cut nothing


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, emoji=False)


def status(told: dict[str, Any]) -> Iterable[Any]:
    now = told["now"]
    yield f"Next alarm: {shown_until(told['nextAlarmAt'], now)} ({shown_instant(told['nextAlarmAt'])})"
    if told["pausedUntil"] is not None and told["pausedUntil"] > now:
        yield f"[bold yellow]Paused until {shown_instant(told['pausedUntil'])}[/]: `tocsin resume` ends it"
    tasks = _table("task", "state", "last success", "next", "every", "failures", "last error")
    for name, task in told["tasks"].items():
        tasks.add_row(
            name,
            _state(task),
            shown_ago(task["lastSuccessAt"], now),
            _next(task, told["nextRunAfter"].get(name), now),
            shown_duration(task["effectiveCadenceMs"]),
            str(told["consecutiveFailures"].get(name, 0)),
            escape(_error(task["lastError"])),
        )
    yield tasks
    for name, task in told["tasks"].items():
        if task["effectiveCadenceMs"] != task["cadenceMs"]:
            yield f"{name}: {escape(task['cadenceReason'])} (set: every {shown_duration(task['cadenceMs'])})"
    budgets = _table("upstream", "left this month", "spent this minute", "closed until")
    for name, budget in told["budgets"].items():
        budgets.add_row(
            name,
            _number(budget.get("left", {}).get("month")),
            _number(budget.get("spent", {}).get("minute")),
            shown_until(budget.get("closedUntil"), now),
        )
    yield budgets


def refreshed(told: dict[str, Any]) -> Iterable[Any]:
    by_task = told["result"] if told["task"] == "all" else {told["task"]: told["result"]}
    for task, result in by_task.items():
        run = result["run"]
        said = escape(f"{_counters(result)} {_error(run['error'])}".strip())
        yield f"[bold]{escape(task)}[/]: {run['outcome']} {said}"
        if run["pausedUntil"] is not None:
            yield f"The scheduler is paused until {shown_instant(run['pausedUntil'])}."


def runs(told: dict[str, Any]) -> Iterable[Any]:
    table = _table("started", "task", "trigger", "outcome", "took", "counters", "error")
    for run in told["runs"]:
        table.add_row(
            shown_instant(run["startedAt"]),
            run["task"],
            run["trigger"],
            run["outcome"],
            "-" if run["durationMs"] is None else shown_duration(run["durationMs"]),
            escape(_counters(run["result"])),
            escape(_error(run["error"])),
        )
    yield table if told["runs"] else "No runs yet."


def prices(told: dict[str, Any], now: int) -> Iterable[Any]:
    table = _table("token", "USD", "decimals", "age", "source")
    for token, price in told["prices"].items():
        peg = price["source"] == "peg"
        age = "-" if peg else shown_ago(price["fetchedAt"], now)
        table.add_row(
            escape(token),
            "none" if price["priceUsd"] is None else f"{price['priceUsd']:,.10g}",
            _number(price["decimals"]),
            f"[yellow]{age}, stale[/]" if price["stale"] else age,
            price["source"],
        )
    yield table
    if told["missing"]:
        yield f"Not priced yet: {escape(', '.join(told['missing']))}"


def board(told: dict[str, Any]) -> Iterable[Any]:
    table = _table("#", "agent", "trades", "volume USD", "P&L USD", "P&L %", "latest")
    for row in told["rows"]:
        name = row.get("displayName") or row.get("bnsName") or row.get("stxAddress") or ""
        table.add_row(
            str(row["rank"]),
            escape(name),
            _number(row["tradeCount"]),
            _money(row["volumeUsd"]),
            _money(row["pnlUsd"]),
            _money(row["pnlPercent"]),
            _seconds(row.get("latestTradeAt")),
        )
    yield table if told["rows"] else "Nobody has traded yet."


def explained(told: dict[str, Any]) -> Iterable[Any]:
    steps = Table.grid(padding=(0, 2))
    for step in told["steps"]:
        mark = "[green]✓[/]" if step["ok"] else "[red]✗[/]"
        steps.add_row(mark, step["name"], escape(step["said"]))
    yield steps
    if told["code"] is None:
        yield f"[bold green]Verified[/]: {escape(told['reason'])}."
    else:
        sentence = MEANINGS[Code(told["code"])].sentence
        yield f"[bold]{told['status'].capitalize()}[/] ({told['code']}): {escape(sentence)}"


def imported(taken: Mapping[str, Any]) -> Iterable[Any]:
    for table, counts in taken.items():
        yield f"{table}: {counts.new:,} new, {counts.updated:,} updated, {counts.unchanged:,} unchanged"


def import_refused(file: str, refused: Sequence[Any], count: int) -> Iterable[str]:
    """Plain text, for stderr; `count` is of all, also of those that were not kept."""
    for refusal in refused:
        yield printable(f"{file}, line {refusal.line}: {refusal.reason}")
    more = f" ({count - len(refused):,} more are not shown)" if count > len(refused) else ""
    yield f"{count:,} refused{more}: nothing was written. Mend the file and import it again."


def escape(text: str) -> str:
    """Text from outside, such as an agent's name: no markup of ours, no commands to the terminal."""
    return without_markup(printable(text))


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _state(task: dict[str, Any]) -> str:
    running = task["running"]
    if running is not None:
        return f"[cyan]running {running.get('done', 0)}/{running.get('total', 0)}[/]"
    if not task["enabled"]:
        return "[yellow]disabled[/]"
    return "[red]overdue[/]" if task["overdue"] else "[green]waiting[/]"


def _next(task: dict[str, Any], not_before: int | None, now: int) -> str:
    due = shown_until(task["nextDueAt"], now)
    return f"{due}, not before {shown_until(not_before, now)}" if (not_before or 0) > now else due


def _counters(result: dict[str, Any]) -> str:
    """The numbers of a result."""
    numbers = {name: value for name, value in result.items() if type(value) in {int, float}}
    return " ".join(f"{name}={value}" for name, value in numbers.items() if name != "startedAt")


def _error(error: dict[str, str] | None) -> str:
    return "" if error is None else f"{error['class']}: {error['message']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _seconds(at: int | None) -> str:
    """The chain's times are seconds, ours are milliseconds."""
    if at is None:
        return "-"
    return shown_instant(at if at > 100_000_000_000 else at * 1000)
