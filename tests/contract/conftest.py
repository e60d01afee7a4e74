"""Every test of the contract runs on both platforms."""

from pathlib import Path

import pytest

from contract.platforms import LocalPlatform, Platform, WorkerdPlatform


@pytest.fixture(params=["local", pytest.param("workerd", marks=pytest.mark.slow)])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Platform:
    if request.param == "local":
        return LocalPlatform(tmp_path)
    return WorkerdPlatform(request.getfixturevalue("workerd"), request.node.name)
