"""Defaults and validation of persistent volume claims."""

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
from pinnace.kinds.volumes.validation import (
    STORAGE_CLASS_ANNOTATION,
    VOLUME_MODES,
    validate_access_mode,
    validate_negative_amount,
)
from pinnace.model import names, quantity
from pinnace.model.field_errors import IMMUTABLE, FieldError, forbidden, invalid, not_supported, required
from pinnace.model.objects import NOTHING, AnyObject, Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from pinnace.schema.equality import semantically_equal

RESIZE_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizePending",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
)
CLAIM_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)

_CLAIM_SPEC = GoStruct(
    "AccessModes Selector Resources VolumeName='' StorageClassName VolumeMode DataSource DataSourceRef "
    "VolumeAttributesClassName",
    Resources=GoStruct("Limits Requests"),
    DataSource=GoStruct("APIGroup:apiGroup Kind='' Name=''"),
    DataSourceRef=GoStruct("APIGroup:apiGroup Kind='' Name='' Namespace"),
    inline=("Resources",),
)


def storage_class_of(claim: AnyObject) -> str:
    """Return the class that a claim names, by the annotation of old or by the field."""
    annotations = claim["metadata"].get("annotations") or {}
    named = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str(named if named is not None else (claim.get("spec") or {}).get("storageClassName") or "")


def _default_claim(claim: PersistentVolumeClaim) -> None:
    default_claim_spec(claim.setdefault("spec", {}))
    if not claim.get("status", {}).get("phase"):
        claim.setdefault("status", {})["phase"] = "Pending"


def default_claim_spec(spec: PersistentVolumeClaimSpec) -> None:
    """Set the defaults of a claim's spec; also for the templates of StatefulSets and ephemeral volumes."""
    spec.setdefault("volumeMode", "Filesystem")
    for field in ("dataSource", "dataSourceRef"):
        if field in spec:
            cast("Object", spec[field]).setdefault("apiGroup", None)  # Kubernetes writes null for the core group.


def _prepare_claim(claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None) -> None:
    if old is None:
        claim["status"] = {"phase": "Pending"}
    spec = claim.setdefault("spec", {})
    before = (old or NOTHING).get("spec", NOTHING)
    if spec.get("dataSourceRef", {}).get("namespace") and "dataSourceRef" not in before:
        del spec["dataSourceRef"]  # Sources in other namespaces are an alpha feature that is off.
    if not ("dataSource" in before or "dataSourceRef" in before or "dataSourceRef" in spec):
        source = spec.get("dataSource", {})
        if (source.get("kind"), source.get("apiGroup") or "") not in _OLD_DATA_SOURCES:
            spec.pop("dataSource", None)
    _pair_data_sources(spec)


_OLD_DATA_SOURCES = (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io"))


def _pair_data_sources(spec: PersistentVolumeClaimSpec) -> None:
    """Set both dataSource, for old clients, and dataSourceRef, if one of them is given."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = _without_namespace(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = _without_namespace(reference)


def _without_namespace(reference: TypedLocalObjectReference | TypedObjectReference) -> Any:
    fields = {"apiGroup": None, "kind": "", "name": "", **reference}
    return {key: value for key, value in fields.items() if key != "namespace"}


def _validate_claim(claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None) -> Iterator[FieldError]:
    before = None if old is None else old.get("spec", {})
    tolerates_group = bool(before) and any(
        ((before or NOTHING).get(field) or {}).get("apiGroup") is not None for field in ("dataSource", "dataSourceRef")
    )
    yield from validate_claim_spec(claim.get("spec", {}), "spec", check_api_group=not tolerates_group)
    if old is not None:
        yield from _validate_claim_change(claim, old)


def validate_claim_spec(
    spec: PersistentVolumeClaimSpec, path: str, *, check_api_group: bool = True
) -> Iterator[FieldError]:
    """Yield every error of a claim's spec; also for the templates of StatefulSets and ephemeral volumes."""
    yield from validate_access_mode(spec, path, none_given="at least 1 access mode is required")
    amount = (spec.get("resources", {}).get("requests") or {}).get("storage")
    if amount is None:
        yield required(f"{path}.resources[storage]")
    elif quantity.parse(amount) <= quantity.ZERO:
        yield invalid(f"{path}.resources[storage]", amount, NOT_POSITIVE)
    yield from validate_name(spec.get("storageClassName") or None, names.dns_subdomain, f"{path}.storageClassName")
    yield from validate_choice(spec.get("volumeMode"), VOLUME_MODES, f"{path}.volumeMode")
    yield from _validate_data_source(spec, path, check_api_group=check_api_group)
    if attributes := spec.get("volumeAttributesClassName"):
        yield from validate_name(attributes, names.dns_subdomain, f"{path}.volumeAttributesClassName")


def _validate_data_source(spec: PersistentVolumeClaimSpec, path: str, *, check_api_group: bool) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field, given in (("dataSource", source), ("dataSourceRef", reference)):
        if given is not None:
            yield from _validate_one_data_source(given, f"{path}.{field}", check_api_group=check_api_group)
    if reference is not None and reference.get("namespace"):
        yield from validate_name(reference["namespace"], names.dns_label, f"{path}.dataSourceRef.namespace")
    if source is None or reference is None:
        return
    # Kubernetes prints its path object here, which has no visible fields.
    if reference.get("namespace"):
        yield invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif any((source.get(key) or "") != (reference.get(key) or "") for key in ("kind", "name", "apiGroup")):
        yield invalid(path, {}, "must match dataSourceRef")


def _validate_one_data_source(
    source: TypedLocalObjectReference | TypedObjectReference, path: str, *, check_api_group: bool
) -> Iterator[FieldError]:
    for field in ("name", "kind"):
        if not source.get(field):
            yield required(f"{path}.{field}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind", "") != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, source.get("kind", ""), detail)
    if group and check_api_group:
        yield from validate_name(group, names.dns_subdomain, f"{path}.apiGroup")


