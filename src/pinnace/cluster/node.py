"""A node of this machine beside the server: `pinnace node` as a child process, and the server's connection to it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from pinnace.node.identity.join_objects import ROTATION, create_missing, node_network
from pinnace.node.scratch import remove_abandoned
from pinnace.node.this_machine import become_node
from pinnace.process.private_files import write_private

_log = logging.getLogger(__name__)
STOP_SECONDS = 30.0
_CODE = "from pinnace.cli.main import main; main()"


class NodeEnded(Exception):
    """The process of the node has ended, or cannot be started; it is tried again."""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A node of this machine: its name, its state directory, and the addresses of its pods."""

    name: str
    directory: Path
    pod_networks: tuple[str, ...]
    """The IPv4 network, and in a dual-stack cluster one of IPv6."""
    service_ranges: tuple[str, ...]
    """The IPv4 range, and in a dual-stack cluster one of IPv6."""
    links: Path | None = None
    """The directory that several nodes of this machine share."""
    has_egress: bool = False
    has_host_image: bool | None = None
    feature_gates: str = ""
    is_temporary: bool = False
    """Whether the state directory goes with the server: the pods must end even if the server is killed."""


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
        await _run_process(node)

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


def make_state_directory(directory: Path, name: str) -> None:
    """Create the directory of a node, but not its parent: a removed data directory must stay away until it is back."""
    try:
        directory.mkdir(exist_ok=True, mode=0o711)
    except FileNotFoundError:
        raise NodeEnded(f"{directory.parent} was removed: node {name} has no place for its state") from None


async def _run_process(node: OwnNode) -> None:
    name, directory = node.name, node.directory
    arguments = ["node", "--name", name, "--directory", str(directory), "--stop-pods", "--with-parent"]
    # Pods reach the node, and its node ports, at its bridge. This machine reaches node ports at 127.0.0.1.
    bridge = ",".join(str(ip_network(network)[1]) for network in node.pod_networks)
    arguments += [
        "--node-ip",
        bridge,
        "--pod-network",
        ",".join(node.pod_networks),
        "--service-cluster-ip-range",
        ",".join(node.service_ranges),
    ]
    if node.is_temporary:
        arguments.append("--temporary")
    if node.links is not None:
        arguments += ["--links", str(node.links)]
    if node.feature_gates:
        arguments += ["--feature-gates", node.feature_gates]
    if node.has_egress:
        arguments.append("--egress")
    if node.has_host_image is not None:
        arguments.append("--host-image" if node.has_host_image else "--no-host-image")
    beats, end = os.pipe2(os.O_CLOEXEC)
    try:
        try:
            # Without -P the modules of the current directory would take the place of Python's own.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _CODE, *arguments, "--kubeconfig", str(directory / "kubeconfig")),
                *("--beats", str(end)),
                stdin=asyncio.subprocess.PIPE,  # It ends with this process, and the agent with it.
                pass_fds=(end,),
                start_new_session=True,
            )
        finally:
            os.close(end)
        await _watch(process, name, beats)
    finally:
        os.close(beats)


async def _watch(process: asyncio.subprocess.Process, name: str, beats: int) -> None:
    """Wait for the end of an agent, or for its stall, which ends it. Raise NodeEnded."""
    from pinnace.node.agent.process.watch_dog import await_stall, end_stalled  # noqa: PLC0415 - the same.

    try:
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(process.wait())
            stalled = group.create_task(await_stall(beats))
            await asyncio.wait((ended, stalled), return_when=asyncio.FIRST_COMPLETED)
            silence = stalled.result() if stalled.done() and not ended.done() else 0.0
            if silence:
                _log.error("the loop of node %s has not turned for %.0f s: its process is killed", name, silence)
                await end_stalled(process)
            code = await ended
            stalled.cancel()
        raise NodeEnded(f"the process of node {name} {'stalled' if silence else f'ended with {code}'}")
    finally:
        if process.returncode is None:
            await stop_process(process, name)


async def stop_process(process: asyncio.subprocess.Process, name: str) -> None:
    """End the process of a node and wait for it. Kill it if it takes too long: the server must be able to stop."""
    process.terminate()
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(process.wait())
        # Not `asyncio.timeout`: before Python 3.11.4 it raises no TimeoutError in a task that is being cancelled.
        await asyncio.wait((ended,), timeout=STOP_SECONDS)
        if not ended.done():
            _log.warning("node %s has not stopped within %.0f s: it is killed", name, STOP_SECONDS)
            process.kill()
