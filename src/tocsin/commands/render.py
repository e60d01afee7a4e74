"""The output of commands: tables and lines made from the JSON of the service.

Lines are rich's markup, in which text from outside is escaped. The cells of a table are text, numbers or, with a color,
rich's `Text`. rich is imported when something is printed: `tocsin --help` starts in half the time.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from tocsin.text import short_duration, shown_ago, shown_instant, shown_until, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from tocsin.commands.rows import ImportReport

    Lines: TypeAlias = Iterator[RenderableType]

Answer: TypeAlias = Any  # JSON of the service, as /openapi.json describes it
Names: TypeAlias = Mapping[int, str | None]  # of agents

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
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, emoji=False)


def table(columns: str, rows: Iterable[Sequence[object]], empty: str = "", *, cut_last: bool = False) -> RenderableType:
    """A table, or the sentence if there are no rows. A column whose name begins with > is right-aligned.

    With `cut_last` each row is one line: on a terminal its last column is cut at the edge.
    """
    from rich.table import Table
    from rich.text import Text

    is_narrow = cut_last and sys.stdout.isatty()
    made = Table(box=None, pad_edge=False, header_style="bold", expand=is_narrow)
    names = columns.split(" | ")
    for column in names:
        title, is_last = column.removeprefix(">"), column == names[-1]
        made.add_column(
            title,
            justify="left" if title == column else "right",
            overflow="ellipsis" if is_last and is_narrow else "fold",
            no_wrap=is_narrow if is_last else cut_last,
            ratio=1 if is_last and is_narrow else None,
        )
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in row))
    return made if made.rows or not empty else empty


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"{value:,}"
    return "-" if value is None else printable(str(value))


def colored(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(printable(text), style)


def escape(text: str) -> str:
    """Text from outside, such as an agent's name, without markup and control characters."""
    from rich.markup import escape as without_markup

    return without_markup(printable(text))


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def shown_name(address: str, *names: str | None) -> str:
    """The first of an agent's names that is visible, or its address."""
    return next(filter(None, map(visible, names)), address)


def status(status: Answer, health: Answer) -> Lines:
    now, paused_until = status["now"], status["pausedUntil"]
    is_paused = paused_until is not None and paused_until > now
    yield from verdict(health, is_paused=is_paused)
    yield f"Next alarm: {shown_until(status['nextAlarmAt'], now)} ({shown_instant(status['nextAlarmAt'])})"
    if is_paused:
        yield f"[bold yellow]Paused until {shown_instant(paused_until)}[/]: `tocsin resume` ends the pause"
    tasks, failures = status["tasks"].items(), status["consecutiveFailures"]
    yield table(
        "task | state | last complete | next | every | failures | last error",
        (_task(name, task, failures.get(name, 0), now) for name, task in tasks),
    )
    for name, task in tasks:
        if task["effectiveCadenceMs"] != task["cadenceMs"]:
            yield f"{name}: {escape(task['cadenceReason'])} (set: every {short_duration(task['cadenceMs'])})"
    yield table(
        "upstream | >tasks may still use | >kept for requests | >expected use | >spent this minute | closed until",
        (_budget(name, budget, now) for name, budget in status["budgets"].items()),
    )
    for key, use in status["lookups"].items():
        yield (
            f"{escape(key)}: {use['lookups']} look-ups, {use['hits']} from memory, {use['calls']} calls,"
            f" {use['stale']} stale, {use['refused']} refused, {use['failed']} failed"
        )


def _task(name: str, task: Answer, failures: int, now: int) -> Sequence[object]:
    last, coming = shown_ago(task["lastSuccessAt"], now), shown_until(task["nextDueAt"], now)  # a back-off is in it
    return (
        name,
        _state(task),
        last,
        coming,
        short_duration(task["effectiveCadenceMs"]),
        failures,
        _error(task["lastError"]),
    )


