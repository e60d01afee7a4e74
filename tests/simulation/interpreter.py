"""What a history changes in the interpreter and in the runtime of the objects while it runs."""

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tocsin.platform.local.objects import live_object

COLLECT_AFTER = (
    1_000_000  # new objects: a history makes few cycles, and looking for them often takes a sixth of the time
)


@contextmanager
def evicting_after(idle_s: float) -> Iterator[None]:
    usual = live_object.IDLE_S
    live_object.IDLE_S = idle_s
    try:
        yield
    finally:
        live_object.IDLE_S = usual


@contextmanager
def quiet_end() -> Iterator[None]:
    """Code of a killed process that the collector ends may complain: nobody is there to hear it."""
    hook, thresholds = sys.unraisablehook, gc.get_threshold()
    sys.unraisablehook = lambda _: None
    gc.freeze()  # what was there before stays: looking through it takes the longest part of a collection
    try:
        gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*was never awaited", category=RuntimeWarning)
            yield
    finally:
        gc.unfreeze()
        sys.unraisablehook = hook
        gc.set_threshold(*thresholds)
