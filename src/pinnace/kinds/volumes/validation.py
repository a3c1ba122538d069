"""Defaults and validation of persistent volumes. Claims have their own module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import (
    NOT_POSITIVE,
    unified_diff,
    validate_choice,
    validate_immutable,
    validate_name,
)
from pinnace.kinds.validation.node_selectors import NODE_SELECTOR_TERM, node_selector_warnings, validate_node_selector
from pinnace.kinds.volumes.sources import (
    ALL_SOURCES,
    OBJECT_REFERENCE,
    SOURCE_FIELDS,
    SOURCE_STRUCTS,
    default_source,
    is_root,
    sources_of,
    validate_source,
)
from pinnace.model import names, quantity
from pinnace.model.field_errors import IMMUTABLE, FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import PersistentVolume, PersistentVolumeClaimSpec, PersistentVolumeSpec
from pinnace.process.clock import server_now, to_rfc3339
from pinnace.schema.equality import semantically_equal

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
VOLUME_MODES = ("Block", "Filesystem")
STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
MOUNT_OPTIONS_ANNOTATION = "volume.beta.kubernetes.io/mount-options"
INLINE = "in the context of inline volumes"

_MOUNTABLE_WITH_ANNOTATION = (
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
)
_GONE_SOURCES = (
    ("cephfs", "cephfs: deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO: deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS: deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs: deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd: deprecated in v1.28, non-functional in v1.31+"),
)

_NODE_AFFINITY = GoStruct(
    "Required",
    Required=GoStruct("NodeSelectorTerms", NodeSelectorTerms=NODE_SELECTOR_TERM),
)
VOLUME_SPEC = GoStruct(
    f"Capacity {SOURCE_FIELDS} AccessModes ClaimRef PersistentVolumeReclaimPolicy='' StorageClassName='' MountOptions "
    "VolumeMode NodeAffinity VolumeAttributesClassName",
    structs=SOURCE_STRUCTS,
    ClaimRef=OBJECT_REFERENCE,
    NodeAffinity=_NODE_AFFINITY,
)
"""Go's PersistentVolumeSpec."""


def _default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    default_volume_spec(spec)
    if not volume.get("status", {}).get("phase"):
        volume.setdefault("status", {})["phase"] = "Pending"


def default_volume_spec(spec: Object) -> None:
    """Set the defaults of a volume's spec: the source's defaults, Retain and Filesystem."""
    default_source(spec)
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")


def _prepare_volume(volume: PersistentVolume, old: PersistentVolume | None) -> None:
    if old is None:
        volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": volume["metadata"]["creationTimestamp"]}


def _prepare_volume_status(volume: PersistentVolume, old: PersistentVolume | None) -> None:
    status, before = volume.setdefault("status", {}), (old or NOTHING).get("status", NOTHING)
    moment, moment_before = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
    if status.get("phase") != before.get("phase"):
        if moment is None or moment == moment_before:
            status["lastPhaseTransitionTime"] = to_rfc3339(server_now())
    elif moment is None and moment_before is not None:
        status["lastPhaseTransitionTime"] = moment_before


def _validate_volume(volume: PersistentVolume, old: PersistentVolume | None) -> Iterator[FieldError]:
    yield from validate_volume_spec(volume.get("spec", {}), "spec", volume_name=volume["metadata"].get("name", ""))
    yield from _validate_mount_option(volume)
    if old is not None:
        yield from _validate_volume_change(volume["spec"], old.get("spec", {}))


