"""The garbage collector and the service: objects loaded at the start stay, and are never scanned again."""

import asyncio
import gc
from pathlib import Path

import pytest

from tocsin import service
from tocsin.settings import Settings


def test_a_collection_does_not_look_at_what_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each full collection looked at 300,000 objects and held every request up for 60 ms, several times a second."""
    whole_watch = service.Service.watch

    def watch_and_stop(self: service.Service) -> None:
        whole_watch(self)
        self.stop()

    nobody = "http://127.0.0.1:9"
    settings = Settings(port=0, data_dir=str(tmp_path / "data"), hiro_api_url=nobody, tenero_api_url=nobody)
    monkeypatch.setattr(service.Service, "watch", watch_and_stop)
    gc.unfreeze()
    gc.collect()  # what earlier tests left behind is not loaded
    loaded = len(gc.get_objects())
    try:
        with (tmp_path / "log").open("w") as stream:
            asyncio.run(service.run(settings, stream=stream))
        frozen, left = gc.get_freeze_count(), len(gc.get_objects())
    finally:
        gc.unfreeze()
        gc.freeze()  # as before, for the next tests

    assert frozen > 0.9 * loaded
    assert left < 0.1 * loaded
