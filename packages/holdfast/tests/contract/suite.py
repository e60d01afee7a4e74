"""One contract for all platforms: the same tests for storage, the alarm, calls, DB and KV.

Where the platforms differ, the test states the difference and its reason.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from contract.cases import CASES
from contract.contract_do import Case, ContractDO
from contract.storage_cases import VALUES
from holdfast.errors import RemoteError, UsageError
from holdfast.testing.virtual_time import VirtualClock
from holdfast.types import JSON
from holdfast_testing.objects import objects
from holdfast_testing.stores import open_database, open_kv


class World(Protocol):
    """Gives access to the objects of a test."""

    async def call(self, name: str, method: str, *arguments: JSON) -> Any: ...


class Platform(Protocol):
    """Opens worlds of ContractDO."""

    rounds_numbers: bool  # its database passes numbers through JavaScript

    def contract(self) -> AbstractAsyncContextManager[World]: ...


class LocalWorld:
    """The objects of a namespace in this process."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    async def call(self, name: str, method: str, *arguments: JSON) -> Any:
        return await getattr(self._namespace.get_by_name(name), method)(*arguments)


class LocalPlatform:
    """Our own runtime, in process and in virtual time."""

    rounds_numbers = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @asynccontextmanager
    async def contract(self) -> AsyncIterator[World]:
        clock = VirtualClock()
        async with (
            open_database(self.directory) as database,
            open_kv(self.directory, clock) as kv,
            objects(self.directory, ContractDO, clock=clock) as made,
        ):
            made.env.clock, made.env.cases, made.env.DB, made.env.KV = clock, CASES, database, kv
            yield LocalWorld(made.namespace)


class Contract:
    """A subclass whose name begins with Test runs the contract on the platform of its module's fixture."""

    @pytest.mark.slow
    @pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
    async def test_an_object_observes_the_same(self, platform: Platform, case: Case) -> None:
        """Each case is a piece of an object's code, with what it must observe."""
        async with platform.contract() as world:
            assert await world.call("x", "observe", case.name) == case.expected

    async def test_calls_carry_values_exactly(self, platform: Platform) -> None:
        """Arguments and results, with their types."""
        async with platform.contract() as world:
            echoed = await world.call("x", "echo", VALUES)
        assert echoed == VALUES
        assert [type(value) for value in echoed] == [type(value) for value in VALUES]

    @pytest.mark.slow
    async def test_an_error_keeps_its_class_where_the_caller_has_it(self, platform: Platform) -> None:
        """Refusals and built-in classes keep their class, others become RemoteError with name and message."""
        async with platform.contract() as world:
            with pytest.raises(UsageError, match=r"^give something else$"):
                await world.call("x", "fail", "usage")
            with pytest.raises(ValueError, match=r"^not this value$"):
                await world.call("x", "fail", "builtin")
            with pytest.raises(RemoteError, match=r"^_OwnError: of my own$"):
                await world.call("x", "fail", "own")

    @pytest.mark.parametrize("method", ["_hidden", "alarm", "storage", "no_such_method"])
    async def test_only_public_methods_can_be_called(self, platform: Platform, method: str) -> None:
        """Private names, fields and reserved methods are refused."""
        async with platform.contract() as world:
            with pytest.raises(TypeError, match=r"does not implement the method|is a reserved method"):
                await world.call("x", method)

    async def test_an_object_has_its_name_and_its_own_entries(self, platform: Platform) -> None:
        """Two names are two objects."""
        async with platform.contract() as world:
            await world.call("one", "put", "k", 1)
            await world.call("two", "put", "k", 2)
            assert [await world.call(name, "get", "k") for name in ("one", "two")] == [1, 2]
            one, two = [await world.call(name, "who") for name in ("one", "two")]
        assert one[0].startswith("one")
        assert two[0].startswith("two")
        assert len({one[1], two[1]}) == 2
        assert len(one[1]) == 64

    async def test_the_alarm_rings_and_appears_unset_meanwhile(self, platform: Platform) -> None:
        """Once, not early, with the time that was set. Afterwards there is none."""
        async with platform.contract() as world:
            at = await world.call("x", "script", 30)
            assert await world.call("x", "rings", 1) == [["end", 0, False, at, None]]
            assert await world.call("x", "alarm_at") is None

    async def test_an_alarm_set_by_its_handler_rings_again(self, platform: Platform) -> None:
        """As a new alarm, even if the handler then fails: it replaces the retries."""
        async with platform.contract() as world:
            await world.call("x", "script", 10, "rearm", "rearm and raise", "end")
            rings = await world.call("x", "rings", 3)
        assert [ring[:3] for ring in rings] == [["rearm", 0, False], ["rearm and raise", 0, False], ["end", 0, False]]

    async def test_a_handler_that_raises_is_run_again_by_the_runtime(self, platform: Platform) -> None:
        """After two seconds, as a retry, with the original time. What it wrote is kept."""
        async with platform.contract() as world:
            at = await world.call("x", "script", 10, "raise", "end")
            rings = await world.call("x", "rings", 2)
        assert rings == [["raise", 0, False, at, None], ["end", 1, True, at, None]]

    async def test_a_deleted_alarm_is_not_retried(self, platform: Platform) -> None:
        """Neither a failure nor a success brings it back."""
        async with platform.contract() as world:
            await world.call("x", "script", 10, "delete and raise", "end")
            assert len(await world.call("x", "rings", 1)) == 1
            assert await world.call("x", "alarm_at") is None

    async def test_integers_that_the_database_cannot_keep_are_refused(self, platform: Platform) -> None:
        """Difference: D1's numbers are JavaScript's, exact up to 2**53. SQLite's have 64 bits. Neither rounds."""
        value, reason = 2**63, "more than 64 bits"
        if platform.rounds_numbers:
            value, reason = 2**53, "and D1 rounds such"
        async with platform.contract() as world:
            with pytest.raises(TypeError, match=reason):
                await world.call("x", "bind", value)

    async def test_a_whole_float_of_the_database(self, platform: Platform) -> None:
        """Difference: D1 passes 2.0 through JavaScript, where it equals 2, and it comes back as an integer."""
        expected = "int" if platform.rounds_numbers else "float"
        async with platform.contract() as world:
            assert await world.call("x", "type_of_bound", 2.0) == expected
