"""Progress of long work: on stderr, and only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

BYTES_STEP = 100_000  # a bar that moves less is not worth drawing


def described_progress() -> Progress:
    """A bar with a description that tells how far the work is."""
    return _progress(TaskProgressColumn())


@contextmanager
def byte_progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar; call the yielded function with the number of bytes done."""
    with _progress(DownloadColumn(binary_units=False)) as progress:
        bar = progress.add_task(name, total=total)
        shown = 0

        def show(done: int) -> None:
            nonlocal shown
            if done - shown >= BYTES_STEP or done == total:
                shown = done
                progress.update(bar, completed=done)

        yield show


def _progress(amount: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
