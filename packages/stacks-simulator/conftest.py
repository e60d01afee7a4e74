"""Async tests run in virtual time."""

from holdfast_testing.plugin import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]  # pytest finds it here
