"""Work on files of several owners as an ordinary user: a process that is root over the user's subordinate ids.

Containers of such a user make files that belong to subordinate ids, and its images have files of several owners. The
agent itself may neither make nor remove them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import IO

import pinnace
from pinnace.node.runtime.embedded.subordinate_ids import find_mappers

_CODE = "import sys; sys.path.insert(0, {root!r}); from pinnace.node.images.mapped_work import main; main()"


class MappedWorkFailed(Exception):
    """The message is that of the process."""


@cache
def has_mapped_root() -> bool:
    """Whether this user has subordinate ids and the programs that map them."""
    return bool(find_mappers())


def run_as_mapped_root(work: str, *arguments: str, source: IO[bytes] | None = None) -> str:
    """Run one work of `mapped_work` and return its output. `source` is its input. Raise MappedWorkFailed."""
    code = _CODE.format(root=str(Path(pinnace.__file__).parents[1]))
    process = subprocess.Popen(
        [sys.executable, "-c", code, work, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
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
        raise MappedWorkFailed(err.decode(errors="replace").strip() or f"the process ended with {process.returncode}")
    return out.decode().strip()
