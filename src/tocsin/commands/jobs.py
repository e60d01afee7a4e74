"""`tocsin jobs` and `tocsin job …`: periodic calls of URLs, which the scheduler's object stores."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.commands import render
from tocsin.commands.options import ACT, WATCH, AsJson, Client, Reason, calls_service, print_answer, with_options
from tocsin.text import camel_case

PATH = "/api/admin/jobs"
FILE_KEYS = "url, every, cron, zone, limit, upstream, calls_per_run, overdue_after, secret, title, enabled"

job = typer.Typer(no_args_is_help=True, help="Add, change and remove jobs: periodic calls of a URL.")
Name = Annotated[str, typer.Argument(help="The job's name, such as payouts.", metavar="NAME")]
Url = Annotated[str | None, typer.Option("--to", help="The URL to call.", metavar="URL")]
Every = Annotated[str | None, typer.Option(help="90s, 15m, 2h, 1d.", metavar="DURATION")]
Cron = Annotated[str | None, typer.Option(help="Five fields: '30 8 * * mon-fri'.", metavar="EXPRESSION")]
Zone = Annotated[str | None, typer.Option(help="Of --cron, such as Europe/Berlin; UTC by default.")]
Limit = Annotated[str | None, typer.Option(help="How long a call may take; 30s by default.", metavar="DURATION")]
Upstream = Annotated[str | None, typer.Option(help="Whose budget the called program spends: hiro or tenero.")]
Calls = Annotated[float | None, typer.Option("--calls-per-run", min=0, help="How many calls to the upstream.")]
OverdueAfter = Annotated[str | None, typer.Option(help="Not ready after this long.", metavar="DURATION")]
Secret = Annotated[str | None, typer.Option(help="The name of a key in TOCSIN_JOB_SECRETS; job by default.")]
Title = Annotated[str | None, typer.Option(help="What the console calls it.")]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WATCH)(jobs)
    app.add_typer(job, name="job", rich_help_panel=ACT)


@calls_service
def jobs(client: Client, as_json: AsJson = False) -> None:
    """List the jobs, with their schedules and the next time of each."""
    answer = client.get(PATH, keyed=True)
    print_answer(answer, as_json, [render.jobs(answer["jobs"])])


@job.command()
@calls_service
def show(client: Client, name: Name, as_json: AsJson = False) -> None:
    """Show a job with the next five times of its schedule."""
    views = client.get(PATH, keyed=True)["jobs"]
    view = next((each for each in views if each["job"]["name"] == name), None)
    if view is None:
        raise UsageError(f"There is no job {name!r:.40}. `tocsin jobs` lists them.")
    print_answer(view, as_json, render.job(view))


def _fields(
    name: Name,
    to: Url = None,
    every: Every = None,
    cron: Cron = None,
    zone: Zone = None,
    limit: Limit = None,
    upstream: Upstream = None,
    calls_per_run: Calls = None,
    overdue_after: OverdueAfter = None,
    secret: Secret = None,
    title: Title = None,
) -> None:
    """The options of the commands that add and change a job: its fields, with the names that the API has."""


def _defining(action: str) -> Callable[..., None]:
    def run(client: Client, *, as_json: AsJson = False, reason: Reason = None, **given: JSON) -> None:
        fields = {camel_case(name): value for name, value in given.items() if value is not None}
        if "to" in fields:
            fields["url"] = fields.pop("to")
        before: dict[str, JSON] = {}
        if action == "change":
            jobs = {each["job"]["name"]: each["job"] for each in client.get(PATH, keyed=True)["jobs"]}
            before = jobs.get(fields["name"], {"url": "-"})
            before |= {other: None for one, other in (("every", "cron"), ("cron", "every")) if one in fields}
        _send(client, as_json, reason, action=action, jobs=[{**before, **fields}])

    return calls_service(with_options(run, _fields))


ADD = "Add a job: tocsin job add payouts --to https://site.example/pay --every 15m."
job.command("add", help=ADD)(_defining("add"))
job.command("change", help="Change what is given, and keep the rest.")(_defining("change"))


@job.command()
@calls_service
def remove(client: Client, name: Name, as_json: AsJson = False, reason: Reason = None) -> None:
    """Remove a job. A run under way ends first."""
    _send(client, as_json, reason, action="remove", names=[name])


@job.command()
@calls_service
def pause(client: Client, name: Name, as_json: AsJson = False, reason: Reason = None) -> None:
    """Pause a job until it is resumed. `tocsin pause --task NAME --for 2h` ends by itself."""
    _send(client, as_json, reason, action="pause", names=[name])


@job.command()
@calls_service
def resume(client: Client, name: Name, as_json: AsJson = False, reason: Reason = None) -> None:
    """Let a paused job run again."""
    _send(client, as_json, reason, action="resume", names=[name])


@job.command()
@calls_service
def apply(
    client: Client,
    file: Annotated[Path, typer.Argument(help="A TOML file with a table [jobs.NAME] for each job.", metavar="FILE")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
    reason: Reason = None,
) -> None:
    """Make the jobs equal to a file: show the difference, ask, and apply it. What is not in the file is removed."""
    body: dict[str, JSON] = {"action": "apply", "jobs": read_jobs_file(file)}
    lines = client.send(PATH, {**body, "dryRun": True}, {})["changed"]
    if not as_json:
        typer.echo("\n".join(lines) or "Nothing to change.")
    if lines and not yes and not typer.confirm("Apply this?", err=True):
        raise typer.Exit(1)
    if lines or as_json:
        _send(client, as_json, reason, quiet=True, **body)


def read_jobs_file(path: Path) -> list[JSON]:
    """The jobs of a TOML file, with the names of fields as the API has them."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}.") from None
    jobs = found.pop("jobs", {})
    if found or not isinstance(jobs, dict) or not all(isinstance(table, dict) for table in jobs.values()):
        raise UsageError(f"{path}: give each job a table, such as [jobs.payouts], with {FILE_KEYS}.")
    return [{"name": name, **{camel_case(key): value for key, value in table.items()}} for name, table in jobs.items()]


def _send(client: Client, as_json: bool, reason: str | None, *, quiet: bool = False, **body: JSON) -> None:
    answer = client.send(PATH, body if reason is None else {**body, "reason": reason}, {})
    print_answer(answer, as_json, ["Done."] if quiet else answer["changed"] or ["Nothing changed."])
