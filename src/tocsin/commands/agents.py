"""The commands that show agents, verdicts, refusals and events."""

from typing import Annotated
from urllib.parse import quote

import typer

from tocsin.commands import render
from tocsin.commands.options import COMPETITION, WATCH, AsJson, Client, calls_service, print_answer

agents = typer.Typer(no_args_is_help=True, help="Show agents.")


def register(app: typer.Typer) -> None:
    app.add_typer(agents, name="agents", rich_help_panel=COMPETITION)
    app.command(rich_help_panel=COMPETITION)(explain)
    app.command(rich_help_panel=COMPETITION)(refusals)
    app.command(rich_help_panel=WATCH)(events)


@agents.command()
@calls_service
def show(
    client: Client,
    address: Annotated[str, typer.Argument(help="The agent's Stacks address.", metavar="ADDRESS")],
    as_json: AsJson = False,
) -> None:
    """Show an agent: its tier, the steps that are missing, ranks, values and latest refusals."""
    answer = client.get(f"/api/competition/agents/{quote(address, safe='')}")
    print_answer(answer, as_json, render.agent(answer))


@calls_service
def explain(
    client: Client,
    txid: Annotated[str, typer.Argument(help="A transaction, recorded or not.", metavar="TXID")],
    as_json: AsJson = False,
) -> None:
    """Show step by step whether a transaction counts, and why. Nothing is stored."""
    answer = client.get(f"/api/competition/trades/{quote(txid, safe='')}")
    print_answer(answer, as_json, render.explained(answer))


@calls_service
def refusals(
    client: Client,
    code: Annotated[str | None, typer.Option(help="Only this reason, such as tx_failed.")] = None,
    sender: Annotated[str | None, typer.Option(help="Only refusals of this wallet.", metavar="ADDRESS")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List transactions that do not count, newest first, with the reason."""
    query = {"code": code, "sender": sender, "limit": limit}
    answer = client.get("/api/admin/competition/refusals", query, keyed=True)
    print_answer(answer, as_json, [render.refusals(answer["refusals"])])


@calls_service
def events(
    client: Client,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest events of the scheduler, and with --follow new ones as they happen."""
    try:
        for event in client.events(follow=follow):
            typer.echo(event if as_json else render.event(event))
    except KeyboardInterrupt:
        return
