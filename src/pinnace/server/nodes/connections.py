"""The ways to the nodes: those that are parts of this process, and the kubelets that the Node objects tell of."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinnace.admission.chain import AdmissionChain
from pinnace.auth.certificates.authority import CertificateFiles, issue, load_pair
from pinnace.model import errors
from pinnace.model.authorization import Authorizer
from pinnace.model.objects import Object
from pinnace.model.users import MASTERS
from pinnace.process.byte_streams import Duplex, relay
from pinnace.process.tasks import Tasks
from pinnace.serving.cache.fanout import Fanout

if TYPE_CHECKING:  # Loaded with the first stream, not at the start.
    from pinnace.model.node_connections import NodeConnection
    from pinnace.server.streaming.subresources import Streaming

_NODES = "/registry/core/nodes/"
_CLIENT = "kube-apiserver-kubelet-client"
_GET_NEEDS_CREATE = 35
"""The first minor of AuthorizePodWebsocketUpgradeCreatePermission."""


class Nodes:
    """`register` a node of this process under its name, and `remove` it when it stops."""

    def __init__(self, fanout: Fanout, files: CertificateFiles | None = None) -> None:
        self._fanout = fanout
        self._files = files
        self._own: dict[str, NodeConnection] = {}
        self._tls: ssl.SSLContext | None = None

    def register(self, name: str, connection: NodeConnection) -> None:
        self._own[name] = connection

    def remove(self, name: str) -> None:
        self._own.pop(name, None)

    def find(self, node: str) -> NodeConnection:
        """Return the connection to a node. Raise KeyError if there is no such node, NoAddress if it has no address."""
        own = self._own.get(node)
        if own is not None:
            return own
        from pinnace.server.streaming.kubelets import Kubelet, kubelet_address  # noqa: PLC0415 - most clusters have no kubelets.

        host, port = kubelet_address(self._fanout.cache(_NODES).entries[node].decode())
        return Kubelet(host, port, self._client_tls)

    def _client_tls(self) -> ssl.SSLContext:
        """This server shows who it is; as in Kubernetes, kubelets with certificates of their own making are trusted."""
        if self._tls is None:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if self._files is not None:
                _show_certificate(context, self._files)
            self._tls = context
        return self._tls


class LateStreams:
    """Loads the code of exec, logs and the like with the first such request: most clusters never have one."""

    def __init__(
        self, fanout: Fanout, nodes: Nodes, admission: AdmissionChain, authorizer: Authorizer, *, minor: str
    ) -> None:
        self._fanout = fanout
        self._nodes = nodes
        self._admission = admission
        self._authorizer = authorizer
        self._minor = int(minor.partition(".")[2])
        self._streaming: Streaming | None = None

    def __call__(self) -> Streaming:
        if self._streaming is None:
            from pinnace.server.streaming.subresources import Streaming  # noqa: PLC0415 - see above.

            self._streaming = Streaming(
                fanout=self._fanout,
                nodes=self._nodes,
                admission=self._admission,
                authorizer=self._authorizer,
                reading_creates=self._minor >= _GET_NEEDS_CREATE,
            )
        return self._streaming


def _show_certificate(context: ssl.SSLContext, files: CertificateFiles) -> None:
    """Issued when it is first needed: most clusters have no kubelets. OpenSSL reads a key from a file alone."""
    pair = issue(load_pair(files.ca), common_name=_CLIENT, organizations=[MASTERS], client=True)
    with tempfile.TemporaryDirectory(prefix="pinnace-") as directory:
        path = Path(directory) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(pair.certificate_pem + pair.key_pem)
        context.load_cert_chain(path)


_SERVICES = "/registry/core/services/"
_ENDPOINTS = "/registry/core/endpoints/"
_SLICES = "/registry/discovery.k8s.io/endpointslices/"
_OWNER = "kubernetes.io/service-name"


class ServedAddresses:
    """Finds a ready endpoint of a service: outside of the cluster's network, or a pod on a node of this machine."""

    def __init__(self, fanout: Fanout, forwards: PodForwards | None = None) -> None:
        self._fanout = fanout
        self._forwards = forwards

    def address_of(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Return a host and a port. Raise LookupError with a message if the service has no endpoint to dial."""
        entry = self._fanout.cache(_SERVICES).entries.get(f"{namespace}/{name}")
        if entry is None:
            raise LookupError(f'service "{name}" not found')
        spec: Object = entry.decode().get("spec") or {}
        if spec.get("type") == "ExternalName":
            return str(spec["externalName"]), port
        service_port = next((entry for entry in spec.get("ports") or () if entry.get("port") == port), None)
        if service_port is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        address = self._of_slices(namespace, name, service_port) or self._of_endpoints(namespace, name, service_port)
        if address is None:
            raise LookupError(f'no endpoints available for service "{name}"')
        return address

    def _of_slices(self, namespace: str, name: str, service_port: Object) -> tuple[str, int] | None:
        cache = self._fanout.cache(_SLICES)
        for key in cache.keys_with_labels({_OWNER: name}, namespace):
            slice_ = cache.entries[key].decode()
            port = _port(slice_.get("ports"), service_port)
            for endpoint in slice_.get("endpoints") or ():
                is_ready = (endpoint.get("conditions") or {}).get("ready")
                address = next(iter(endpoint.get("addresses") or ()), "")
                if port is None or is_ready is False:
                    continue
                if _is_reachable(address, endpoint):
                    return address, port
                if (forwarded := self._forward(endpoint, namespace, port)) is not None:
                    return forwarded
        return None

    def _forward(self, endpoint: Object, namespace: str, port: int) -> tuple[str, int] | None:
        pod = endpoint.get("targetRef") or {}
        if self._forwards is None or not pod.get("uid") or not endpoint.get("nodeName"):
            return None
        from pinnace.model.node_connections import PodAddress  # noqa: PLC0415 - few clusters have a real node.

        return self._forwards.address_of(endpoint["nodeName"], PodAddress(namespace, pod["name"], pod["uid"]), port)

    def _of_endpoints(self, namespace: str, name: str, service_port: Object) -> tuple[str, int] | None:
        entry = self._fanout.cache(_ENDPOINTS).entries.get(f"{namespace}/{name}")
        for subset in (entry.decode().get("subsets") or ()) if entry is not None else ():
            port = _port(subset.get("ports"), service_port)
            for endpoint in subset.get("addresses") or ():
                if port is not None and _is_reachable(endpoint["ip"], endpoint):
                    return str(endpoint["ip"]), port
        return None


def _is_reachable(address: str, endpoint: Object) -> bool:
    """Whether an endpoint can be dialled from the host: not a pod, unless it listens on loopback."""
    if not address:
        return False
    return (endpoint.get("targetRef") or {}).get("kind") != "Pod" or ip_address(address).is_loopback


def _port(ports: Any, service_port: Object) -> int | None:
    named = service_port.get("name") or ""
    return next(
        (int(port["port"]) for port in ports or () if (port.get("name") or "") == named and port.get("port")), None
    )


if TYPE_CHECKING:  # Loaded with the first forward: most clusters have none.
    from pinnace.model.node_connections import NodeConnection, NodeConnections, PodAddress

_LOOPBACK = "127.0.0.1"
_MOST_FORWARDS = 200


class PodForwards:
    """Opens a port for each port of a pod that is asked for, and keeps the most recent ones. Close it."""

    def __init__(self, nodes: NodeConnections) -> None:
        self._nodes = nodes
        self._ports: dict[tuple[str, int], tuple[socket.socket, asyncio.Task[None]]] = {}
        self._tasks = Tasks()

    def address_of(self, node: str, pod: PodAddress, port: int) -> tuple[str, int] | None:
        """Return a host and port that lead to a port of a pod; None if its node is not one of this machine."""
        try:
            connection = self._nodes.find(node)
        except (KeyError, errors.ApiError):
            return None
        if connection.host:
            return None
        key = (pod.uid, port)
        known = self._ports.pop(key, None)
        if known is None:
            listener = socket.create_server((_LOOPBACK, 0))
            listener.setblocking(False)
            known = listener, self._tasks.start(self._accept(listener, connection, pod, port))
            while len(self._ports) >= _MOST_FORWARDS:
                self._drop(next(iter(self._ports)))
        self._ports[key] = known  # The last one is the most recent.
        return _LOOPBACK, known[0].getsockname()[1]

    async def close(self) -> None:
        for key in list(self._ports):
            self._drop(key)
        await self._tasks.close()

    def _drop(self, key: tuple[str, int]) -> None:
        listener, task = self._ports.pop(key)
        task.cancel()
        listener.close()

    async def _accept(self, listener: socket.socket, connection: NodeConnection, pod: PodAddress, port: int) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            client.setblocking(False)
            self._tasks.start(_forward(client, connection, pod, port))


async def _forward(client: socket.socket, connection: NodeConnection, pod: PodAddress, port: int) -> None:
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        inside = await connection.connect(pod, port)
    except OSError:
        writer.transport.abort()
        return
    await relay(Duplex(reader, writer), inside)
