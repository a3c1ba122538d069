"""Tokens of machines that join: expired ones are deleted, and valid ones sign kube-public/cluster-info."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from datetime import datetime

from pinnace.client.client import Client
from pinnace.model import errors
from pinnace.model.bootstrap_tokens import (
    CLUSTER_INFO,
    KUBECONFIG,
    NAMESPACE,
    PREFIX,
    SIGNATURE,
    TYPE,
    detached_signature,
)
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ConfigMap, Secret
from pinnace.process.clock import Clock
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager


class TokenCleaner:
    """Deletes each token when it expires."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._secrets = manager.cache(Secret, namespace=NAMESPACE, fields=f"type={TYPE}")
        self.controller = Controller("token-cleaner", self._reconcile)
        self.controller.for_(Secret, namespace=NAMESPACE, fields=f"type={TYPE}")

    async def _reconcile(self, key: Key) -> Result | None:
        secret = self._secrets.get(key)
        left = _seconds_left(secret, self._client.clock) if secret is not None else None
        if secret is None or left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        try:
            await self._client.delete(Secret, key.name, namespace=key.namespace, uid=secret["metadata"]["uid"])
        except (errors.NotFound, errors.Conflict):
            return None  # Deleted, and maybe created again: its event follows.
        return None


class BootstrapSigner:
    """Keeps one signature per token in the ConfigMap: a machine that has a token can trust the kubeconfig in it."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        name = f"metadata.name={CLUSTER_INFO.name}"
        self._secrets = manager.cache(Secret, namespace=NAMESPACE, fields=f"type={TYPE}")
        self._config_maps = manager.cache(ConfigMap, namespace=CLUSTER_INFO.namespace, fields=name)
        self.controller = Controller("bootstrap-signer", self._reconcile)
        self.controller.for_(ConfigMap, namespace=CLUSTER_INFO.namespace, fields=name)
        self.controller.watches(Secret, _sign_again, namespace=NAMESPACE, fields=f"type={TYPE}")

    async def _reconcile(self, key: Key) -> Result | None:
        config_map = self._config_maps.get(CLUSTER_INFO)
        data = (config_map.get("data") or {}) if config_map is not None else {}
        if config_map is None or KUBECONFIG not in data:
            return None
        clock = self._client.clock
        secrets = [secret for secret in self._secrets.list() if _may_sign(secret, clock)]
        wanted = {name: value for name, value in data.items() if not name.startswith(SIGNATURE)}
        for secret in secrets:
            token = _value(secret, "token-id")
            wanted[SIGNATURE + token] = detached_signature(data[KUBECONFIG], token, _value(secret, "token-secret"))
        if wanted != data:
            config_map["data"] = wanted
            await self._client.update(config_map)
        waits = [left for secret in secrets if (left := _seconds_left(secret, clock)) is not None]
        return Result(requeue_after=min(waits)) if waits else None


def _sign_again(secret: Secret) -> Iterable[Key]:
    return (CLUSTER_INFO,)


def _may_sign(secret: Secret, clock: Clock) -> bool:
    token = _value(secret, "token-id")
    left = _seconds_left(secret, clock)
    return (
        bool(token and _value(secret, "token-secret"))
        and secret["metadata"]["name"] == PREFIX + token
        and _value(secret, "usage-bootstrap-signing") == "true"
        and (left is None or left > 0)
    )


def _seconds_left(secret: Secret, clock: Clock) -> float | None:
    """None if a token does not expire. One whose time cannot be read has expired."""
    until = _value(secret, "expiration")
    if not until:
        return None
    try:
        return (datetime.fromisoformat(until) - clock.now()).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _value(secret: Secret, key: str) -> str:
    return b64decode((secret.get("data") or {}).get(key) or "").decode("latin-1")
