"""storage.k8s.io: StorageClasses, VolumeAttachments and CSI kinds. Volumes and claims are in `kinds/volumes`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from pinnace.kinds.apps.rollouts import selector_view
from pinnace.kinds.cells import AGE, NAME, NONE, UNSET, at, boolean, integer, length_of, reach, string, text
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.rows import GA, STATUS, Row, Version, old, on_request
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
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Column, Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    CSIDriver,
    CSINode,
    CSINodeDriver,
    CSIStorageCapacity,
    StorageClass,
    StorageTokenRequest,
    TopologySelectorTerm,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentStatus,
    VolumeAttributesClass,
)

_STORAGE = "io.k8s.api.storage.v1"


def _storage_class_name(storage_class: StorageClass, now: datetime) -> str:
    annotations = reach(storage_class, "metadata", "annotations") or {}
    is_default = any(
        annotations.get(f"storageclass.{prefix}kubernetes.io/is-default-class") == "true" for prefix in ("", "beta.")
    )
    return f"{NAME.value(storage_class, now)}{' (default)' if is_default else ''}"


def _audiences(driver: CSIDriver, now: datetime) -> str:
    requests = reach(driver, "spec", "tokenRequests")
    return UNSET if requests is None else ",".join(text(request.get("audience")) for request in requests)


MAX_PARAMETERS = 512
MAX_PARAMETER_BYTES = 256 * 1024
MAX_ERROR_MESSAGE = 1024
MAX_NODE_ID = 192 + 64
FS_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLE_MODES = ("Persistent", "Ephemeral")
TOKENS_BELONG_IN_SECRETS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)

# --- storage classes


def _default_class(storage_class: StorageClass) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _validate_class(storage_class: StorageClass, old: StorageClass | None) -> Iterator[FieldError]:
    yield from _validate_provisioner(storage_class.get("provisioner", ""), "provisioner")
    yield from _validate_parameter(storage_class.get("parameters") or {}, "parameters")
    yield from validate_choice(storage_class.get("reclaimPolicy") or None, ("Delete", "Retain"), "reclaimPolicy")
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from validate_choice(storage_class.get("volumeBindingMode"), modes, "volumeBindingMode")
    yield from _validate_topology(storage_class.get("allowedTopologies") or [], "allowedTopologies")
    if old is not None:
        new_parameters, old_parameters = storage_class.get("parameters") or None, old.get("parameters") or None
        yield from validate_immutable(new_parameters, old_parameters, "parameters", view_of=in_key_order)
        yield from validate_immutable(storage_class.get("provisioner", ""), old.get("provisioner", ""), "provisioner")
        for field in ("reclaimPolicy", "volumeBindingMode"):
            yield from validate_immutable(storage_class.get(field), old.get(field), field)


def _validate_provisioner(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    yield from validate_name(name.lower(), names.qualified_name, path)


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


def _validate_topology(terms: Sequence[TopologySelectorTerm], path: str) -> Iterator[FieldError]:
    # Kubernetes compares with empty terms, too, so an empty term is always a duplicate.
    seen: set[frozenset[tuple[str, frozenset[str]]]] = {frozenset()}
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
        if term_key in seen:
            yield duplicate(f"{path}[{i}].matchLabelExpressions", "")
        seen.add(term_key)


def _class_warnings(storage_class: StorageClass, old: StorageClass | None) -> Iterator[str]:
    for i, term in enumerate(storage_class.get("allowedTopologies") or []):
        for j, expression in enumerate(term.get("matchLabelExpressions") or []):
            if message := DEPRECATED_NODE_LABELS.get(expression.get("key", "")):
                yield f"allowedTopologies[{i}].matchLabelExpressions[{j}].key: {message}"


# --- volume attributes classes


def _validate_attributes_class(
    attributes: VolumeAttributesClass, old: VolumeAttributesClass | None
) -> Iterator[FieldError]:
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


def _validate_attachment(attachment: VolumeAttachment, old: VolumeAttachment | None) -> Iterator[FieldError]:
    spec = attachment.get("spec", {})
    yield from _validate_attachment_source(spec.get("source", {}), "spec.source")
    yield from validate_name(spec.get("nodeName", ""), names.dns_subdomain, "spec.nodeName")
    yield from _validate_attachment_status(attachment.get("status", {}), "status")
    if (volume := spec.get("source", {}).get("persistentVolumeName")) is not None:
        yield from validate_name(volume, names.dns_subdomain, "spec.source.persistentVolumeName")
    yield from validate_csi_driver_name(spec.get("attacher", ""), "spec.attacher", names.dns_subdomain_in_any_case)
    if old is not None:
        view, view_before = _ATTACHMENT_SPEC.view(spec), _ATTACHMENT_SPEC.view(old.get("spec", {}))
        yield from validate_immutable(view, view_before, "spec")


def _validate_attachment_source(source: VolumeAttachmentSource, path: str) -> Iterator[FieldError]:
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    if inline is None and volume is None:
        yield required(path, ONE_SOURCE)
    elif inline is not None and volume is not None:
        yield forbidden(path, ONE_SOURCE)
    elif volume == "":
        yield required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif inline is not None:
        yield from validation.validate_inline_volume_spec(inline, f"{path}.inlineVolumeSpec")


def _validate_attachment_status(status: VolumeAttachmentStatus, path: str) -> Iterator[FieldError]:
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


def _default_limited_driver(driver: Object) -> None:
    _default_driver(driver)
    driver["spec"].setdefault("preventPodSchedulingIfMissing", False)


def _prepare_driver(driver: CSIDriver, old: CSIDriver | None) -> None:
    # Unlike other generations, this one is absent until the first change.
    if old is not None and driver.get("spec") != old.get("spec"):
        driver["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _validate_driver(driver: CSIDriver, old: CSIDriver | None) -> Iterator[FieldError]:
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


def _validate_token_request(requests: Sequence[StorageTokenRequest], path: str) -> Iterator[FieldError]:
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


def _driver_warnings(driver: CSIDriver, old: CSIDriver | None) -> Iterator[str]:
    spec, before = driver.get("spec", {}), (old or NOTHING).get("spec", NOTHING)
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


def _validate_node(node: CSINode, old: CSINode | None) -> Iterator[FieldError]:
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
    by_name: defaultdict[str, list[CSINodeDriver]] = defaultdict(list)
    for driver in drivers:
        by_name[driver.get("name", "")].append(driver)
    for before in (old or NOTHING).get("spec", NOTHING).get("drivers") or []:
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


def _without_allocatable(driver: CSINodeDriver) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


# --- CSI storage capacities


def _validate_capacity(capacity: CSIStorageCapacity, old: CSIStorageCapacity | None) -> Iterator[FieldError]:
    if (topology := capacity.get("nodeTopology")) is not None:
        yield from validate_label_selector(topology, "nodeTopology")
    yield from validate_name(capacity.get("storageClassName", ""), names.dns_subdomain, "storageClassName")
    amount = capacity.get("capacity")
    if amount is not None and quantity.parse(amount) < quantity.ZERO:
        yield invalid("capacity", amount, NEGATIVE)
    if old is not None:
        before = old.get("nodeTopology")
        yield from validate_immutable(topology, before, "nodeTopology", view_of=selector_view)
        class_name, class_before = capacity.get("storageClassName", ""), old.get("storageClassName", "")
        yield from validate_immutable(class_name, class_before, "storageClassName")


def _capacity_warnings(capacity: CSIStorageCapacity, old: CSIStorageCapacity | None) -> Iterator[str]:
    topology = capacity.get("nodeTopology") or {}
    for i, expression in enumerate(topology.get("matchExpressions") or []):
        key = expression.get("key", "")
        if message := DEPRECATED_NODE_LABELS.get(key):
            yield f"nodeTopology.matchExpressions[{i}].key: {key} is {message}"
    for label in topology.get("matchLabels") or {}:
        if message := DEPRECATED_NODE_LABELS.get(label):
            yield f"nodeTopology.matchLabels.{label}: {message}"


GROUP = "storage.k8s.io"
_V1 = "storage.k8s.io/v1"
_BETA = old("v1beta1", deprecated="1.19", removed="1.22", replacement=_V1)

_row = partial(Row, group=GROUP)

ROWS = (
    _row(
        name="CSIDriver",
        plural="csidrivers",
        columns=(
            NAME,
            boolean("AttachRequired", f"{_STORAGE}.CSIDriverSpec.attachRequired", at("spec.attachRequired", True)),
            boolean("PodInfoOnMount", f"{_STORAGE}.CSIDriverSpec.podInfoOnMount", at("spec.podInfoOnMount", False)),
            boolean("StorageCapacity", f"{_STORAGE}.CSIDriverSpec.storageCapacity", at("spec.storageCapacity", False)),
            string("TokenRequests", f"{_STORAGE}.CSIDriverSpec.tokenRequests", _audiences),
            boolean(
                "RequiresRepublish", f"{_STORAGE}.CSIDriverSpec.requiresRepublish", at("spec.requiresRepublish", False)
            ),
            string(
                "Modes",
                f"{_STORAGE}.CSIDriverSpec.volumeLifecycleModes",
                lambda obj, now: ",".join(reach(obj, "spec", "volumeLifecycleModes") or ()) or NONE,
            ),
            AGE,
        ),
        namespaced=False,
        versions=(GA, _BETA),
        gated={"VolumeLimitScaling": {"default": _default_limited_driver}},
        strategy=Strategy(
            answers_with_deleted=True,
            default=_default_driver,
            prepare=_prepare_driver,
            validate=_validate_driver,
            warnings=_driver_warnings,
            may_update_unconditionally=False,
        ),
    ),
    _row(
        name="CSINode",
        plural="csinodes",
        columns=(
            NAME,
            integer(
                "Drivers",
                "Drivers indicates the number of CSI drivers registered on the node",
                length_of("spec.drivers"),
            ),
            AGE,
        ),
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.17", removed="1.22", replacement=_V1, subresources=())),
        subresources=(STATUS,),
        since={"status": "1.37"},
        strategy=Strategy(
            answers_with_deleted=True, default=_default_node, validate=_validate_node, may_update_unconditionally=False
        ),
    ),
    _row(
        name="CSIStorageCapacity",
        plural="csistoragecapacities",
        # Older than the rule that betas are off; 1.25 and 1.26 have it.
        versions=(GA, Version("v1beta1", deprecated="1.24", removed="1.27", replacement=_V1)),
        strategy=Strategy(validate=_validate_capacity, warnings=_capacity_warnings, may_update_unconditionally=False),
    ),
    _row(
        name="StorageClass",
        plural="storageclasses",
        columns=(
            Column("Name", "string", NAME.description, _storage_class_name, format="name"),
            string("Provisioner", f"{_STORAGE}.StorageClass.provisioner", at("provisioner")),
            string("ReclaimPolicy", f"{_STORAGE}.StorageClass.reclaimPolicy", at("reclaimPolicy", "Delete")),
            string(
                "VolumeBindingMode", f"{_STORAGE}.StorageClass.volumeBindingMode", at("volumeBindingMode", "Immediate")
            ),
            string(
                "AllowVolumeExpansion",
                f"{_STORAGE}.StorageClass.allowVolumeExpansion",
                at("allowVolumeExpansion", False),
            ),
            AGE,
        ),
        short_names=("sc",),
        namespaced=False,
        versions=(GA, _BETA),
        strategy=Strategy(
            answers_with_deleted=True, default=_default_class, validate=_validate_class, warnings=_class_warnings
        ),
    ),
    _row(
        name="VolumeAttachment",
        plural="volumeattachments",
        columns=(
            NAME,
            Column(
                "Attacher", "string", f"{_STORAGE}.VolumeAttachmentSpec.attacher", at("spec.attacher"), format="name"
            ),
            string(
                "PV", f"{_STORAGE}.VolumeAttachmentSource.persistentVolumeName", at("spec.source.persistentVolumeName")
            ),
            string("Node", f"{_STORAGE}.VolumeAttachmentSpec.nodeName", at("spec.nodeName")),
            boolean("Attached", f"{_STORAGE}.VolumeAttachmentStatus.attached", at("status.attached", False)),
            AGE,
        ),
        namespaced=False,
        versions=(
            GA,
            old("v1beta1", deprecated="1.19", removed="1.22", replacement=_V1, subresources=()),
        ),
        subresources=(STATUS,),
        strategy=Strategy(
            answers_with_deleted=True,
            default=_default_attachment,
            validate=_validate_attachment,
            validate_status=_validate_attachment,
            may_update_unconditionally=False,
        ),
    ),
    _row(
        name="VolumeAttributesClass",
        plural="volumeattributesclasses",
        columns=(
            NAME,
            string("DriverName", f"{_STORAGE}.VolumeAttributesClass.driverName", at("driverName")),
            AGE,
        ),
        short_names=("vac",),
        namespaced=False,
        versions=(
            GA,
            on_request("v1beta1", deprecated="1.34", removed="1.37", replacement=_V1),
            on_request("v1alpha1", deprecated="1.32", removed="1.35", replacement=_V1),
        ),
        strategy=Strategy(answers_with_deleted=True, validate=_validate_attributes_class),
    ),
)
