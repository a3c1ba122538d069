"""Work on files of several owners, by a process that is root over the subordinate ids of an ordinary user.

Containers of such a user make files that belong to subordinate ids, and its images have files of several owners. The
agent itself may neither make nor remove them. A user without subordinate ids, and root, do the same as themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import pinnace
from pinnace.node.machine import linux
from pinnace.node.machine.file_trees import give_to_group, remove_files
from pinnace.node.machine.subordinate_ids import enter_user_namespace, find_mappers

_CODE = "import sys; sys.path.insert(0, {root!r}); from pinnace.node.machine.mapped_root import main; main()"
_NO_LINKS = linux.RESOLVE_BENEATH | linux.RESOLVE_NO_SYMLINKS


class MappedWorkFailed(Exception):
    """The message is that of the process."""


def remove_tree(path: Path | str, *, above: int | None = None, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Remove a directory with everything in it, also what belongs to subordinate ids or cannot be read.

    `above` is the open directory in which it is; None for a path. Raise RemovalStopped soon after `is_stopped` has
    returned true.
    """
    try:
        remove_files(str(path), above=above, is_stopped=is_stopped)
    except PermissionError:
        if not _has_mapped_root():
            raise
        try:
            if above is None:
                run_as_mapped_root(_remove, str(path))
            else:
                run_as_mapped_root(_remove, str(path), str(above), fds=[above])
        except MappedWorkFailed as error:
            raise PermissionError(f"{path} cannot be removed: {error}") from error


def give_trees(paths: Sequence[str], group: int) -> None:
    """Give directories and their content to a group, if this user is in the group."""
    with contextlib.suppress(PermissionError, MappedWorkFailed):
        if _has_mapped_root():
            run_as_mapped_root(_give_trees, str(group), *paths)
        else:
            _give_trees(str(group), *paths)


def give_files(top: int, owners: Mapping[str, int], group: int) -> None:
    """Change the owners of files below an open directory, as far as this user can, and their group unless it is -1.

    No link is followed.
    """
    try:
        _give_files(top, owners, group)
    except PermissionError:
        if _has_mapped_root():
            with contextlib.suppress(MappedWorkFailed):  # An id that this user does not have.
                run_as_mapped_root(_give_open_files, str(top), json.dumps(owners), str(group), fds=[top])


def run_as_mapped_root(
    work: Callable[..., str | None], *arguments: str, source: IO[bytes] | None = None, fds: Collection[int] = ()
) -> str:
    """Run a function of a module in a process of its own, and return its result. Raise MappedWorkFailed.

    Where the user has subordinate ids, it is root over them. `source` is its standard input; `fds` are open files that
    it gets under the same numbers.
    """
    code = _CODE.format(root=str(Path(pinnace.__file__).parents[1]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, work.__module__, work.__name__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        pass_fds=fds,
    )
    assert process.stdin is not None
    if source is not None:
        try:
            shutil.copyfileobj(source, process.stdin, 1 << 18)
        except BrokenPipeError:
            pass  # It has failed already, and says why.
        except BaseException:
            process.kill()
            process.communicate()
            raise
    out, err = process.communicate()
    if process.returncode != 0:
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise MappedWorkFailed("it took too long, or too much memory")
        lines = err.decode(errors="replace").strip().splitlines()
        raise MappedWorkFailed(lines[-1] if lines else f"the process ended with {process.returncode}")
    return out.decode().strip()


def main() -> None:
    """Run the function that `run_as_mapped_root` names, in its process."""
    module, name, *arguments = sys.argv[1:]
    os.umask(0o022)
    if _has_mapped_root() and enter_user_namespace() == 1:
        sys.exit("newuidmap or newgidmap has refused to map the ids of /etc/subuid and /etc/subgid")
    try:
        result = getattr(importlib.import_module(module), name)(*arguments)
    except (MappedWorkFailed, OSError) as error:
        sys.exit(str(error))
    except Exception as error:  # The message goes into the status of a pod, where no traceback belongs.
        sys.exit(f"{type(error).__name__}: {error}")
    print(result or "")


@cache
def _has_mapped_root() -> bool:
    """Whether this user has subordinate ids and the programs that map them."""
    return bool(find_mappers())


# The works of the process


def _remove(path: str, above: str = "") -> None:
    remove_files(path, above=int(above) if above else None)


def _give_trees(group: str, *paths: str) -> None:
    for path in paths:
        give_to_group(path, int(group))


def _give_open_files(top: str, owners: str, group: str) -> None:
    _give_files(int(top), json.loads(owners), int(group))


def _give_files(top: int, owners: Mapping[str, int], group: int) -> None:
    for path, owner in owners.items():
        above, _, name = path.rpartition("/")
        directory = linux.open_inside(top, above or ".", os.O_PATH, resolve=_NO_LINKS)
        try:
            os.chown(name, owner, group, dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(directory)
