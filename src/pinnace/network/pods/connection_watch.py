"""Reports how full the node's table of connections is, and the pods whose new connections the guard drops."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable

from pinnace.client.snapshots import Snapshot
from pinnace.model.typed_objects import Pod
from pinnace.network.families import IpFamily
from pinnace.network.nftables.transactions import PROTOCOL
from pinnace.network.pods.guard import refused_sources
from pinnace.network.services.connections import ConnectionTable, read_table
from pinnace.network.sockets import Sockets
from pinnace.reconcile.manager import Manager

REASON = "TooManyConnections"
ENTRIES, LIMIT = "node_nf_conntrack_entries", "node_nf_conntrack_entries_limit"
REFUSED = "pinnace_node_refused_connection_sources"
_INTERVAL_SECONDS = 10.0
"""The guard needs no help: a report may come later than what it reports."""
_MESSAGE = (
    "The new connections of this pod are dropped: it has too many open, and the connections that pods share are taken. "
    "Close some, or raise net.netfilter.nf_conntrack_max of the machine"
)
_log = logging.getLogger(__name__)


class ConnectionWatch:
    """Create it before the manager runs."""

    def __init__(self, manager: Manager, sockets: Sockets, *, node: str, families: Iterable[IpFamily]) -> None:
        """`sockets` are those of the node's network namespace."""
        self._sockets = sockets
        self._families = tuple(families)
        self._recorder = manager.recorder
        self._clock = manager.client.clock
        self._pods: dict[str, Pod] = {}
        """The pods of the node by address."""
        self._reported: set[str] = set()
        self._refused: set[str] = set()
        self._table = ConnectionTable(0, 0)
        metrics = manager.metrics
        metrics.gauge(ENTRIES, "The connections that the node tracks.", lambda: [((), float(self._table.entries))])
        metrics.gauge(LIMIT, "The connections that the node can track.", lambda: [((), float(self._table.limit))])
        metrics.gauge(
            REFUSED,
            "The addresses whose new connections were dropped in the last minute, as they had too many open.",
            lambda: [((), float(len(self._refused)))],
        )
        manager.informer(Pod, fields=f"spec.nodeName={node}").on_change(self._on_pod)
        manager.add_part("connection-watch", self.run)

    async def run(self) -> None:
        """Report until cancelled."""
        has_warned = False
        while True:
            try:
                await self._report()
            except OSError as error:
                if not has_warned:
                    _log.warning("the connections of pods are not watched, since the kernel says: %s", error)
                has_warned = True
            await self._clock.sleep(_INTERVAL_SECONDS)

    async def _report(self) -> None:
        with await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL) as tracking:
            self._table = read_table(tracking)
        self._refused = await refused_sources(self._sockets, self._families)
        for address in self._refused - self._reported:
            if pod := self._pods.get(address):
                self._recorder.record(pod, "Warning", REASON, _MESSAGE)
        self._reported = self._refused & self._pods.keys()

    def _on_pod(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        for address in _addresses_of(old):
            self._pods.pop(address, None)
        for address in _addresses_of(new):
            assert new is not None
            self._pods[address] = new.object


def _addresses_of(pod: Snapshot[Pod] | None) -> list[str]:
    """Return the addresses that belong to a pod alone."""
    if pod is None or (pod.object.get("spec") or {}).get("hostNetwork"):
        return []
    status = pod.object.get("status") or {}
    return (
        [] if status.get("phase") in ("Succeeded", "Failed") else [place["ip"] for place in status.get("podIPs") or ()]
    )
