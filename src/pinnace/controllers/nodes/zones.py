"""Limits how fast nodes may lose their pods: by the health of their zone, and not at all when every zone is down."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnace.model.typed_objects import Node

RATE, REDUCED_RATE = 0.1, 0.01
"""Nodes per second that get the taint that evicts their pods."""
LARGE = 50
"""A disrupted zone with at most this many nodes keeps all its pods."""
UNHEALTHY = 0.55
"""The share of unhealthy nodes from which a zone counts as disrupted; at least three nodes."""

_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_EXCLUDED = "node.kubernetes.io/exclude-disruption"


@dataclass(slots=True)
class _Zone:
    ready: dict[str, bool] = field(default_factory=dict)
    rate: float = RATE
    is_down: bool = False
    free_at: float = 0.0
    """When the next node may be tainted, in seconds of the clock."""


class Zones:
    """The zones of a cluster and the health of their nodes."""

    def __init__(self) -> None:
        self._zones: dict[str, _Zone] = {}
        self._of_node: dict[str, str] = {}
        self.is_down = False
        """Whether no node at all is ready: then this process is probably cut off, and the nodes are not dead."""

    def set_node(self, name: str, node: Node | None, *, ready: bool) -> list[str]:
        """Record the health of a node; return the nodes whose zone is emptied faster or slower from now on."""
        key = zone_key(node) if node is not None else ""
        labels = (node or {}).get("metadata", {}).get("labels") or {}
        known = self._of_node.get(name)
        if known is not None and (node is None or known != key or _EXCLUDED in labels):
            self._remove(name, known)
        if node is not None:
            self._of_node[name] = key
            zone = self._zones.setdefault(key, _Zone())
            if _EXCLUDED not in labels:
                zone.ready[name] = ready
        return self._update()

    def _remove(self, name: str, key: str) -> None:
        zone = self._zones[key]
        zone.ready.pop(name, None)
        del self._of_node[name]
        if key not in self._of_node.values():
            del self._zones[key]

    def _update(self) -> list[str]:
        before = {key: (self.is_down, zone.rate) for key, zone in self._zones.items()}
        for zone in self._zones.values():
            total, unready = len(zone.ready), sum(1 for is_ready in zone.ready.values() if not is_ready)
            zone.is_down = bool(total) and unready == total
            if not zone.is_down and unready > 2 and unready / total >= UNHEALTHY:
                zone.rate = REDUCED_RATE if total > LARGE else 0.0
            else:
                zone.rate = RATE
        counted = [zone for zone in self._zones.values() if zone.ready]
        self.is_down = bool(counted) and all(zone.is_down for zone in counted)
        changed = {key for key, zone in self._zones.items() if before[key] != (self.is_down, zone.rate)}
        return [name for name, key in self._of_node.items() if key in changed] if changed else []

    def sizes(self) -> list[tuple[str, int, int]]:
        """Return each zone with the number of its nodes and of those that are not ready."""
        zones = ((key, list(zone.ready.values())) for key, zone in self._zones.items())
        return [(key, len(ready), ready.count(False)) for key, ready in zones]

    def zone_of(self, name: str) -> str:
        """Return the zone of a node that was set."""
        return self._of_node[name]

    def wait_for(self, name: str, now: float) -> float | None:
        """Return the seconds until a node may be tainted; 0 takes the turn. None while no node of its zone may be."""
        zone = self._zones[self._of_node[name]]
        if self.is_down or not zone.rate:
            return None
        if now < zone.free_at:
            return zone.free_at - now
        zone.free_at = now + 1 / zone.rate
        return 0.0


def zone_key(node: Node) -> str:
    labels = node["metadata"].get("labels") or {}
    region, zone = labels.get(_REGION, ""), labels.get(_ZONE, "")
    # As Kubernetes writes it, also in its metrics.
    return f"{region}:\x00:{zone}" if region or zone else ""
