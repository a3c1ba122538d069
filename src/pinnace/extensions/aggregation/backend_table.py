"""Which groups and versions other servers answer for: one backend for each APIService that names a service."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.extensions.aggregation.backends import Connections, HttpBackend
from pinnace.model.objects import Kind, Object
from pinnace.reconcile.conditions import condition
from pinnace.serving.discovery.backends import AggregatedBackend

API_SERVICE = Kind("apiregistration.k8s.io", "v1", "APIService")
AVAILABLE = "Available"


class ApiServices:
    """All APIServices. Those without a service are local: their priorities are known here, nothing else.

    `revision` changes with whatever discovery says of them; it is 0 until the first backend is there.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._backends: dict[str, HttpBackend] = {}
        self._places: dict[tuple[str, str], HttpBackend] = {}
        self._built_in: dict[tuple[str, str], AggregatedBackend] = {}
        self._specs: dict[str, Object] = {}
        self.revision = 0

    def add_built_in(self, backend: AggregatedBackend) -> None:
        """Serve a group version from this process, unless an APIService of its group names a service.

        Another server takes the place of all versions: clients choose the newest, and must find one set of objects.
        """
        self._built_in[backend.group, backend.version] = backend
        self.revision += 1

    def built_in(self, group: str, version: str) -> AggregatedBackend | None:
        return self._built_in.get((group, version))

    def remove_built_in(self, backend: AggregatedBackend) -> None:
        """Serve a group version no longer from this process."""
        if self._built_in.pop((backend.group, backend.version), None) is not None:
            self.revision += 1

    def put(self, api_service: Object) -> None:
        """Follow an APIService that is new or has changed."""
        name, spec = api_service["metadata"]["name"], api_service["spec"]
        priorities_before = _priorities(self._specs.get(name))
        self._specs[name] = spec
        if self.revision and _priorities(spec) != priorities_before:
            self.revision += 1
        if not spec.get("service") or not spec.get("group"):
            self._forget(name)
            return
        known = self._backends.get(name)
        if known is None or known.spec != spec:
            backend = HttpBackend(api_service, self._connections)
            if known is not None:
                backend.inherit(known)
            known = self._backends[name] = self._places[backend.group, backend.version] = backend
            self.revision += 1
        reason = unavailable_reason_of(api_service)
        if reason != known.unavailable_reason:
            known.unavailable_reason = reason
            self.revision += 1

    def drop(self, name: str) -> None:
        self._specs.pop(name, None)
        self._forget(name)

    def backend(self, name: str) -> HttpBackend | None:
        """Return the backend of an APIService; None if it is local or deleted."""
        return self._backends.get(name)

    def learnt(self, backend: HttpBackend, resources: list[Object]) -> None:
        """Note what the backend serves now."""
        if backend.resources != resources:
            backend.resources = resources
            self.revision += 1

    def find(self, group: str, version: str) -> AggregatedBackend | None:
        placed = self._places.get((group, version))
        built_in = self._built_in.get((group, version))
        return built_in if placed is None and built_in is not None and not self._is_taken(group) else placed

    def backends(self) -> Iterable[AggregatedBackend]:
        own = (backend for (group, _), backend in self._built_in.items() if not self._is_taken(group))
        return (*self._backends.values(), *own)

    def _is_taken(self, group: str) -> bool:
        """Whether an APIService that names a service serves a version of the group."""
        return any(taken == group for taken, _ in self._places)

    def served_by(self, namespace: str, name: str) -> list[str]:
        """Return the APIServices that name a Service."""
        return [known for known, backend in self._backends.items() if backend.service[:2] == (namespace, name)]

    def priorities(self, group: str, version: str) -> tuple[int, int] | None:
        return _priorities(self._specs.get(f"{version}.{group}"))

    def _forget(self, name: str) -> None:
        backend = self._backends.pop(name, None)
        if backend is not None:
            del self._places[backend.group, backend.version]
            self.revision += 1


def unavailable_reason_of(api_service: Object) -> str:
    """Return why the backend is unavailable, in the words of the condition; empty if it is available."""
    available = condition(api_service, AVAILABLE)
    if available is None:
        return "the server has not been checked yet"
    if available.get("status") == "True":
        return ""
    return f"{available.get('reason') or 'Unknown'}: {available.get('message') or ''}"


def _priorities(spec: Object | None) -> tuple[int, int] | None:
    if spec is None:
        return None
    return int(spec.get("groupPriorityMinimum") or 0), int(spec.get("versionPriority") or 0)
