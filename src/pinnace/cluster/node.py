"""The nodes of this machine beside the server: their settings, credentials and the server's connection to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

from pinnace.auth.certificates.authority import CertificateFiles, issue, load_pair
from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.kubeconfig_files import ClusterAccess
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.kinds.services.service_range import SERVICE_RANGE, ipv6_pod_network
from pinnace.model.node_connections import NodeConnection
from pinnace.network.families import has_ipv6
from pinnace.node.child_process import OwnNode, make_state_directory, run_process
from pinnace.node.identity.join_objects import ROTATION, create_missing, node_network
from pinnace.node.scratch import remove_abandoned
from pinnace.node.this_machine import become_node
from pinnace.process.private_files import write_private

_log = logging.getLogger(__name__)


def with_own_node(settings: Settings, *, wanted: bool | None) -> Settings:
    """Return the settings with the name of this machine's node, if it becomes one. Raise NoNode if it cannot.

    `wanted` is the choice of the user, None for none. Several agents are wanted nodes.
    """
    is_useful = settings.controllers and not settings.nodes
    return replace(settings, node=become_node(wanted if settings.agents == 1 else True, is_useful=is_useful))


def add_nodes(
    plane: ControlPlane, settings: Settings, directory: Path, access: ClusterAccess, files: CertificateFiles
) -> None:
    """Start nodes and keep them running. Each has a state directory and a certificate of its own."""
    links = directory / "links" if settings.agents > 1 else None
    ranges = _ranges_of_node(settings.service_ranges)
    for number in range(settings.agents):
        suffix = f"-{number + 1}" if number else ""
        place = directory / f"node{suffix}"
        node = OwnNode(
            settings.node + suffix,
            place,
            (f"10.244.{number}.0/24", *([ipv6_pod_network(number)] if len(ranges) > 1 else [])),
            ranges,
            links,
            has_egress=settings.has_egress,
            has_host_image=settings.has_host_image,
            feature_gates=settings.feature_gates,
            is_temporary=settings.data_dir is None,
        )
        _add_node(plane, node, access, files)


def _ranges_of_node(ranges: Sequence[str]) -> tuple[str, ...]:
    """Return the ranges that the nodes of this machine serve, IPv4 first: their pods always have IPv4 addresses."""
    ipv6 = [range_ for range_ in ranges if ip_network(range_).version == 6]
    if ipv6 and not has_ipv6():
        _log.warning("pods and Services have IPv4 addresses alone: this machine has no IPv6")
        ipv6 = []
    return next((range_ for range_ in ranges if ip_network(range_).version == 4), SERVICE_RANGE), *ipv6


def _add_node(plane: ControlPlane, node: OwnNode, access: ClusterAccess, files: CertificateFiles) -> None:
    """Start a node and keep it running. Its state is in the directory, with a certificate of its own.

    Everything happens in the background: the server is ready before its node.
    """
    name, directory = node.name, node.directory

    async def run() -> None:
        if node.is_temporary:
            await asyncio.to_thread(remove_abandoned)
        connection = await asyncio.to_thread(_prepare, name, directory, access, files)
        plane.nodes.register(name, connection)
        permissions = (ROTATION, *node_network(node.service_ranges[0]))
        await create_missing(in_process_client(plane.local()), permissions)
        await run_process(node)

    plane.supervisor.add(directory.name, run)


def _prepare(name: str, directory: Path, access: ClusterAccess, files: CertificateFiles) -> NodeConnection:
    """Write the kubeconfig and the certificate of the node, and return the server's connection to it.

    The certificate is signed here: the node is ready sooner, and it works without controllers.
    """
    from pinnace.node.agent.kubelet_api.socket_connection import SOCKET, SocketConnection  # noqa: PLC0415 - when the server is ready.
    from pinnace.node.identity.certificates import CLIENT_FILE  # noqa: PLC0415 - the same.

    make_state_directory(directory, name)
    kubeconfig.write(directory / "kubeconfig", ClusterAccess(server=access.server, ca=access.ca, name=access.name))
    pair = issue(load_pair(files.ca), common_name=f"system:node:{name}", organizations=("system:nodes",), client=True)
    (directory / "pki").mkdir(exist_ok=True, mode=0o700)
    write_private(directory / "pki" / CLIENT_FILE, pair.certificate_pem + pair.key_pem)
    return SocketConnection(directory / SOCKET)