def _budget(name: str, budget: Answer, now: int) -> Sequence[object]:
    left, for_tasks = budget["left"]["month"], budget["left"]["forTasks"]
    kept = None if left is None or for_tasks is None else left - for_tasks
    expected = (budget["forecast"] or {}).get("usedAtEnd")
    return name, for_tasks, kept, expected, budget["spent"]["minute"], shown_until(budget["closedUntil"], now)


def _state(task: Answer) -> Text:
    """Green only for a task that has completed a run and has no problem, whatever it is doing now."""
    is_well = task["condition"] == "ok" and task["lastSuccessAt"] is not None
    color = "red" if task["problem"] is not None else "green" if is_well else "yellow"
    if task["running"] is None:
        return colored(task["condition"], color)
    running = f"running {task['running']['done']}/{task['running']['total']}"
    return colored(running, "cyan") if is_well else colored(f"{task['condition']}, {running}", color)


def _error(error: Answer | None) -> str:
    return "" if error is None else f"{error['class']}: {error['message']}"


def verdict(health: Answer, *, is_paused: bool = False) -> Iterator[str]:
    """The state of the service as `/readyz` reports it: one line for each cause."""
    # The pause has a line of its own.
    notes = [note for note in health["notes"] if not (is_paused and " paused until " in note)]
    causes = [escape(cause) for cause in (*health["reasons"], *notes)]
    state = escape(health["state"])
    if not health["ready"]:
        title = f"[bold red]Not ready[/] ({state})"
    else:
        title = "[bold green]Ready[/]" if state == "ready" else f"[bold yellow]Ready, {state}[/]"
    if len(causes) == 1:
        yield f"{title}: {causes[0]}"
        return
    yield title
    for cause in causes:
        yield f"  {cause}"


def refreshed(results: Mapping[str, Answer]) -> Iterator[str]:
    for task, result in results.items():
        run = result["run"]
        parts = (f"{task}: {run['outcome']}", _error(run["error"]) or run["reason"], _counters(result))
        yield escape(": ".join(filter(None, parts)))
        if run["pausedUntil"] is not None:
            yield f"The scheduler is paused until {shown_instant(run['pausedUntil'])}."


def runs(listed: Sequence[Answer]) -> RenderableType:
    """The runs. In 80 columns only the details are cut."""

    def row(run: Answer) -> Sequence[object]:
        outcome = colored(run["outcome"], OUTCOME_COLORS.get(run["outcome"], "cyan"))
        took = None if run["durationMs"] is None else short_duration(run["durationMs"])
        details = filter(None, (_error(run["error"]) or run["reason"], _counters(run["result"])))
        return shown_instant(run["startedAt"]), run["task"], run["trigger"], outcome, took, "; ".join(details)

    columns = "started | task | trigger | outcome | >took | details"
    return table(columns, map(row, listed), "No matching runs.", cut_last=True)


def days(listed: Sequence[Answer]) -> RenderableType:
    def row(day: str, task: str, totals: Answer) -> Sequence[object]:
        runs, outcomes = totals["runs"], sorted(totals["outcomes"].items())
        counts = " ".join(f"{name}={count}" for name, count in outcomes)
        mean, longest = totals["durationMs"] / max(1, runs), totals["durationMaxMs"]
        return day, task, runs, counts, totals["calls"], totals["items"], short_duration(mean), short_duration(longest)

    rows = (row(day["day"], *each) for day in listed for each in sorted(day["tasks"].items()))
    return table("day (UTC) | task | >runs | outcomes | >calls | >items | >mean | >longest", rows, "No runs yet.")


def jobs(views: Sequence[Answer]) -> RenderableType:
    def row(job: Answer, next_at: Sequence[int]) -> Sequence[object]:
        when = f"every {job['every']}" if job["every"] is not None else f"{job['cron']} ({job['zone']})"
        at = shown_instant(next_at[0]) if next_at and job["enabled"] else "paused" if next_at else "never"
        return job["name"], when, at, job["url"]

    rows = (row(view["job"], view["nextAt"]) for view in views)
    empty = "No jobs yet: `tocsin job add NAME --to URL --every 15m` adds one."
    return table("job | runs | next | calls", rows, empty)


