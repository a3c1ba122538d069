"""The network policies of one node: follows the API, and keeps the rules equal to the policies."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

from pinnace.client.following import Event, FollowError, Restarted, Synced
from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Namespace, NetworkPolicy, Pod
from pinnace.network.families import IPV4, IpFamily, family_of
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.policy.rules import PolicyRules
from pinnace.network.policy.selection import PolicyState, essentials_of, pod_rules
from pinnace.network.services.connections import forget_addresses
from pinnace.network.sockets import Sockets
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager

_log = logging.getLogger(__name__)


_TRACKING_SECONDS = 10.0
_DNS_POD = Key("kube-system", "")
"""The DNS server of the node counts as a pod of kube-dns, which policies name to allow queries."""


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
        self._node = node
        self._state = PolicyState()
        self._state.pods[_DNS_POD] = _dns_pod(dns_address)
        self._rules: list[PolicyRules] = []
        self._ended: set[str] = set()
        """The addresses of pods that have ended, whose connections are to be forgotten."""
        self._has_ended = asyncio.Event()
        self._leaving: set[Key] = set()
        """The pods that the API has no more, and that still run."""
        self._client = manager.client
        self._missing: set[str] = set()
        """The kinds of which not every object is known yet."""
        self._changed = asyncio.Event()
        self._has_begun = asyncio.Event()
        self._is_known = asyncio.Event()
        manager.informer(NetworkPolicy).on_change(self._on_policy)
        manager.informer(Pod, fields=f"spec.nodeName={node}").on_change(self._on_own_pod)
        manager.add_part("network-policies", self.run)

    async def run(self) -> None:
        """Enforce until cancelled. The rules stay when the agent ends, since the pods do."""
        nftables: Nftables | None = None
        try:
            nftables = Nftables(await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
            self._rules = [PolicyRules(nftables, family) for family in self._families]
            async with Tasks(expected=()) as tasks:
                tasks.start(self._forget_ended())
                while True:
                    await self._run_without_policies()
                    await self._run_with_policies()
        finally:
            self._has_begun.set()
            self._is_known.set()
            self._rules = []
            if nftables is not None:
                nftables.close()

    async def _run_without_policies(self) -> None:
        while not self._state.policies:
            self._changed.clear()
            self._enforce()
            self._has_begun.set()
            await self._changed.wait()

    async def _run_with_policies(self) -> None:
        """Follow all pods and namespaces: a node may read those of other nodes only while there is a policy."""
        self._is_known.clear()
        self._missing = {"v1/Pod", "v1/Namespace"}
        try:
            async with Tasks(expected=()) as tasks:
                tasks.start(self._follow("v1/Pod", self._on_pod))
                tasks.start(self._follow("v1/Namespace", self._on_namespace))
                while self._state.policies:
                    self._changed.clear()
                    if not self._missing:
                        self._enforce()
                        self._is_known.set()
                        self._has_begun.set()
                    await self._changed.wait()
        finally:
            self._is_known.set()
            self._state.namespaces.clear()
            for key in [key for key, pod in self._state.pods.items() if not self._is_own(pod) and key != _DNS_POD]:
                del self._state.pods[key]

    async def _follow(self, kind: str, change: Callable[[Key, Any], None]) -> None:
        """Report the objects of a kind until cancelled, and that one is gone as None."""
        known: set[Key] = set()
        listed: set[Key] | None = None
        async with aclosing(self._client.follow(kind)) as events:
            async for event in events:
                match event:
                    case Restarted():
                        listed = set()
                    case Event(type="ADDED" | "MODIFIED", snapshot=snapshot):
                        known.add(snapshot.key)
                        if listed is not None:
                            listed.add(snapshot.key)
                        change(snapshot.key, snapshot.object)
                    case Event(type="DELETED", snapshot=snapshot):
                        known.discard(snapshot.key)
                        change(snapshot.key, None)
                    case Synced():
                        for key in known - listed if listed is not None else ():
                            change(key, None)
                        known, listed = listed if listed is not None else known, None
                        self._missing.discard(kind)
                    case FollowError(error=error):
                        _log.warning("network policies cannot be followed: %s cannot be read: %s", kind, error)
                if listed is None:
                    self._changed.set()

    def on_start(self, pod: Key, addresses: Sequence[str]) -> None:
        """Learn the addresses of a pod that begins, or that an earlier agent has started. `protect` it then."""
        self._state.own_addresses[pod] = addresses

    async def protect(self) -> None:
        """Put the rules of new pods into force before they have a network: none of their packets comes before."""
        await self._has_begun.wait()
        if self._state.policies:
            await self._is_known.wait()
            self._enforce()

    def on_end(self, pod: Key, addresses: Sequence[str]) -> None:
        """Drop the rules of a pod that has ended, unless another one of its name has begun."""
        if self._state.own_addresses.get(pod) == addresses:
            del self._state.own_addresses[pod]
            if pod in self._leaving:
                self._leaving.discard(pod)
                self._state.pods.pop(pod, None)
        self._ended.update(addresses)
        self._has_ended.set()
        self._changed.set()

    async def _forget_ended(self) -> None:
        """Forget the connections of pods that have ended: they would pass the policies of the next pods there."""
        while True:
            await self._has_ended.wait()
            self._has_ended.clear()
            ended, self._ended = self._ended, set()
            for family in self._families:
                own = [address for address in ended if family_of(address) is family]
                try:
                    with await self._sockets.open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL) as tracking:
                        tracking.settimeout(_TRACKING_SECONDS)
                        await asyncio.to_thread(forget_addresses, tracking, own, family)
                except OSError as error:
                    _log.warning("connections of pods that have ended are kept, since the kernel says: %s", error)

    def _enforce(self) -> None:
        has_policies = bool(self._state.policies)
        for rules in self._rules:
            try:
                rules.apply(pod_rules(self._state, node=self._node, family=rules.family) if has_policies else {})
            except OSError as error:
                _log.warning("network policies are not enforced, since nftables refuses their rules: %s", error)

    def _on_policy(self, old: Snapshot[NetworkPolicy] | None, new: Snapshot[NetworkPolicy] | None) -> None:
        if new is not None:
            self._state.policies[new.key] = new.object
        elif old is not None:
            self._state.policies.pop(old.key, None)
        self._changed.set()

    def _on_own_pod(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        """The agent learns of its pods at the same moment: their rules are there when they start."""
        if new is not None:
            self._leaving.discard(new.key)
            self._state.pods[new.key] = essentials_of(new.object)
        elif old is not None and old.key in self._state.own_addresses:
            self._leaving.add(old.key)  # A pod that was deleted by force still runs, and keeps its rules.
        elif old is not None and self._is_own(self._state.pods.get(old.key)):
            del self._state.pods[old.key]
        if self._state.policies:
            self._changed.set()

    def _on_pod(self, key: Key, pod: Pod | None) -> None:
        """Learn of the pods of other nodes; those of this node are known."""
        if pod is not None and not self._is_own(pod):
            self._state.pods[key] = essentials_of(pod)
        elif pod is None and not self._is_own(self._state.pods.get(key)):
            self._state.pods.pop(key, None)

    def _is_own(self, pod: Pod | None) -> bool:
        return pod is not None and (pod.get("spec") or {}).get("nodeName") == self._node

    def _on_namespace(self, key: Key, namespace: Namespace | None) -> None:
        if namespace is not None:
            self._state.namespaces[key.name] = namespace
        else:
            self._state.namespaces.pop(key.name, None)


def _dns_pod(address: str) -> Pod:
    """The part of a pod of kube-dns that decides: it runs on no node, and so is selected by no policy."""
    ports = [{"name": "dns", "containerPort": 53, "protocol": "UDP"}, {"name": "dns-tcp", "containerPort": 53}]
    made = {
        "metadata": {"labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": "", "hostNetwork": False, "containers": [{"ports": ports}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    }
    return cast("Pod", made)
