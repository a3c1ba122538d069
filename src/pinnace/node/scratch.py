"""The temporary directory of a cluster in memory, and the removal of those that killed clusters have left behind.

A cluster holds a lock on a file in its directory as long as it lives. A directory whose lock is free is abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pinnace.node.machine.messages import connect

_PREFIX = "pinnace-cluster-"
_LOCK = "lock"
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yield a directory that is removed at the end; after a kill, by the next cluster in memory that has a node."""
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX))
    early = scratch / f"{_LOCK}.early"
    lock = os.open(early, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    early.rename(scratch / _LOCK)  # It is seen only when it is held.
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if scratch.exists():  # It has files of pods that their owner cannot read.
            _remove(scratch)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove the directories and control groups of this user's killed clusters whose pods have ended."""
    for scratch in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(scratch / _LOCK):
            if not any(_is_alive(node) for node in scratch.glob("node*")):
                _remove(scratch)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock within a block. Raise OSError if there is none, or if its cluster lives."""
    lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def _is_alive(node: Path) -> bool:
    """Whether the namespaces of a node still exist: they do for some seconds after its agent was killed."""
    from pinnace.node.runtime.embedded.supervision.fork_server import SOCKET  # noqa: PLC0415 - most clusters in memory have no node.

    try:
        connect(node / "runtime" / SOCKET).close()
    except OSError:
        return False
    return True


def _remove(scratch: Path) -> None:
    from pinnace.node.machine.mapped_root import remove_tree  # noqa: PLC0415 - as above.
    from pinnace.node.runtime.embedded.groups.cgroups import Cgroups  # noqa: PLC0415 - as above.

    for node in scratch.glob("node*"):
        Cgroups(node / "runtime").remove_all()
    remove_tree(scratch)
    _log.info("removed %s, which a killed cluster has left behind", scratch)
