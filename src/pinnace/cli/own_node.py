"""Whether `pinnace up` makes this machine a node of its cluster: where it can, unless the user says otherwise."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from typing import Annotated

import typer

from pinnace.cli.failure import fail

NodeFlag = Annotated[
    bool | None,
    typer.Option(
        "--node/--no-node",
        help="Run pods on this machine, as a node in a process of its own. PINNACE_NO_NODE=1 is --no-node.",
        show_default="where the machine can, without --nodes",
    ),
]
NO_NODE = "PINNACE_NO_NODE"
_NEW_MOUNTS, _NEW_USERS, _NEW_PROCESSES, _NEW_NETWORK = 0x00020000, 0x10000000, 0x20000000, 0x40000000


def own_node_name(wanted: bool | None, *, is_useful: bool) -> str:
    """Return the name of the node; empty for none. None for `wanted` means where the machine can.

    `is_useful` says whether the cluster has controllers and no other nodes.
    """
    if wanted is False:
        return ""
    if wanted is None and (not is_useful or os.environ.get(NO_NODE, "") not in ("", "0")):
        return ""
    missing = missing_for_pods()
    if missing:
        print(f"Pods cannot run on this machine: {missing}.", file=sys.stderr)
        return ""
    return socket.gethostname().lower()


def checked_egress(*, wanted: bool) -> bool:
    """Return whether pods have egress. Exit if the user wants it and this machine cannot."""
    if wanted and os.geteuid() != 0:
        from pinnace.network.pods.egress import EgressUnavailable, plan_program  # noqa: PLC0415 - few users want it.

        try:
            plan_program(os.getpid())
        except EgressUnavailable as error:
            fail(error)
    return wanted


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
