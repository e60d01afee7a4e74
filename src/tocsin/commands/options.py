"""What several commands share: their options, the client of the running service, and how an answer is printed."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tocsin.bindings import JSON

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tocsin.commands.service_client import ServiceClient

Host = Annotated[str | None, typer.Option("--host", help="Where the service is (TOCSIN_HOST).")]
Port = Annotated[int | None, typer.Option("--port", min=1, max=65_535, help="Its port (TOCSIN_PORT).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the service's JSON.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit log.", metavar="TEXT")]


def service_client(host: str | None, port: int | None) -> "ServiceClient":
    from tocsin.commands.service_client import client_of

    return client_of(os.environ, Path(".env"), host=host, port=port)


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
