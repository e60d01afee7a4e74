"""Async tests run in virtual time."""

from holdfast_testing.plugin import files_in_memory, pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]  # pytest finds them here


def pytest_configure() -> None:
    files_in_memory()
