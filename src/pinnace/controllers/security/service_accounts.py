"""Creates the `default` service account of every namespace, again if it is deleted."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.client.client import Client
from pinnace.controllers.namespace_content import create_unless_leaving
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

DEFAULT = "default"
_ACCOUNT = "v1/ServiceAccount"
_NAMESPACE = "v1/Namespace"


class ServiceAccounts:
    """Reads through the manager's caches, writes through `client`."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._namespaces = manager.cache(_NAMESPACE, metadata_only=True)
        self._accounts = manager.cache(_ACCOUNT, metadata_only=True)
        self.controller = Controller("service-account", self._reconcile)
        self.controller.for_(_NAMESPACE, metadata_only=True)
        self.controller.watches(_ACCOUNT, _namespace_of_default, metadata_only=True)

    async def _reconcile(self, key: Key) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return
        if Key(key.name, DEFAULT) not in self._accounts:
            account = {"apiVersion": "v1", "kind": "ServiceAccount"}
            await create_unless_leaving(self._client, {**account, "metadata": {"name": DEFAULT, "namespace": key.name}})


def _namespace_of_default(account: Object) -> Iterable[Key]:
    metadata = account["metadata"]
    return (Key("", metadata["namespace"]),) if metadata["name"] == DEFAULT else ()
