"""Finds the pods of a Service and the Services of a pod by index, without walking through either."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.client.snapshots import Snapshot
from pinnace.controllers.pods import BY_LABEL, PodView, index_by_label, label_values
from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Pod, Service
from pinnace.reconcile.manager import Manager

_BY_SELECTOR = "selector"


class ServicePods:
    """Pods are indexed by label, and Services by one label of their selector, which every pod of theirs has."""

    def __init__(self, manager: Manager) -> None:
        self.pods = manager.cache(Pod)
        self.services = manager.cache(Service)
        index_by_label(self.pods)
        self.services.add_index(_BY_SELECTOR, _first_label)
        self._selectors: dict[Key, tuple[str, dict[str, str]]] = {}

    def pods_of(self, service: Service) -> list[Snapshot[Pod]]:
        """Return the pods that the selector of a Service matches, in the order of their names."""
        namespace, selector = service["metadata"]["namespace"], selector_of(service)
        keys = self.pods.keys_by_all(BY_LABEL, label_values(namespace, selector))
        return [snapshot for key in sorted(keys) if (snapshot := self.pods.snapshot(key)) is not None]

    def services_of(self, namespace: str, labels: dict[str, str]) -> set[Key]:
        """Return the Services whose selectors match a pod with these labels."""
        services = set()
        for value in label_values(namespace, labels):
            for key in self.services.keys_by_index(_BY_SELECTOR, value):
                if self._selector(key).items() <= labels.items():
                    services.add(key)
        return services

    def affected(self, old: PodView | None, new: PodView | None) -> set[Key]:
        """Return the Services whose endpoints a change of a pod may change."""
        if old is None or new is None:
            pod = new or old
            return self.services_of(pod.metadata.namespace, pod.labels) if pod is not None else set()
        is_changed = _shows_as_endpoint(old) != _shows_as_endpoint(new)
        is_moved = old.labels != new.labels
        if not is_changed and not is_moved:
            return set()
        after = self.services_of(new.metadata.namespace, new.labels)
        if not is_moved:
            return after
        before = self.services_of(old.metadata.namespace, old.labels)
        return before | after if is_changed else before ^ after

    def _selector(self, key: Key) -> dict[str, str]:
        snapshot = self.services.snapshot(key)
        if snapshot is None:
            self._selectors.pop(key, None)
            return {}
        known = self._selectors.get(key)
        if known is None or known[0] != snapshot.version:
            known = self._selectors[key] = (snapshot.version, selector_of(snapshot.object))
        return known[1]


def selector_of(service: Service) -> dict[str, str]:
    return (service.get("spec") or {}).get("selector") or {}


def is_headless(service: Service) -> bool:
    return (service.get("spec") or {}).get("clusterIP") in (None, "", "None")


def _first_label(service: Service) -> Iterable[str]:
    selector = selector_of(service)
    return label_values(key_of(service).namespace, dict([min(selector.items())])) if selector else ()


def _shows_as_endpoint(pod: PodView) -> tuple[object, ...]:
    """Return the fields of a pod that appear in its endpoint or decide whether it has one."""
    return (
        pod.is_terminating,
        pod.is_ready,
        pod.is_finished,
        pod.status.podIPs,
        pod.status.podIP,
        pod.spec.nodeName,
        pod.spec.hostname,
        pod.spec.subdomain,
    )
