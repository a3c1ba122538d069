"""Sets the service account of pods, and mounts its token where clients expect it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, cast

from pinnace.admission.chain import CREATE, WRITES
from pinnace.admission.plugins.pod_references import is_mirror, projections_of, secrets_of
from pinnace.model.objects import NOTHING
from pinnace.model.typed_objects import DownwardAPIVolumeFile, Pod, PodSpec, ProjectedVolumeSource
from pinnace.model.typed_objects import ServiceAccount as ServiceAccountKind
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater

DEFAULT = "default"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access"
TOKEN_SECONDS = 3607
WAIT_SECONDS = 1.5
ENFORCES_SECRETS = "kubernetes.io/enforce-mountable-secrets"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_SINGULAR = {
    "initContainers": "init container",
    "containers": "container",
    "ephemeralContainers": "ephemeral container",
}
_Sorts = tuple[Literal["initContainers", "containers", "ephemeralContainers"], ...]
_SORTS: _Sorts = ("initContainers", "containers")


class ServiceAccount:
    interests = (("", "pods", WRITES),)

    def __init__(self, accounts: WatchedObjects) -> None:
        self._accounts = accounts
        self._awaited: dict[str, asyncio.Future[None]] = {}
        accounts.on_change(self._account_changed)

    def mutate(self, review: Review) -> NowOrLater[None]:
        if review.subresource or review.operation not in CREATE:
            return None
        pod: Pod = review.changed
        if is_mirror(pod):
            _check_mirror(review, pod)
            return None
        spec: PodSpec = review.changed.setdefault("spec", {})
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT
        name = spec["serviceAccountName"]
        if name == DEFAULT and self._accounts.get(f"{review.namespace}/{name}") is None:
            return self._mutate_later(review, spec)
        self._complete(review, spec)
        return None

    async def _mutate_later(self, review: Review, spec: PodSpec) -> None:
        """Wait for the default account of a namespace that was just created, then mutate."""
        key = f"{review.namespace}/{DEFAULT}"
        coming = self._awaited.get(key)
        if coming is None:
            coming = self._awaited[key] = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.shield(coming)
        self._complete(review, spec)

    def _account_changed(self, key: str) -> None:
        coming = self._awaited.pop(key, None)
        if coming is not None:
            coming.set_result(None)

    def _complete(self, review: Review, spec: PodSpec) -> None:
        account = self._account_of(review, spec)
        if _mounts_token(account, spec):
            _mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": secret.get("name", "")} for secret in account["imagePullSecrets"]]

    def validate(self, review: Review) -> None:
        pod: Pod = review.changed
        spec = pod.get("spec") or NOTHING
        if review.operation == "UPDATE":
            if review.subresource == "ephemeralcontainers":
                self._check_secrets(review, spec, ("ephemeralContainers",))
            return
        if review.subresource:
            return
        if is_mirror(pod):
            _check_mirror(review, pod)
            return
        self._check_secrets(review, spec, _SORTS)

    def _check_secrets(self, review: Review, spec: PodSpec, sorts: _Sorts) -> None:
        if not spec.get("serviceAccountName"):
            raise review.forbidden(f"no service account specified for pod {review.namespace}/{review.name}")
        account = self._account_of(review, spec)
        annotations = account["metadata"].get("annotations") or {}
        if annotations.get(ENFORCES_SECRETS) in _TRUE:
            for why in _forbidden_secrets(account, spec, sorts):
                raise review.forbidden(why)

    def _account_of(self, review: Review, spec: PodSpec) -> ServiceAccountKind:
        name = spec["serviceAccountName"]
        account = self._accounts.get(f"{review.namespace}/{name}")
        if account is None:
            raise review.forbidden(
                f'error looking up service account {review.namespace}/{name}: serviceaccount "{name}" not found'
            )
        return cast("ServiceAccountKind", account)


def _check_mirror(review: Review, pod: Pod) -> None:
    """Refuse API objects in a mirror pod: its kubelet only reports it."""
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        raise review.forbidden("a mirror pod may not reference service accounts")
    if any(True for _ in secrets_of(spec)):
        raise review.forbidden("a mirror pod may not reference secrets")
    if any("serviceAccountToken" in projection for projection in projections_of(spec)):
        raise review.forbidden("a mirror pod may not use ServiceAccountToken volume projections")


def _mounts_token(account: ServiceAccountKind, spec: PodSpec) -> bool:
    for owner in (spec, account):
        if (mounts := owner.get("automountServiceAccountToken")) is not None:
            return bool(mounts)
    return True


def _mount_token(spec: PodSpec) -> None:
    volumes = spec.get("volumes") or []
    name = next((volume["name"] for volume in volumes if volume.get("name", "").startswith(f"{VOLUME}-")), "")
    has_volume = bool(name)
    name = name or f"{VOLUME}-{''.join(random.choices(_LETTERS, k=5))}"
    mounted = False
    for field in _SORTS:
        for container in spec.get(field) or ():
            mounts = container.get("volumeMounts") or []
            if not any(mount.get("mountPath") == MOUNT_PATH for mount in mounts):
                container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}]
                mounted = True
    if mounted and not has_volume:
        spec["volumes"] = [*volumes, {"name": name, "projected": token_projection()}]


def token_projection() -> ProjectedVolumeSource:
    """Return the projected volume: a renewed token, the CA certificate and the namespace."""
    namespace: DownwardAPIVolumeFile = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
        "defaultMode": 420,
    }


def _forbidden_secrets(account: ServiceAccountKind, spec: PodSpec, sorts: _Sorts) -> Iterator[str]:
    allowed = {entry.get("name") for entry in account.get("secrets") or ()}
    name = account["metadata"]["name"]
    because = f"is not allowed because service account {name} does not reference that"
    is_whole_pod = sorts is _SORTS
    for volume in (spec.get("volumes") or ()) if is_whole_pod else ():
        secret = (volume.get("secret") or {}).get("secretName")
        if "secret" in volume and secret not in allowed:
            yield f'volume with secret.secretName="{secret}" {because} secret'
    for field in sorts:
        for container in spec.get(field) or ():
            who = f"{_SINGULAR[field]} {container.get('name', '')}"
            for variable in container.get("env") or ():
                ref = (variable.get("valueFrom") or {}).get("secretKeyRef")
                if ref is not None and ref.get("name") not in allowed:
                    yield (
                        f"{who} with envVar {variable.get('name', '')} referencing "
                        f'secret.secretName="{ref.get("name", "")}" {because} secret'
                    )
            for source in container.get("envFrom") or ():
                whole = source.get("secretRef")
                if whole is not None and whole.get("name") not in allowed:
                    yield f'{who} with envFrom referencing secret.secretName="{whole.get("name", "")}" {because} secret'
    pulls = {entry.get("name") for entry in account.get("imagePullSecrets") or ()}
    for index, secret_ref in enumerate((spec.get("imagePullSecrets") or ()) if is_whole_pod else ()):
        if secret_ref.get("name") not in pulls:
            yield f'imagePullSecrets[{index}].name="{secret_ref.get("name", "")}" {because} imagePullSecret'