def job(view: Answer) -> Lines:
    fields = ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in view["job"].items())
    yield table("field | value", ((name, text) for name, text in fields if text not in {"null", "", "0.0"}))
    yield f"Next: {', '.join(map(shown_instant, view['nextAt'])) or 'never: this release cannot run it'}"


def audit(records: Sequence[Answer]) -> RenderableType:
    fields = ("key", "client", "action", "target", "outcome", "detail", "reason")
    rows = ((shown_instant(record["at"]), *(record[field] or "" for field in fields)) for record in records)
    return table(f"at | {' | '.join(fields)}", rows, "No actions yet.")


def reloaded(answer: Answer) -> Iterator[str]:
    applied, overridden = ", ".join(answer["applied"]), ", ".join(answer["overridden"])
    yield f"Applied: {applied}." if applied else "No setting that a reload applies has changed."
    if answer["needsRestart"]:
        yield f"[bold yellow]Needs a restart[/]: {', '.join(answer['needsRestart'])}."
    if overridden:
        yield f"Not used: {overridden} in .env. The environment or the command line of the service has another value."


def prices(answer: Answer, now: int) -> Lines:
    def row(token: str, price: Answer) -> Sequence[object]:
        age = "-" if price["source"] == "peg" else shown_ago(price["fetchedAt"], now)
        usd = "none" if price["priceUsd"] is None else f"{price['priceUsd']:,.10g}"
        shown_age = colored(f"{age}, stale", "yellow") if price["stale"] else age
        return token, usd, price["decimals"], shown_age, price["source"]

    yield table("token | >USD | >decimals | >age | source", (row(*each) for each in answer["prices"].items()))
    if answer["missing"]:
        yield f"Not priced yet: {escape(', '.join(answer['missing']))}"


def board(board: Answer) -> Lines:
    def row(row: Answer) -> Sequence[object]:
        name = shown_name(row["stxAddress"], row["displayName"], row["bnsName"])
        figures = (_money(row[field]) for field in ("volumeUsd", "pnlUsd", "pnlPercent", "pnlAtTradeUsd"))
        return row["rank"], name, row["tradeCount"], *figures, shown_instant(row["latestTradeAt"])

    columns = "># | agent | >trades | >volume USD | >P&L USD | >P&L % | >at trade USD | latest"
    yield table(columns, map(row, board["rows"]), "Nobody has traded yet.")
    if not board["rows"]:
        return
    prices = "the prices of the competition's end" if board["final"] else "current prices"
    yield (
        f"P&L uses {prices}; P&L at trade uses those of each swap's own time."
        " P&L % is a percentage of the capital used."
    )
    thin = sorted({token for row in board["rows"] for token in row["thinTokens"]})
    if thin:
        yield f"Thin, and not counted: {escape(', '.join(thin))}"


def agent(view: Answer) -> Lines:
    name = shown_name(view["address"], view["displayName"], view["bnsName"])
    identity = "" if view["agentId"] is None else f", agent {view['agentId']}"
    yield f"[bold]{escape(name)}[/] ({escape(view['address'])}{identity}): {view['tier']}"
    for step in view["missing"]:
        yield f"  missing: {escape(step)}"
    row, ranks = view["row"], view["ranks"]
    if row is not None and ranks is not None:
        yield f"Rank of {view['ranked']:,}: {', '.join(f'{order} #{rank}' for order, rank in ranks.items())}"
        values = {"volume": row["volumeUsd"], "P&L": row["pnlUsd"]}
        shown = ", ".join(f"{name} {'-' if usd is None else f'{usd:,.2f} USD'}" for name, usd in values.items())
        yield f"{row['tradeCount']:,} trades, {shown}; the latest {shown_instant(row['latestTradeAt'])}"
    if view["lastRefusals"]:
        yield refusals(view["lastRefusals"])


def refusals(listed: Sequence[Answer]) -> RenderableType:
    rows = ((shown_instant(each["refusedAt"]), each["txid"], each["code"], each["reason"]) for each in listed)
    return table("refused | transaction | code | reason", rows, "Nothing was refused.")


