"""Creates the `default` service account of every namespace, again if it is deleted."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.client.client import Client
from pinnace.controllers.namespace_content import create_unless_leaving
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Namespace, ServiceAccount
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

DEFAULT = "default"


class ServiceAccounts:
    """Reads through the manager's caches, writes through `client`."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._namespaces = manager.cache(Namespace, metadata_only=True)
        self._accounts = manager.cache(ServiceAccount, metadata_only=True)
        self.controller = Controller("service-account", self._reconcile)
        self.controller.for_(Namespace, metadata_only=True)
        self.controller.watches(ServiceAccount, _namespace_of_default, metadata_only=True)

    async def _reconcile(self, key: Key) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return
        if Key(key.name, DEFAULT) not in self._accounts:
            account = {"apiVersion": "v1", "kind": "ServiceAccount"}
            await create_unless_leaving(self._client, {**account, "metadata": {"name": DEFAULT, "namespace": key.name}})


def _namespace_of_default(account: ServiceAccount) -> Iterable[Key]:
    metadata = account["metadata"]
    return (Key("", metadata["namespace"]),) if metadata["name"] == DEFAULT else ()
