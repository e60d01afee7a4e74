"""The commands for an operator's actions on the running service, and the audit log."""

from typing import Annotated

import typer

from holdfast.errors import UsageError
from tocsin.commands.options import ACT, WATCH, AsJson, Connect, Reason, calls_service, print_answer

POLL_S = 0.25
OneTask = Annotated[str | None, typer.Option("--task", help="Only this task.", metavar="TASK")]


def register(app: typer.Typer) -> None:
    for command in (refresh, pause, resume, recheck):
        app.command(rich_help_panel=ACT)(command)
    app.command(rich_help_panel=WATCH)(audit)


@calls_service
def refresh(
    connect: Connect,
    task: Annotated[str, typer.Argument(help="A task, such as tenero or sweep, or all.", metavar="TASK")],
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Run a task now, or join the run under way, and wait until it ends."""
    from tocsin.commands import render
    from tocsin.commands.refresh import refresh_with_progress
    from tocsin.scheduler.types import Refreshed, RefreshResult

    client = connect()
    answer = refresh_with_progress(client, task, POLL_S, _why(reason))
    refreshed = client.read(Refreshed, answer)
    by_task = refreshed.result if refreshed.task == "all" else {refreshed.task: refreshed.result}
    results = {name: client.read(RefreshResult, result) for name, result in by_task.items()}
    print_answer(answer, as_json, render.refreshed(results))
    if any(result.run.outcome != "ok" for result in results.values()):
        raise typer.Exit(1)


@calls_service
def recheck(
    connect: Connect,
    txid: Annotated[str, typer.Argument(help="A recorded or refused transaction.", metavar="TXID")],
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Verify a transaction again, and record the verdict."""
    from tocsin.commands import render
    from tocsin.commands.client import SCHEDULER
    from tocsin.swaps.types import SubmitAnswer

    client = connect()
    answer = client.read(SubmitAnswer, client.post(SCHEDULER, {"action": "recheck", "txid": txid, **_why(reason)}))
    print_answer(answer.to_json(), as_json, render.rechecked(answer))
    if answer.trade is None:
        raise typer.Exit(1)


@calls_service
def pause(
    connect: Connect,
    for_: Annotated[str | None, typer.Option("--for", help="90s, 15m, 2h, 1d.", metavar="DURATION")] = None,
    until: Annotated[str | None, typer.Option(help="2026-05-13T21:30, or unix ms.", metavar="TIME")] = None,
    task: OneTask = None,
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Pause the scheduled runs of one task, or of all, for a while."""
    from tocsin.commands.client import SCHEDULER
    from tocsin.scheduler.types import Paused
    from tocsin.text import check_duration, parse_instant_ms, shown_instant

    if (for_ is None) == (until is None):
        raise UsageError("Give one of the two: `tocsin pause --for 2h`, or `tocsin pause --until 2026-05-13T21:30`.")
    end = {"until": str(parse_instant_ms(until))} if until is not None else {"for": check_duration(for_ or "")}
    client = connect()
    answer = client.post(SCHEDULER, {"action": "pause", **end, **_only(task), **_why(reason)})
    paused = client.read(Paused, answer)
    what = "Paused" if task is None else f"{task} is paused"
    sentence = f"{what} until {shown_instant(paused.paused_until)}. `tocsin resume` ends the pause."
    print_answer(answer, as_json, [sentence])


@calls_service
def resume(connect: Connect, task: OneTask = None, as_json: AsJson = False, reason: Reason = None) -> None:
    """End every pause, or that of one task."""
    from tocsin.commands.client import SCHEDULER
    from tocsin.scheduler.types import Resumed, SchedulerOverview

    client = connect()
    before = client.read(SchedulerOverview, client.get(SCHEDULER, keyed=True)).status
    answer = client.post(SCHEDULER, {"action": "resume", **_only(task), **_why(reason)})
    client.read(Resumed, answer)
    ended = [each for name, each in before.tasks.items() if task in {None, name}]
    was_paused = any(each.failing or each.paused_until is not None for each in ended)
    was_paused = was_paused or (task is None and before.paused_until is not None)
    print_answer(answer, as_json, ["Resumed." if was_paused else "Nothing was paused."])


@calls_service
def reload(connect: Connect, as_json: AsJson = False, reason: Reason = None) -> None:
    """Read .env and the allow-list again, and apply what needs no restart."""
    from tocsin.commands import render
    from tocsin.commands.client import SCHEDULER
    from tocsin.scheduler.types import Reloaded

    client = connect()
    answer = client.post(SCHEDULER, {"action": "reload", **_why(reason)})
    print_answer(answer, as_json, render.reloaded(client.read(Reloaded, answer)))


@calls_service
def audit(
    connect: Connect,
    limit: Annotated[int, typer.Option(min=1, max=1_100, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the actions of operators, newest first."""
    from tocsin.commands import render
    from tocsin.commands.client import SCHEDULER
    from tocsin.scheduler.types import AuditList

    client = connect()
    answer = client.get(f"{SCHEDULER}/audit", {"limit": str(limit)}, keyed=True)
    print_answer(answer, as_json, render.audit(client.read(AuditList, answer)))


def _only(task: str | None) -> dict[str, str]:
    return {} if task is None else {"task": task}


def _why(reason: str | None) -> dict[str, str]:
    return {} if reason is None else {"reason": reason}