def validate_volume_spec(spec: PersistentVolumeSpec, path: str, *, volume_name: str) -> Iterator[FieldError]:
    """Return every error of the spec of a PersistentVolume."""
    yield from validate_access_mode(spec, path, none_given="")
    yield from _validate_capacity(spec.get("capacity"), f"{path}.capacity")
    policy = spec.get("persistentVolumeReclaimPolicy") or None
    yield from validate_choice(policy, RECLAIM_POLICIES, f"{path}.persistentVolumeReclaimPolicy")
    if (affinity := spec.get("nodeAffinity")) is not None:
        if affinity.get("required") is None:
            yield required(f"{path}.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from validate_node_selector(affinity["required"], f"{path}.nodeAffinity.required")
    yield from validate_source(spec, path, volume_name=volume_name)
    yield from _validate_root_recycle(spec, path)
    yield from validate_name(spec.get("storageClassName") or None, names.dns_subdomain, f"{path}.storageClassName")
    yield from validate_choice(spec.get("volumeMode"), VOLUME_MODES, f"{path}.volumeMode")
    yield from _validate_attributes_class(spec, path)


def validate_inline_volume_spec(spec: PersistentVolumeSpec, path: str) -> Iterator[FieldError]:
    """Return every error of a PersistentVolumeSpec inside a VolumeAttachment."""
    if spec.get("claimRef") is not None:
        yield forbidden(f"{path}.claimRef", f"may not be specified {INLINE}")
    if spec.get("capacity"):
        yield forbidden(f"{path}.capacity", f"may not be specified {INLINE}")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", f"has to be specified {INLINE}")
    yield from validate_access_mode(spec, path, none_given="")
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {INLINE}")
    if spec.get("nodeAffinity") is not None:
        yield forbidden(f"{path}.nodeAffinity", f"may not be specified {INLINE}")
    yield from validate_source(spec, path, volume_name="")
    yield from _validate_root_recycle(spec, path)
    if spec.get("storageClassName"):
        yield forbidden(f"{path}.storageClassName", f"may not be specified {INLINE}")
    if spec.get("volumeMode") not in (None, "Filesystem"):
        yield forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {INLINE}")


def validate_access_mode(
    spec: PersistentVolumeSpec | PersistentVolumeClaimSpec, path: str, *, none_given: str
) -> Iterator[FieldError]:
    """Check an access mode."""
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", none_given)
    if none_given:
        selector = cast("PersistentVolumeClaimSpec", spec).get("selector")
        yield from validate_label_selector(selector, f"{path}.selector")
    for mode in modes:
        yield from validate_choice(mode, ACCESS_MODES, f"{path}.accessModes")
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        yield forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def _validate_capacity(capacity: Mapping[str, str] | None, path: str) -> Iterator[FieldError]:
    if not capacity:
        yield required(path)
    if set(capacity or {}) != {"storage"}:
        yield not_supported(path, capacity, ["storage"])
    for resource, amount in (capacity or {}).items():
        yield from validate_negative_amount(amount, f"{path}[{resource}]")
        if quantity.parse(amount) <= quantity.ZERO:
            yield invalid(f"{path}[{resource}]", amount, NOT_POSITIVE)


def validate_negative_amount(amount: str, path: str) -> Iterator[FieldError]:
    """Check an amount in a ResourceList."""
    if (value := quantity.parse(amount)) < quantity.ZERO:
        yield invalid(path, value.value, "must be a valid resource quantity")


def _validate_root_recycle(spec: PersistentVolumeSpec, path: str) -> Iterator[FieldError]:
    host_path = (spec.get("hostPath") or {}).get("path", "")
    if is_root(host_path) and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", detail)


def _validate_attributes_class(spec: PersistentVolumeSpec, path: str) -> Iterator[FieldError]:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return
    if not name:
        yield required(f"{path}.volumeAttributesClassName", "an empty string is disallowed")
    else:
        yield from validate_name(name, names.dns_subdomain, f"{path}.volumeAttributesClassName")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", "has to be specified when using volumeAttributesClassName")


def _validate_mount_option(volume: PersistentVolume) -> Iterator[FieldError]:
    spec, annotations = volume.get("spec", {}), volume["metadata"].get("annotations") or {}
    if MOUNT_OPTIONS_ANNOTATION in annotations and not any(source in spec for source in _MOUNTABLE_WITH_ANNOTATION):
        path = f"metadata.annotations.{MOUNT_OPTIONS_ANNOTATION}"
        yield forbidden(path, "may not specify mount options for this volume type")


def _validate_volume_change(spec: PersistentVolumeSpec, before: PersistentVolumeSpec) -> Iterator[FieldError]:
    source, source_before = sources_of(spec), sources_of(before)
    if "csi" in source and "controllerExpandSecretRef" not in source_before.get(
        "csi", {"controllerExpandSecretRef": 1}
    ):
        # The secret for expansion may be added later, once.
        source["csi"] = {key: value for key, value in source["csi"].items() if key != "controllerExpandSecretRef"}
    view, view_before = ALL_SOURCES.view(source), ALL_SOURCES.view(source_before)
    if not semantically_equal(view, view_before):
        changes = unified_diff(view_before, view)
        detail = f"spec.persistentvolumesource is immutable after creation\n{changes}"
        yield forbidden("spec.persistentvolumesource", detail)
    yield from validate_immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    affinity, affinity_before = spec.get("nodeAffinity"), before.get("nodeAffinity")
    if affinity_before is not None and not _differ_in_renamed_labels_only(affinity, affinity_before):
        affinity_view = _NODE_AFFINITY.view_or_none(affinity)
        yield invalid("nodeAffinity", affinity_view, f"{IMMUTABLE}, except for updating from beta label to GA")
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        yield forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


_RENAMED_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
}


def _differ_in_renamed_labels_only(new: Any, old: Any) -> bool:
    """Return whether `new` differs from `old` only by the final names of beta labels."""
    if isinstance(new, dict) and isinstance(old, dict):
        # Kubernetes treats an old label without a new name as renamed to nothing.
        if "key" in old and _RENAMED_LABELS.get(old["key"], "") == new.get("key", ""):
            old = {**old, "key": new.get("key", "")}
            new = {**new, "key": new.get("key", "")}
        return new.keys() == old.keys() and all(_differ_in_renamed_labels_only(new[key], old[key]) for key in new)
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(_differ_in_renamed_labels_only, new, old))
    return bool(new == old)


def _volume_warnings(volume: PersistentVolume, old: PersistentVolume | None) -> Iterator[str]:
    spec, annotations = volume.get("spec", {}), volume["metadata"].get("annotations") or {}
    if STORAGE_CLASS_ANNOTATION in annotations:
        yield (
            f"metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; "
            'use "storageClassName" attribute instead'
        )
    if MOUNT_OPTIONS_ANNOTATION in annotations:
        yield (
            f"metadata.annotations[{MOUNT_OPTIONS_ANNOTATION}]: deprecated since v1.31; "
            'use "mountOptions" attribute instead'
        )
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    selector = (spec.get("nodeAffinity") or NOTHING).get("required") or NOTHING
    yield from node_selector_warnings(selector, "spec.nodeAffinity.required")
    for source, sentence in _GONE_SOURCES:
        if spec.get(source) is not None:
            yield f"spec.{sentence}"


PERSISTENT_VOLUME = Strategy(
    answers_with_deleted=True,
    default=_default_volume,
    prepare=_prepare_volume,
    prepare_status=_prepare_volume_status,
    validate=_validate_volume,
    warnings=_volume_warnings,
)
