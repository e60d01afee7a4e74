"""Make the mutants of a module with the operators of cosmic-ray and an additional one."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

# Cosmic-ray replaces each operator by every other one. These pairs are plausible bugs.
COMPARISONS = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt", "Eq_NotEq",
               "NotEq_Eq", "Is_IsNot", "IsNot_Is")  # fmt: skip
BINARY = ("Add_Sub", "Sub_Add", "Mul_FloorDiv", "Div_Mul", "FloorDiv_Mul", "FloorDiv_Div", "Mod_FloorDiv",
          "Pow_Mul", "LShift_RShift", "RShift_LShift", "BitOr_BitAnd", "BitAnd_BitOr")  # fmt: skip
NAMES = (
    *(f"ReplaceComparisonOperator_{pair}" for pair in COMPARISONS),
    *(f"ReplaceBinaryOperator_{pair}" for pair in BINARY),
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_USub_UAdd",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
MUTATED_EXCEPTION = "CosmicRayTestingException"


class RemoveCall(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Removes a statement that only calls something: a write, a report, a reset."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if node.type == "simple_stmt" and _is_call(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  # there is one way
        statement = node.children[0]
        node.children[0] = parso.parse(statement.get_first_leaf().prefix + "pass")
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    key: str  # stays the same as long as the module does
    line: int
    operator: str
    before: str
    after: str
    source: str


def mutants_of(path: Path) -> list[Mutant]:
    source = path.read_text()
    starts = _line_starts(source)
    original = _meaning(source)
    seen = {original}
    found = []
    provider = OperatorProvider()
    operators = [(name, provider[name]()) for name in NAMES] + [("RemoveCall", RemoveCall())]
    for node in ast_nodes_to_mutate(source):
        for name, operator in operators:
            for index, (start, _) in enumerate(list(operator.mutation_positions(node))):
                changed = _changed(source, starts, node, operator, index)
                meaning = changed and _meaning(changed)
                if not changed or not meaning or meaning in seen:
                    continue
                seen.add(meaning)
                key = f"{start[0]}:{start[1]}:{name}:{index}"
                found.append(Mutant(key, start[0], name, *_difference(source, changed), changed))
    return sorted(found, key=lambda mutant: mutant.line)


def ast_nodes_to_mutate(source: str) -> list[Any]:
    """All nodes except decorators: `frozen` and `slots` protect against mistakes in code that does not exist."""
    nodes = list(ast_nodes(parso.parse(source)))
    left_out = {id(each) for node in nodes if node.type == "decorator" for each in ast_nodes(node)}
    return [node for node in nodes if id(node) not in left_out]


def _is_call(node: Any) -> bool:
    if node.type == "atom_expr" and node.children[0].type == "keyword":  # await
        return bool(node.children[-1].type == "trailer" and node.children[-1].children[0].value == "(")
    if node.type in {"atom_expr", "power"}:
        last = node.children[-1]
        return bool(last.type == "trailer" and last.children[0].value == "(")
    return bool(node.type == "await_expr")


def _changed(source: str, starts: list[int], node: Any, operator: Any, index: int) -> str | None:
    """The module with this one change, or None if the operator cannot make it. The tree is restored."""
    first, last = _offset(starts, node.get_start_pos_of_prefix()), _offset(starts, node.end_pos)
    kept = [(each, list(each.children) if hasattr(each, "children") else each.value) for each in ast_nodes(node)]
    try:
        text = operator.mutate(node, index).get_code()
    except AttributeError:  # cosmic-ray cannot replace `except a.b:`
        return None
    for each, value in kept:
        if hasattr(each, "children"):
            each.children = value
        else:
            each.value = value
    return f"{source[:first]}{text}{source[last:]}".replace(MUTATED_EXCEPTION, "ZeroDivisionError")


def _meaning(source: str) -> str | None:
    """The module as the interpreter sees it. Annotations are removed: nothing depends on them at run time."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            node.annotation = ast.Constant(value=None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.dump(tree)


def _difference(source: str, changed: str) -> tuple[str, str]:
    """The first line that differs, before and after."""
    for before, after in zip(source.splitlines(), changed.splitlines(), strict=False):
        if before != after:
            return before.strip(), after.strip()
    return "", ""


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(starts: list[int], position: tuple[int, int]) -> int:
    return starts[position[0] - 1] + position[1]