def _validate_claim_change(claim: PersistentVolumeClaim, old: PersistentVolumeClaim) -> Iterator[FieldError]:
    annotation = (claim["metadata"].get("annotations") or {}).get(STORAGE_CLASS_ANNOTATION)
    annotation_before = (old["metadata"].get("annotations") or {}).get(STORAGE_CLASS_ANNOTATION)
    spec, before = claim["spec"].copy(), old["spec"].copy()
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
        _reset_mutable_fields(spec, before)
    view, view_before = _CLAIM_SPEC.view(spec), _CLAIM_SPEC.view(before)
    if not semantically_equal(view, view_before):
        changes = unified_diff(view_before, view)
        yield forbidden("spec", f"{CLAIM_IMMUTABLE}\n{changes}")
    yield from _validate_shrink(claim["spec"], old)
    volume_mode, mode_before = claim["spec"].get("volumeMode"), before.get("volumeMode")
    yield from validate_immutable(volume_mode, mode_before, "volumeMode")
    attributes = claim["spec"].get("volumeAttributesClassName")
    changed = attributes != old["spec"].get("volumeAttributesClassName")
    if changed and not attributes and "currentVolumeAttributesClassName" in old.get("status", {}):
        what = "nil" if attributes is None else "empty string"
        detail = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        yield forbidden("spec.volumeAttributesClassName", detail)


def _reset_mutable_fields(spec: PersistentVolumeClaimSpec, before: PersistentVolumeClaimSpec) -> None:
    """Set back the fields that a bound claim may change: its size and its attributes class."""
    requests = spec.get("resources", {}).get("requests")
    amount = (before.get("resources", {}).get("requests") or {}).get("storage")
    if requests is not None and amount is not None:
        spec["resources"] = {**spec["resources"], "requests": {**requests, "storage": amount}}
    spec.pop("volumeAttributesClassName", None)
    if "volumeAttributesClassName" in before:
        spec["volumeAttributesClassName"] = before["volumeAttributesClassName"]


def _validate_shrink(spec: PersistentVolumeClaimSpec, old: PersistentVolumeClaim) -> Iterator[FieldError]:
    def storage(amounts: Mapping[str, str] | None) -> str:
        return (amounts or {}).get("storage", "0")

    wanted = quantity.parse(storage(spec.get("resources", {}).get("requests")))
    requested = quantity.parse(storage(old["spec"].get("resources", {}).get("requests")))
    given = quantity.parse(storage(old.get("status", {}).get("capacity")))
    if wanted < requested and wanted <= given:
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


def _validate_claim_status(claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None) -> Iterator[FieldError]:
    if not claim.get("spec", {}).get("accessModes"):
        yield required("Spec.accessModes")
    status = claim.get("status", {})
    for resource, amount in (status.get("capacity") or {}).items():
        yield from validate_negative_amount(amount, f"status.capacity[{resource}]")
    for resource, state in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _validate_claim_resource(resource, "status.allocatedResourceStatuses")
        if state not in RESIZE_STATES:
            yield not_supported("status.allocatedResourceStatuses", resource, sorted(RESIZE_STATES))
    for resource, amount in (status.get("allocatedResources") or {}).items():
        errs = list(_validate_claim_resource(resource, "status.allocatedResources"))
        yield from errs or validate_negative_amount(amount, f"status.allocatedResources[{resource}]")


def _validate_claim_resource(resource: str, path: str) -> Iterator[FieldError]:
    if errs := list(validate_name(resource, names.qualified_name, path)):
        yield from errs
    elif resource != "storage" and ("/" not in resource or "kubernetes.io/" in resource):
        yield not_supported(path, resource, ["storage"])


def _claim_warnings(claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None) -> Iterator[str]:
    if STORAGE_CLASS_ANNOTATION in (claim["metadata"].get("annotations") or {}):
        yield (
            f"metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; "
            'use "storageClassName" attribute instead'
        )
    yield from claim_spec_warnings(claim.get("spec", {}), "spec")


def claim_spec_warnings(spec: PersistentVolumeClaimSpec, path: str) -> Iterator[str]:
    """Return warnings about sizes that are not whole bytes; also for the templates of StatefulSets and ephemeral
    volumes."""
    for field in ("requests", "limits"):
        amount = (spec.get("resources", {}).get(field) or {}).get("storage")
        if amount is not None and not quantity.parse(amount).is_whole:
            place = f"{path}.resources.{field}[storage]"
            yield f'{place}: fractional byte value "{amount}" is invalid, must be an integer'


PERSISTENT_VOLUME_CLAIM = Strategy(
    answers_with_deleted=True,
    default=_default_claim,
    prepare=_prepare_claim,
    validate=_validate_claim,
    validate_status=_validate_claim_status,
    warnings=_claim_warnings,
)
