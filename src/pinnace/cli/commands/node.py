"""`pinnace node`: runs pods on this machine."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio import sslproto
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pinnace.cli.agent_options import EgressFlag
from pinnace.cli.data_directory import default_data_dir
from pinnace.cli.failure import fail
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.node_connections import NodeConnection
from pinnace.model.process_signals import stop_signals
from pinnace.model.tasks import Tasks
from pinnace.network.pods.egress import EgressUnavailable
from pinnace.network.service_range import SERVICE_RANGE, split_families
from pinnace.node.agent.agent import AgentSettings
from pinnace.node.agent.process import NodeSettings, die_with_parent, run_node
from pinnace.node.identity.certificates import (
    CLIENT_FILE,
    SERVING_FILE,
    CertificateRefused,
    CertificateRenewal,
    request_serving_certificate,
    save,
    self_signed_certificate,
)
from pinnace.node.identity.joining import BootstrapToken, JoinFailed, access_of_token, bootstrap_node, node_access
from pinnace.node.pressure.signals import DEFAULT_THRESHOLDS, parse_thresholds
from pinnace.node.runtime.errors import RuntimeFailure

_TLS_BUFFER_BYTES = 64 * 1024
"""Bytes that asyncio reserves for each TLS connection; its own 256 KB are 11 MB for the requests of many pods."""
_EXPECTED = (
    *(KubeconfigError, NoCredentials, JoinFailed, CertificateRefused),
    *(ConnectionLost, errors.ApiError, RuntimeFailure, EgressUnavailable, OSError, ValueError),
)


def node(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="The kubeconfig of the cluster. Its user requests the node's own certificate, at the first start.",
            show_default="kubectl's",
        ),
    ] = None,
    bootstrap_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Request the node's certificate as the user of this kubeconfig, and write --kubeconfig with it, as "
            "kubelet does. It is not needed again while that certificate is good.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[str, typer.Option(help="The context to use.", show_default="the current one")] = "",
    server: Annotated[str, typer.Option(help="Join the cluster at this URL with --token.", show_default=False)] = "",
    token: Annotated[
        str, typer.Option(help="A bootstrap token; pinnace token create prints one.", show_default=False)
    ] = "",
    ca_cert_hash: Annotated[
        list[str] | None,
        typer.Option(
            "--discovery-token-ca-cert-hash",
            metavar="sha256:HEX",
            help="The hash of the public key of the cluster's CA; may be repeated.",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--certificate-authority", help="The CA of the cluster, instead of its hash.", show_default=False),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the node.", show_default="the host name")] = "",
    directory: Annotated[
        Path | None,
        typer.Option(help="The state directory of the node.", show_default="node in the data directory"),
    ] = None,
    pod_network: Annotated[
        str, typer.Option(help="The network of this node's pods; for dual-stack pods also an IPv6 one, after a comma.")
    ] = "10.244.0.0/24",
    service_cluster_ip_range: Annotated[
        str, typer.Option(help="The addresses of Services, as the API server has them; IPv6 after IPv4 and a comma.")
    ] = SERVICE_RANGE,
    node_ip: Annotated[
        str,
        typer.Option(
            help="The address of this machine that the API server and users of the node reach; its IPv6 address may "
            "follow after a comma."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(help="The port of the node's own server for logs and exec; 0 takes a free one.", min=0, max=65535),
    ] = 0,
    rotate_server_certificates: Annotated[
        bool,
        typer.Option(
            "--rotate-server-certificates",
            help="Request the server's certificate from the cluster; otherwise it is self-signed.",
        ),
    ] = False,
    pod_manifest_path: Annotated[
        Path | None, typer.Option(help="Run the static pods whose manifests are in this directory.", show_default=False)
    ] = None,
    eviction_hard: Annotated[
        str, typer.Option(help="Evict pods when a signal of the node falls below its threshold.")
    ] = DEFAULT_THRESHOLDS,
    allowed_unsafe_sysctls: Annotated[
        str,
        typer.Option(help="Sysctls that pods may set beside the safe ones: kernel.msg*,net.core.somaxconn."),
    ] = "",
    links: Annotated[
        Path | None,
        typer.Option(
            help="A directory that several nodes of this machine share; their pods reach each other.",
            show_default=False,
        ),
    ] = None,
    egress: EgressFlag = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Pull from registries on this machine alone, as PINNACE_OFFLINE=1 does.")
    ] = False,
    stop_pods: Annotated[
        bool,
        typer.Option(
            "--stop-pods", help="Stop the pods at the end. Otherwise they go on, and the next start finds them."
        ),
    ] = False,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="End the pods even if this process is killed.", hidden=True)
    ] = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="End when the process that started it ends.", hidden=True)
    ] = False,
) -> None:
    """Run the pods that are bound to this node, until Ctrl-C. Needs neither root nor a container engine.

    \b
    Examples:
      pinnace up --node                         a cluster with this machine as its node
      pinnace node --kubeconfig admin.conf      a node of another cluster
      pinnace node --bootstrap-kubeconfig bootstrap.conf --kubeconfig kubelet.conf   the same as kubelet does it
      pinnace node --server https://127.0.0.1:6443 --token abcdef.0123456789abcdef \\
        --discovery-token-ca-cert-hash sha256:…   the same with what pinnace token create prints

    The node has a certificate of its own (system:node:NAME), kept in pki of the state directory and renewed before it
    expires. It may read and write no more than its pods need.
    """
    if with_parent:
        die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    place = (directory or default_data_dir() / "node").absolute()
    node_ips = [one.strip() for one in node_ip.split(",")]
    pod_networks = _families("--pod-network", pod_network)
    service_networks = _families("--service-cluster-ip-range", service_cluster_ip_range)
    agent = AgentSettings(
        name=name or socket.gethostname().lower(),
        directory=place,
        address=node_ips[0],
        ipv6_address=node_ips[1] if len(node_ips) > 1 else "",
        service_network=service_networks[0],
        ipv6_service_network=service_networks[1],
        manifests=pod_manifest_path,
        eviction_hard=eviction_hard,
        unsafe_sysctls=tuple(one for one in allowed_unsafe_sysctls.split(",") if one),
    )
    settings = NodeSettings(
        agent=agent,
        pod_network=pod_networks[0],
        ipv6_pod_network=pod_networks[1],
        links=links,
        is_offline=offline,
        has_egress=egress,
        stops_pods=stop_pods,
        is_temporary=temporary,
    )
    if bool(server) != bool(token):
        fail("--server and --token belong together: the address of the cluster and a bootstrap token of it")
    try:
        parse_thresholds(eviction_hard)
        bootstrap = None
        if token:
            ca = ca_file.read_bytes() if ca_file is not None else b""
            bootstrap = BootstrapToken(server=server, token=token, ca=ca, ca_hashes=ca_cert_hash or ())
        web = None if with_parent else _WebServer(node_ips[0], port, is_signed=rotate_server_certificates)
        source = bootstrap or _Kubeconfig(kubeconfig, context, bootstrap_kubeconfig)
        sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
        asyncio.run(_run(source, settings, web))
    except _EXPECTED as error:
        fail(error)


@dataclass(frozen=True, slots=True)
class _Kubeconfig:
    path: Path | None
    context: str
    bootstrap: Path | None = None


@dataclass(frozen=True, slots=True)
class _WebServer:
    """The node's own server: where it listens, and whether the cluster signs its certificate."""

    address: str
    port: int
    is_signed: bool


