"""Defaults and validation of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from pinnace.kinds.core.quotas import canonical_amounts, validate_quantity
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.addresses import cidr_warnings, sloppy_cidr, validate_cidr
from pinnace.kinds.validation.fields import validate_given_choice, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import Node, NodeSpec, NodeStatus, Taint

_is_feature = re.compile("[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*").fullmatch
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_TAINT = GoStruct("Key='' Value='' Effect='' TimeAdded")
_ADDRESS = GoStruct("Type='' Address=''")


def _default_node(node: Node) -> None:
    spec: NodeSpec = node.setdefault("spec", {})
    first = spec.get("podCIDR")
    if first and (spec.get("podCIDRs") or [""])[0] != first:
        spec["podCIDRs"] = [first]  # The older field wins: clients that know both write both.
    elif not first and spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]
    status: NodeStatus = node.setdefault("status", {})
    _complete_status(status)
    for field in ("capacity", "allocatable"):
        canonical_amounts(status.get(field))
    if "allocatable" not in status and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])


def _complete_status(status: Any) -> None:
    """Set the status fields that Kubernetes always writes."""
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {}).setdefault("Port", 0)
    info = status.setdefault("nodeInfo", {})
    for field in _NODE_INFO:
        info.setdefault(field, "")


def _prepare_node(node: Node, old: Node | None) -> None:
    if "configSource" not in ((old or NOTHING).get("spec") or {}):
        (node.get("spec") or {}).pop("configSource", None)
    if old is None:
        status = node.setdefault("status", {})
        status.pop("config", None)
        _complete_status(status)


def _prepare_node_status(node: Node, old: Node | None) -> None:
    if "config" not in ((old or NOTHING).get("status") or {}):
        (node.get("status") or {}).pop("config", None)


def _validate_node(node: Node, old: Node | None) -> Iterator[FieldError]:
    spec: NodeSpec = node.get("spec") or {}
    yield from _validate_taint(spec.get("taints") or ())
    yield from _validate_status(node)
    swap = ((node.get("status") or {}).get("nodeInfo") or {}).get("swap") or {}
    if swap.get("capacity") is not None and swap["capacity"] <= 0:
        yield invalid("metadata.nodeSwapStatus.capacity", swap["capacity"], "must be greater than zero")
    yield from _validate_pod_cidr(spec.get("podCIDRs") or ())
    if old is not None:
        yield from _validate_node_update(node, old)
        yield from _validate_taint(spec.get("taints") or ())


def _validate_node_update(node: Node, old: Node | None) -> Iterator[FieldError]:
    """Check changes of a node and of its status."""
    before: NodeSpec = ((old or NOTHING).get("spec")) or {}
    spec: NodeSpec = node.get("spec") or {}
    seen = set()
    for index, address in enumerate((node.get("status") or {}).get("addresses") or ()):
        pair = (address.get("type", ""), address.get("address", ""))
        if pair in seen:
            yield duplicate(f"status.addresses[{index}]", _ADDRESS.view(address))
        seen.add(pair)
    old_cidrs, cidrs = before.get("podCIDRs") or [], spec.get("podCIDRs") or []
    if old_cidrs:
        changed = 1 if len(old_cidrs) != len(cidrs) else sum(map(str.__ne__, old_cidrs, cidrs))
        for _ in range(changed):
            yield forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        yield forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
    if before.get("externalID", "") != spec.get("externalID", ""):
        yield forbidden("spec.externalID", "may not be updated")


def _validate_node_status(node: Node, old: Node | None) -> Iterator[FieldError]:
    yield from _validate_status(node)
    yield from _validate_node_update(node, old)


def _validate_status(node: Node) -> Iterator[FieldError]:
    status: NodeStatus = node.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, amount in (status.get(field) or {}).items():
            yield from validate_quantity(name, amount, f"status.{field}.{name}")
    features: Sequence[str] = status.get("declaredFeatures") or ()
    for index, feature in enumerate(features):
        path = f"status.declaredFeatures[{index}]"
        if wrong := _check_feature(feature):
            yield invalid(path, feature, f"invalid feature name {orjson.dumps(feature).decode()}: {wrong}")
        following = features[index + 1] if index + 1 < len(features) else None
        if following is not None and feature == following:
            yield duplicate(f"status.declaredFeatures[{index + 1}]", following)
        elif following is not None and feature > following:
            yield invalid(f"status.declaredFeatures[{index + 1}]", following, "list must be sorted alphabetically")


def _check_feature(feature: str) -> str:
    if len(feature.encode()) > 253:
        return "must be no more than 253 characters"
    if _is_feature(feature):
        return ""
    return (
        "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
        "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
    )


def _validate_taint(taints: Sequence[Taint]) -> Iterator[FieldError]:
    seen = set()
    for index, taint in enumerate(taints):
        path = f"metadata.taints[{index}]"  # The field is in spec, but Kubernetes names this path.
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        yield from validate_name(key, names.qualified_name, f"{path}.key")
        if errs := names.label_value(value):
            yield invalid(f"{path}.value", value, ";".join(errs))
        yield from validate_given_choice(effect, TAINT_EFFECTS, f"{path}.effect")
        if (key, effect) in seen:
            taint_json = orjson.dumps(_TAINT.view(taint)).decode()
            detail = f"Duplicate value: {taint_json}: taints must be unique by key and effect pair"
            yield FieldError(path, "FieldValueDuplicate", detail)
        seen.add((key, effect))


def _validate_pod_cidr(cidrs: Sequence[str]) -> Iterator[FieldError]:
    for index, cidr in enumerate(cidrs):
        yield from validate_cidr(cidr, f"spec.podCIDRs[{index}]")
    if len(cidrs) > 1:
        if wrong := [index for index, cidr in enumerate(cidrs) if sloppy_cidr(cidr) is None]:
            why = f"invalid CIDR[{wrong[0]}]: <nil> (invalid CIDR address: {cidrs[wrong[0]]})"
            detail = f"Internal error: invalid PodCIDRs. failed to check with dual stack with error:{why}"
            yield FieldError("spec.podCIDRs", "InternalError", detail)
        families = {parsed[1].version for cidr in cidrs if (parsed := sloppy_cidr(cidr))}
        if len(families) != 2 or len(cidrs) > 2:
            yield invalid("spec.podCIDRs", list(cidrs), "may specify no more than one CIDR for each IP family")


def _node_warnings(node: Node, old: Node | None) -> Iterator[str]:
    spec: NodeSpec = node.get("spec") or {}
    if spec.get("configSource") is not None:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
    for index, cidr in enumerate(spec.get("podCIDRs") or ()):
        yield from cidr_warnings(cidr, f"spec.podCIDRs[{index}]")


NODE = Strategy(
    keeps_status_on_create=True,
    default=_default_node,
    prepare=_prepare_node,
    prepare_status=_prepare_node_status,
    validate=_validate_node,
    validate_status=_validate_node_status,
    warnings=_node_warnings,
)
