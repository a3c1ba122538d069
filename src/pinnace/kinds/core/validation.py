"""Defaults and validation of config maps, namespaces and service accounts. Other core kinds have their own modules."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.core.secrets import MOST_BYTES, config_key_errors, decoded_size, validate_frozen
from pinnace.kinds.validation.fields import validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, too_long
from pinnace.model.metadata import STANDARD_FINALIZERS, UNQUALIFIED_FINALIZER
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
NAMESPACE_FINALIZER = "kubernetes"
MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"

# --- config maps


def _validate_config_map(config_map: Object, old: Object | None) -> Iterator[FieldError]:
    if old is not None and old.get("immutable"):
        yield from validate_frozen(config_map, old, "data", "binaryData")
    binary = config_map.get("binaryData")
    size = 0
    if data := config_map.get("data"):
        for key, value in data.items():
            for err in config_key_errors(key):
                yield invalid(f"data[{key}]", key, err)
            if binary and key in binary:
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            size += len(value) if value.isascii() else len(value.encode())
    if binary:
        for key, value in binary.items():
            for err in config_key_errors(key):
                yield invalid(f"binaryData[{key}]", key, err)
            size += decoded_size(value)
    if size > MOST_BYTES:
        yield too_long("[]", MOST_BYTES)  # Kubernetes returns this path.


CONFIG_MAP = Strategy(validate=_validate_config_map)

# --- namespaces


def _default_namespace(namespace: Object) -> None:
    metadata = namespace.get("metadata") or {}
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), NAMESPACE_NAME_LABEL: name}
    namespace.setdefault("spec", {})
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _prepare_namespace(namespace: Object, old: Object | None) -> None:
    spec: Object = namespace.setdefault("spec", {})
    if old is None:
        namespace["status"] = {"phase": "Active"}
        finalizers = spec.get("finalizers") or []
        if NAMESPACE_FINALIZER not in finalizers:
            spec["finalizers"] = [*finalizers, NAMESPACE_FINALIZER]
        _default_namespace(namespace)  # A generated name is only known now.
        return
    spec.pop("finalizers", None)  # Only /finalize may change these.
    if (old.get("spec") or {}).get("finalizers"):
        spec["finalizers"] = old["spec"]["finalizers"]


def validate_namespace(namespace: Object, old: Object | None) -> Iterator[FieldError]:
    for finalizer in (namespace.get("spec") or {}).get("finalizers") or ():
        yield from validate_name(finalizer, names.qualified_name, "spec.finalizers")
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            yield invalid("spec.finalizers", finalizer, UNQUALIFIED_FINALIZER)


def _validate_namespace_status(namespace: Object, old: Object | None) -> Iterator[FieldError]:
    phase = (namespace.get("status") or {}).get("phase", "")
    if not namespace["metadata"].get("deletionTimestamp"):
        if phase != "Active":
            yield invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif phase != "Terminating":
        yield invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


NAMESPACE = Strategy(
    answers_with_deleted=True,
    default=_default_namespace,
    prepare=_prepare_namespace,
    validate=validate_namespace,
    validate_status=_validate_namespace_status,
    name_rule=names.dns_label,
)

# --- service accounts


def _prepare_service_account(account: Object, old: Object | None) -> None:
    if account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in account["secrets"]]


def _service_account_warnings(account: Object, old: Object | None) -> Iterator[str]:
    def enforces(one: Object) -> bool:
        return MOUNTABLE_SECRETS in (one["metadata"].get("annotations") or {})

    if enforces(account) and not (old and enforces(old)):
        yield (
            f"metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate "
            "access to mounted secrets"
        )


SERVICE_ACCOUNT = Strategy(
    answers_with_deleted=True, prepare=_prepare_service_account, warnings=_service_account_warnings
)
