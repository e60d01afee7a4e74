"""A process forked from the template behaves like one that was started on its own."""

import signal
import subprocess
from pathlib import Path

import pytest

from support.patience import PATIENCE_S
from support.warm_process import WarmProcess
from tocsin import __version__


def test_what_it_writes_and_how_it_ends_is_told() -> None:
    """Standard output and error apart, and the code of the command."""
    done = WarmProcess("--version", environment={})
    wrong = WarmProcess("serve", "--port", "many", environment={})

    assert done.communicate(PATIENCE_S) == (f"tocsin {__version__}\n", "")
    assert done.returncode == 0
    out, error = wrong.communicate(PATIENCE_S)
    assert (out, wrong.returncode) == ("", 2)
    assert "'many' is not a valid int" in error


def test_its_directory_and_environment_are_its_own(tmp_path: Path) -> None:
    """The second one does not see what the first one got."""
    (tmp_path / ".env").write_text("TOCSIN_PORT=of-the-file\n")
    there = WarmProcess("serve", environment={}, directory=tmp_path)
    first = WarmProcess("serve", environment={"TOCSIN_PORT": "of-the-environment"}, directory=tmp_path)

    assert "of-the-environment" in first.communicate(PATIENCE_S)[1]
    assert "of-the-file" in there.communicate(PATIENCE_S)[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)], ids=["killed", "stopped"])
def test_a_signal_reaches_it(number: signal.Signals, code: int) -> None:
    """The process itself gets it; another one continues."""
    arguments = ("simulate", "--port=0", "--wallets=1", "--history-hours=0")
    with WarmProcess(*arguments, environment={}) as other:
        process = WarmProcess(*arguments, environment={})
        assert process.stdout.readline().startswith("HIRO_API_URL=")
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == code
        process.kill()  # of one that has ended: nothing happens
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.0)
        other.kill()

    assert other.returncode == -9
    process.communicate()
