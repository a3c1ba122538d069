"""Marks service account tokens in Secrets that were not used for a year as invalid, and deletes them a year later.

Only Secrets that an account lists are touched: Kubernetes created those by itself before 1.24.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from pinnace.client.client import Client
from pinnace.controllers.security.service_account_tokens import NAME, TYPE, UID
from pinnace.model import errors
from pinnace.model.objects import Key
from pinnace.model.typed_objects import ConfigMap, ObjectMeta, Pod, Secret
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

TRACKING = Key("kube-system", "kube-apiserver-legacy-service-account-token-tracking")
LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
UNUSED = timedelta(days=365)
_DAY = 86400.0
_SECRET, _ACCOUNT, _OF_TYPE = "v1/Secret", "v1/ServiceAccount", f"type={TYPE}"


class LegacyTokenCleaner:
    """Looks at each token once a day."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._reader = manager.client  # The account of this controller may not read accounts.
        self._clock = client.clock
        self._secrets = manager.cache(Secret, fields=_OF_TYPE)
        self._pods = manager.cache(Pod)
        self.controller = Controller("legacy-service-account-token-cleaner", self._reconcile)
        self.controller.for_(Secret, fields=_OF_TYPE)

    async def _reconcile(self, key: Key) -> Result | None:
        secret = self._secrets.get(key)
        if secret is None or "deletionTimestamp" in secret["metadata"]:
            return None
        if await self._is_unused(secret):
            await self._invalidate_or_delete(secret)
        return Result(requeue_after=_DAY)

    async def _is_unused(self, secret: Secret) -> bool:
        metadata, now = secret["metadata"], self._clock.now()
        if datetime.fromisoformat(metadata["creationTimestamp"]) >= now - UNUSED:
            return False
        used = (metadata.get("labels") or {}).get(LAST_USED)
        if used is not None and _day(used, otherwise=date.max) >= (now - UNUSED).date():
            return False
        return (
            await self._is_tracked_long_enough()
            and await self._is_listed_by_account(secret)
            and not any(
                _names(pod.object, metadata["name"]) for pod in self._pods.snapshots(namespace=metadata["namespace"])
            )
        )

    async def _is_tracked_long_enough(self) -> bool:
        config_map = await self._client.get_or_none(ConfigMap, TRACKING.name, namespace=TRACKING.namespace)
        since = _day(((config_map or {}).get("data") or {}).get("since", ""), otherwise=date.max)
        return since != date.max and self._clock.now().date() > since + UNUSED

    async def _is_listed_by_account(self, secret: Secret) -> bool:
        annotations = secret["metadata"].get("annotations") or {}
        namespace = secret["metadata"]["namespace"]
        account = await self._reader.get_or_none(_ACCOUNT, annotations.get(NAME) or "-", namespace=namespace)
        if account is None or annotations.get(UID, "") not in ("", account["metadata"]["uid"]):
            return False
        return any(reference.get("name") == secret["metadata"]["name"] for reference in account.get("secrets") or ())

    async def _invalidate_or_delete(self, secret: Secret) -> None:
        metadata, today = secret["metadata"], self._clock.now().date()
        since = _day((metadata.get("labels") or {}).get(INVALID_SINCE, ""), otherwise=date.max)
        where, name = metadata["namespace"], metadata["name"]
        try:
            if since == date.max:
                patch = {"metadata": {"uid": metadata["uid"], "labels": {INVALID_SINCE: today.isoformat()}}}
                await self._client.patch(_SECRET, name, patch, namespace=where)
            elif since < today - UNUSED:
                await self._client.delete(_SECRET, name, namespace=where, version=metadata["resourceVersion"])
        except (errors.NotFound, errors.Conflict):
            return  # Changed meanwhile: its event leads here again.


def _of(metadata: ObjectMeta) -> str:
    return str(metadata["namespace"])


def _day(text: str, *, otherwise: date) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        return otherwise


def _names(pod: Pod, secret: str) -> bool:
    """Whether a pod uses a Secret in any way."""
    return secret in _secret_names(pod["spec"])


def _secret_names(part: Any) -> Iterator[str]:
    """Yield the names that a pod's spec gives to Secrets: of volumes, variables, pulls and storage."""
    if isinstance(part, list):
        for item in part:
            yield from _secret_names(item)
    elif isinstance(part, dict):
        for field, value in part.items():
            if field in ("secret", "secretRef", "secretKeyRef", "secretName") or field.endswith("SecretRef"):
                yield from _name_in(value)
            elif field == "imagePullSecrets":
                yield from (reference.get("name", "") for reference in value or ())
            else:
                yield from _secret_names(value)


def _name_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield str(value.get("secretName") or value.get("name") or "")
