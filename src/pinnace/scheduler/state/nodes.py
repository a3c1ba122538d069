"""The facts of nodes as arrays: allocatable resources, labels, taints, images. A node has one slot while it exists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntFlag

import numpy as np
import orjson

from pinnace.model.typed_objects import Node, NodeStatus, Taint
from pinnace.scheduler.state.arrays import Codes, Integers, Mask, grow
from pinnace.scheduler.state.labels import LabelColumns
from pinnace.scheduler.state.resources import amounts_of, is_counted


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


CPU, MEMORY, STORAGE, PODS = range(4)
NAME = "metadata.name"
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")


class NodeChange(IntFlag):
    """The facts of a node that an update has changed, by the names of Kubernetes' queueing hints."""

    NONE = 0
    ADD = 1
    ALLOCATABLE = 2
    LABELS = 4
    TAINTS = 8
    """Taints and spec.unschedulable."""
    CONDITIONS = 16
    IMAGES = 32
    ANNOTATIONS = 64
    DELETE = 128
    FEATURES = 256


class NodeTable:
    """All nodes. Arrays have one element per slot; slots without a node are not `present`."""

    def __init__(self) -> None:
        self.size = 0
        """The number of slots, with or without a node."""
        self.count = 0
        """The number of nodes."""
        self.names: list[str] = []
        self.slot_of: dict[str, int] = {}
        self.labels = LabelColumns()
        self.fields = LabelColumns()
        self.images = NodeImages()
        self.resources: dict[str, int] = {name: row for row, name in enumerate(_NATIVE)}
        """The row of each resource."""
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        """The distinct lists of taints."""
        self.features: list[frozenset[str]] = []
        self.log = ChangeLog()
        self._capacity = 16
        self._present: Mask = np.zeros(self._capacity, dtype=np.bool_)
        self._unschedulable: Mask = np.zeros(self._capacity, dtype=np.bool_)
        self._taints: Codes = np.zeros(self._capacity, dtype=np.int32)
        self._allocatable: Integers = np.zeros((len(_NATIVE), self._capacity), dtype=np.int64)
        self._taint_ids: dict[bytes, int] = {b"[]": 0, b"null": 0}
        self._facts: list[tuple[bytes, ...]] = []
        self._free: list[int] = []

    # Arrays over all slots

    @property
    def present(self) -> Mask:
        return self._present[: self.size]

    @property
    def unschedulable(self) -> Mask:
        return self._unschedulable[: self.size]

    @property
    def taints(self) -> Codes:
        """The position in `taint_sets` of each node's taints."""
        return self._taints[: self.size]

    @property
    def allocatable(self) -> Integers:
        """One row per resource."""
        return self._allocatable[:, : self.size]

    @property
    def rows(self) -> int:
        return len(self._allocatable)

    def row_of(self, resource: str) -> int:
        """Return the row of a resource; a new one if no node or pod has named it yet."""
        row = self.resources.get(resource)
        if row is None:
            row = self.resources[resource] = len(self.resources)
            if row >= len(self._allocatable):
                self._allocatable = np.vstack([self._allocatable, np.zeros_like(self._allocatable)])
        return row

    # Changes

    def put(self, node: Node) -> tuple[int, NodeChange]:
        """Take over the facts of a node; return its slot and the facts that differ from those known."""
        name = node["metadata"]["name"]
        facts = _facts_of(node)
        slot = self.slot_of.get(name, -1)
        if slot < 0:
            change = NodeChange.ADD
            slot = self._take_slot(name)
        else:
            change = _compare(self._facts[slot], facts)
            if not change:
                return slot, change
        self._facts[slot] = facts
        self._write(slot, node, facts)
        self.log.append(slot)
        return slot, change

    def remove(self, name: str) -> int:
        """Free the slot of a node and return it; -1 if there is no such node."""
        slot = self.slot_of.pop(name, -1)
        if slot < 0:
            return slot
        self._facts[slot] = ()
        self.names[slot] = ""
        self._present[slot] = False
        self._allocatable[:, slot] = 0
        self.labels.put(slot, {})
        self.fields.put(slot, {})
        self.images.put(slot, ())
        self._taints[slot] = 0
        self.count -= 1
        self._free.append(slot)
        self.log.append(slot)
        return slot

    def _take_slot(self, name: str) -> int:
        slot = self._free.pop() if self._free else self.size
        if slot == self.size:
            self.size += 1
            self.names.append("")
            self._facts.append(())
            self.features.append(frozenset())
            if self.size > self._capacity:
                self._grow()
        self.names[slot] = name
        self.slot_of[name] = slot
        self._present[slot] = True
        self.count += 1
        self.fields.put(slot, {NAME: name})
        return slot

    def _grow(self) -> None:
        self._capacity *= 2
        self._present = grow(self._present, self._capacity)
        self._unschedulable = grow(self._unschedulable, self._capacity)
        self._taints = grow(self._taints, self._capacity)
        self._allocatable = grow(self._allocatable, self._capacity)

    def _write(self, slot: int, node: Node, facts: tuple[bytes, ...]) -> None:
        spec, status = node.get("spec") or {}, node.get("status") or {}
        amounts = amounts_of(status.get("allocatable") or {})
        rows = {self.row_of(name): amount for name, amount in amounts.items() if is_counted(name)}
        self._allocatable[:, slot] = 0
        for row, amount in rows.items():
            self._allocatable[row, slot] = amount
        self.labels.put(slot, node["metadata"].get("labels") or {})
        self._unschedulable[slot] = bool(spec.get("unschedulable"))
        self._taints[slot] = self._taint_id(orjson.dumps(spec.get("taints") or []), spec.get("taints") or ())
        self.images.put(slot, _images_of(status))
        self.features[slot] = frozenset(status.get("declaredFeatures") or ())

    def _taint_id(self, encoded: bytes, taints: Iterable[Taint]) -> int:
        known = self._taint_ids.get(encoded)
        if known is None:
            known = self._taint_ids[encoded] = len(self.taint_sets)
            self.taint_sets.append(tuple(taints))
        return known


