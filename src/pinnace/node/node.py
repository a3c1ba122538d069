"""A node as a process: images, runtime, agent and the socket for the API server, assembled."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from pinnace.client.client import Client
from pinnace.kinds.services.service_range import IPV6_CLUSTER_NETWORK, dns_address_of
from pinnace.model.node_connections import NodeConnection
from pinnace.network.dns.network import DnsNetwork
from pinnace.network.dns.upstream import DnsUpstream, servers_of_machine
from pinnace.network.families import family_of
from pinnace.network.nodes.links import NodeLinks
from pinnace.network.pods.connection_watch import ConnectionWatch
from pinnace.network.pods.egress import Egress, remove_link
from pinnace.network.policy.network import PolicyNetwork
from pinnace.network.services.network import ServiceNetwork
from pinnace.node.agent.agent import NodeAgent
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.agent.kubelet_api.node_documents import NodeDocuments
from pinnace.node.agent.kubelet_api.socket_connection import SOCKET
from pinnace.node.agent.kubelet_api.socket_server import AgentSocket
from pinnace.node.agent.kubelet_api.web_pages import Diagnostics, WebPages
from pinnace.node.agent.metrics.kubelet_metrics import KubeletMetrics, MeteredRuntime
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.errors import RuntimeFailure
from pinnace.node.identity.state_directory import make_private
from pinnace.node.images.images import Images
from pinnace.node.pressure.storage_meter import StorageMeter
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime, EmbeddedSettings
from pinnace.process.supervisor import Supervisor
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager

_IDLE_SECONDS, _TEMPORARY_SECONDS = 10.0, 5.0
"""How long the namespaces of the node wait for another agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    agent: AgentSettings
    pod_network: str = "10.244.0.0/24"
    """The network of this node's pods, a part of the next."""
    cluster_network: str = "10.244.0.0/16"
    """The network of all pods of the cluster."""
    ipv6_pod_network: str = ""
    """The IPv6 network of this node's pods, in a dual-stack cluster."""
    ipv6_cluster_network: str = IPV6_CLUSTER_NETWORK
    uses_nftables: bool = True
    """Whether Service addresses are rules of the kernel where it allows them; otherwise a proxy serves them."""
    links: Path | None = None
    """A directory that the nodes of this machine share, through which their pods reach each other."""
    is_offline: bool = False
    has_host_image: bool | None = None
    """Whether images may be this machine; None leaves it to the environment and the user."""
    has_egress: bool = False
    """Whether pods reach networks outside of this machine."""
    log_max_bytes: int | None = None
    """The size of a container's log at which a new file begins; None for the default."""
    log_max_files: int | None = None
    stops_pods: bool = False
    """Whether the pods end with the agent, instead of waiting for the next one."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The flags of the process, for /flagz."""
    is_temporary: bool = False
    """Whether the state directory is temporary: the pods end even if the agent is killed."""

    @property
    def pod_networks(self) -> list[str]:
        """One network of each IP family that the pods have, IPv4 first."""
        return _present(self.pod_network, self.ipv6_pod_network)

    @property
    def cluster_networks(self) -> list[str]:
        return [self.cluster_network, self.ipv6_cluster_network][: len(self.pod_networks)]

    @property
    def service_networks(self) -> list[str]:
        return _present(self.agent.service_network, self.agent.ipv6_service_network)


Listen = Callable[[NodeConnection, EmbeddedRuntime], Awaitable[int]]
"""Starts the web server of a node, and returns its port."""