async def _run(source: BootstrapToken | _Kubeconfig, settings: NodeSettings, web: _WebServer | None) -> None:
    pki = settings.agent.directory / "pki"
    access = await _access(source, settings.agent.name, pki)
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(access, field_manager="kubelet"))
        tasks = await stack.enter_async_context(Tasks(expected=()))
        tasks.start(CertificateRenewal(client, settings.agent.name, pki / CLIENT_FILE).run())
        listen = None
        if web is not None:
            listen = partial(_listen, stack, client, settings.agent, web, access.ca)
        runtime = await stack.enter_async_context(run_node(client, settings, listen))
        print(f"node {settings.agent.name} runs pods of {access.server}; Ctrl-C stops it", flush=True)
        for sentence in (await runtime.status()).missing:
            print(f"note: {sentence}", flush=True)
        await stop.wait()


async def _access(source: BootstrapToken | _Kubeconfig, node: str, pki: Path) -> Access:
    if isinstance(source, BootstrapToken):
        return await node_access(await access_of_token(source), node, pki)
    if source.bootstrap is not None:
        return await bootstrap_node(source.bootstrap, source.path or pki.parent / "kubeconfig", node, pki)
    return await node_access(find_access(path=source.path, context=source.context), node, pki)


async def _listen(
    stack: AsyncExitStack,
    client: Client,
    agent: AgentSettings,
    web: _WebServer,
    ca: bytes,
    connection: NodeConnection,
) -> int:
    """Start the node's own server, and return its port."""
    from pinnace.cluster.processes.node_server import NodeServer, NodeServerFiles  # noqa: PLC0415 - the child of `pinnace up` has none.

    files = NodeServerFiles(agent.directory / "pki" / SERVING_FILE, agent.directory / "pki" / "ca.crt")
    names = [agent.name, web.address]
    if web.is_signed:
        save(files.pair, await request_serving_certificate(client, agent.name, names))
    else:
        save(files.pair, self_signed_certificate(agent.name, names, client.clock.now()))
    files.ca.write_bytes(ca)
    server = NodeServer(client, agent.name)
    stack.push_async_callback(server.stop)
    return await server.start(connection, web.address, web.port, files)


def _families(option: str, text: str) -> tuple[str, str]:
    try:
        return split_families(text)
    except ValueError as error:
        fail(f"{option} {error}")