def _images_of(status: NodeStatus) -> list[tuple[str, int]]:
    return [
        (name, image.get("sizeBytes") or 0) for image in status.get("images") or () for name in image.get("names") or ()
    ]


def _facts_of(node: Node) -> tuple[bytes, ...]:
    """Return the facts that matter, encoded, in the order of `_CHANGES`."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = [(condition.get("type"), condition.get("status")) for condition in status.get("conditions") or ()]
    return tuple(
        orjson.dumps(part, option=orjson.OPT_SORT_KEYS)
        for part in (
            status.get("allocatable"),
            metadata.get("labels"),
            [spec.get("taints"), spec.get("unschedulable")],
            conditions,
            status.get("images"),
            status.get("declaredFeatures"),
        )
    )


_CHANGES = (
    NodeChange.ALLOCATABLE,
    NodeChange.LABELS,
    NodeChange.TAINTS,
    NodeChange.CONDITIONS,
    NodeChange.IMAGES,
    NodeChange.FEATURES,
)


def _compare(old: tuple[bytes, ...], new: tuple[bytes, ...]) -> NodeChange:
    change = NodeChange.NONE
    for flag, before, after in zip(_CHANGES, old, new, strict=True):
        if before != after:
            change |= flag
    return change


def amounts_by_row(table: NodeTable, amounts: Mapping[str, int]) -> tuple[Integers, Integers]:
    """Return the rows of some resources and their amounts, both as arrays."""
    rows = np.array([table.row_of(name) for name in amounts], dtype=np.int64)
    return rows, np.array(list(amounts.values()), dtype=np.int64)


_LONGEST_LOG = 65536


class ChangeLog:
    """Slots in the order in which they changed. A reader keeps a position and asks for the slots since then."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._first = 0

    @property
    def position(self) -> int:
        return self._first + len(self._slots)

    def append(self, slot: int) -> None:
        self._slots.append(slot)
        if len(self._slots) > _LONGEST_LOG:
            dropped = _LONGEST_LOG // 2
            del self._slots[:dropped]
            self._first += dropped

    def since(self, position: int, most: int) -> Sequence[int] | None:
        """Return the slots that changed after `position`; None if more than `most` entries were written.

        None tells the reader to compute all slots again.
        """
        start = position - self._first
        if start < 0 or len(self._slots) - start > most:
            return None
        return self._slots[start:]
