"""The entry of the fork server: it enters the namespaces of the node, and starts there again from a read-only program.

    python -c '…main()' DIRECTORY OPTIONS

Every container is forked from the fork server, and a container may name the program of the process that it replaces:
/proc/self/exe. So that it can never write to the interpreter of this machine, a program that the node's user may write
is on a read-only mount, which exists in the mount namespace of the node alone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys

from pinnace.node.machine import linux, mounts
from pinnace.node.machine.subordinate_ids import count_ids, enter_user_namespace

_CODE = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from pinnace.node.runtime.embedded.supervision.fork_server import main; main()"
)
_ROOT = __file__.rsplit("/pinnace/", 1)[0]


def main() -> None:
    directory, options = sys.argv[1], json.loads(sys.argv[2])
    if os.fork():
        os._exit(0)  # No agent is its parent, since it outlives them.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # More than a container has: it sends files.
    options["id_count"] = _enter_namespaces(options.pop("namespaces"))
    _protect_program()
    code = _CODE.format(root=_ROOT)
    os.execv(sys.executable, [sys.executable, "-P", "-S", "-E", "-c", code, directory, json.dumps(options)])


def _enter_namespaces(existing: list[int]) -> int:
    """Return how many user ids there are in the node's user namespace: 0 for all, 1 without subordinate ids.

    `existing` are the open namespaces that a killed fork server has left; empty if there are none.
    """
    id_count = 0
    is_root = os.geteuid() == 0
    if existing:
        kinds = [linux.enter_namespace(namespace) for namespace in existing]
        if linux.CLONE_NEWNS not in kinds:  # The pods are those of an older version.
            linux.unshare(linux.CLONE_NEWNS)
        if not is_root:
            id_count = min(count_ids("uid_map"), count_ids("gid_map"))
    elif is_root:
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET)
    else:
        id_count = enter_user_namespace(linux.CLONE_NEWNS | linux.CLONE_NEWNET)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)
    return id_count


def _protect_program() -> None:
    """Mount the program read-only, unless its file is not the node's to write.

    An ordinary user's containers could not have their own layer over /usr if there was a mount in it.
    """
    path = os.path.realpath(sys.executable)
    if not os.access(path, os.W_OK):
        return
    program = os.open(path, os.O_PATH)
    tree = mounts.clone(program, recursive=False)
    mounts.propagate(tree, linux.MS_PRIVATE)
    mounts.restrict(tree, mounts.RDONLY)
    mounts.attach(tree, program)
    os.close(tree)
    os.close(program)
