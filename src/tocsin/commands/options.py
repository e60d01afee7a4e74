"""What several commands share: their options, the client of the running service, and how an answer is printed."""

import json
from collections.abc import Callable, Iterable
from functools import update_wrapper
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from holdfast.errors import StartError, UsageError
from holdfast.types import JSON
from tocsin.commands import render

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tocsin.commands.client import ServiceClient

Url = Annotated[
    str | None,
    typer.Option("--url", help="The service's URL, such as https://host/prefix (TOCSIN_URL).", metavar="URL"),
]
Host = Annotated[str | None, typer.Option("--host", help="The service's host, without TLS (TOCSIN_HOST).")]
Port = Annotated[int | None, typer.Option("--port", min=1, max=65_535, help="The service's port (TOCSIN_PORT).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's JSON.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit log.", metavar="TEXT")]

Client: TypeAlias = "ServiceClient"

# The groups of commands in `tocsin --help`.
WATCH, ACT, COMPETITION, DATA, SERVICE = "Watch", "Act", "Competition", "Data", "Service"


class LocalCommand(TyperCommand):
    """A command that works on this machine. With --url it fails and explains why."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's context
        options = args[: args.index("--")] if "--" in args else args
        if any(option == "--url" or option.startswith("--url=") for option in options):
            raise UsageError(
                f"`tocsin {self.name}` works on this machine and has no --url: run it where the service runs."
                " For a service on Cloudflare, see docs/cloudflare.md."
            )
        return super().parse_args(ctx, args)


def calls_service(command: Callable[..., None]) -> Callable[..., None]:
    """Add --url, --host and --port to a command. Its first argument becomes the client of the service there.

    The command reads the answers as JSON. One without the expected fields is that of another program.
    """

    def run(*, url: Url = None, host: Host = None, port: Port = None, **given: object) -> None:
        from tocsin.commands.client import client_here

        client = client_here(url=url, host=host, port=port)
        try:
            command(client, **given)
        except (LookupError, TypeError, AttributeError) as error:
            raise client.not_understood(error) from error

    return with_options(run, command)


def with_options(run: Callable[..., None], command: Callable[..., object]) -> Callable[..., None]:
    """`run` with the name, the help and the options of the command, followed by its own keyword-only options."""
    options = [option for option in signature(command).parameters.values() if option.name != "client"]
    options += [option for option in signature(run).parameters.values() if option.kind is Parameter.KEYWORD_ONLY]
    update_wrapper(run, command, ("__module__", "__name__", "__doc__"))
    run.__annotations__.clear()  # the signature has them
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]  # typer reads it
    return run


def require_simulator() -> None:
    """Raise a `StartError` if the simulator, a package of its own, is not installed. Imports nothing."""
    if find_spec("stacks_simulator") is None:
        raise StartError(
            "The simulator is not installed: pip install 'tocsin[demo]', or in a checkout,"
            " pip install ./packages/stacks-simulator."
        )


def print_plain(answer: JSON, as_json: bool, lines: Iterable[str]) -> None:
    """Print the JSON, or lines that are not wrapped: they hold paths."""
    for line in [json.dumps(answer, indent=2)] if as_json else lines:
        typer.echo(line)


def print_answer(answer: JSON, as_json: bool, lines: "Iterable[RenderableType]") -> None:
    """Print the JSON as it is, or the lines made of it, which are made in either case: they show what is missing."""
    made = list(lines)
    if as_json:
        print_plain(answer, as_json, ())
        return
    console = render.console()
    for line in made:
        console.print(line)
