"""Publishes the CA of the API server as a ClusterTrustBundle, which pods can mount."""

from __future__ import annotations

import hashlib

from pinnace.client.client import Client
from pinnace.controllers.metric_names import TRUST_BUNDLE_SYNC_SECONDS, TRUST_BUNDLE_SYNCS, ControllerMetrics
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ClusterTrustBundle
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

SIGNER = "kubernetes.io/kube-apiserver-serving"


class TrustBundlePublisher:
    """Keeps one bundle of the signer, named by its content, and deletes the others."""

    def __init__(self, manager: Manager, client: Client, *, ca: str) -> None:
        """`ca` is in PEM."""
        self._client = client
        self._ca = ca
        digest = hashlib.sha256(ca.encode()).hexdigest()[:24]
        self._own = Key("", f"{SIGNER.replace('/', ':')}:{digest}")
        selection = f"spec.signerName={SIGNER}"
        self._bundles = manager.cache(ClusterTrustBundle, fields=selection)
        self._metrics = ControllerMetrics(manager.metrics, TRUST_BUNDLE_SYNCS, TRUST_BUNDLE_SYNC_SECONDS)
        self.controller = Controller("trust-bundle-publisher", self._reconcile)
        self.controller.watches(ClusterTrustBundle, lambda bundle: (self._own,), fields=selection)
        self.controller.enqueue(self._own, "start")

    async def _reconcile(self, key: Key) -> None:
        clock = self._client.clock
        began, code = clock.monotonic(), 500
        try:
            await self._publish()
            code = 200
        except errors.ApiError as error:
            code = error.code
            raise
        finally:
            self._metrics.count(TRUST_BUNDLE_SYNCS, code=str(code))
            self._metrics.observe(TRUST_BUNDLE_SYNC_SECONDS, clock.monotonic() - began, code=str(code))

    async def _publish(self) -> None:
        present = self._bundles.get(self._own)
        if present is None:
            bundle = {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "ClusterTrustBundle",
                "metadata": {"name": self._own.name},
                "spec": {"signerName": SIGNER, "trustBundle": self._ca},
            }
            await self._client.create(bundle)
        elif present["spec"]["trustBundle"] != self._ca:
            present["spec"]["trustBundle"] = self._ca
            await self._client.update(present)
        for key in list(self._bundles):
            if key != self._own:
                await self._delete(key)

    async def _delete(self, key: Key) -> None:
        try:
            await self._client.delete(ClusterTrustBundle, key.name)
        except errors.NotFound:
            return
