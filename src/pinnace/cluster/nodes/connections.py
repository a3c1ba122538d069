"""The ways to the nodes: those that are parts of this process, and the kubelets that the Node objects tell of."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.admission.chain import AdmissionChain
from pinnace.auth.authorization.authorizers import Authorizer
from pinnace.auth.certificates.authority import CertificateFiles, issue, load_pair
from pinnace.auth.users import MASTERS
from pinnace.server.cache.fanout import Fanout

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
