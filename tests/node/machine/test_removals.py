"""Trees that resist their removal: links that are exchanged meanwhile, marks, mounts, and very many files."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pinnace.node.machine.file_trees import RemovalStopped, remove_files
from pinnace.node.machine.removals import Removals

_EXCHANGE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
print('racing', flush=True)
while os.path.exists(sys.argv[2]):
    for number in range(50):
        libc.renameat2(-100, b'tree/%d' % number, -100, b'away/%d' % number, 2)
"""


def test_a_directory_that_is_exchanged_with_a_link_leads_nowhere(fast_path: Path) -> None:
    """Another process exchanges directories of the tree with links to a sentinel, all the time."""
    top = fast_path / "race"
    sentinel = top / "sentinel"
    sentinel.mkdir(parents=True)
    (sentinel / "kept").touch(mode=0o640)
    sentinel.chmod(0o500)
    running = top / "running"
    running.touch()
    arguments = [sys.executable, "-c", _EXCHANGE, str(top), str(running)]
    (top / "away").mkdir()
    (top / "tree").mkdir()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=top) as racer:
        try:
            assert racer.stdout is not None
            assert racer.stdout.readline() == b"racing\n"
            for _ in range(40):
                for number in range(50):
                    (top / f"tree/{number}").mkdir(exist_ok=True, parents=True)
                    if not os.path.lexists(top / f"away/{number}"):
                        (top / f"away/{number}").symlink_to(sentinel)
                try:
                    remove_files(str(top / "tree"))
                except OSError:
                    continue  # Some of it came back: the next round removes it.
        finally:
            running.unlink()
            racer.wait(60)
    assert (sentinel / "kept").exists()
    assert sentinel.stat().st_mode & 0o777 == 0o500
    sentinel.chmod(0o700)
    remove_files(str(top))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mark a file as immutable")
def test_files_that_are_marked_as_immutable_are_removed(tmp_path: Path) -> None:
    place = tmp_path / "tree/below"
    place.mkdir(parents=True)
    (place / "file").touch()
    for path in (place / "file", place):
        opened = os.open(path, os.O_RDONLY)
        fcntl.ioctl(opened, 0x40086602, struct.pack("i", 0x10))
        os.close(opened)
    with pytest.raises(PermissionError):
        (place / "file").unlink()
    remove_files(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()


_MOUNT = """
import os, sys
from pathlib import Path
from pinnace.node.machine import linux
from pinnace.node.machine.file_trees import remove_files
from pinnace.node.machine.subordinate_ids import enter_user_namespace
linux.unshare(linux.CLONE_NEWNS) if os.geteuid() == 0 else enter_user_namespace(linux.CLONE_NEWNS)
linux.mount('none', '/', '', linux.MS_REC | linux.MS_PRIVATE)
linux.mount(sys.argv[2], sys.argv[1] + '/below/mounted', '', linux.MS_BIND)
try:
    remove_files(sys.argv[1])
except OSError as error:
    print(type(error).__name__, sorted(os.listdir(sys.argv[2])))
"""


def test_files_of_a_mounted_file_system_are_kept(tmp_path: Path) -> None:
    """A mount that a pod has left in its volume, as with Bidirectional propagation."""
    (tmp_path / "tree/below/mounted").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/kept").touch()
    command = [sys.executable, "-c", _MOUNT, str(tmp_path / "tree"), str(tmp_path / "other")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == "OSError ['kept']\n"


def test_a_removal_stops_between_batches_of_files(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(3000):
        (tmp_path / f"tree/{number}").touch()
    looks = iter([False, True])
    with pytest.raises(RemovalStopped):
        remove_files(str(tmp_path / "tree"), is_stopped=lambda: next(looks))
    assert len(os.listdir(tmp_path / "tree")) == 2000


async def test_a_directory_is_gone_at_once_and_a_later_agent_removes_the_rest(tmp_path: Path) -> None:
    first = Removals(tmp_path / "removed")
    for name in ("one", "two"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below/file").touch()
    first.add(tmp_path / "one")
    assert not (tmp_path / "one").exists()
    await first.drain()
    assert os.listdir(tmp_path / "removed") == []
    await first.close()
    os.rename(tmp_path / "two", tmp_path / "removed/two")  # As a killed agent leaves it.
    second = Removals(tmp_path / "removed")
    second.add(tmp_path / "none")
    await second.drain()
    await second.close()
    assert os.listdir(tmp_path / "removed") == []


async def test_many_files_hold_up_no_one(tmp_path: Path) -> None:
    removals = Removals(tmp_path / "removed")
    (tmp_path / "many").mkdir()
    for number in range(30_000):
        os.close(os.open(tmp_path / f"many/{number}", os.O_CREAT | os.O_WRONLY))
    turns = 0
    removals.add(tmp_path / "many")
    draining = asyncio.ensure_future(removals.drain())
    while not draining.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10, "the event loop went on"
    await removals.close()
    assert os.listdir(tmp_path / "removed") == []
