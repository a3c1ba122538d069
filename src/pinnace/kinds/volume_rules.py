"""What is special about persistent volumes and the claims on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.kinds.field_checks import NOT_POSITIVE, choice_faults, immutable_faults, name_faults, unified_diff
from pinnace.kinds.go_view import GoStruct
from pinnace.kinds.node_selector_checks import node_selector_faults, node_selector_warnings
from pinnace.kinds.volume_sources import ALL_SOURCES, default_source, is_root, source_faults, sources_of
from pinnace.model import names, quantity
from pinnace.model.causes import IMMUTABLE, Cause, forbidden, invalid, not_supported, required
from pinnace.model.clock import SystemClock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import label_selector_faults

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
VOLUME_MODES = ("Block", "Filesystem")
RESIZE_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
)
STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
MOUNT_OPTIONS_ANNOTATION = "volume.beta.kubernetes.io/mount-options"
INLINE = "in the context of inline volumes"
CLAIM_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)

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
_CLAIM_SPEC = GoStruct(
    "AccessModes Selector Resources VolumeName='' StorageClassName VolumeMode DataSource DataSourceRef "
    "VolumeAttributesClassName",
    Resources=GoStruct("Limits Requests"),
    DataSource=GoStruct("APIGroup:apiGroup Kind='' Name=''"),
    DataSourceRef=GoStruct("APIGroup:apiGroup Kind='' Name='' Namespace"),
    inline=("Resources",),
)

# --- persistent volumes


def _default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    default_volume_spec(spec)
    if not volume.get("status", {}).get("phase"):
        volume.setdefault("status", {})["phase"] = "Pending"


def default_volume_spec(spec: Object) -> None:
    """What a volume's spec is given: the source's defaults, Retain and Filesystem."""
    default_source(spec)
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = "Retain"
    spec.setdefault("volumeMode", "Filesystem")


def _prepare_volume(volume: Object, old: Object | None) -> None:
    if old is None:
        volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": _now()}


def _prepare_volume_status(volume: Object, old: Object | None) -> None:
    status, before = volume.setdefault("status", {}), (old or {}).get("status", {})
    moment, moment_before = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
    if status.get("phase") != before.get("phase"):
        if moment is None or moment == moment_before:
            status["lastPhaseTransitionTime"] = _now()
    elif moment is None and moment_before is not None:
        status["lastPhaseTransitionTime"] = moment_before


def _now() -> str:
    return to_rfc3339(SystemClock().now())


def _volume_faults(volume: Object, old: Object | None) -> Iterator[Cause]:
    faults = list(volume_spec_faults(volume.get("spec", {}), "spec", volume_name=volume["metadata"].get("name", "")))
    yield from faults
    yield from _mount_option_faults(volume)
    if old is not None:
        yield from faults  # Kubernetes looks twice at an updated volume, and tells each cause twice.
        yield from _volume_change_faults(volume["spec"], old.get("spec", {}))


def volume_spec_faults(spec: Mapping[str, Any], path: str, *, volume_name: str) -> Iterator[Cause]:
    """Every fault of a PersistentVolumeSpec that is a volume of its own."""
    yield from _access_mode_faults(spec, path, none_given="")
    yield from _capacity_faults(spec.get("capacity"), f"{path}.capacity")
    policy = spec.get("persistentVolumeReclaimPolicy") or None
    yield from choice_faults(policy, RECLAIM_POLICIES, f"{path}.persistentVolumeReclaimPolicy")
    if (affinity := spec.get("nodeAffinity")) is not None:
        if affinity.get("required") is None:
            yield required(f"{path}.nodeAffinity.required", "must specify required node constraints")
        else:
            yield from node_selector_faults(affinity["required"], f"{path}.nodeAffinity.required")
    yield from source_faults(spec, path, volume_name=volume_name)
    yield from _root_recycle_faults(spec, path)
    if spec.get("storageClassName"):
        yield from name_faults(spec["storageClassName"], names.dns_subdomain, f"{path}.storageClassName")
    yield from choice_faults(spec.get("volumeMode"), VOLUME_MODES, f"{path}.volumeMode")
    yield from _attributes_class_faults(spec, path)


def inline_volume_spec_faults(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Every fault of a PersistentVolumeSpec that stands inside a VolumeAttachment."""
    if spec.get("claimRef") is not None:
        yield forbidden(f"{path}.claimRef", f"may not be specified {INLINE}")
    if spec.get("capacity"):
        yield forbidden(f"{path}.capacity", f"may not be specified {INLINE}")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", f"has to be specified {INLINE}")
    yield from _access_mode_faults(spec, path, none_given="")
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {INLINE}")
    if spec.get("nodeAffinity") is not None:
        yield forbidden(f"{path}.nodeAffinity", f"may not be specified {INLINE}")
    yield from source_faults(spec, path, volume_name="")
    yield from _root_recycle_faults(spec, path)
    if spec.get("storageClassName"):
        yield forbidden(f"{path}.storageClassName", f"may not be specified {INLINE}")
    if spec.get("volumeMode") not in (None, "Filesystem"):
        yield forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {INLINE}")


