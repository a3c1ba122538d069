"""The names of the servers: the only server of a cluster, or one of several on one etcd."""

from __future__ import annotations

import hashlib
import socket
from base64 import b32encode
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """One server among those of a cluster. Its Lease in kube-system has its name, which a restart does not change."""

    name: str
    host: str


def _identity(host: str, *, text: str) -> ServerIdentity:
    digest = hashlib.sha256(text.encode()).digest()[:16]
    return ServerIdentity("apiserver-" + b32encode(digest).decode().rstrip("=").lower(), host)


ALONE = _identity("localhost", text="localhost")
"""The only server of a cluster."""


def identify_server(directory: Path) -> ServerIdentity:
    """Return the identity of one of several servers. Those of one machine differ by their data directories."""
    host = socket.gethostname()
    return _identity(host, text=f"{host}:{directory.resolve()}")
