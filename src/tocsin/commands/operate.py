"""The commands for an operator's actions on the running service, and the audit log."""

from typing import Annotated

import typer

from holdfast.errors import UsageError
from tocsin.commands import render
from tocsin.commands.options import ACT, WATCH, AsJson, Client, Reason, calls_service, print_answer
from tocsin.text import check_duration, parse_instant_ms, shown_instant

OneTask = Annotated[str | None, typer.Option("--task", help="Only this task.", metavar="TASK")]


def register(app: typer.Typer) -> None:
    for command in (refresh, pause, resume, recheck):
        app.command(rich_help_panel=ACT)(command)
    app.command(rich_help_panel=WATCH)(audit)


@calls_service
def refresh(
    client: Client,
    task: Annotated[str, typer.Argument(help="A task, such as tenero or sweep, or all.", metavar="TASK")],
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Run a task now, or join the run under way, and wait until it ends."""
    from tocsin.commands.refresh import refresh_with_progress

    answer = refresh_with_progress(client, task, reason)
    results = answer["result"] if answer["task"] == "all" else {answer["task"]: answer["result"]}
    print_answer(answer, as_json, render.refreshed(results))
    if any(result["run"]["outcome"] != "ok" for result in results.values()):
        raise typer.Exit(1)


@calls_service
def recheck(
    client: Client,
    txid: Annotated[str, typer.Argument(help="A recorded or refused transaction.", metavar="TXID")],
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Verify a transaction again, and record the verdict."""
    answer = client.act({"action": "recheck", "txid": txid, "reason": reason})
    print_answer(answer, as_json, [render.rechecked(answer)])
    if answer["trade"] is None:
        raise typer.Exit(1)


@calls_service
def pause(
    client: Client,
    for_: Annotated[str | None, typer.Option("--for", help="90s, 15m, 2h, 1d.", metavar="DURATION")] = None,
    until: Annotated[str | None, typer.Option(help="2026-05-13T21:30, or unix ms.", metavar="TIME")] = None,
    task: OneTask = None,
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Pause the scheduled runs of one task, or of all, for a while."""
    if (for_ is None) == (until is None):
        raise UsageError("Give one of the two: `tocsin pause --for 2h`, or `tocsin pause --until 2026-05-13T21:30`.")
    end = {"until": parse_instant_ms(until)} if until is not None else {"for": check_duration(for_ or "")}
    paused = client.act({"action": "pause", **end, "task": task, "reason": reason})
    what = "Paused" if task is None else f"{task} is paused"
    sentence = f"{what} until {shown_instant(paused['pausedUntil'])}. `tocsin resume` ends the pause."
    print_answer(paused, as_json, [sentence])


@calls_service
def resume(client: Client, task: OneTask = None, as_json: AsJson = False, reason: Reason = None) -> None:
    """End every pause, or that of one task."""
    before = client.scheduler()["status"]
    answer = client.act({"action": "resume", "task": task, "reason": reason})
    ended = [each for name, each in before["tasks"].items() if task in {None, name}]
    was_paused = any(each["failing"] or each["pausedUntil"] is not None for each in ended)
    was_paused = was_paused or (task is None and before["pausedUntil"] is not None)
    print_answer(answer, as_json, ["Resumed." if was_paused else "Nothing was paused."])


@calls_service
def reload(client: Client, as_json: AsJson = False, reason: Reason = None) -> None:
    """Read .env and the allow-list again, and apply what needs no restart."""
    answer = client.act({"action": "reload", "reason": reason})
    print_answer(answer, as_json, render.reloaded(answer))


@calls_service
def audit(
    client: Client,
    limit: Annotated[int, typer.Option(min=1, max=1_100, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the actions of operators, newest first."""
    answer = client.scheduler("/audit", {"limit": limit})
    print_answer(answer, as_json, [render.audit(answer["records"])])
