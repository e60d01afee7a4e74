"""Disks that cannot be written: read-only, full, without permission. Real file systems, in a mount namespace.

Only the tested process sees the mounts, and they end with it, so nothing has to be cleaned up. Where the
system does not allow such a namespace, these tests are skipped with that reason.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.errors import StoreUnusable
from holdfast.local.clock import SystemClock
from holdfast.local.data_dir import DataDir
from holdfast.local.kv import KV_MIGRATIONS
from holdfast.local.migrations import load
from tocsin.local.logs import open_logger
from tocsin.logs import Redactor

TESTS = Path(__file__).parents[2]
SCHEMAS = {"kv.sqlite": load(KV_MIGRATIONS)}  # now: a user without rights may not be able to read the source
CONTENT = 'ls -A "$D"; find "$D" -type f -exec sha256sum {} +'
NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])


def open_dir(path: Path) -> DataDir:
    clock = SystemClock()
    logger = open_logger(StringIO(), clock, Redactor())
    return DataDir(path, SCHEMAS, now=clock.now(), logger=logger)


def works(namespace: list[str]) -> bool:
    trial = [*namespace, "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(trial, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    for candidate in NAMESPACES:
        if works(candidate):
            return candidate
    pytest.skip("this system does not allow a mount namespace (unshare)")


def start_in(namespace: list[str], data: Path, mounts: str) -> tuple[str, str, str]:
    """Mount and start. Returns the directory before, the output of the start, and the directory after."""
    script = f"""set -e; {mounts}
        ({CONTENT}) 2>&1; echo ====; "$@" </dev/null || true; echo ====; ({CONTENT}) 2>&1"""
    program = [sys.executable, "-m", "support.hold_data_dir", str(data), f"kv.sqlite={KV_MIGRATIONS}"]
    done = subprocess.run(
        [*namespace, "sh", "-c", script, "sh", *program],
        cwd=TESTS,
        env={**os.environ, "D": str(data)},
        capture_output=True,
        text=True,
        check=True,
    )
    before, output, after = done.stdout.split("====\n")
    return before, output, after


@pytest.fixture
def data(tmp_path: Path) -> Path:
    open_dir(tmp_path / "data").close()
    return tmp_path / "data"


def test_a_read_only_disk_is_refused(namespace: list[str], data: Path) -> None:
    """A directory with data on a file system that is mounted read-only."""
    mounts = 'mount --bind "$D" "$D"; mount -o remount,bind,ro "$D"'
    before, output, after = start_in(namespace, data, mounts)

    assert output.startswith(f"StoreUnusable: {data} is on a read-only file system. Mount it writable")
    assert before == after


def test_a_read_only_file_is_refused(namespace: list[str], data: Path) -> None:
    """One database file that cannot be written, in a directory that can."""
    mounts = 'mount --bind "$D/kv.sqlite" "$D/kv.sqlite"; mount -o remount,bind,ro "$D/kv.sqlite"'
    before, output, after = start_in(namespace, data, mounts)

    assert output.startswith(f"StoreUnusable: {data}/kv.sqlite is on a read-only file system.")
    assert before == after


def test_a_full_disk_is_refused_before_anything_is_made(namespace: list[str], tmp_path: Path) -> None:
    """A new directory on a disk that is too small: nothing is left in it."""
    before, output, after = start_in(namespace, tmp_path, 'mount -t tmpfs -o size=64k none "$D"')

    assert output.startswith(f"StoreUnusable: {tmp_path} is on a full disk.")
    assert before == after == ""


def test_a_disk_that_became_full_is_refused_with_its_data_untouched(namespace: list[str], data: Path) -> None:
    """A directory with data on a disk that was filled later."""
    mounts = """cp -a "$D" "$D.copy"; mount -t tmpfs -o size=2m none "$D"; cp -a "$D.copy/." "$D"
        (dd if=/dev/zero of="$D/filler" bs=4k 2>&1 || true) >/dev/null"""
    before, output, after = start_in(namespace, data, mounts)

    assert output.startswith(f"StoreUnusable: {data} is on a full disk.")
    assert "kv.sqlite" in before
    assert before == after


def test_the_same_disk_with_space_is_taken(namespace: list[str], data: Path) -> None:
    """The control: with free space the same start is accepted."""
    _, output, after = start_in(namespace, data, 'mount -t tmpfs -o size=8m none "$D"')

    assert output == "open\n"
    assert "kv.sqlite" in after


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Permissions do not apply to root, so a test that runs as root temporarily changes its user."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def test_a_directory_that_this_user_may_not_write_is_refused() -> None:
    """The message asks for the right owner."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch)
        path.chmod(0o555)
        with as_an_ordinary_user(), pytest.raises(StoreUnusable, match=r"is not writable by this user.*chown"):
            open_dir(path)

        assert list(path.iterdir()) == []


def test_a_directory_that_this_user_may_not_make_is_refused() -> None:
    """The same for a new directory inside one that cannot be written."""
    with TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o555)
        with as_an_ordinary_user(), pytest.raises(StoreUnusable, match="is not writable by this user"):
            open_dir(Path(scratch) / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that another user owns")
@pytest.mark.parametrize("name", ["tocsin.lock", "kv.sqlite", "kv.sqlite-wal", "kv.sqlite-shm"])
def test_a_file_that_this_user_may_not_write_is_named(name: str) -> None:
    """As after `sudo tocsin import`: the directory is fine, one file in it belongs to root."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch)
        open_dir(path).close()
        for file in (path, *path.iterdir()):
            os.chown(file, 65534, 65534)
        (path / name).touch()
        os.chown(path / name, 0, 0)
        (path / name).chmod(0o600)
        with (
            as_an_ordinary_user(),
            pytest.raises(StoreUnusable, match=f"{path / name} is not writable by this user.*chown"),
        ):
            open_dir(path)
