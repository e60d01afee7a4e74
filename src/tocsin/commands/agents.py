"""The commands that show agents, verdicts, refusals and events."""

from typing import Annotated

import typer

from tocsin.commands.options import COMPETITION, WATCH, AsJson, Connect, calls_service, print_answer

agents = typer.Typer(no_args_is_help=True, help="Show agents.")


def register(app: typer.Typer) -> None:
    app.add_typer(agents, name="agents", rich_help_panel=COMPETITION)
    app.command(rich_help_panel=COMPETITION)(explain)
    app.command(rich_help_panel=COMPETITION)(refusals)
    app.command(rich_help_panel=WATCH)(events)


@agents.command()
@calls_service
def show(
    connect: Connect,
    address: Annotated[str, typer.Argument(help="The agent's Stacks address.", metavar="ADDRESS")],
    as_json: AsJson = False,
) -> None:
    """Show an agent: its tier, the steps that are missing, ranks, values and latest refusals."""
    from urllib.parse import quote

    from tocsin.board.types import AgentView
    from tocsin.commands import render

    client = connect()
    answer = client.get(f"/api/competition/agents/{quote(address, safe='')}")
    print_answer(answer, as_json, render.agent(client.read(AgentView, answer)))


@calls_service
def explain(
    connect: Connect,
    txid: Annotated[str, typer.Argument(help="A transaction, recorded or not.", metavar="TXID")],
    as_json: AsJson = False,
) -> None:
    """Show step by step whether a transaction counts, and why. Nothing is stored."""
    from urllib.parse import quote

    from tocsin.commands import render
    from tocsin.swaps.types import TradeVerdict

    client = connect()
    answer = client.get(f"/api/competition/trades/{quote(txid, safe='')}")
    print_answer(answer, as_json, render.explained(client.read(TradeVerdict, answer)))


@calls_service
def refusals(
    connect: Connect,
    code: Annotated[str | None, typer.Option(help="Only this reason, such as tx_failed.")] = None,
    sender: Annotated[str | None, typer.Option(help="Only refusals of this wallet.", metavar="ADDRESS")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List transactions that do not count, newest first, with the reason."""
    from tocsin.commands import render
    from tocsin.swaps.types import RefusalPage

    client = connect()
    wanted = {"code": code, "sender": sender, "limit": str(limit)}
    query = {name: value for name, value in wanted.items() if value is not None}
    answer = client.get("/api/admin/competition/refusals", query, keyed=True)
    print_answer(answer, as_json, render.refusals(client.read(RefusalPage, answer)))


@calls_service
def events(
    connect: Connect,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest events of the scheduler, and with --follow new ones as they happen."""
    from tocsin.commands import render
    from tocsin.commands.client import SCHEDULER

    client = connect()
    console = render.console()
    try:
        for event in client.events(f"{SCHEDULER}/events", follow=follow):
            if as_json:
                typer.echo(event)
            else:
                console.print(render.event(event), soft_wrap=True)
    except KeyboardInterrupt:
        return
