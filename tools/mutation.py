"""Check whether the tests would notice a bug: change one operator, number or statement at a time and run its tests.

    make mutation PACKAGE=upstream [MODULE=budget]

Cosmic-ray makes the changes in a copy of the tree and runs the quick tests of the package for each. Its session stays
in `.mutation/`: an interrupted run continues where it stopped. The survivors are printed at the end.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.try_mutants import ROOT, copy_tree, source_path

KEPT = ROOT / ".mutation"
CONFIG = """
[cosmic-ray]
module-path = "{module}"
timeout = 120.0
test-command = "{python} -m pytest -x -q -m 'not slow' --hypothesis-profile=reproducible {tests}"
distributor.name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = [
  "core/ReplaceComparisonOperator_(?!Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)",
  "core/ReplaceBinaryOperator_(?!Add_Sub|Sub_Add|Mul_FloorDiv|Div_Mul|FloorDiv_Mul|Mod_FloorDiv|BitOr_BitAnd|BitAnd_BitOr)",
  "core/ReplaceUnaryOperator_(?!Delete_Not|USub_UAdd)",
]
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", help="holdfast, or a room of src/tocsin such as upstream")
    parser.add_argument("--module", default="", help="one module of the package, such as budget")
    given = parser.parse_args()
    source, tests = Path("src/tocsin") / given.package, Path("tests") / given.package
    if given.package == "holdfast":
        source, tests = Path("packages/holdfast/src/holdfast"), Path("packages/holdfast/tests")
    if given.module:
        source /= f"{given.module}.py"
    if not (ROOT / source).exists() or not (ROOT / tests).exists():
        sys.exit(f"{source} or {tests} does not exist")
    name = "-".join(filter(None, (given.package, given.module)))
    KEPT.mkdir(exist_ok=True)
    config, session = KEPT / f"{name}.toml", KEPT / f"{name}.sqlite"
    config.write_text(CONFIG.format(module=source, tests=tests, python=sys.executable))
    with tempfile.TemporaryDirectory(prefix="tocsin-mutation-") as tree:
        copy_tree(Path(tree))

        def run(program: str, *arguments: str | Path) -> None:
            command = [str(Path(sys.executable).parent / program), *map(str, arguments)]
            subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": source_path(Path(tree))}, check=True)

        run("cosmic-ray", "baseline", config)
        if not session.exists():
            run("cosmic-ray", "init", config, session)
            run("cr-filter-operators", session, config)
        run("cosmic-ray", "exec", config, session)
        run("cr-report", "--surviving-only", "--show-diff", session)


if __name__ == "__main__":
    main()
