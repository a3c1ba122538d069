"""Descriptions of PersistentVolumes, their claims and classes, and the drivers of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    describe_labels,
    heading,
    heading_with_labels,
    long_time,
    since,
    timed_conditions,
    yes,
)
from pinnace.cli.describe.volumes import origin, source
from pinnace.cli.kubectl.formats import format_value
from pinnace.client.client import Client
from pinnace.kinds.cells import format_labels
from pinnace.kinds.core.persistent_volumes import source_of
from pinnace.model.objects import Object

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def persistent_volume(page: Description, obj: Object) -> None:
    spec, status = obj["spec"], obj.get("status") or {}
    heading_with_labels(page, obj, namespaced=False)
    claim = spec.get("claimRef")
    page.pairs(
        ("Finalizers", obj["metadata"].get("finalizers") or []),
        ("StorageClass", _class(obj)),
        ("Status", _phase(obj)),
        ("Claim", f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""),
        ("Reclaim Policy", spec.get("persistentVolumeReclaimPolicy", "")),
        ("Access Modes", _modes(spec)),
        ("VolumeMode", spec.get("volumeMode")),
        ("Capacity", (spec.get("capacity") or {}).get("storage", "0")),
    )
    _affinity(page, (spec.get("nodeAffinity") or {}).get("required"))
    page.pair("Message", status.get("message", ""))
    page.line("Source:")
    kind = source_of(spec)
    source(page, kind, spec.get(kind) or {}, is_persistent=True)


async def claim(page: Description, obj: Object, client: Client) -> None:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    is_bound = bool(spec.get("volumeName"))
    heading(page, obj)
    page.pairs(("StorageClass", _class(obj)), ("Status", _phase(obj)), ("Volume", spec.get("volumeName", "")))
    describe_labels(page, obj)
    page.pairs(
        ("Finalizers", metadata.get("finalizers") or []),
        ("Capacity", (status.get("capacity") or {}).get("storage", "0") if is_bound else ""),
        ("Access Modes", _modes(status) if is_bound else ""),
        ("VolumeMode", spec.get("volumeMode")),
    )
    for line in origin(spec):
        page.line(line)
    pods = await client.list("v1/Pod", namespace=metadata["namespace"])
    page.listed("Used By", sorted(pod["metadata"]["name"] for pod in pods if _uses(pod, obj)))
    if status.get("conditions"):
        timed_conditions(page, status["conditions"], "LastProbeTime")


def storage_class(page: Description, obj: Object) -> None:
    annotations = obj["metadata"].get("annotations") or {}
    expands = obj.get("allowVolumeExpansion")
    heading(page, obj, namespaced=False)
    page.pairs(
        ("IsDefaultClass", "Yes" if any(annotations.get(name) == "true" for name in _DEFAULT) else "No"),
        ("Annotations", format_labels(annotations)),
        ("Provisioner", obj.get("provisioner", "")),
        ("Parameters", format_labels(obj.get("parameters"))),
        ("AllowVolumeExpansion", UNSET if expands is None else yes(expands)),
    )
    options = obj.get("mountOptions") or ()
    page.line("MountOptions:" + ("" if options else f"\t{NONE}"))
    for option in options:
        page.line(option, 1)
    page.pairs(("ReclaimPolicy", obj.get("reclaimPolicy")), ("VolumeBindingMode", obj.get("volumeBindingMode")))
    if obj.get("allowedTopologies"):
        page.pair("AllowedTopologies", "")
        _terms(page, (term.get("matchLabelExpressions") or () for term in obj["allowedTopologies"]), indent="  ")


def attributes_class(page: Description, obj: Object) -> None:
    heading(page, obj, namespaced=False)
    page.pairs(
        ("Annotations", format_labels(obj["metadata"].get("annotations"))),
        ("DriverName", obj.get("driverName", "")),
        ("Parameters", format_labels(obj.get("parameters"))),
    )


def node_drivers(page: Description, obj: Object) -> None:
    """Describe a CSINode: the volumes that a node can attach."""
    heading_with_labels(page, obj, namespaced=False)
    page.pair("CreationTimestamp", long_time(obj["metadata"].get("creationTimestamp")))
    page.line("Spec:")
    drivers = obj["spec"].get("drivers")
    if drivers is not None:
        page.line("Drivers:", 1)
    for driver in drivers or ():
        page.line(f"{driver['name']}:", 2)
        page.pair("Node ID", driver.get("nodeID", ""), 3)
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None:
            page.line("Allocatables:", 3)
            page.pair("Count", count, 4)
        if driver.get("topologyKeys") is not None:
            page.pair("Topology Keys", format_value(driver["topologyKeys"]), 3)


def _affinity(page: Description, required: Object | None) -> None:
    if required is None:
        page.pair("Node Affinity", NONE)
        return
    page.pair("Node Affinity", "")
    terms = required.get("nodeSelectorTerms") or ()
    page.pair("Required Terms", "" if terms else NONE, 1)
    _terms(page, (term.get("matchExpressions") or () for term in terms), indent="    ")


def _terms(page: Description, terms: Iterable[Iterable[Object]], *, indent: str) -> None:
    for place, expressions in enumerate(terms):
        page.listed(f"Term {place}", [_expression(expression) for expression in expressions], indent=indent)


def _expression(expression: Object) -> str:
    values = f" [{', '.join(expression['values'])}]" if expression.get("values") else ""
    return f"{expression['key']} {expression.get('operator', 'In').lower()}{values}"


def _class(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get(_CLASS, obj["spec"].get("storageClassName", "")))


def _phase(obj: Object) -> str:
    deleted = obj["metadata"].get("deletionTimestamp")
    return f"Terminating (lasts {since(deleted)})" if deleted else str((obj.get("status") or {}).get("phase", ""))


def _modes(where: Object) -> str:
    modes = where.get("accessModes") or ()
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _uses(pod: Object, obj: Object) -> bool:
    name, uid = obj["metadata"]["name"], pod["metadata"]["uid"]
    volumes = pod["spec"].get("volumes") or ()
    owners = obj["metadata"].get("ownerReferences") or ()
    return any((volume.get("persistentVolumeClaim") or {}).get("claimName") == name for volume in volumes) or any(
        owner["kind"] == "Pod" and owner["uid"] == uid for owner in owners
    )
