"""The disk space of a pod: the process that the fork server forks to measure it runs this.

Its files may be many, and may belong to users whose files only the root of the pods can read. The fork server imports
this module: keep its imports small.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from pinnace.node.machine.file_trees import disk_space, sizes_below

CREATED = "created"
"""An empty file in the directory of a container, which is as old as the container."""


def measure(directory: str, layers: Sequence[str], output: int) -> None:
    """Write the sizes of the files below a directory, and of the layers of containers by their directories."""
    began = time.process_time()
    sizes = {"files": sizes_below(directory), "layers": [_size_of_layer(layer) for layer in layers]}
    with os.fdopen(output, "w") as file:
        json.dump({**sizes, "cpu_seconds": time.process_time() - began}, file)


def _size_of_layer(directory: str) -> int:
    """The disk space of all that a container has changed in its image since it was created.

    Changes are in the upper directory of its overlays, and in its root where that is a plain directory: files that were
    there before the start have an older change time, which no process can set.
    """
    try:
        began = os.stat(os.path.join(directory, CREATED)).st_mtime_ns
    except FileNotFoundError:
        return 0
    tops = (os.path.join(directory, name) for name in ("upper", "root"))
    return sum(size for top in tops for _, size, changed in disk_space(top) if changed > began)
