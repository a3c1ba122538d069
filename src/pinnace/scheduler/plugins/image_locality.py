"""ImageLocality: prefer nodes that have the pod's images already."""

from __future__ import annotations

import numpy as np

from pinnace.model.objects import Object
from pinnace.scheduler.framework.cycle import Cycle
from pinnace.scheduler.framework.plugin import HIGHEST_SCORE, Depends
from pinnace.scheduler.state.arrays import At, Integers

_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST_PER_CONTAINER = 1000 * _MB


class ImageLocality:
    name = "ImageLocality"
    depends = Depends.ALL_NODES
    ignores_labels = True

    def score(self, cycle: Cycle, at: At) -> Integers:
        nodes, spec = cycle.state.nodes, cycle.template.spec
        total = np.zeros(nodes.size, dtype=np.int64)
        for name in _images_of(spec):
            found = nodes.images.find(name, nodes.size)
            if found is not None:
                size, mask = found
                total[mask] += int(float(size) * (float(mask.sum()) / float(nodes.count)))
        containers = len(spec.get("initContainers") or ()) + len(spec.get("containers") or ())
        most = _MOST_PER_CONTAINER * containers
        if most <= _LEAST:
            return np.zeros_like(total[at])
        clipped = np.clip(total[at], _LEAST, most)
        return HIGHEST_SCORE * (clipped - _LEAST) // (most - _LEAST)


def _images_of(spec: Object) -> list[str]:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    names = [one.get("image") or "" for one in containers]
    names += [one["image"].get("reference") or "" for one in spec.get("volumes") or () if one.get("image")]
    return [normalize_name(name) for name in names]


def normalize_name(name: str) -> str:
    """Return an image name with the tag `latest` if it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
