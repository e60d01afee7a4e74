"""Run tests in a new interpreter that imports the mutant: `python -m tools.mutation.fresh module file test...`.

Values that tests computed while they were imported still use the old constant or default. A surviving mutant of one of
these is therefore tried again here. The exit code is that of pytest.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


class MutantLoader(SourceLoader):
    """Loads the text of a mutant under the name and path of its module."""

    def __init__(self, path: str, text: bytes) -> None:
        self._path = path
        self._text = text

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002  # it loads one module
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        if str(path) != self._path:
            raise OSError("no bytecode")
        return self._text


class MutantFinder(MetaPathFinder):
    """Finds one module, and leaves the others to Python."""

    def __init__(self, name: str, text: bytes) -> None:
        self._name = name
        self._text = text

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # it finds one module
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        known = find_spec(fullname)
        assert known is not None
        assert known.origin is not None
        loader = MutantLoader(known.origin, self._text)
        return spec_from_file_location(
            fullname, known.origin, loader=loader, submodule_search_locations=known.submodule_search_locations
        )


def main() -> int:
    import pytest

    name, file, *tests = sys.argv[1:]
    sys.meta_path.insert(0, MutantFinder(name, Path(file).read_bytes()))
    options = ["-x", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--hypothesis-seed=1"]
    return int(pytest.main([*tests, *options]))


if __name__ == "__main__":
    sys.exit(main())
