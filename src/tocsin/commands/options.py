"""What several commands share: their options, the client of the running service, and how an answer is printed."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.errors import UsageError
from holdfast.types import JSON

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


def service_client(url: str | None, host: str | None, port: int | None) -> "ServiceClient":
    from tocsin.commands.client import client_of

    return client_of(os.environ, Path(".env"), url=url, host=host, port=port)


def print_answer(answer: JSON, as_json: bool, lines: "Iterable[RenderableType]") -> None:
    """Print the JSON as it is, or the lines made of it."""
    if as_json:
        import json

        typer.echo(json.dumps(answer, indent=2))
        return
    from tocsin.commands import render

    console = render.console()
    for line in lines:
        console.print(line)
