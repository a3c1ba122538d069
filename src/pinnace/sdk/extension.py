"""The programs that `pinnace run` finds in a file: operators, schedulers and plug-ins of nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager

if TYPE_CHECKING:
    from pinnace.sdk.installation.manifests import DeploymentOptions


class Runnable(ABC):
    """`pinnace run` finds the one object of this type in a file."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The field manager of its writes, the source of its events and the name of its lease."""

    def crds(self) -> list[Object]:
        """Return the CRDs that it installs."""
        return []


class Extension(Runnable):
    """A program that runs against a cluster: an operator or a scheduler."""

    @abstractmethod
    def running(self, client: Client, **options: Any) -> AbstractAsyncContextManager[Manager]:
        """Run within a block."""

    @abstractmethod
    def account(self, namespace: str) -> list[Object]:
        """Return its ServiceAccount in a namespace, with its generated roles and their bindings."""


class NodePlugin(Runnable):
    """A program that runs on a node, and serves it over the sockets in kubelet's directory."""

    @abstractmethod
    async def run(self, directory: Path) -> None:
        """Serve the node with this kubelet directory until cancelled."""

    @abstractmethod
    def manifests(self, place: DeploymentOptions) -> dict[str, list[Object]]:
        """Return the objects that run it on each node of a cluster, by the names of files."""
