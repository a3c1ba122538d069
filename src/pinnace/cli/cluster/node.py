"""`pinnace node`: runs pods on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from asyncio import sslproto
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from pinnace.cli.data_directory import default_data_dir, use_usual_umask
from pinnace.cli.failure import fail
from pinnace.cli.flags.node import EgressFlag, HostImageFlag, NodeDirectory, OfflineFlag
from pinnace.cli.flags.shared import Context
from pinnace.cli.flags.values import flag_values
from pinnace.cli.flags.versions import FeatureGatesFlag, parse_feature_gates
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.credentials import NoCredentials
from pinnace.client.kubeconfig import Access, KubeconfigError, find_access
from pinnace.client.transport import ConnectionLost
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.kinds.services.service_range import SERVICE_RANGE, split_families
from pinnace.model import errors
from pinnace.model.node_connections import NodeConnection
from pinnace.network.pods.egress import EgressUnavailable
from pinnace.node.agent.kubelet_api.web_pages import Diagnostics, WebPage
from pinnace.node.agent.process.watch_dog import beat, die_with_parent, die_with_reader, notify_systemd, start_watched
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.agent.status.registration import capacity_of_machine
from pinnace.node.agent.status.served_minor import served_minor
from pinnace.node.errors import RuntimeFailure
from pinnace.node.identity.certificates import (
    CLIENT_FILE,
    SERVING_FILE,
    CertificateRefused,
    CertificateRenewal,
    request_serving_certificate,
    save,
    self_signed_certificate,
)
from pinnace.node.identity.join_objects import create_missing, node_network
from pinnace.node.identity.joining import BootstrapToken, JoinFailed, access_of_token, bootstrap_node, node_access
from pinnace.node.identity.state_directory import make_private
from pinnace.node.image_service import FindCredentials
from pinnace.node.kubelet_configuration import KubeletSettings, read_kubelet_configuration
from pinnace.node.node import NodeSettings, run_node
from pinnace.node.pressure.signals import DEFAULT_THRESHOLDS, parse_thresholds
from pinnace.node.runtime.embedded.runtime import EmbeddedRuntime
from pinnace.process.clock import SystemClock
from pinnace.process.event_loop import stop_signals
from pinnace.process.tasks import Tasks
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.server.http.memory_reserve import check_memory_limits

_KUBELET_PORT = 10250
_PATHS = ("/configz", "/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource", "/pods", "/stats")
Value = TypeVar("Value")
_TLS_BUFFER_BYTES = 64 * 1024
"""Bytes that asyncio reserves for each TLS connection; its own 256 KB are 11 MB for the requests of many pods."""
_EXPECTED = (
    *(KubeconfigError, NoCredentials, JoinFailed, CertificateRefused),
    *(ConnectionLost, errors.ApiError, RuntimeFailure, EgressUnavailable, OSError, ValueError),
)


def node(
    command: typer.Context,
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
    context: Context = "",
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
    directory: NodeDirectory = None,
    root_dir: Annotated[
        Path | None,
        typer.Option(
            help="The directory with the sockets of plug-ins, which pods see as /var/lib/kubelet.",
            show_default="kubelet in --directory",
        ),
    ] = None,
    image_credential_provider_config: Annotated[
        Path | None,
        typer.Option(help="A CredentialProviderConfig, or a directory of them: programs that return credentials."),
    ] = None,
    image_credential_provider_bin_dir: Annotated[
        Path | None, typer.Option(help="The directory of the programs of --image-credential-provider-config.")
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
    config: Annotated[
        Path | None,
        typer.Option(help="A KubeletConfiguration. Flags that are given win over its fields.", show_default=False),
    ] = None,
    config_dir: Annotated[
        Path | None,
        typer.Option(help="A directory with drop-ins for --config, *.conf in the order of names.", show_default=False),
    ] = None,
    port: Annotated[
        int,
        typer.Option(help="The port of the node's own server for logs and exec; 0 takes a free one.", min=0, max=65535),
    ] = 0,
    healthz_port: Annotated[
        int,
        typer.Option(help="Serve /healthz on this port of 127.0.0.1, as kubelet does; 0 is off.", min=0, max=65535),
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
    feature_gates: FeatureGatesFlag = "",
    links: Annotated[
        Path | None,
        typer.Option(
            help="A directory that several nodes of this machine share; their pods reach each other.",
            show_default=False,
        ),
    ] = None,
    egress: EgressFlag = False,
    host_image: HostImageFlag = None,
    offline: OfflineFlag = False,
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
    beats: Annotated[int, typer.Option(help="The pipe that shows that the loop turns.", hidden=True)] = -1,
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
    use_usual_umask()
    _check_start(server, token)
    if with_parent:
        die_with_parent()
    else:
        beats = _watch(beats)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    place = (directory or default_data_dir() / "node").absolute()
    node_ips = [part.strip() for part in node_ip.split(",")]
    pod_networks = _families("--pod-network", pod_network)
    service_networks = _families("--service-cluster-ip-range", service_cluster_ip_range)
    configured = _configured(config, config_dir)
    choose = partial(_choose, command)
    port = choose("port", port, configured.port)
    healthz_port = choose("healthz_port", healthz_port, configured.healthz_port)
    is_signed = choose("rotate_server_certificates", rotate_server_certificates, configured.has_signed_certificate)
    eviction_hard = choose("eviction_hard", eviction_hard, configured.eviction_hard)
    agent = AgentSettings(
        name=name or socket.gethostname().lower(),
        directory=place,
        address=node_ips[0],
        ipv6_address=node_ips[1] if len(node_ips) > 1 else "",
        service_network=service_networks[0],
        ipv6_service_network=service_networks[1],
        manifests=pod_manifest_path or configured.manifests,
        eviction_hard=eviction_hard,
        capacity=_capacity(configured),
        taints=configured.taints,
        reserved=configured.reserved,
        policies=configured.policies,
        feature_gates=parse_feature_gates(feature_gates or configured.feature_gates, ""),
        find_credentials=_providers(image_credential_provider_config, image_credential_provider_bin_dir),
        plugins=(root_dir or place / "kubelet").absolute(),
        unsafe_sysctls=tuple(part for part in allowed_unsafe_sysctls.split(",") if part) or configured.unsafe_sysctls,
    )
    settings = NodeSettings(
        agent=agent,
        pod_network=pod_networks[0],
        ipv6_pod_network=pod_networks[1],
        links=links,
        is_offline=offline,
        has_egress=egress,
        has_host_image=host_image,
        log_max_bytes=configured.log_max_bytes,
        log_max_files=configured.log_max_files,
        stops_pods=stop_pods,
        is_temporary=temporary,
        flags=flag_values(command),
    )
    try:
        parse_thresholds(eviction_hard)
        bootstrap = None
        if token:
            ca = ca_file.read_bytes() if ca_file is not None else b""
            bootstrap = BootstrapToken(server=server, token=token, ca=ca, ca_hashes=ca_cert_hash or ())
        web = None if with_parent else _WebServer(node_ips[0], port, healthz_port, is_signed=is_signed)
        sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
        asyncio.run(_run(bootstrap or _Kubeconfig(kubeconfig, context, bootstrap_kubeconfig), settings, web, beats))
    except _EXPECTED as error:
        fail(error)


def _providers(config: Path | None, programs: Path | None) -> FindCredentials | None:
    """Return the function that finds credentials by the programs of a configuration. Exit if it cannot be used."""
    if (config is None) != (programs is None):
        fail("--image-credential-provider-config and --image-credential-provider-bin-dir belong together")
    if config is None or programs is None:
        return None
    from pinnace.node.plugins.credential_providers import (  # noqa: PLC0415 - few nodes have providers
        CredentialProviders,
        read_providers,
    )

    try:
        return CredentialProviders(read_providers(config, programs), SystemClock()).find
    except ConfigurationError as error:
        fail(error)


def _configured(path: Path | None, directory: Path | None) -> KubeletSettings:
    """Return the settings of a KubeletConfiguration. Exit if it cannot be used."""
    if path is None and directory is None:
        return KubeletSettings()
    try:
        settings = read_kubelet_configuration(path, directory)
    except ConfigurationError as error:
        fail(error)
    for warning in settings.warnings:
        logging.getLogger(__name__).warning("%s: %s", path or directory, warning)
    return settings


def _choose(command: typer.Context, flag: str, value: Value, configured: Value | None) -> Value:
    """Return the value of a flag that is given, or the configured one."""
    is_given = str(command.get_parameter_source(flag)).endswith("COMMANDLINE")
    return value if is_given or configured is None else configured


def _capacity(configured: KubeletSettings) -> dict[str, str]:
    capacity = capacity_of_machine()
    return capacity if configured.max_pods is None else {**capacity, "pods": str(configured.max_pods)}


def _watch(beats: int) -> int:
    """Let a parent start this node again if its loop stalls. Return the pipe for its beats; -1 if systemd watches."""
    if beats >= 0:
        die_with_reader(beats)
        return beats
    if os.environ.get("NOTIFY_SOCKET"):
        return -1
    return start_watched([sys.executable, "-P", "-c", "from pinnace.cli.main import main; main()", *sys.argv[1:]])


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
    healthz_port: int
    """The port for its health alone; 0 for none."""
    is_signed: bool


async def _run(
    source: BootstrapToken | _Kubeconfig, settings: NodeSettings, web: _WebServer | None, beats: int
) -> None:
    if beats >= 0:
        beat(beats)
    make_private(settings.agent.directory)
    pki = settings.agent.directory / "pki"
    if web is not None and isinstance(source, _Kubeconfig) and source.bootstrap is None:
        await _prepare_cluster(source, settings.agent)
    access = await _access(source, settings.agent.name, pki)
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(access, field_manager="kubelet"))
        tasks = await stack.enter_async_context(Tasks(expected=()))
        tasks.start(CertificateRenewal(client, settings.agent.name, pki / CLIENT_FILE).run())
        of_pods = partial(_listen_for_pods, stack, client, settings.agent, access.ca)
        listen = of_pods if web is None else partial(_listen, stack, client, settings.agent, web, access.ca)
        pages = _ProcessPages(client, settings)
        runtime = await stack.enter_async_context(run_node(client, settings, listen, pages.answer))
        print(f"node {settings.agent.name} runs pods of {access.server}; Ctrl-C stops it", flush=True)
        for sentence in (await runtime.status()).missing:
            print(f"note: {sentence}", flush=True)
        tasks.start(notify_systemd(os.environ))
        await stop.wait()


async def _prepare_cluster(source: _Kubeconfig, agent: AgentSettings) -> None:
    """Let nodes read what their networks depend on, if the cluster has had no node that runs pods."""
    async with connect(find_access(path=source.path, context=source.context)) as client:
        with suppress(errors.Forbidden):  # An administrator has done it, with `pinnace token create` for example.
            await create_missing(client, node_network(agent.service_network))


async def _access(source: BootstrapToken | _Kubeconfig, node: str, pki: Path) -> Access:
    if isinstance(source, BootstrapToken):
        return await node_access(await access_of_token(source), node, pki)
    if source.bootstrap is not None:
        return await bootstrap_node(source.bootstrap, source.path or pki.parent / "kubeconfig", node, pki)
    return await node_access(find_access(path=source.path, context=source.context), node, pki)


class _ProcessPages:
    """Answers /statusz, /flagz and /debug/pprof. The modules for it are loaded with the first request."""

    def __init__(self, client: Client, settings: NodeSettings) -> None:
        self._client = client
        self._settings = settings
        self._began = time.monotonic()
        self._answer: Diagnostics | None = None

    async def answer(self, accept: str, query: str, path: list[str]) -> WebPage | None:
        if self._answer is None:
            from pinnace.cluster.component_server import diagnostics_of_node  # noqa: PLC0415 - nodes rarely need it.

            text = self._settings.agent.feature_gates
            gates = FeatureGates.parse(f"1.{await served_minor(self._client)}", text)
            self._answer = diagnostics_of_node(gates, self._settings.flags, _PATHS, self._began)
        return await self._answer(accept, query, path)


async def _listen(
    stack: AsyncExitStack,
    client: Client,
    agent: AgentSettings,
    web: _WebServer,
    ca: bytes,
    connection: NodeConnection,
    _: EmbeddedRuntime,
) -> int:
    """Start the node's own server, and return its port."""
    from pinnace.cluster.kubelet_port import kubelet_port  # noqa: PLC0415 - the child of `pinnace up` rarely needs it.
    from pinnace.server.nodes.kubelet_port import NodeServerFiles, serve_health  # noqa: PLC0415 - as above.

    files = NodeServerFiles(agent.directory / "pki" / SERVING_FILE, agent.directory / "pki" / "ca.crt")
    names = [agent.name, web.address]
    if web.is_signed:
        save(files.pair, await request_serving_certificate(client, agent.name, names))
    else:
        save(files.pair, self_signed_certificate(agent.name, names, client.clock.now()))
    files.ca.write_bytes(ca)
    if web.healthz_port:
        await stack.enter_async_context(serve_health(connection, web.healthz_port))
    server = kubelet_port(client, agent.name)
    stack.push_async_callback(server.stop)
    return await server.start(connection, web.address, web.port, files)