@asynccontextmanager
async def run_node(
    client: Client, settings: NodeSettings, listen: Listen | None = None, diagnostics: Diagnostics | None = None
) -> AsyncIterator[EmbeddedRuntime]:
    """Run a node within a block. A part that fails is logged and restarted; the block goes on.

    `listen` starts the node's web server and returns its port; `diagnostics` answers its pages about the process.
    """
    directory = settings.agent.directory
    make_private(directory)
    lock = _lock(directory)
    resources = settings.agent.open_resources()
    images = Images(
        directory / "images", client.clock, is_offline=settings.is_offline, has_host=settings.has_host_image
    )
    embedded = _runtime_settings(settings, pins_containers=resources.policies.pins_containers)
    runtime = await EmbeddedRuntime.open(embedded, images, client.clock)
    supervisor = Supervisor(client.clock)
    manager = Manager(client, name="kubelet", supervise=supervisor.keep)
    metered = MeteredRuntime(runtime, manager.metrics, client.clock)
    storage = StorageMeter(metered, client.clock, settings.agent.pods)
    pages = WebPages(metered, client.clock, settings.agent.name, directory, storage)
    pages.metrics["/metrics"] = KubeletMetrics(manager.metrics, metered, settings.agent.name).text
    connection = AgentConnection(metered, client.clock, pages)
    own = replace(settings.agent, pod_cidrs=settings.pod_networks, resources=resources)
    if listen is not None:
        own = replace(own, port=await listen(connection, runtime))
    agent = NodeAgent(own, manager, metered, images, storage, supervisor)
    pages.metrics["/metrics/probes"] = agent.pod_metrics.probe_text
    pages.failing_parts = agent.health.failing_parts
    documents = NodeDocuments(own, metered, agent.pods)
    pages.documents |= {"/pods": documents.pods, "/runningpods": documents.running_pods}
    pages.documents["/configz"] = documents.configuration
    pages.diagnostics = diagnostics
    manager.add(agent.controller)
    _add_networks(manager, runtime, settings)
    socket = AgentSocket(directory / SOCKET, connection)
    egress = Egress(runtime, pid=await runtime.node_pid(), directory=directory) if settings.has_egress else None
    try:
        await (egress.open() if egress is not None else remove_link(runtime))
        supervisor.add("manager", manager.run)
        supervisor.add("agent-socket", socket.run)
        if settings.links is not None:
            networks = {"pod_networks": settings.pod_networks, "cluster_networks": settings.cluster_networks}
            supervisor.add("node-links", NodeLinks(runtime, **networks, directory=settings.links).run)
        async with Tasks(expected=()) as tasks, agent.running():
            tasks.start(images.prepare())
            yield runtime
    finally:
        if egress is not None:
            await egress.close()
        await (runtime.end() if settings.stops_pods else runtime.close())
        os.close(lock)


def _runtime_settings(settings: NodeSettings, *, pins_containers: bool) -> EmbeddedSettings:
    return EmbeddedSettings(
        directory=settings.agent.directory / "runtime",
        pod_network=settings.pod_network,
        ipv6_pod_network=settings.ipv6_pod_network,
        routes=(*settings.cluster_networks, *settings.service_networks),
        has_egress=settings.has_egress,
        uses_nftables=settings.uses_nftables,
        ends_with_agent=settings.is_temporary,
        pins_containers=pins_containers,
        **_log_limits(settings),
        idle_seconds=_TEMPORARY_SECONDS if settings.is_temporary else _IDLE_SECONDS,
    )


def _add_networks(manager: Manager, runtime: EmbeddedRuntime, settings: NodeSettings) -> None:
    """Add Service addresses, names and network policies to the manager."""
    services = ServiceNetwork(
        manager,
        runtime,
        node=settings.agent.name,
        service_networks=settings.service_networks,
        pod_networks=settings.pod_networks,
        cluster_networks=settings.cluster_networks,
        uses_nftables=settings.uses_nftables,
    )
    if not settings.has_egress:
        services.pods = runtime
    dns_address = dns_address_of(settings.agent.service_network)
    upstream = DnsUpstream(servers_of_machine()) if settings.has_egress else None
    DnsNetwork(manager, runtime, address=dns_address, upstream=upstream, uses_nftables=settings.uses_nftables)
    if settings.uses_nftables:
        families = [family_of(network) for network in settings.pod_networks]
        node = settings.agent.name
        runtime.follow_addresses(PolicyNetwork(manager, runtime, node=node, dns_address=dns_address, families=families))
        ConnectionWatch(manager, runtime, node=node, families=families)


def _present(*networks: str) -> list[str]:
    return [network for network in networks if network]


class _LogLimits(TypedDict, total=False):
    log_max_bytes: int
    log_max_files: int


def _log_limits(settings: NodeSettings) -> _LogLimits:
    limits: _LogLimits = {}
    if settings.log_max_bytes is not None:
        limits["log_max_bytes"] = settings.log_max_bytes
    if settings.log_max_files is not None:
        limits["log_max_files"] = settings.log_max_files
    return limits


def _lock(directory: Path) -> int:
    """Make sure that one agent alone uses a state directory: two would start every pod twice."""
    lock = os.open(directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RuntimeFailure(
            f"another agent uses {directory}; stop it, or give this one a --directory of its own"
        ) from None
    return lock
