"""The contract of `holdfast` on the real runtime. Its own tests run it locally."""

import pytest

from cloudflare.platforms import WorkerdPlatform
from contract.suite import Contract
from support.workerd import Workerd


@pytest.fixture
def platform(workerd: Workerd, request: pytest.FixtureRequest) -> WorkerdPlatform:
    return WorkerdPlatform(workerd, request.node.name)


class TestContract(Contract):
    pass
