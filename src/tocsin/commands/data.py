"""The commands for maintaining an installation: export, backup, verify, restore, check and doctor.

They work on the settings and the data directory, whether the service runs or not.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tocsin.commands.options import LocalCommand

if TYPE_CHECKING:
    from tocsin.commands.backup import BackupManifest

app = typer.Typer()

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The data directory (TOCSIN_DATA_DIR).")]
Backup = Annotated[Path, typer.Argument(help="A backup made by `tocsin backup`.", metavar="BACKUP")]


@app.command(cls=LocalCommand)
def backup(
    destination: Annotated[
        Path | None, typer.Argument(help="A directory or a new file; the current directory by default.", metavar="DEST")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Save all data as of one instant. The service may be running."""
    from tocsin.commands import backup as backing_up

    target, manifest = backing_up.backup(destination, data_dir=data_dir, clock=_now)
    typer.echo(f"Saved to {target}: {_described(manifest)}")


@app.command(cls=LocalCommand)
def verify(archive: Backup) -> None:
    """Check that a backup is complete and that this release can restore it."""
    from tocsin.commands import backup as restoring

    manifest = restoring.verify(archive)
    typer.echo(f"{archive} can be restored: {_described(manifest)}")


@app.command(cls=LocalCommand)
def restore(
    archive: Backup,
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Move existing databases aside; nothing is deleted.")] = False,
) -> None:
    """Restore a backup into a data directory. Stop the service first."""
    from tocsin.commands import backup as restoring

    directory, manifest, aside = restoring.restore(archive, data_dir=data_dir, force=force, now=_now())
    typer.echo(f"Restored to {directory}: {_described(manifest)}")
    if aside is not None:
        typer.echo(f"The previous databases are now in {aside}. Delete them when everything works.")
    typer.echo(
        f"Next: start the service on {directory}, then run `tocsin status`. It resumes from the time of the backup, "
        "and the next runs fetch everything since then."
    )


@app.command(cls=LocalCommand)
def check() -> None:
    """Validate settings, keys, schema, budgets and the data directory."""
    from tocsin.commands import doctor as checking

    findings = checking.check()
    for line in [*checking.calls_out(), *findings]:
        typer.echo(line)
    if findings:
        raise typer.Exit(1)
    typer.echo("All fine.")


@app.command(cls=LocalCommand)
def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Do not use the network.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Look for present and imminent problems: settings, keys, upstreams, clock, disk, limits."""
    from tocsin.commands import doctor as examining

    report = examining.doctor(data_dir, offline=offline, clock=_now)
    if as_json:
        import json

        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for one in report.checks:
            typer.echo(f"{one.verdict:<8} {one.name}: {one.sentence}")
    if not report.ok:
        raise typer.Exit(1)


@app.command(cls=LocalCommand)
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

    report = export_rows.export(what, form, output, data_dir=data_dir, now=_now())
    if output is not None:
        typer.echo(f"{output}: {report.rows:,} {what}.")
    if report.unreadable:
        typer.echo(f"{report.unreadable:,} entries could not be read and were left out.", err=True)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _described(manifest: "BackupManifest") -> str:
    from tocsin.text import shown_instant

    size = sum(file.bytes for file in manifest.files.values()) / 1_000_000
    rows = sum(sum(file.rows.values()) for file in manifest.files.values())
    taken = shown_instant(manifest.taken_at)
    return f"the state of {taken}, by Tocsin {manifest.version}, {rows:,} rows, {size:,.1f} MB."
