"""The changes that a history makes to the interpreter and the runtime of the objects while it runs."""

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.local import live_object

COLLECT_AFTER = 1_000_000  # new objects: a history makes few cycles; frequent searches take a sixth of the time


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
    """Silence warnings from code of a killed process when the collector ends it."""
    hook, thresholds = sys.unraisablehook, gc.get_threshold()
    sys.unraisablehook = lambda _: None
    gc.freeze()  # older objects stay: scanning them takes most of a collection
    try:
        gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*was never awaited", category=RuntimeWarning)
            yield
    finally:
        gc.unfreeze()
        sys.unraisablehook = hook
        gc.set_threshold(*thresholds)
