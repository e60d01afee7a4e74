"""The contract on our own runtime. Other platforms run the same tests."""

from pathlib import Path

import pytest

from contract.suite import Contract, LocalPlatform


@pytest.fixture
def platform(tmp_path: Path) -> LocalPlatform:
    return LocalPlatform(tmp_path)


class TestContract(Contract):
    pass
