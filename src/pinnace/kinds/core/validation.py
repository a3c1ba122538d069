"""Defaults and validation of config maps, namespaces, service accounts and replication controllers.

Other core kinds have their own modules.
"""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.apps.rollouts import (
    MISMATCH,
    fill_status,
    named_template_warnings,
    prepare_replicas,
    validate_lasting_template,
    validate_replica_counts,
)
from pinnace.kinds.core.secrets import MOST_BYTES, config_key_errors, decoded_size, validate_frozen
from pinnace.kinds.pods.defaults import default_template
from pinnace.kinds.validation.fields import in_key_order, validate_counts, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, required, too_long
from pinnace.model.metadata import STANDARD_FINALIZERS, UNQUALIFIED_FINALIZER
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import from_labels
from pinnace.model.typed_objects import ConfigMap, Namespace, NamespaceSpec, ReplicationController, ServiceAccount

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
NAMESPACE_FINALIZER = "kubernetes"
MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"

# --- config maps


def _validate_config_map(config_map: ConfigMap, old: ConfigMap | None) -> Iterator[FieldError]:
    if old is not None and old.get("immutable"):
        yield from validate_frozen(config_map, old, "data", "binaryData")
    binary, size = config_map.get("binaryData") or {}, 0
    for key, value in (config_map.get("data") or {}).items():
        for err in config_key_errors(key):
            yield invalid(f"data[{key}]", key, err)
        if key in binary:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(value) if value.isascii() else len(value.encode())
    for key, value in binary.items():
        for err in config_key_errors(key):
            yield invalid(f"binaryData[{key}]", key, err)
        size += decoded_size(value)
    if size > MOST_BYTES:
        yield too_long("[]", MOST_BYTES)  # Kubernetes returns this path.


CONFIG_MAP = Strategy(validate=_validate_config_map)

# --- namespaces


def _default_namespace(namespace: Namespace) -> None:
    metadata = namespace.get("metadata") or {}
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), NAMESPACE_NAME_LABEL: name}
    namespace.setdefault("spec", {})
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _prepare_namespace(namespace: Namespace, old: Namespace | None) -> None:
    spec: NamespaceSpec = namespace.setdefault("spec", {})
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


def validate_namespace(namespace: Namespace, old: Namespace | None) -> Iterator[FieldError]:
    for finalizer in (namespace.get("spec") or {}).get("finalizers") or ():
        yield from validate_name(finalizer, names.qualified_name, "spec.finalizers")
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            yield invalid("spec.finalizers", finalizer, UNQUALIFIED_FINALIZER)


def _validate_namespace_status(namespace: Namespace, old: Namespace | None) -> Iterator[FieldError]:
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


def _prepare_service_account(account: ServiceAccount, old: ServiceAccount | None) -> None:
    if account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in account["secrets"]]


def _service_account_warnings(account: ServiceAccount, old: ServiceAccount | None) -> Iterator[str]:
    def enforces(account: ServiceAccount) -> bool:
        return MOUNTABLE_SECRETS in (account["metadata"].get("annotations") or {})

    if enforces(account) and not (old and enforces(old)):
        yield (
            f"metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate "
            "access to mounted secrets"
        )


SERVICE_ACCOUNT = Strategy(
    answers_with_deleted=True, prepare=_prepare_service_account, warnings=_service_account_warnings
)


def _default_replication_controller(controller: Object) -> None:
    spec = controller.setdefault("spec", {})
    if "template" in spec:
        default_template(spec)
        labels = spec["template"]["metadata"].get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            metadata = controller.setdefault("metadata", {})
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
    if "replicas" not in spec:
        spec["replicas"] = 1
    fill_status(controller, ("replicas",))


def _validate_replication_controller(new: ReplicationController, old: ReplicationController | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    errs += validate_counts(spec, ("minReadySeconds", "replicas"), "spec")
    selector, template = spec.get("selector"), spec.get("template")
    if not selector:
        errs.append(required("spec.selector"))
    if template is None:
        errs.append(required("spec.template"))
        return errs
    labels = template["metadata"].get("labels")
    if selector and not from_labels(selector).matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))
    validate_lasting_template(template, "ReplicationController", errs)
    return errs


REPLICATION_CONTROLLER = Strategy(
    default=_default_replication_controller,
    prepare=prepare_replicas,
    validate=_validate_replication_controller,
    validate_status=validate_replica_counts,
    dependents="orphan",
    tracks_generation=True,
    warnings=named_template_warnings,
)
