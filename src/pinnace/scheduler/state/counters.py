"""Counts of pods per node for the selectors that pods in the queue use, kept up to date by each binding."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pinnace.model.selectors import LabelSelector
from pinnace.scheduler.state.arrays import Codes, Integers, Mask, grow
from pinnace.scheduler.state.nodes import NodeTable
from pinnace.scheduler.state.pods import Pod

_MOST_COUNTS = 512
_MOST_SUMS = 8


class PodSelection(NamedTuple):
    """The pods that are counted: of some namespaces, or of all, with the labels that a selector matches."""

    selector: LabelSelector
    namespaces: frozenset[str] | None
    """None for all namespaces."""
    has_terminating: bool

    def matches(self, group: _Group) -> bool:
        if self.namespaces is not None and group.namespace not in self.namespaces:
            return False
        return (self.has_terminating or not group.is_terminating) and self.selector.matches(group.labels)


class DomainSums(NamedTuple):
    """The sums of counts by the value of one label, of the nodes that a mask includes."""

    position: int
    """The position of the log of nodes for which codes and mask are valid."""
    codes: Codes
    mask: Mask | None
    values: Integers
    """By code; the last element is the sum of the nodes without the label."""


class _Counts:
    def __init__(self, size: int) -> None:
        self.per_node: Integers = np.zeros(max(16, size), dtype=np.int64)
        self.total = 0
        self.sums: OrderedDict[tuple[str, int], DomainSums] = OrderedDict()

    def add(self, slot: int, by: int) -> None:
        if slot >= len(self.per_node):
            self.per_node = grow(self.per_node, max(slot + 1, 2 * len(self.per_node)))
        self.per_node[slot] += by
        self.total += by
        for sums in self.sums.values():
            if slot < len(sums.codes) and (sums.mask is None or sums.mask[slot]):
                sums.values[sums.codes[slot]] += by


class _Group:
    """Pods that no selector tells apart."""

    def __init__(self, namespace: str, labels: Mapping[str, str], *, is_terminating: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.is_terminating = is_terminating
        self.slots: dict[int, int] = {}
        self.counts: list[_Counts] = []


class PodCounts:
    """Counts of the pods on nodes. A selection is counted once, when it is used first, and then kept."""

    def __init__(self) -> None:
        self._groups: dict[object, _Group] = {}
        self._counts: OrderedDict[PodSelection, _Counts] = OrderedDict()

    def add(self, pod: Pod, slot: int, by: int) -> None:
        key = (pod.template.label_key, pod.is_terminating)
        group = self._groups.get(key)
        if group is None:
            group = _Group(pod.namespace, pod.labels, is_terminating=pod.is_terminating)
            group.counts = [counts for selection, counts in self._counts.items() if selection.matches(group)]
            self._groups[key] = group
        count = group.slots.get(slot, 0) + by
        if count:
            group.slots[slot] = count
        else:
            del group.slots[slot]
            if not group.slots:
                del self._groups[key]
        for counts in group.counts:
            counts.add(slot, by)

    def of(self, selection: PodSelection, size: int) -> Integers:
        """Return the number of selected pods on each node. The array is shared: do not change it."""
        counts = self._find(selection, size)
        if size > len(counts.per_node):
            counts.per_node = grow(counts.per_node, size)
        return counts.per_node[:size]

    def by_domain(self, selection: PodSelection, nodes: NodeTable, label: str, mask: Mask | None) -> Integers:
        """Return the number of selected pods by the value of a label, on the nodes of a mask or on all.

        The last element is that of the nodes without the label. The sums are kept while nodes and mask stay the same
        objects. The array is shared: do not change it.
        """
        counts = self._find(selection, nodes.size)
        key = (label, id(mask))
        known = counts.sums.get(key)
        if known is None or known.position != nodes.log.position or known.mask is not mask:
            column = nodes.labels.column(label)
            codes, per_node = column.codes(nodes.size), self.of(selection, nodes.size)
            some = (codes, per_node) if mask is None else (codes[mask], per_node[mask])
            values = count_per_domain(*some, len(column.values))
            known = counts.sums[key] = DomainSums(nodes.log.position, codes, mask, values)
            if len(counts.sums) > _MOST_SUMS:
                counts.sums.popitem(last=False)
        return known.values

    def total(self, selection: PodSelection, size: int) -> int:
        return self._find(selection, size).total

    def _find(self, selection: PodSelection, size: int) -> _Counts:
        counts = self._counts.get(selection)
        if counts is None:
            counts = _Counts(size)
            for group in self._groups.values():
                if selection.matches(group):
                    group.counts.append(counts)
                    for slot, count in group.slots.items():
                        counts.add(slot, count)
            self._counts[selection] = counts
            if len(self._counts) > _MOST_COUNTS:
                self._drop(*self._counts.popitem(last=False))
        else:
            self._counts.move_to_end(selection)
        return counts

    def _drop(self, selection: PodSelection, counts: _Counts) -> None:
        for group in self._groups.values():
            if selection.matches(group):
                group.counts.remove(counts)


def count_per_domain(codes: Codes, counts: Integers, domains: int) -> Integers:
    """Sum `counts` by code. The last element is the sum of the nodes without the label."""
    sums = np.bincount(codes + 1, weights=counts, minlength=domains + 1)
    return np.roll(sums, -1).astype(np.int64)
