"""Simulated nodes: three controllers over shared informers, however many nodes and pods there are.

One keeps each Node ready, one renews the leases in turn, one takes the pods through their stages. An idle cluster costs
only the renewals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, NodeConnection, PodAddress
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Node, Pod
from pinnace.node.agent.status.node_lease import create_lease, renew_lease
from pinnace.node.simulated.fast import FastLife
from pinnace.node.simulated.machines import (
    NODE_NETWORK,
    POD_NETWORK,
    AddressPool,
    NodeShape,
    host_ips,
    is_ready,
    is_simulated,
    node_object,
    ready_status,
)
from pinnace.node.simulated.stage_runner import StageRunner
from pinnace.node.simulated.stages import Life, decode_head
from pinnace.process.byte_streams import Duplex, ProxyResponse
from pinnace.process.clock import to_rfc3339
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

RENEW_SECONDS = 25.0
"""Half of the time after which a node without renewals counts as unknown."""
_LEASES_PER_TURN = 25


class LocalNodes(Protocol):
    """Registers the nodes of this process with the API server."""

    def register(self, name: str, connection: NodeConnection) -> None: ...

    def remove(self, name: str) -> None: ...


@dataclass(slots=True)
class _Machine:
    """The state of one simulated node."""

    turn: int
    """Its position in the order of lease renewals."""
    uid: str = ""
    has_lease: bool = False
    host_ips: tuple[str, ...] = ()
    pod_network: str = POD_NETWORK


class SimulatedNodes:
    """Simulates every Node with the annotation `kwok.x-k8s.io/node`, and creates some of its own with `add`."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        kubelet: Callable[[str], Client],
        *,
        version: str = "",
        life: Life | None = None,
        node_life: Life | None = None,
        connections: LocalNodes | None = None,
    ) -> None:
        """`client` sets labels of nodes that no kubelet may set, `kubelet` returns the client of the node of a name.

        `version` is the kubelet version that nodes report, such as v1.36.0.

        `life` has the stages of pods. Nodes are ready and become ready again, unless `node_life` has stages for them.
        """
        self._manager = manager
        self._client = client
        self._kubelet = kubelet
        self._kubelets: dict[str, Client] = {}
        self._version = version
        self._life = life or FastLife()
        self._clock = client.clock
        self._machines: dict[str, _Machine] = {}
        self._stopped: set[str] = set()
        self._shapes: dict[str, NodeShape] = {}
        self._registration = SimulatedRegistration()
        self._turns = 0
        self._connections = connections
        self._node_addresses = AddressPool(NODE_NETWORK)
        self._pods_of: dict[str, set[Key]] = {}
        self._pools: dict[str, AddressPool] = {}
        self._addresses: dict[Key, tuple[AddressPool, str]] = {}
        self._node_cache = manager.cache(Node)
        self._nodes = Controller("simulated-nodes", self._reconcile_node, workers=8)
        self._leases = Controller("simulated-leases", self._renew, workers=8)
        self._pods = StageRunner(manager, client, "v1/Pod", self._life, self, node_of=self._node_of_pod)
        self._node_stages = (
            StageRunner(manager, client, "v1/Node", node_life, self, node_of=self._node_of_node)
            if node_life is not None
            else None
        )
        manager.informer(Node).on_change(self._hear_node)
        manager.informer(Pod).on_change(self._hear_pod)

    @property
    def controllers(self) -> Sequence[Controller]:
        """Return the controllers of nodes, leases and stages, to be added to the manager."""
        stages = [self._pods] if self._node_stages is None else [self._pods, self._node_stages]
        return [self._nodes, self._leases, *(runner.controller for runner in stages)]

    # Nodes

    def add(self, names: Sequence[str], shape: NodeShape | None = None) -> None:
        """Create these nodes unless they exist, and simulate them."""
        for name in names:
            self._shapes[name] = shape or NodeShape()
            self._registration.expect(name)
            self._nodes.enqueue(Key("", name), "start")

    @property
    def registration(self) -> SimulatedRegistration:
        """Return which nodes of `add` are not registered yet."""
        return self._registration

    def stop(self, name: str) -> None:
        """Simulate a machine that has died: no renewals, and its pods stay as they are."""
        self._stopped.add(name)

    def start(self, name: str) -> None:
        """Bring a stopped node back."""
        self._stopped.discard(name)
        self._nodes.enqueue(Key("", name), "start")
        self._leases.enqueue(Key("", name), "start")
        for key in list(self._pods_of.get(name, ())):
            self._pods.enqueue(key, "start")

    @property
    def names(self) -> list[str]:
        return list(self._machines)

    def _hear_node(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        latest = new or old
        assert latest is not None
        name = latest.key.name
        node = new.object if new is not None else None
        if node is None or not is_simulated(node):
            self._forget_node(name)
            return
        known = self._machines.get(name)
        if known is None:
            known = self._remember_node(latest.key)
        known.uid, known.host_ips = node["metadata"]["uid"], host_ips(node)
        known.pod_network = node["spec"].get("podCIDR") or POD_NETWORK
        for address in known.host_ips:
            self._node_addresses.take(address)
        if self._node_stages is not None:
            self._node_stages.enqueue(latest.key, "changed")
        elif not is_ready(node):
            self._nodes.enqueue(latest.key, "not ready")
            return
        self._registration.note(name, has_range="podCIDR" in node["spec"])

    def _node_of_node(self, node: Node) -> str:
        return self._running(node["metadata"]["name"])

    def _node_of_pod(self, pod: Pod) -> str:
        return self._running(pod["spec"].get("nodeName") or "")

    def _running(self, name: str) -> str:
        """Return the name of a node that is simulated and runs; else an empty one."""
        return name if name in self._machines and name not in self._stopped else ""

    def kubelet(self, node: str) -> Client:
        """Return the client of a node, with the rights of that node."""
        known = self._kubelets.get(node)
        if known is None:
            known = self._kubelets[node] = self._kubelet(node)
        return known

    def _remember_node(self, key: Key) -> _Machine:
        known = self._machines[key.name] = _Machine(self._turns)
        self._turns += 1
        if self._connections is not None:
            self._connections.register(key.name, SimulatedConnection(key.name))
        self._leases.enqueue(key, "added")
        for pod in list(self._pods_of.get(key.name, ())):
            self._pods.enqueue(pod, "node added")
        return known

    def _forget_node(self, name: str) -> None:
        known = self._machines.pop(name, None)
        if known is None:
            return
        self._kubelets.pop(name, None)
        for address in known.host_ips:
            self._node_addresses.release(address)
        if self._node_stages is not None:
            self._node_stages.forget(Key("", name))
        if self._connections is not None:
            self._connections.remove(name)

    async def _reconcile_node(self, key: Key) -> None:
        if key.name in self._stopped:
            return
        now = to_rfc3339(self._clock.now())
        node = self._node_cache.get(key)
        shape = self._shapes.get(key.name)
        if node is None:
            if shape is None:
                return
            address = self._node_addresses.allocate()
            try:
                await self.kubelet(key.name).create(
                    node_object(key.name, address, shape, version=self._version, now=now)
                )
            except errors.AlreadyExists:
                return
            if shape.other_labels:
                await self._client.patch(Node, key.name, {"metadata": {"labels": shape.other_labels}})
        elif self._node_stages is None and is_simulated(node) and not is_ready(node):
            address = "" if host_ips(node) else self._node_addresses.allocate()
            status = ready_status(node, address, shape or NodeShape(), version=self._version, now=now)
            await self.kubelet(key.name).patch(Node, key.name, {"status": status}, subresource="status")

    # Leases

    async def _renew(self, key: Key) -> Result | None:
        machine = self._machines.get(key.name)
        if machine is None or key.name in self._stopped:
            return None
        if machine.has_lease:
            await self._renew_lease(key.name, machine)
        else:
            try:
                await self._create_lease(key.name, machine)
            except errors.AlreadyExists:  # The server was started again.
                await self._renew_lease(key.name, machine)
        return Result(requeue_after=self._until_next_turn(machine))

    async def _renew_lease(self, name: str, machine: _Machine) -> None:
        machine.has_lease = True
        try:
            await renew_lease(self.kubelet(name), name, self._clock.now())
        except errors.NotFound:
            await self._create_lease(name, machine)

    async def _create_lease(self, name: str, machine: _Machine) -> None:
        await create_lease(self.kubelet(name), name, machine.uid, self._clock.now())
        machine.has_lease = True

    def _until_next_turn(self, machine: _Machine) -> float:
        """Nodes renew in groups, one group per turn: few wake-ups, and no burst of all nodes at once."""
        turns = max(1, min(int(RENEW_SECONDS), len(self._machines) // _LEASES_PER_TURN))
        turn = machine.turn % turns * RENEW_SECONDS / turns
        ahead = (turn - self._clock.monotonic()) % RENEW_SECONDS
        return ahead if ahead > 1.0 else ahead + RENEW_SECONDS

    # Pods

    def _hear_pod(self, old: Snapshot[Pod] | None, new: Snapshot[Pod] | None) -> None:
        if new is None:
            assert old is not None
            self._forget_pod(old)
            return
        head = decode_head(new.body)
        node = head.spec.nodeName
        if not node:
            return
        self._pods_of.setdefault(node, set()).add(new.key)
        if node not in self._machines:
            return
        if head.status.podIP and new.key not in self._addresses:
            pool = self._pool(node)
            pool.take(head.status.podIP)
            self._addresses[new.key] = (pool, head.status.podIP)
        if self._life.concerns(head):
            self._pods.enqueue(new.key, "changed")

    def _forget_pod(self, last: Snapshot[Pod]) -> None:
        key = last.key
        node = decode_head(last.body).spec.nodeName
        pods = self._pods_of.get(node)
        if pods is not None:
            pods.discard(key)
            if not pods:
                del self._pods_of[node]
        self._pods.forget(key)
        held = self._addresses.pop(key, None)
        if held is not None:
            held[0].release(held[1])

    # For stages

    @property
    def now(self) -> str:
        return to_rfc3339(self._clock.now())

    def host_ips(self, node: str) -> Sequence[str]:
        machine = self._machines.get(node)
        return machine.host_ips if machine is not None else ()

    def node_ip(self, node: str) -> str:
        machine = self._machines.get(node)
        if machine is None or not machine.host_ips:
            address = self._node_addresses.allocate()
            if machine is not None:
                machine.host_ips = (address,)
            return address
        return machine.host_ips[0]

    def pod_ips(self, pod: Pod) -> Sequence[str]:
        node = pod["spec"]["nodeName"]
        if pod["spec"].get("hostNetwork"):
            return self.host_ips(node)
        key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        held = self._addresses.get(key)
        if held is None:
            pool = self._pool(node)
            held = self._addresses[key] = (pool, pool.allocate())
        return (held[1],)

    def _pool(self, node: str) -> AddressPool:
        network = self._machines[node].pod_network
        pool = self._pools.get(network)
        if pool is None:
            pool = self._pools[network] = AddressPool(network)
        return pool


class SimulatedConnection:
    """A `NodeConnection`."""

    host = ""

    def __init__(self, node: str) -> None:
        self._node = node

    async def reach(self) -> None:
        """Do nothing: the node can always be reached."""

    async def exec(self, pod: PodAddress, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        raise self._refusal()

    async def attach(self, pod: PodAddress, container: str, streams: CommandStreams) -> int:
        raise self._refusal()

    async def logs(self, pod: PodAddress, container: str, options: ContainerLogOptions) -> AsyncIterator[bytes]:
        return _nothing()

    async def connect(self, pod: PodAddress, port: int) -> Duplex:
        raise ConnectionRefusedError(str(self._refusal()))

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, upgrade: bytes = b""
    ) -> ProxyResponse:
        raise self._refusal()

    def _refusal(self) -> errors.ApiError:
        return errors.BadRequest(f"node {self._node} is simulated: its pods run no containers")


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


class SimulatedRegistration:
    """The nodes that were added and are not ready yet, and those without a range of pod addresses."""

    def __init__(self) -> None:
        self._unready: set[str] = set()
        self._without_range: set[str] = set()
        self._progress = asyncio.Event()

    def missing(self, *, needs_ranges: bool) -> int:
        """Return how many nodes `complete` waits for."""
        return len(self._without_range if needs_ranges else self._unready)

    def expect(self, name: str) -> None:
        self._unready.add(name)
        self._without_range.add(name)

    def note(self, name: str, *, has_range: bool) -> None:
        """Note that a node exists and is ready."""
        if not self._without_range:
            return
        self._unready.discard(name)
        if has_range:
            self._without_range.discard(name)
        if not self._unready:
            self._progress.set()

    async def complete(self, *, needs_ranges: bool) -> None:
        """Return when all nodes are registered. With `needs_ranges` a controller gives each node its range first."""
        while self.missing(needs_ranges=needs_ranges):
            self._progress.clear()
            await self._progress.wait()
