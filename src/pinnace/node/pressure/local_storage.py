"""The limits of local storage: a pod whose files take more than it may have is evicted. The messages are kubelet's."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pinnace.kinds.pods.resource_amounts import sum_of
from pinnace.model import quantity
from pinnace.model.objects import Object

STORAGE = "ephemeral-storage"


def find_excess(pod: Object, directory: Path) -> str:
    """Return why a pod must go; empty if it keeps its limits. `directory` holds its volumes.

    Pods without limits cost nothing. The changes that a container makes in its image are not counted.
    """
    volumes = pod["spec"].get("volumes") or ()
    on_disk = [one for one in volumes if "emptyDir" in one and (one["emptyDir"] or {}).get("medium") != "Memory"]
    for volume in on_disk:
        limit = (volume["emptyDir"] or {}).get("sizeLimit")
        if limit and size_of(directory / "volumes" / volume["name"]) > quantity.parse(limit).value:
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{quantity.canonical(limit)}". '
    total = sum_of(pod["spec"], "limits").get(STORAGE)
    has_all = all(STORAGE in ((one.get("resources") or {}).get("limits") or {}) for one in pod["spec"]["containers"])
    if total is not None and has_all and size_of(directory) > total.value:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
    return ""


def size_of(directory: Path) -> int:
    """The disk space of all files below a directory."""
    total = 0
    for place, _, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total
