"""The command in a shell: its version, and completion."""

import re
from collections.abc import Mapping

import pytest

from support.tocsin_command import tocsin_process
from tocsin import __version__


@pytest.mark.slow
def test_the_version_is_printed() -> None:
    """It is the version of the package."""
    done = tocsin_process("--version", port=1)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"tocsin {__version__}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "typed"),
    [
        ("bash", {"COMP_WORDS": "tocsin re", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "tocsin re"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "tocsin re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_a_shell_completes_the_commands(shell: str, typed: Mapping[str, str]) -> None:
    """What `tocsin --show-completion` prints is a script that asks the command itself."""
    # A test need not have been started by a shell.
    script = tocsin_process("--show-completion", shell, port=1, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    done = tocsin_process(port=1, directory=None, _TOCSIN_COMPLETE=f"complete_{shell}", **typed)

    assert (script.returncode, script.stderr) == (0, "")
    assert "_TOCSIN_COMPLETE" in script.stdout
    assert {"refresh", "resume", "rebuild"} <= set(re.findall(r"[a-z]+", done.stdout))
    assert "status" not in done.stdout
