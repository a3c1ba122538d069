"""The network policies of one node: follows the API, and keeps the rules equal to the policies."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence

from pinnace.client.snapshots import Snapshot
from pinnace.network.families import IPV4, IpFamily
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.policy.rules import PolicyRules
from pinnace.network.policy.selection import PolicyState, essentials_of, pod_rules
from pinnace.network.sockets import Sockets
from pinnace.reconcile.manager import Manager

_log = logging.getLogger(__name__)


class PolicyNetwork:
    """Create it before the manager runs. On a machine without nftables it says that policies are not enforced."""

    def __init__(
        self,
        manager: Manager,
        sockets: Sockets,
        *,
        node: str,
        dns_address: str,
        families: Sequence[IpFamily] = (IPV4,),
    ) -> None:
        """`families` are those of the pods' addresses."""
        self._sockets = sockets
        self._families = families
        self._dns_address = dns_address
        self._node = node
        self._state = PolicyState()
        self._changed = asyncio.Event()
        manager.informer("networking.k8s.io/v1/NetworkPolicy").on_change(self._on_policy)
        manager.informer("v1/Pod").on_change(self._on_pod)
        manager.informer("v1/Namespace").on_change(self._on_namespace)
        manager.add_part("network-policies", self.run)

    async def run(self) -> None:
        """Enforce until cancelled. The rules stay when the agent ends, since the pods do."""
        nftables: Nftables | None = None
        try:
            nftables = Nftables(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
            rules = {
                family: PolicyRules(nftables, exempt=self._dns_address if family is IPV4 else "", family=family)
                for family in self._families
            }
            while True:
                try:
                    for family, own in rules.items():
                        has_policies = bool(self._state.policies)
                        own.apply(pod_rules(self._state, node=self._node, family=family) if has_policies else {})
                except OSError as error:
                    _log.warning("network policies are not enforced, since nftables refuses their rules: %s", error)
                await self._changed.wait()
                self._changed.clear()
        finally:
            if nftables is not None:
                nftables.close()

    def _on_policy(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            self._state.policies[new.key] = new.object
        elif old is not None:
            self._state.policies.pop(old.key, None)
        self._changed.set()

    def _on_pod(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            self._state.pods[new.key] = essentials_of(new.object)
        elif old is not None:
            self._state.pods.pop(old.key, None)
        if self._state.policies:
            self._changed.set()

    def _on_namespace(self, old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None:
            self._state.namespaces[new.key.name] = new.object
        elif old is not None:
            self._state.namespaces.pop(old.key.name, None)
        if self._state.policies:
            self._changed.set()
