"""Gives every node a range of addresses for its pods."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Node
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

CLUSTER_CIDR = "10.244.0.0/16"
NODE_PREFIX = 24
WIDEST_PREFIX = 9
"""The default range may grow to 10.128.0.0/9, which has room for 32,768 nodes."""
_COMPONENT = "cidrAllocator"


class NodeIpam:
    """One worker allocates the ranges in order. Ranges that nodes already have are reserved first.

    Without a chosen range of the cluster, the default one is doubled whenever it is full.
    """

    def __init__(
        self,
        manager: Manager,
        client: Client,
        *,
        cidr: str = "",
        prefix: int = NODE_PREFIX,
        reserved: Sequence[str] = (),
    ) -> None:
        """`cidr` is the range of the cluster, `prefix` the size of a node's range. `reserved` are those of Services."""
        self._client = client
        self._recorder = manager.recorder
        self._network = ip_network(cidr or CLUSTER_CIDR)
        self._may_grow = not cidr
        self._prefix = prefix
        self._reserved = [ip_network(text) for text in reserved]
        self._nodes = manager.cache(Node)
        self._taken: dict[str, str] = {}
        """The node of each range."""
        self._next = 0
        self._is_full = False
        """Whether no range is free, until one is given back."""
        self._waiting: set[Key] = set()
        self.controller = Controller("node-ipam", self._reconcile)
        manager.informer(Node).on_change(self._node_changed)

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        seen = new or old
        if seen is None:
            return
        if new is None:
            for cidr in [network for network, node in self._taken.items() if node == seen.key.name]:
                del self._taken[cidr]
                self._is_full = False
            self._waiting.discard(seen.key)
            for key in self._waiting:
                self.controller.enqueue(key, "a range is free")
            return
        cidrs = _cidrs_of(new.object)
        self._taken.update(dict.fromkeys(cidrs, new.key.name))
        if not cidrs:
            self.controller.enqueue(new.key, "node")

    async def _reconcile(self, key: Key) -> None:
        node = self._nodes.get(key)
        if node is None or _cidrs_of(node) or "deletionTimestamp" in node["metadata"]:
            return
        cidr = self._free()
        if cidr is None:
            self._waiting.add(key)
            text = f"Node {key.name} status is now: CIDRNotAvailable"
            self._recorder.record(node, "Normal", "CIDRNotAvailable", text, component=_COMPONENT)
            return
        self._taken[cidr] = key.name
        try:
            await self._client.patch(Node, key.name, {"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}, form="strategic")
        except BaseException:
            del self._taken[cidr]
            self._is_full = False
            raise
        self._waiting.discard(key)

    def _free(self) -> str | None:
        """Return a range that no node has; None if there is none."""
        if self._is_full:
            return None
        network = self._find_free()
        while network is None and self._grow():
            network = self._find_free()
        self._is_full = network is None
        return network

    def _find_free(self) -> str | None:
        count = 2 ** (self._prefix - self._network.prefixlen)
        size = 2 ** (self._network.max_prefixlen - self._prefix)
        for _ in range(count):
            cidr = f"{self._network[self._next * size]}/{self._prefix}"
            self._next = (self._next + 1) % count
            if cidr not in self._taken and not self._is_reserved(cidr):
                return cidr
        return None

    def _is_reserved(self, cidr: str) -> bool:
        network = ip_network(cidr)
        return any(_overlap(network, range_) for range_ in self._reserved)

    def _grow(self) -> bool:
        """Double the range of the cluster; return False if it must not grow. The ranges of all nodes stay in it."""
        if not self._may_grow or self._network.prefixlen <= WIDEST_PREFIX:
            return False
        before, self._network = self._network, self._network.supernet()
        size = 2 ** (self._network.max_prefixlen - self._prefix)
        is_lower_half = before.network_address == self._network.network_address
        self._next = int(before.num_addresses) // size if is_lower_half else 0
        return True


def _overlap(first: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    return first.version == other.version and first.overlaps(other)


def _cidrs_of(node: Node) -> list[str]:
    spec = node.get("spec") or {}
    return list(spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else []))
