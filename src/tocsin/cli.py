"""The command `tocsin`. Exit codes: 0 done, 1 failed, 2 wrong usage.

A `LocalCommand` works without a running service. All others call it over HTTP. What only some commands use is imported
inside them, so that each loads no more than it needs.
"""

import sys
import time
from typing import Annotated, NoReturn

import typer

from holdfast.errors import HoldfastError, UsageError
from tocsin import __version__
from tocsin.commands import agents as agent_commands
from tocsin.commands import data as data_commands
from tocsin.commands import jobs as job_commands
from tocsin.commands import operate as operator_commands
from tocsin.commands import render
from tocsin.commands import rounds as round_commands
from tocsin.commands.data import DataDir
from tocsin.commands.options import (
    COMPETITION,
    SERVICE,
    WATCH,
    AsJson,
    Client,
    LocalCommand,
    calls_service,
    print_answer,
    require_simulator,
)
from tocsin.errors import RequestRefused, ServiceUnreachable
from tocsin.text import parse_past_ms

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tocsin {__version__}")
        raise typer.Exit


@app.callback()
def tocsin(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps token prices fresh and finds the competition's swaps."""


@app.command(rich_help_panel=WATCH)
@calls_service
def status(
    client: Client,
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when the service is not ready.")] = False,
) -> None:
    """Show whether the service is ready, what the scheduler is doing and when its alarm rings next."""
    try:
        answer = client.scheduler()
    except (RequestRefused, ServiceUnreachable) as error:
        health = None if as_json else client.health(error)
        if health is not None:
            print_answer(health, as_json, render.verdict(health))
        raise
    print_answer(answer["status"], as_json, render.status(answer["status"], answer["health"]))
    if check and not answer["health"]["ready"]:
        raise typer.Exit(1)


@app.command(rich_help_panel=WATCH)
@calls_service
def runs(
    client: Client,
    task: Annotated[str | None, typer.Option(help="Only this task's runs.")] = None,
    outcome: Annotated[str | None, typer.Option(help="Only runs with this outcome, such as failed.")] = None,
    since: Annotated[
        str | None, typer.Option(help="The earliest start: 2d, 2026-05-13T21:30, or unix ms.", metavar="TIME")
    ] = None,
    until: Annotated[str | None, typer.Option(help="The latest start, in the same format.", metavar="TIME")] = None,
    trigger: Annotated[str | None, typer.Option(help="Only runs with this trigger: alarm, refresh or rerun.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 20,
    daily: Annotated[bool, typer.Option("--daily", help="Show the totals of each day and task.")] = False,
    as_json: AsJson = False,
) -> None:
    """List runs of the last 30 days, or the totals of each day, newest first."""
    from tocsin.commands.client import list_runs

    if daily:
        if task or outcome or since or until or trigger:
            raise UsageError("--daily shows all tasks and outcomes: it can be combined with --limit only.")
        days = client.scheduler("/days", {"limit": min(limit, 400)})
        print_answer(days, as_json, [render.days(days["days"])])
        return
    now = time.time_ns() // 1_000_000
    times = {"since": since, "until": until}
    asked = {name: None if text is None else parse_past_ms(text, now) for name, text in times.items()}
    found = list_runs(client, {"task": task, "outcome": outcome, "trigger": trigger, **asked}, limit)
    print_answer(found, as_json, [render.runs(found["runs"])])


operator_commands.register(app)
job_commands.register(app)


@app.command(rich_help_panel=COMPETITION)
@calls_service
def prices(
    client: Client,
    tokens: Annotated[list[str] | None, typer.Argument(metavar="[TOKEN]...")] = None,
    as_json: AsJson = False,
) -> None:
    """Show token prices, as visitors see them."""
    answer = client.get("/api/prices", {"tokens": ",".join(tokens)} if tokens else {})
    print_answer(answer, as_json, render.prices(answer, time.time_ns() // 1_000_000))


@app.command(rich_help_panel=COMPETITION)
@calls_service
def board(
    client: Client,
    sort: Annotated[str, typer.Option(help="trades, volume, pnl or latest.")] = "pnl",
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the competition's leaderboard, as visitors see it."""
    answer = client.get("/api/competition/leaderboard", {"sort": sort, "limit": limit})
    print_answer(answer, as_json, render.board(answer))


@app.command(cls=LocalCommand, rich_help_panel=COMPETITION)
def recount(
    source: Annotated[str, typer.Argument(help="A round's file, or its URL.", metavar="FILE|URL")],
    digest: Annotated[
        str | None, typer.Option(help="Compare with this digest, such as a published one.", metavar="HEX")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the recount as JSON.")] = False,
) -> None:
    """Compute the result of a finalized round again from its file alone. Exit with 1 if it differs."""
    from tocsin.commands.recount import recount_source

    file, counted = recount_source(source)
    names = {agent.erc8004_agent_id: agent.display_name for agent in file.inputs.agents}
    print_answer(counted.to_json(), as_json, render.recounted(counted.to_json(), names))
    another = digest is not None and digest.lower() != counted.digest
    if another:
        typer.echo(f"The digest of this file is {counted.digest}, not the one that you gave.", err=True)
    if another or not counted.same:
        raise typer.Exit(1)


agent_commands.register(app)
app.add_typer(round_commands.app, name="round", rich_help_panel=COMPETITION)
app.registered_commands += data_commands.app.registered_commands


@app.command(cls=LocalCommand, rich_help_panel=SERVICE)
def serve(
    demo: Annotated[bool, typer.Option("--demo", help="Use the bundled simulator, and demo-data.")] = False,
    bad_times: Annotated[
        bool, typer.Option("--bad-times", help="Run the demo with upstreams that fail every minute.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="The address to listen on (TOCSIN_HOST).")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="0 picks a free port.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Run the service."""
    if demo or bad_times:
        require_simulator()
    from tocsin import service

    service.serve(as_demo=demo or bad_times, bad_times=bad_times, host=host, port=port, data_dir=data_dir)


app.command(rich_help_panel=SERVICE)(operator_commands.reload)


@app.command(
    cls=LocalCommand,
    rich_help_panel=SERVICE,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
def simulate(options: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]...")] = None) -> None:
    """Run only the simulator: a Hiro and a Tenero on loopback."""
    require_simulator()
    from stacks_simulator.__main__ import main as run_simulator

    run_simulator(options or [], "tocsin simulate")


def main() -> None:
    """Run the command; every error becomes a sentence and an exit code."""
    try:
        app(prog_name="tocsin")
    except RequestRefused as refusal:
        _fail(str(refusal), 2 if refusal.status == 400 else 1)
    except UsageError as error:
        _fail(str(error), 2)
    except HoldfastError as error:
        _fail(str(error), 1)


def _fail(sentence: str, code: int) -> NoReturn:
    typer.echo(sentence, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
