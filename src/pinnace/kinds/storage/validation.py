"""Defaults and validation of storage classes, attachments and CSI kinds. Volumes and claims are in `kinds/volumes`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import (
    NEGATIVE,
    find_repeats,
    in_key_order,
    validate_choice,
    validate_immutable,
    validate_name,
    validate_not_negative,
    validate_range,
)
from pinnace.kinds.validation.node_selectors import DEPRECATED_NODE_LABELS
from pinnace.kinds.volumes import validation
from pinnace.kinds.volumes.sources import default_source, validate_csi_driver_name
from pinnace.model import names, quantity
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, required, too_long
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector

MAX_PARAMETERS = 512
MAX_PARAMETER_BYTES = 256 * 1024
MAX_ERROR_MESSAGE = 1024
MAX_NODE_ID = 192 + 64
MAX_REPEATED_TERMS = 1_000
"""A limit of our own: Kubernetes reports each pair of equal topology terms, which many terms make too many."""
FS_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLE_MODES = ("Persistent", "Ephemeral")
TOKENS_BELONG_IN_SECRETS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)

# --- storage classes


def _default_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _validate_class(storage_class: Object, old: Object | None) -> Iterator[FieldError]:
    yield from _validate_provisioner(storage_class.get("provisioner", ""), "provisioner")
    yield from _validate_parameter(storage_class.get("parameters") or {}, "parameters")
    yield from validate_choice(storage_class.get("reclaimPolicy") or None, ("Delete", "Retain"), "reclaimPolicy")
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from validate_choice(storage_class.get("volumeBindingMode"), modes, "volumeBindingMode")
    yield from _validate_topology(storage_class.get("allowedTopologies") or [], "allowedTopologies")
    if old is not None:
        new_parameters, old_parameters = storage_class.get("parameters") or None, old.get("parameters") or None
        yield from validate_immutable(new_parameters, old_parameters, "parameters", shown=in_key_order)
        yield from validate_immutable(storage_class.get("provisioner", ""), old.get("provisioner", ""), "provisioner")
        for field in ("reclaimPolicy", "volumeBindingMode"):
            yield from validate_immutable(storage_class.get(field), old.get(field), field)


def _validate_provisioner(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    for err in names.qualified_name(name.lower()):
        yield invalid(path, name.lower(), err)


def _validate_parameter(parameters: Mapping[str, str], path: str) -> Iterator[FieldError]:
    if len(parameters) > MAX_PARAMETERS:
        yield too_long(path, MAX_PARAMETERS)
        return
    if "" in parameters:
        yield invalid(path, "", "field can not be empty.")
    if _bytes_of(parameters) > MAX_PARAMETER_BYTES:
        yield too_long(path, MAX_PARAMETER_BYTES)


def _bytes_of(texts: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())


def _validate_topology(terms: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    # Kubernetes compares with empty terms, too, so an empty term is always a duplicate.
    seen: Counter[frozenset[tuple[str, frozenset[str]]]] = Counter({frozenset(): len(terms)})
    room = MAX_REPEATED_TERMS
    for i, term in enumerate(terms):
        wanted: dict[str, frozenset[str]] = {}
        for j, expression in enumerate(term.get("matchLabelExpressions") or []):
            place = f"{path}[{i}].matchLabelExpressions[{j}]"
            key, values = expression.get("key", ""), expression.get("values") or []
            if not values:
                yield required(f"{place}.values")
            repeated = find_repeats(values)
            for k, value in enumerate(values):
                if repeated[k]:
                    yield duplicate(f"{place}.values[{k}]", value)
            yield from validate_name(key, names.qualified_name, f"{place}.key")
            if key in wanted:
                yield duplicate(f"{place}.key", key)
            wanted[key] = frozenset(values)
        term_key = frozenset(wanted.items())
        repeats = min(seen[term_key], room)
        yield from [duplicate(f"{path}[{i}].matchLabelExpressions", "")] * repeats
        room -= repeats
        seen[term_key] += 1


def _class_warnings(storage_class: Object, old: Object | None) -> Iterator[str]:
    for i, term in enumerate(storage_class.get("allowedTopologies") or []):
        for j, expression in enumerate(term.get("matchLabelExpressions") or []):
            if message := DEPRECATED_NODE_LABELS.get(expression.get("key", "")):
                yield f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {message}"


# --- volume attributes classes


def _validate_attributes_class(attributes: Object, old: Object | None) -> Iterator[FieldError]:
    if old is not None and attributes.get("driverName") != old.get("driverName"):
        yield forbidden("driverName", "updates to driverName are forbidden.")
    if old is not None and (attributes.get("parameters") or {}) != (old.get("parameters") or {}):
        yield forbidden("parameters", "updates to parameters are forbidden.")
    yield from _validate_provisioner(attributes.get("driverName", ""), "driverName")
    yield from _validate_parameter(attributes.get("parameters") or {}, "parameters")
    if not attributes.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")


# --- attachments

_ATTACHMENT_SPEC = GoStruct(
    "Attacher='' Source NodeName=''",
    Source=GoStruct("PersistentVolumeName InlineVolumeSpec", InlineVolumeSpec=validation.VOLUME_SPEC),
    inline=("Source",),
)
ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def _default_attachment(attachment: Object) -> None:
    attachment.setdefault("status", {}).setdefault("attached", False)
    inline = attachment.get("spec", {}).get("source", {}).get("inlineVolumeSpec")
    if inline is not None:
        default_source(inline)


def _validate_attachment(attachment: Object, old: Object | None) -> Iterator[FieldError]:
    spec = attachment.get("spec", {})
    yield from validate_csi_driver_name(spec.get("attacher", ""), "spec.attacher")
    yield from _validate_attachment_source(spec.get("source", {}), "spec.source")
    yield from validate_name(spec.get("nodeName", ""), names.dns_subdomain, "spec.nodeName")
    yield from _validate_attachment_status(attachment.get("status", {}), "status")
    if (volume := spec.get("source", {}).get("persistentVolumeName")) is not None:
        yield from validate_name(volume, names.dns_subdomain, "spec.source.persistentVolumeName")
    if old is not None:
        shown, shown_before = _ATTACHMENT_SPEC.view(spec), _ATTACHMENT_SPEC.view(old.get("spec", {}))
        yield from validate_immutable(shown, shown_before, "spec")


def _validate_attachment_source(source: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        yield required(path, ONE_SOURCE)
    elif inline is not None and volume is not None:
        yield forbidden(path, ONE_SOURCE)
    elif volume == "":
        yield required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif inline is not None:
        yield from validation.validate_inline_volume_spec(inline, f"{path}.inlineVolumeSpec")


def _validate_attachment_status(status: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if _bytes_of(status.get("attachmentMetadata") or {}) > MAX_PARAMETER_BYTES:
        yield too_long(f"{path}.attachmentMetadata", MAX_PARAMETER_BYTES)
    for field in ("attachError", "detachError"):
        error = status.get(field) or {}
        if len(error.get("message", "").encode()) > MAX_ERROR_MESSAGE:
            yield too_long(f"{path}.{field}.message", MAX_PARAMETER_BYTES)  # The limit in Kubernetes' message.
        yield from validate_range(error.get("errorCode"), 0, 2**31 - 1, f"{path}.{field}.errorCode")


# --- CSI drivers


def _default_driver(driver: Object) -> None:
    spec = driver.setdefault("spec", {})
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    for field in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(field, False)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    for request in spec.get("tokenRequests") or []:
        request.setdefault("audience", "")


def _prepare_driver(driver: Object, old: Object | None) -> None:
    if "preventPodSchedulingIfMissing" not in (old or {}).get("spec", {}):
        driver.get("spec", {}).pop("preventPodSchedulingIfMissing", None)  # An alpha feature that is off.
    # Unlike other generations, this one is absent until the first change.
    if old is not None and driver.get("spec") != old.get("spec"):
        driver["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _validate_driver(driver: Object, old: Object | None) -> Iterator[FieldError]:
    spec = driver.get("spec", {})
    yield from validate_choice(spec.get("fsGroupPolicy"), FS_GROUP_POLICIES, "spec.fsGroupPolicy")
    yield from _validate_token_request(spec.get("tokenRequests") or [], "spec.tokenRequests")
    for mode in spec.get("volumeLifecycleModes") or []:
        yield from validate_choice(mode, LIFECYCLE_MODES, "spec.volumeLifecycleModes")
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        detail = "must be greater than or equal to 10 seconds"
        yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail)
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        yield invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail)
    if old is not None:
        before = old.get("spec", {})
        # Kubernetes misspells the field in this path.
        yield from validate_immutable(spec.get("attachRequired"), before.get("attachRequired"), "spec.attachedRequired")
        modes, modes_before = spec.get("volumeLifecycleModes"), before.get("volumeLifecycleModes")
        yield from validate_immutable(modes, modes_before, "spec.volumeLifecycleModes")


def _validate_token_request(requests: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    seen = set()
    for i, request in enumerate(requests):
        audience, seconds = request.get("audience", ""), request.get("expirationSeconds")
        if audience in seen:
            yield duplicate(f"{path}[{i}].audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < 600:
            detail = "may not specify a duration less than 10 minutes"
            yield invalid(f"{path}[{i}].expirationSeconds", seconds, detail)
        if seconds is not None and seconds > 2**32:
            detail = "may not specify a duration larger than 2^32 seconds"
            yield invalid(f"{path}[{i}].expirationSeconds", seconds, detail)


def _driver_warnings(driver: Object, old: Object | None) -> Iterator[str]:
    spec, before = driver.get("spec", {}), (old or {}).get("spec", {})
    requests = spec.get("tokenRequests")
    if requests and requests != before.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        yield TOKENS_BELONG_IN_SECRETS


# --- CSI nodes

_NODE_DRIVER = GoStruct("Name='' NodeID:nodeID='' TopologyKeys Allocatable", Allocatable=GoStruct("Count"))


def _default_node(node: Object) -> None:
    spec = node.setdefault("spec", {})
    spec["drivers"] = spec.get("drivers") or None  # Kubernetes writes null for an empty list.
    for driver in spec["drivers"] or []:
        driver["topologyKeys"] = driver.get("topologyKeys") or None


def _validate_node(node: Object, old: Object | None) -> Iterator[FieldError]:
    drivers = node.get("spec", {}).get("drivers") or []
    seen = set()
    for i, driver in enumerate(drivers):
        path = f"spec.drivers[{i}]"
        yield from validate_csi_driver_name(driver.get("name", ""), f"{path}.name")
        yield from _validate_node_id(driver.get("nodeID", ""), f"{path}.nodeID")
        yield from validate_not_negative((driver.get("allocatable") or {}).get("count"), f"{path}.allocatable.count")
        if driver.get("name", "") in seen:
            yield duplicate(f"{path}.name", driver.get("name", ""))
        seen.add(driver.get("name", ""))
        yield from _validate_topology_key(driver.get("topologyKeys") or [], path)
    by_name: defaultdict[str, list[Object]] = defaultdict(list)
    for driver in drivers:
        by_name[driver.get("name", "")].append(driver)
    for before in (old or {}).get("spec", {}).get("drivers") or []:
        for driver in by_name.get(before.get("name", ""), ()):
            fixed, fixed_before = (_NODE_DRIVER.view(_without_allocatable(item)) for item in (driver, before))
            yield from validate_immutable(fixed, fixed_before, "spec.drivers")


def _validate_node_id(node_id: str, path: str) -> Iterator[FieldError]:
    if not node_id:
        yield required(path)
    if len(node_id) > MAX_NODE_ID:
        yield invalid(path, node_id, f"must be {MAX_NODE_ID} characters or less")


def _validate_topology_key(keys: Sequence[str], path: str) -> Iterator[FieldError]:
    repeated = find_repeats(keys)
    for i, key in enumerate(keys):
        if not key:
            yield required(path)
        if repeated[i]:
            yield duplicate(path, key)
        yield from validate_name(key, names.qualified_name, path)


def _without_allocatable(driver: Mapping[str, Any]) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


# --- CSI storage capacities


def _validate_capacity(capacity: Object, old: Object | None) -> Iterator[FieldError]:
    if (topology := capacity.get("nodeTopology")) is not None:
        yield from validate_label_selector(topology, "nodeTopology")
    yield from validate_name(capacity.get("storageClassName", ""), names.dns_subdomain, "storageClassName")
    amount = capacity.get("capacity")
    if amount is not None and quantity.parse(amount) < quantity.ZERO:
        yield invalid("capacity", amount, NEGATIVE)
    if old is not None:
        before = old.get("nodeTopology")
        yield from validate_immutable(topology, before, "nodeTopology", shown=_selector_view)
        class_name, class_before = capacity.get("storageClassName", ""), old.get("storageClassName", "")
        yield from validate_immutable(class_name, class_before, "storageClassName")


def _selector_view(selector: Mapping[str, Any] | None) -> Object | None:
    """Return a label selector as Go prints it: empty parts are left out, except in expressions."""
    if selector is None:
        return None
    expressions = [
        {"key": "", "operator": "", **{field: value for field, value in expression.items() if value}}
        for expression in selector.get("matchExpressions") or []
    ]
    said = {"matchLabels": in_key_order(selector.get("matchLabels")), "matchExpressions": expressions}
    return {field: value for field, value in said.items() if value}


def _capacity_warnings(capacity: Object, old: Object | None) -> Iterator[str]:
    topology = capacity.get("nodeTopology") or {}
    for i, expression in enumerate(topology.get("matchExpressions") or []):
        key = expression.get("key", "")
        if message := DEPRECATED_NODE_LABELS.get(key):
            yield f"nodeTopology.matchExpressions[{i}].key: {key} is {message}"
    for label in topology.get("matchLabels") or {}:
        if message := DEPRECATED_NODE_LABELS.get(label):
            yield f"nodeTopology.matchLabels.{label}: {message}"


STORAGE_CLASS = Strategy(
    answers_with_deleted=True, default=_default_class, validate=_validate_class, warnings=_class_warnings
)
VOLUME_ATTACHMENT = Strategy(
    answers_with_deleted=True,
    default=_default_attachment,
    validate=_validate_attachment,
    validate_status=_validate_attachment,
    may_update_unconditionally=False,
)
CSI_DRIVER = Strategy(
    answers_with_deleted=True,
    default=_default_driver,
    prepare=_prepare_driver,
    validate=_validate_driver,
    warnings=_driver_warnings,
    may_update_unconditionally=False,
)
CSI_NODE = Strategy(
    answers_with_deleted=True, default=_default_node, validate=_validate_node, may_update_unconditionally=False
)
CSI_STORAGE_CAPACITY = Strategy(
    validate=_validate_capacity, warnings=_capacity_warnings, may_update_unconditionally=False
)
VOLUME_ATTRIBUTES_CLASS = Strategy(answers_with_deleted=True, validate=_validate_attributes_class)