async def _listen_for_pods(
    stack: AsyncExitStack,
    client: Client,
    agent: AgentSettings,
    ca: bytes,
    connection: NodeConnection,
    runtime: EmbeddedRuntime,
) -> int:
    """Listen for pods, such as those of metrics-server, at the address of the node in their network.

    The server that started this node reaches it without a port. So the modules of the node's own server are loaded, and
    its certificate is made, when the first pod connects.
    """
    listener = await runtime.find_listener(socket.SOCK_STREAM, agent.address, _KUBELET_PORT)
    loop = asyncio.get_running_loop()

    def serve() -> None:
        from pinnace.cluster.kubelet_port import kubelet_port  # noqa: PLC0415 - see above.
        from pinnace.server.nodes.kubelet_port import NodeServerFiles  # noqa: PLC0415 - see above.

        loop.remove_reader(listener)
        files = NodeServerFiles(agent.directory / "pki" / SERVING_FILE, agent.directory / "pki" / "ca.crt")
        save(files.pair, self_signed_certificate(agent.name, [agent.name, agent.address], client.clock.now()))
        files.ca.write_bytes(ca)
        server = kubelet_port(client, agent.name)
        stack.push_async_callback(server.stop)
        server.serve(connection, listener, files)

    def close() -> None:
        if listener.fileno() >= 0:  # The server has not taken it.
            loop.remove_reader(listener)
            listener.close()

    loop.add_reader(listener, serve)
    stack.callback(close)
    return _KUBELET_PORT


def _check_start(server: str, token: str) -> None:
    if bool(server) != bool(token):
        fail("--server and --token belong together: the address of the cluster and a bootstrap token of it")
    try:
        check_memory_limits()
    except OSError as error:
        fail(error)


def _families(option: str, text: str) -> tuple[str, str]:
    try:
        return split_families(text)
    except ValueError as error:
        fail(f"{option} {error}")
