"""Connect to a server over HTTP."""

from __future__ import annotations

from pathlib import Path

from pinnace.client.client import Client
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access, find_access
from pinnace.process.clock import AlarmClock


def connect(
    access: Access | None = None,
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    namespace: str = "",
    field_manager: str = "pinnace",
    clock: AlarmClock | None = None,
) -> Client:
    """Return a client of the cluster that kubectl would use, or of the one that `access` describes.

    Nothing is sent yet; close the client when done (`async with`). Raise KubeconfigError.
    """
    access = access or find_access(path=kubeconfig, context=context)
    return Client(
        HttpTransport(access), namespace=namespace or access.namespace, field_manager=field_manager, clock=clock
    )
