"""Publishes the CAs of clients and of the front proxy, which aggregated API servers trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinnace.client.client import Client
from pinnace.controllers.namespace_content import create_unless_leaving
from pinnace.model.objects import Key, Object
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

KEY = Key("kube-system", "extension-apiserver-authentication")
_CONFIG_MAP = "v1/ConfigMap"


class ExtensionAuthentication:
    """Keeps its own entries of one ConfigMap up to date; other entries are left alone."""

    def __init__(self, manager: Manager, client: Client, *, entries: Mapping[str, str]) -> None:
        self._client = client
        self._entries = dict(entries)
        self.controller = Controller("cluster-authentication-trust", self._reconcile)
        self.controller.watches(_CONFIG_MAP, _only_ours, metadata_only=True)
        self.controller.enqueue(KEY, "start")

    async def _reconcile(self, key: Key) -> None:
        present = await self._client.get_or_none(_CONFIG_MAP, key.name, namespace=key.namespace)
        if present is None:
            metadata = {"name": key.name, "namespace": key.namespace}
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self._entries}
            await create_unless_leaving(self._client, made)
            return
        data = present.get("data") or {}
        if any(data.get(name) != value for name, value in self._entries.items()):
            present["data"] = {**data, **self._entries}
            await self._client.update(present)


def _only_ours(config_map: Object) -> Iterable[Key]:
    metadata = config_map["metadata"]
    key = Key(metadata["namespace"], metadata["name"])
    return (key,) if key == KEY else ()
