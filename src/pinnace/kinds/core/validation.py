"""What is special about config maps, secrets, quotas, limits, events, leases and other small kinds of the core.

Kinds with more to say have a module of their own and are only named here.
"""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.kinds.coordination import validation
from pinnace.kinds.core import events, nodes, quotas, secrets
from pinnace.kinds.core.secrets import MOST_BYTES, config_key_errors, decoded_size, validate_frozen
from pinnace.kinds.validation.fields import validate_choice, validate_immutable, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, required, too_long
from pinnace.model.metadata import STANDARD_FINALIZERS, UNQUALIFIED_FINALIZER
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
NAMESPACE_FINALIZER = "kubernetes"
MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
HIGHEST_USER_PRIORITY = 1_000_000_000
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")

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
        yield too_long("[]", MOST_BYTES)  # The path is this on the wire.


CONFIG_MAP = Strategy(validate=_validate_config_map)
SECRET = secrets.SECRET

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
        _default_namespace(namespace)  # A generated name is known only now.
        return
    spec.pop("finalizers", None)  # These change through /finalize alone.
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

# --- priority classes


def _default_priority_class(priority_class: Object) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _prepare_priority_class(priority_class: Object, old: Object | None) -> None:
    if old is None:
        priority_class["metadata"]["generation"] = 1


def _validate_priority_class(priority_class: Object, old: Object | None) -> Iterator[FieldError]:
    value, policy = priority_class.get("value", 0), priority_class.get("preemptionPolicy")
    if old is not None:
        if value != old.get("value", 0):
            yield forbidden("value", "may not be changed in an update.")
        yield from validate_immutable(policy, old.get("preemptionPolicy"), "preemptionPolicy")
        return
    name = priority_class["metadata"].get("name", "")
    if name.startswith("system-"):
        if err := _check_system_priority(name, value, bool(priority_class.get("globalDefault"))):
            detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {err}"
            yield forbidden("metadata.name", detail)
    elif value > HIGHEST_USER_PRIORITY:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
    if policy == "":
        yield required("preemptionPolicy")
    else:
        yield from validate_choice(policy, PREEMPTION_POLICIES, "preemptionPolicy")


def _check_system_priority(name: str, value: int, is_global_default: bool) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_global_default else ""


PRIORITY_CLASS = Strategy(
    default=_default_priority_class, prepare=_prepare_priority_class, validate=_validate_priority_class
)

NODE = nodes.NODE
RUNTIME_CLASS = nodes.RUNTIME_CLASS
RESOURCE_QUOTA = quotas.RESOURCE_QUOTA
LIMIT_RANGE = quotas.LIMIT_RANGE
EVENT = events.EVENT
LEASE = validation.LEASE
LEASE_CANDIDATE = validation.LEASE_CANDIDATE
