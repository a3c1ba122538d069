"""Publishes the cluster's CA certificate in every namespace, so that pods can trust the API."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.controllers.metric_names import ROOT_CA_SYNC_SECONDS, ROOT_CA_SYNCS, ControllerMetrics
from pinnace.controllers.namespace_content import create_unless_leaving
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ConfigMap, Namespace
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

NAME = "kube-root-ca.crt"
_DESCRIPTION = "kubernetes.io/description"
_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class RootCaPublisher:
    """Keeps one ConfigMap per namespace up to date. Only metadata is watched; the content is read when it changes."""

    def __init__(self, manager: Manager, client: Client, *, ca: str) -> None:
        """`ca` is in PEM."""
        self._reading = manager.client
        self._client = client
        self._ca = ca
        self._namespaces = manager.cache(Namespace, metadata_only=True)
        self._metrics = ControllerMetrics(manager.metrics, ROOT_CA_SYNCS, ROOT_CA_SYNC_SECONDS)
        self.controller = Controller("root-ca-certificate-publisher", self._reconcile)
        self.controller.for_(Namespace, metadata_only=True)
        self.controller.watches_encoded(ConfigMap, _namespace_of_ours, metadata_only=True)

    async def _reconcile(self, key: Key) -> None:
        clock = self._client.clock
        began, code = clock.monotonic(), 500
        try:
            await self._publish(key)
            code = 200
        except errors.ApiError as error:
            code = error.code
            raise
        finally:
            self._metrics.count(ROOT_CA_SYNCS, code=str(code))
            self._metrics.observe(ROOT_CA_SYNC_SECONDS, clock.monotonic() - began, code=str(code))

    async def _publish(self, key: Key) -> None:
        namespace = self._namespaces.get(key)
        if namespace is None or "deletionTimestamp" in namespace["metadata"]:
            return
        present = await self._reading.get_or_none(ConfigMap, NAME, namespace=key.name)
        if present is None:
            metadata = {"name": NAME, "namespace": key.name, "annotations": {_DESCRIPTION: _TEXT}}
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": self._ca}}
            await create_unless_leaving(self._client, made)
            return
        annotations = present["metadata"].setdefault("annotations", {})
        if present.get("data") == {"ca.crt": self._ca} and annotations.get(_DESCRIPTION):
            return
        annotations[_DESCRIPTION] = _TEXT
        present["data"] = {"ca.crt": self._ca}
        await self._client.update(present)


def _namespace_of_ours(config_map: Snapshot[ConfigMap]) -> Iterable[Key]:
    return (Key("", config_map.key.namespace),) if config_map.key.name == NAME else ()
