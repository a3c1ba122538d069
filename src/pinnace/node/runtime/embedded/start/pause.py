"""The first process of a pod's shared process namespace: it reaps orphans, and has nothing that a pod could use.

Every container of the pod sees it. Its root is an empty, read-only file system; it has no capabilities, no open files,
and cannot get new privileges.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import NoReturn

from pinnace.node.machine import linux, messages, mounts
from pinnace.node.runtime.embedded.start.container_root import node_proc


def pause(channel: socket.socket, *, seccomp: bytes) -> NoReturn:
    """Send this process namespace on the channel, and a mount of its /proc; then wait for signals. Never returns."""
    try:
        linux.name_process("pause")
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        linux.close_all_but(channel.fileno())
        proc, processes = node_proc(), os.open("/proc/self/ns/pid", os.O_RDONLY)
        _enter_empty_root()
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.drop_bounding(0)
        linux.set_capabilities(0)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        if seccomp:
            linux.install_seccomp(seccomp)
        messages.send(channel, {"proc": True}, [proc, processes])
        os.closerange(0, channel.fileno() + 1)
        while True:
            signal.pause()
    except BaseException as error:  # This process must not return into the supervisor's code.
        messages.send(channel, {"error": f"the first process of the pod: {error}"})
    finally:
        os._exit(1)


def _enter_empty_root() -> None:
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    empty = mounts.new_file_system("tmpfs", ("mode=555", "size=4k", "nr_inodes=1"), mounts.SAFE | mounts.RDONLY)
    point = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    mounts.attach(empty, point)
    os.fchdir(empty)
    linux.pivot_root(".", ".")
    linux.unmount(".")
    os.chdir("/")
