"""Put a mutant into the running interpreter, without a file and without an import.

The tests are imported once. A forked child then changes the code of existing functions, so a mutant costs no more
than the tests that run for it. Constants, defaults of arguments and defaults of fields are taken from a
second execution of the module.
"""

import gc
import sys
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

Functions = dict[CodeType, list[FunctionType]]


class CannotApply(Exception):
    """The change has no counterpart in the imported module."""


def functions_by_code() -> Functions:
    """All existing functions, by the code that they run. conftest has hidden them from the garbage collector."""
    gc.unfreeze()
    found: Functions = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found[each.__code__].append(each)
    return found


def apply(module: ModuleType, original: str, mutated: str, functions: Functions) -> bool:
    """Apply a mutant. Returns whether a value was changed, in which case tests may have copies of the old one."""
    path = module.__file__ or ""
    before, after = compile(original, path, "exec"), compile(mutated, path, "exec")
    by_value = not _replace_code(before, after, functions) or _outer(before) != _outer(after)
    if by_value:
        _replace_values(module, after)
    return by_value


def _outer(code: CodeType) -> tuple[object, ...]:
    """The code of a module or a class body itself, without its functions. Positions do not count."""
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    nested = [_outer(each) for each in code.co_consts if isinstance(each, CodeType) and _is_body(each)]
    return code.co_code, code.co_names, tuple(map(repr, constants)), *nested


def _is_body(code: CodeType) -> bool:
    """Whether the code is that of a module or a class, which uses no fast locals."""
    return not code.co_flags & 0x0002


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Pairs of the same code before and after, except inside a function that has lost some of its code."""
    yield before, after
    old = [each for each in before.co_consts if isinstance(each, CodeType)]
    new = [each for each in after.co_consts if isinstance(each, CodeType)]
    if len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            yield from _pairs(one, other)


def _replace_code(before: CodeType, after: CodeType, functions: Functions) -> bool:
    """Replace the code of changed functions. Returns whether any function was changed."""
    changed = False
    for old, new in _pairs(before, after):
        if old == new or _is_body(old):
            continue
        for function in functions.get(old, ()):
            function.__code__ = new
            changed = True
    return changed


def _replace_values(module: ModuleType, after: CodeType) -> None:
    made = ModuleType(module.__name__)
    made.__dict__.update(__file__=module.__file__, __package__=module.__package__, __spec__=module.__spec__)
    exec(after, made.__dict__)  # this is the mutant
    if not _adopt(vars(module), vars(made), module.__name__):
        raise CannotApply(module.__name__)


def _adopt(old: Any, new: Any, name: str) -> bool:
    """Apply the differences between two executions of the same names. Returns whether there were any."""
    changed = False
    for key, value in list(new.items()):
        current = old.get(key)
        if key.startswith("__") and not isinstance(value, FunctionType):
            continue
        if isinstance(value, type):
            if value.__module__ == name and isinstance(current, type) and current is not value:
                changed |= _adopt_class(current, value)
        elif isinstance(value, FunctionType):
            if isinstance(current, FunctionType):
                changed |= _adopt_defaults(current, value)
        elif isinstance(value, property | classmethod | staticmethod) or type(value).__module__ == name:
            continue
        elif repr(current) != repr(value) and "0x" not in repr(value):
            _set_everywhere(key, current, value)
            changed = True
    return changed


def _adopt_class(current: type, value: type) -> bool:
    changed = False
    for key, attribute in vars(value).items():
        existing = vars(current).get(key)
        if isinstance(attribute, FunctionType) and isinstance(existing, FunctionType):
            changed |= _adopt_defaults(existing, attribute)
        elif (
            isinstance(attribute, int | float | str | tuple | frozenset | None)
            and existing != attribute
            and not key.startswith("__")
        ):
            setattr(current, key, attribute)
            changed = True
    return changed


def _adopt_defaults(current: FunctionType, value: FunctionType) -> bool:
    changed = repr((current.__defaults__, current.__kwdefaults__)) != repr((value.__defaults__, value.__kwdefaults__))
    if changed:
        current.__defaults__, current.__kwdefaults__ = value.__defaults__, value.__kwdefaults__
    return changed


def _set_everywhere(name: str, current: object, value: object) -> None:
    """Change a constant in every module that imported it by name."""
    for module in list(sys.modules.values()):
        if vars(module).get(name) is current or (name in vars(module) and vars(module)[name] == current):
            vars(module)[name] = value
