"""A served app with a scripted scheduler, once for each file."""

from collections.abc import Iterator

import pytest

from support.web_thread import Running, served_in_thread


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with served_in_thread(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture
def running(served: Running) -> Iterator[Running]:
    calm = served.scheduler.shown  # what a test shows ends with the test
    yield served
    served.scheduler.shown, served.scheduler.statuses_per_refresh = calm, 0
