"""What all tests of this package share."""

from holdfast_testing.plugin import files_in_memory


def pytest_configure() -> None:
    files_in_memory()