def _access_mode_faults(spec: Mapping[str, Any], path: str, *, none_given: str) -> Iterator[Cause]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", none_given)
    if none_given and spec.get("selector") is not None:
        yield from label_selector_faults(spec["selector"], f"{path}.selector")
    for mode in modes:
        yield from choice_faults(mode, ACCESS_MODES, f"{path}.accessModes")
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        yield forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def _capacity_faults(capacity: Mapping[str, str] | None, path: str) -> Iterator[Cause]:
    if not capacity:
        yield required(path)
    if set(capacity or {}) != {"storage"}:
        yield not_supported(path, capacity, ["storage"])
    for resource, amount in (capacity or {}).items():
        yield from _negative_amount_faults(amount, f"{path}[{resource}]")
        if quantity.parse(amount) <= quantity.ZERO:
            yield invalid(f"{path}[{resource}]", amount, NOT_POSITIVE)


def _negative_amount_faults(amount: str, path: str) -> Iterator[Cause]:
    if (value := quantity.parse(amount)) < quantity.ZERO:
        yield invalid(path, value.value, "must be a valid resource quantity")


def _root_recycle_faults(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    host_path = (spec.get("hostPath") or {}).get("path", "")
    if is_root(host_path) and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", detail)


def _attributes_class_faults(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return
    if not name:
        yield required(f"{path}.volumeAttributesClassName", "an empty string is disallowed")
    else:
        yield from name_faults(name, names.dns_subdomain, f"{path}.volumeAttributesClassName")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", "has to be specified when using volumeAttributesClassName")


def _mount_option_faults(volume: Object) -> Iterator[Cause]:
    spec, annotations = volume.get("spec", {}), volume["metadata"].get("annotations") or {}
    if MOUNT_OPTIONS_ANNOTATION in annotations and not any(source in spec for source in _MOUNTABLE_WITH_ANNOTATION):
        path = f"metadata.annotations.{MOUNT_OPTIONS_ANNOTATION}"
        yield forbidden(path, "may not specify mount options for this volume type")


def _volume_change_faults(spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[Cause]:
    source, source_before = sources_of(spec), sources_of(before)
    if "csi" in source and "controllerExpandSecretRef" not in source_before.get(
        "csi", {"controllerExpandSecretRef": 1}
    ):
        # A secret for expansion may be added later on, once.
        source["csi"] = {key: value for key, value in source["csi"].items() if key != "controllerExpandSecretRef"}
    if source != source_before:
        changes = unified_diff(ALL_SOURCES.view(source_before), ALL_SOURCES.view(source))
        detail = f"spec.persistentvolumesource is immutable after creation\n{changes}"
        yield forbidden("spec.persistentvolumesource", detail)
    yield from immutable_faults(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    affinity, affinity_before = spec.get("nodeAffinity"), before.get("nodeAffinity")
    if affinity_before is not None and not _differ_in_renamed_labels_only(affinity, affinity_before):
        shown = _NODE_AFFINITY.view_or_none(affinity)
        yield invalid("nodeAffinity", shown, f"{IMMUTABLE}, except for updating from beta label to GA")
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        yield forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


_REQUIREMENT = GoStruct("Key='' Operator='' Values")
_NODE_AFFINITY = GoStruct(
    "Required",
    Required=GoStruct(
        "NodeSelectorTerms",
        NodeSelectorTerms=GoStruct(
            "MatchExpressions MatchFields", MatchExpressions=_REQUIREMENT, MatchFields=_REQUIREMENT
        ),
    ),
)
_RENAMED_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
}


def _differ_in_renamed_labels_only(new: Any, old: Any) -> bool:
    """Whether `old` becomes `new` by nothing but giving beta labels their final names."""
    if isinstance(new, dict) and isinstance(old, dict):
        if _RENAMED_LABELS.get(old.get("key", "")) == new.get("key", object()):
            old = {**old, "key": new["key"]}
        return new.keys() == old.keys() and all(_differ_in_renamed_labels_only(new[key], old[key]) for key in new)
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(_differ_in_renamed_labels_only, new, old))
    return bool(new == old)


def _volume_warnings(volume: Object, old: Object | None) -> Iterator[str]:
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
    selector = (spec.get("nodeAffinity") or {}).get("required") or {}
    yield from node_selector_warnings(selector, "spec.nodeAffinity.required")
    for source, sentence in _GONE_SOURCES:
        if spec.get(source) is not None:
            yield f"spec.{sentence}"


# --- claims


def _default_claim(claim: Object) -> None:
    default_claim_spec(claim.setdefault("spec", {}))
    if not claim.get("status", {}).get("phase"):
        claim.setdefault("status", {})["phase"] = "Pending"


def default_claim_spec(spec: Object) -> None:
    """What a claim's spec is given; also for the templates of StatefulSets and ephemeral volumes."""
    spec.setdefault("volumeMode", "Filesystem")
    for field in ("dataSource", "dataSourceRef"):
        if field in spec:
            spec[field].setdefault("apiGroup", None)  # The API says null where a core kind is meant.


def _prepare_claim(claim: Object, old: Object | None) -> None:
    spec = claim.setdefault("spec", {})
    before = (old or {}).get("spec", {})
    if spec.get("dataSourceRef", {}).get("namespace") and "dataSourceRef" not in before:
        del spec["dataSourceRef"]  # Sources in other namespaces are an alpha feature, which is off.
    if not ("dataSource" in before or "dataSourceRef" in before or "dataSourceRef" in spec):
        source = spec.get("dataSource", {})
        if (source.get("kind"), source.get("apiGroup") or "") not in _OLD_DATA_SOURCES:
            spec.pop("dataSource", None)
    _pair_data_sources(spec)


_OLD_DATA_SOURCES = (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io"))


def _pair_data_sources(spec: Object) -> None:
    """Old clients read dataSource, new ones dataSourceRef: whichever was said, both are there."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = _without_namespace(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = _without_namespace(reference)


def _without_namespace(reference: Mapping[str, Any]) -> Object:
    said = {"apiGroup": None, "kind": "", "name": "", **reference}
    return {key: value for key, value in said.items() if key != "namespace"}


def _claim_faults(claim: Object, old: Object | None) -> Iterator[Cause]:
    before = None if old is None else old.get("spec", {})
    tolerates_group = bool(before) and any(
        ((before or {}).get(field) or {}).get("apiGroup") is not None for field in ("dataSource", "dataSourceRef")
    )
    yield from claim_spec_faults(claim.get("spec", {}), "spec", check_api_group=not tolerates_group)
    if old is not None:
        yield from _claim_change_faults(claim, old)


def claim_spec_faults(spec: Mapping[str, Any], path: str, *, check_api_group: bool = True) -> Iterator[Cause]:
    """Every fault of a PersistentVolumeClaimSpec; also for the templates of StatefulSets and ephemeral volumes."""
    yield from _access_mode_faults(spec, path, none_given="at least 1 access mode is required")
    amount = (spec.get("resources", {}).get("requests") or {}).get("storage")
    if amount is None:
        yield required(f"{path}.resources[storage]")
    elif quantity.parse(amount) <= quantity.ZERO:
        yield invalid(f"{path}.resources[storage]", amount, NOT_POSITIVE)
    if spec.get("storageClassName"):
        yield from name_faults(spec["storageClassName"], names.dns_subdomain, f"{path}.storageClassName")
    yield from choice_faults(spec.get("volumeMode"), VOLUME_MODES, f"{path}.volumeMode")
    yield from _data_source_faults(spec, path, check_api_group=check_api_group)
    if attributes := spec.get("volumeAttributesClassName"):
        yield from name_faults(attributes, names.dns_subdomain, f"{path}.volumeAttributesClassName")


def _data_source_faults(spec: Mapping[str, Any], path: str, *, check_api_group: bool) -> Iterator[Cause]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field, said in (("dataSource", source), ("dataSourceRef", reference)):
        if said is not None:
            yield from _one_data_source_faults(said, f"{path}.{field}", check_api_group=check_api_group)
    if reference is not None and reference.get("namespace"):
        yield from name_faults(reference["namespace"], names.dns_label, f"{path}.dataSourceRef.namespace")
    if source is None or reference is None:
        return
    # Kubernetes prints its path object here, which has no visible fields.
    if reference.get("namespace"):
        yield invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any((source.get(key) or "") != (reference.get(key) or "") for key in ("kind", "name", "apiGroup")):
        yield invalid(path, {}, "must match dataSourceRef")


def _one_data_source_faults(source: Mapping[str, Any], path: str, *, check_api_group: bool) -> Iterator[Cause]:
    for field in ("name", "kind"):
        if not source.get(field):
            yield required(f"{path}.{field}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind", "") != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind", ""), detail)
    if group and check_api_group:
        yield from name_faults(group, names.dns_subdomain, f"{path}.apiGroup")


def _claim_change_faults(claim: Object, old: Object) -> Iterator[Cause]:
    annotation = (claim["metadata"].get("annotations") or {}).get(STORAGE_CLASS_ANNOTATION)
    annotation_before = (old["metadata"].get("annotations") or {}).get(STORAGE_CLASS_ANNOTATION)
    spec, before = dict(claim["spec"]), dict(old.get("spec", {}))
    _pair_data_sources(before)
    class_name, class_before = spec.get("storageClassName"), before.get("storageClassName")
    names_a_class_first = class_name is not None and class_before is None
    if names_a_class_first and class_name == annotation_before and annotation in (None, annotation_before):
        spec.pop("storageClassName")
    else:
        if annotation != annotation_before:
            path = f"metadata.annotations.{STORAGE_CLASS_ANNOTATION}"
            yield invalid(path, annotation or "", IMMUTABLE)
        if names_a_class_first and annotation_before in (None, class_name):
            spec.pop("storageClassName")
    if not before.get("volumeName"):
        before.pop("volumeName", None)
        spec.pop("volumeName", None)
    if claim.get("status", {}).get("phase") == "Bound":
        _take_over_what_may_change(spec, before)
    if spec != before:
        changes = unified_diff(_CLAIM_SPEC.view(before), _CLAIM_SPEC.view(spec))
        yield forbidden("spec", f"{CLAIM_IMMUTABLE}\n{changes}")
    yield from _shrink_faults(claim["spec"], old)
    volume_mode, mode_before = claim["spec"].get("volumeMode"), before.get("volumeMode")
    yield from immutable_faults(volume_mode, mode_before, "volumeMode")
    attributes = claim["spec"].get("volumeAttributesClassName")
    changed = attributes != old["spec"].get("volumeAttributesClassName")
    if changed and not attributes and "currentVolumeAttributesClassName" in old.get("status", {}):
        what = "nil" if attributes is None else "empty string"
        detail = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        yield forbidden("spec.volumeAttributesClassName", detail)


def _take_over_what_may_change(spec: Object, before: Object) -> None:
    """A bound claim may ask for another size and another class of attributes."""
    requests = spec.get("resources", {}).get("requests")
    amount = (before.get("resources", {}).get("requests") or {}).get("storage")
    if requests is not None and amount is not None:
        spec["resources"] = {**spec["resources"], "requests": {**requests, "storage": amount}}
    spec.pop("volumeAttributesClassName", None)
    if "volumeAttributesClassName" in before:
        spec["volumeAttributesClassName"] = before["volumeAttributesClassName"]


def _shrink_faults(spec: Mapping[str, Any], old: Object) -> Iterator[Cause]:
    def storage(amounts: Mapping[str, str] | None) -> str:
        return (amounts or {}).get("storage", "0")

    wanted = quantity.parse(storage(spec.get("resources", {}).get("requests")))
    asked = quantity.parse(storage(old["spec"].get("resources", {}).get("requests")))
    given = quantity.parse(storage(old.get("status", {}).get("capacity")))
    if wanted < asked and wanted <= given:
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


def _claim_status_faults(claim: Object, old: Object | None) -> Iterator[Cause]:
    if not claim.get("spec", {}).get("accessModes"):
        yield required("Spec.accessModes")
    status = claim.get("status", {})
    for resource, amount in (status.get("capacity") or {}).items():
        yield from _negative_amount_faults(amount, f"status.capacity[{resource}]")
    for resource, state in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _claim_resource_faults(resource, "status.allocatedResourceStatuses")
        if state not in RESIZE_STATES:
            yield not_supported("status.allocatedResourceStatuses", resource, sorted(RESIZE_STATES))
    for resource, amount in (status.get("allocatedResources") or {}).items():
        faults = list(_claim_resource_faults(resource, "status.allocatedResources"))
        yield from faults or _negative_amount_faults(amount, f"status.allocatedResources[{resource}]")


def _claim_resource_faults(resource: str, path: str) -> Iterator[Cause]:
    if faults := list(name_faults(resource, names.qualified_name, path)):
        yield from faults
    elif resource != "storage" and ("/" not in resource or "kubernetes.io/" in resource):
        yield not_supported(path, resource, ["storage"])


def _claim_warnings(claim: Object, old: Object | None) -> Iterator[str]:
    if STORAGE_CLASS_ANNOTATION in (claim["metadata"].get("annotations") or {}):
        yield (
            f"metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; "
            'use "storageClassName" attribute instead'
        )
    yield from claim_spec_warnings(claim.get("spec", {}), "spec")


def claim_spec_warnings(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    """Sizes that are not whole bytes; also for the templates of StatefulSets and ephemeral volumes."""
    for field in ("requests", "limits"):
        amount = (spec.get("resources", {}).get(field) or {}).get("storage")
        if amount is not None and quantity.parse(amount).amount % 1:
            place = f"{path}.resources.{field}[storage]"
            yield f'{place}: fractional byte value "{amount}" is invalid, must be an integer'


PERSISTENT_VOLUME = Strategy(
    default=_default_volume,
    prepare=_prepare_volume,
    prepare_status=_prepare_volume_status,
    validate=_volume_faults,
    warnings=_volume_warnings,
)
PERSISTENT_VOLUME_CLAIM = Strategy(
    default=_default_claim,
    prepare=_prepare_claim,
    validate=_claim_faults,
    validate_status=_claim_status_faults,
    warnings=_claim_warnings,
)
