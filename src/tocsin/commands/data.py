"""The commands for maintaining an installation: import, export, backup, verify, restore, rebuild, check and doctor.

They work on the settings and the data directory, whether the service runs or not.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.errors import UsageError
from holdfast.types import JSON
from tocsin.commands.options import DATA, SERVICE, AsJson, LocalCommand, print_plain

if TYPE_CHECKING:
    from tocsin.commands.backup import BackupManifest

app = typer.Typer()

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The data directory (TOCSIN_DATA_DIR).")]
Archive = Annotated[Path, typer.Argument(help="A backup made by `tocsin backup`.", metavar="BACKUP")]


def local(name: str | None = None, *, panel: str = DATA) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return app.command(name, cls=LocalCommand, rich_help_panel=panel)


@local()
def backup(
    destination: Annotated[
        Path | None, typer.Argument(help="A directory or a new file; the current directory by default.", metavar="DEST")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Save all data as of one instant. The service may be running."""
    from tocsin.commands import backup as backing_up

    target, manifest = backing_up.backup(destination, data_dir=data_dir, clock=_now)
    _print_backup(manifest, as_json, f"Saved to {target}", {"file": str(target)})


@local()
def verify(archive: Archive, as_json: AsJson = False) -> None:
    """Check that a backup is complete and that this release can restore it."""
    from tocsin.commands import backup as restoring

    _print_backup(restoring.verify(archive), as_json, f"{archive} can be restored", {"file": str(archive)})


@local()
def restore(
    archive: Archive,
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Move existing databases aside; nothing is deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a data directory. Stop the service first."""
    from tocsin.commands import backup as restoring

    directory, manifest, aside = restoring.restore(archive, data_dir=data_dir, force=force, now=_now())
    moved = f"The previous databases are now in {aside}. Delete them when everything works."
    following = (
        f"Next: start the service on {directory}, then run `tocsin status`. It resumes from the time of the backup, "
        "and the next runs fetch everything since then."
    )
    extra: dict[str, JSON] = {"dataDir": str(directory), "movedTo": None if aside is None else str(aside)}
    rest = [following] if aside is None else [moved, following]
    _print_backup(manifest, as_json, f"Restored to {directory}", extra, rest)


@local(panel=SERVICE)
def check(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Check this machine's part before a start: the same as `tocsin doctor --offline`."""
    _examine(data_dir, as_json, offline=True)


@local(panel=SERVICE)
def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Do not use the network.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Look for present and imminent problems: settings, keys, upstreams, clock, disk, limits."""
    _examine(data_dir, as_json, offline=offline)


def _examine(data_dir: Path | None, as_json: bool, *, offline: bool) -> None:
    from tocsin.commands import doctor as examining

    report = examining.doctor(data_dir, offline=offline, clock=_now)
    print_plain(report.to_json(), as_json, [f"{one.verdict:<8} {one.name}: {one.sentence}" for one in report.checks])
    if not report.ok:
        raise typer.Exit(1)


@local("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            allow_dash=True,
            help="JSON lines, or what `wrangler d1 execute --json` prints; - reads stdin.",
        ),
    ],
    data_dir: DataDir = None,
    d1_sql: Annotated[
        Path | None, typer.Option("--d1-sql", help="Write SQL for D1 to this file instead.", metavar="OUT")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import agents and claims from a file. If one is refused, nothing is imported."""
    from tocsin.commands import render
    from tocsin.commands.rows import import_agents, import_source, write_d1_sql

    if d1_sql is not None and data_dir is not None:
        raise UsageError("--d1-sql is for a database on Cloudflare: leave out --data-dir.")
    source = import_source(file)
    if d1_sql is None:
        report = import_agents(source, data_dir=data_dir)
        written, lines = report.to_json(), render.imported(report)
    else:
        report, counts = write_d1_sql(source, d1_sql)
        written = {**report.to_json(), "written": {**counts}}
        lines = render.prepared_for_d1(counts, str(d1_sql))
    if as_json or not report.refused:
        print_plain(written, as_json, lines)
    else:
        for line in render.import_refused(str(file), report):
            typer.echo(line, err=True)
    if report.refused:
        raise typer.Exit(1)


@local()
def rebuild(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Compare the board's totals with the swaps, and compute them again."""
    from tocsin.commands.rows import rebuild_totals

    drifted = rebuild_totals(data_dir)
    lines = [f"{totals}: {rows} rows differed" for totals, rows in drifted.items()]
    end = "Computed again." if drifted else "All totals agree with the swaps."
    print_plain({"differed": {**drifted}}, as_json, [*lines, end])


@local()
def export(
    what: Annotated[
        Literal["agents", "swaps", "refusals", "prices"],
        typer.Argument(metavar="WHAT", help="agents, swaps, refusals or prices."),
    ],
    form: Annotated[Literal["jsonl", "csv"], typer.Option("--format", help="JSON lines, or CSV.")] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", help="Write to this file; to stdout by default.", metavar="FILE")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write agents, swaps, refusals or prices as JSON lines or CSV. The service may be running."""
    from tocsin.commands import rows as export_rows

    count, unreadable = export_rows.export(what, form, output, data_dir=data_dir, now=_now())
    if output is not None:
        typer.echo(f"{output}: {count:,} {what}.")
    if unreadable:
        typer.echo(f"{len(unreadable):,} entries could not be read and were left out.", err=True)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _print_backup(
    manifest: "BackupManifest", as_json: bool, done: str, extra: Mapping[str, JSON], rest: Sequence[str] = ()
) -> None:
    from tocsin.text import shown_instant

    size = sum(file.bytes for file in manifest.files.values()) / 1_000_000
    rows = sum(sum(file.rows.values()) for file in manifest.files.values())
    taken = shown_instant(manifest.taken_at)
    described = f"the state of {taken}, by Tocsin {manifest.version}, {rows:,} rows, {size:,.1f} MB."
    print_plain({**manifest.to_json(), **extra}, as_json, [f"{done}: {described}", *rest])
