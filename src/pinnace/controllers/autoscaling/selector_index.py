"""Finds the autoscalers whose targets select the same pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinnace.model.objects import Key
from pinnace.model.selectors import LabelSelector

_Label = tuple[str, str, str]
"""A namespace, and a label with its value; an empty label for selectors without an exact one."""


_REMEMBERED = 4
"""How many different labels in a row are compared: a target has more than one template while it is updated."""


class SelectorIndex:
    """The selectors of all autoscalers, by one label that their pods must have: a lookup costs the labels of a pod."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._by_label: dict[_Label, set[Key]] = {}

    def put(self, key: Key, selector: LabelSelector) -> None:
        """Set the selector of an autoscaler's target."""
        if self._selectors.get(key) == selector:
            return
        self.remove(key)
        self._selectors[key] = selector
        self._by_label.setdefault(_label_of(key, selector), set()).add(key)

    def remove(self, key: Key) -> None:
        """Forget an autoscaler."""
        selector = self._selectors.pop(key, None)
        if selector is not None:
            label = _label_of(key, selector)
            self._by_label[label].discard(key)
            if not self._by_label[label]:
                del self._by_label[label]

    def selecting(self, namespace: str, pods: Iterable[Mapping[str, str]]) -> list[Key]:
        """Return the autoscalers whose selector matches one of the pods, given by their labels."""
        found: set[Key] = set()
        seen: list[Mapping[str, str]] = []
        for labels in pods:
            if labels in seen:
                continue
            seen = [labels, *seen[: _REMEMBERED - 1]]  # Pods of one template have the same labels.
            for label in ((namespace, "", ""), *((namespace, name, value) for name, value in labels.items())):
                found |= {key for key in self._by_label.get(label, ()) if self._selectors[key].matches(labels)}
        return sorted(found)


def _label_of(key: Key, selector: LabelSelector) -> _Label:
    for name, value in selector.equalities().items():
        return key.namespace, name, value
    return key.namespace, "", ""