def explained(verdict: Answer) -> Lines:
    from rich.table import Table

    steps = Table.grid(padding=(0, 2))
    for step in verdict["steps"]:
        steps.add_row("[green]✓[/]" if step["ok"] else "[red]✗[/]", step["name"], escape(step["detail"]))
    yield steps
    if verdict.get("swap") is None:
        for leg in verdict.get("legs", ()):
            yield f"   {leg['role']}: {leg['amount']} of {escape(leg['token'])}"
    code = verdict.get("code")
    if code is None:
        yield f"[bold green]Verified[/]: {escape(verdict['reason'])}."
    else:
        sentence = verdict.get("sentence") or verdict["reason"]
        yield f"[bold]{verdict['status'].capitalize()}[/] ({code}): {escape(sentence)}"


def rechecked(answer: Answer) -> str:
    if answer["trade"] is not None:
        return "[bold green]Recorded[/]: the swap counts."
    return f"[bold]Not recorded[/] ({answer['code']}): {escape(answer['reason'])}. {escape(answer['sentence'])}"


def imported(report: ImportReport) -> Iterator[str]:
    for table, counts in report.imported.items():
        yield f"{table}: {counts.new:,} new, {counts.updated:,} updated, {counts.unchanged:,} unchanged"


def prepared_for_d1(counts: Mapping[str, int], output: str) -> Iterator[str]:
    """The counts of what was written, and the command that loads it."""
    rows = ", ".join(f"{count:,} {table}" for table, count in counts.items())
    yield f"{output}: {rows}. Nothing is loaded yet. Next:"
    yield f'npx wrangler d1 execute tocsin --remote --env="" --file {shlex.quote(output)}'


def import_refused(file: str, report: ImportReport) -> Iterator[str]:
    """Plain text, for stderr."""
    for error in report.refused:
        yield printable(f"{file}, {report.unit} {error.line}: {error.reason}")
    hidden = report.refused_count - len(report.refused)
    more = f" ({hidden:,} more are not shown)" if hidden else ""
    yield f"{report.refused_count:,} refused{more}: nothing was written. Fix the file and import it again."


