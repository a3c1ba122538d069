"""The container images on nodes, by name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pinnace.scheduler.state.arrays import Mask


class _Image:
    __slots__ = ("nodes", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.nodes: set[int] = set()


class NodeImages:
    """Which nodes have which image. The size of an image is the one that its first node has stated."""

    def __init__(self) -> None:
        self._images: dict[str, _Image] = {}
        self._names: dict[int, tuple[str, ...]] = {}

    def put(self, slot: int, images: Iterable[tuple[str, int]]) -> None:
        """Take over the names and sizes of the images of one node."""
        sizes = dict(images)
        for name in self._names.pop(slot, ()):
            if name not in sizes:
                self._remove(name, slot)
        for name, size in sizes.items():
            image = self._images.get(name)
            if image is None:
                image = self._images[name] = _Image(size)
            image.nodes.add(slot)
        if sizes:
            self._names[slot] = tuple(sizes)

    def _remove(self, name: str, slot: int) -> None:
        image = self._images[name]
        image.nodes.discard(slot)
        if not image.nodes:
            del self._images[name]

    def find(self, name: str, size: int) -> tuple[int, Mask] | None:
        """Return the bytes of an image and the mask of its nodes; None if no node has it."""
        image = self._images.get(name)
        if image is None:
            return None
        mask = np.zeros(size, dtype=np.bool_)
        mask[list(image.nodes)] = True
        return image.size, mask
