"""A served Tocsin, once for each file."""

from collections.abc import Iterator

import pytest

from support.web_thread import Running, served_in_thread


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with served_in_thread(tmp_path_factory.mktemp("served")) as made:
        yield made
