"""Decides whether this machine becomes a node of a cluster: where it can, unless the user says otherwise."""

from __future__ import annotations

import ctypes
import os
import socket
import sys

NO_NODE = "PINNACE_NO_NODE"
"""The environment variable that forbids it, unless it is empty or 0."""
_NEW_MOUNTS, _NEW_USERS, _NEW_PROCESSES, _NEW_NETWORK = 0x00020000, 0x10000000, 0x20000000, 0x40000000


class NoNode(Exception):
    """This user cannot run pods on this machine. The message is the reason."""


def become_node(wanted: bool | None, *, is_useful: bool) -> str:
    """Return the name of the node that this machine becomes; empty if it does not. Raise NoNode if it cannot.

    `wanted` is the choice of the user, None for none; `is_useful` says whether the cluster has controllers and no other
    nodes.
    """
    if wanted is False:
        return ""
    if wanted is None and (not is_useful or os.environ.get(NO_NODE, "") not in ("", "0")):
        return ""
    if missing := missing_for_pods():
        raise NoNode(missing)
    return socket.gethostname().lower()


def missing_for_pods() -> str:
    """Return why this user cannot run pods here; empty if nothing is missing."""
    if sys.platform != "linux":
        return f"they need Linux, and this is {sys.platform}"
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NEW_MOUNTS | _NEW_PROCESSES | _NEW_NETWORK
    child = os.fork()  # The only way to know: system calls are refused for many reasons. It takes 2 ms.
    if child == 0:
        refused = libc.unshare(flags) != 0 and libc.unshare(flags | _NEW_USERS) != 0
        os._exit(min(255, ctypes.get_errno()) if refused else 0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return ""
    return f"namespaces are refused ({os.strerror(code)}); allow user namespaces, or run as root"