def event(text: str) -> str:
    """One line, in plain text, for an event in JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return printable(text)
    fields = " ".join(
        f"{name}={content if isinstance(content, str) else json.dumps(content)}"
        for name, content in value.items()
        if name not in EVENT_COLUMNS and content is not None
    )
    return printable(f"{shown_instant(value['at'])} {value['event']} {fields}")


def rounds(listed: Answer) -> Lines:
    rule = listed["rule"]
    if rule is None:
        yield "There is no rule that adds rounds: `tocsin round every 7d --start …` sets one."
    else:
        first = shown_instant(rule["first_starts_at"] * 1000)
        days = f"{rule['period_s'] / 86_400:g} days"
        yield f"Rounds {escape(rule['prefix'])}-… follow each other every {days}, starting {first}."

    def row(round_: Answer, discrepancies: int) -> Sequence[object]:
        starts, ends = shown_instant(round_["starts_at"] * 1000), _end(round_, listed["now"])
        why = round_["waiting_reason"]
        return round_["round_id"], round_["status"], starts, ends, round_["version"], discrepancies or None, why

    rows = (row(each["round"], each["discrepancies"]) for each in listed["rounds"])
    yield table("round | status | starts | ends | version | differs | waits for", rows)


def _end(round_: Answer, now_s: int) -> str:
    ends_at = round_["ends_at"] * 1000
    left = f" ({shown_until(ends_at, now_s * 1000)})" if round_["status"] == "open" else ""
    return f"{shown_instant(ends_at)}{left}"


def detail(detail: Answer, now_s: int, names: Names) -> Lines:
    round_, results = detail["round"], detail["results"]
    title = f"[bold]{escape(round_['round_id'])}[/] {round_['status']}"
    if not results:
        yield f"{title}, ends {_end(round_, now_s)}"
        yield escape(round_["waiting_reason"] or "It has no result yet: `tocsin board` shows who leads.")
    else:
        yield f"{title}, version {round_['version']}, digest {round_['digest']}"
        yield standings({**detail, "results": [row["exact"] for row in results]}, names)
    for reward in detail["rewards"]:
        yield f"{_prize(reward, names)}, {reward['status']}"
    for flag in detail["flags"]:
        cleared = ", cleared by an operator" if flag["cleared"] else ""
        yield f"flag {flag['kind']} of #{flag['erc8004_agent_id']}{cleared}: {escape(flag['reason'])}"
    for each in detail["discrepancies"]:
        yield f"[yellow]{each['kind']}[/] {escape(each['subject'])}: {escape(each['detail'])}"


def recounted(counted: Answer, names: Names) -> Lines:
    yield standings(counted, names, "Nobody traded in this round.")
    yield f"Digest: {counted['digest']}"
    for one in counted["differences"]:
        in_file, by_us = one["in_file"] or "none", one["counted"] or "none"
        yield escape(f"{one['where']}: {in_file} in the file, {by_us} by the recount")
    recount = f"the recount of {escape(counted['round_id'])}"
    yield (
        f"[bold green]The same[/]: {recount} has the file's results, rewards and flags."
        if counted["same"]
        else f"[bold red]Different[/]: {recount} differs from the file, as listed."
    )


def done(answer: Answer, round_id: object) -> Lines:
    """The answer to an action on a round, or on the rule that adds rounds."""
    name = round_id or answer["action"]
    would = "Nothing was written. " if answer["dry_run"] else ""
    yield escape(f"{would}{name}: {answer.get('detail') or 'done'}.")
    if "outcome" in answer:
        yield standings(answer["outcome"], {})
        for reward in answer["outcome"]["rewards"]:
            yield _prize(reward, {})


def _prize(reward: Answer, names: Names) -> str:
    agent_id = reward["erc8004_agent_id"]
    name = escape(shown_name(reward["stx_address"], names.get(agent_id)))
    return f"{reward['category']}: #{agent_id} {name}, {reward['amount_sats']:,} sats"


def standings(outcome: Answer, names: Names, empty: str = "") -> RenderableType:
    """The result of a round, rounded to cents for people."""
    prizes, flagged = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    for reward in outcome["rewards"]:
        prizes[reward["erc8004_agent_id"]].append(reward["category"])
    for flag in outcome["flags"]:
        flagged[flag["erc8004_agent_id"]].append(f"{flag['kind']} (cleared)" if flag["cleared"] else flag["kind"])

    def row(result: Answer) -> Sequence[object]:
        agent_id, percent = result["erc8004_agent_id"], result["pnl_percent"]
        name = shown_name(result["stx_address"], names.get(agent_id))
        priced = f"{result['priced_trade_count']:,} of {result['trade_count']:,}"
        volume, pnl, capital = (f"{Decimal(result[field]):z,.2f}" for field in ("volume_usd", "pnl_usd", "capital_usd"))
        shown_percent = None if percent is None else f"{Decimal(percent) * 100:z,.2f}"
        notes = ", ".join(prizes[agent_id]), ", ".join(flagged[agent_id])
        return result["rank"], name, f"#{agent_id}", priced, volume, pnl, shown_percent, capital, *notes

    columns = "># | agent | >identity | >priced | >volume USD | >P&L USD | >P&L % | >capital USD | prizes | flags"
    return table(columns, map(row, outcome["results"]), empty)


def _counters(result: Answer | None) -> str:
    """The counters of a result in words: `9 tokens attempted, 1 failed`. Zeros and what is no count are left out."""
    numbers = {name: value for name, value in (result or {}).items() if value and type(value) in {int, float}}
    return ", ".join(
        f"{value:,} {re.sub('[A-Z]', lambda letter: f' {letter[0].lower()}', name)}"
        for name, value in numbers.items()
        if name not in NO_COUNTS
    )


def _money(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:,.2f}" if abs(value) < 1e15 else f"{value:.3g}"
