"""Validation of affinity, tolerations and topology spread constraints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

from pinnace.kinds.validation.fields import (
    label_value,
    qualified_name,
    validate_dns_label,
    validate_qualified_name,
)
from pinnace.kinds.validation.node_selectors import validate_node_selector
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_values_of_preference = re.compile(r"\.values\[\d+\]$").search


def validate_affinity(affinity: Affinity, path: str, errs: list[FieldError]) -> None:
    nodes = affinity.get("nodeAffinity")
    if nodes:
        _validate_node_affinity(nodes, f"{path}.nodeAffinity", errs)
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field)
        if pods:
            for index, term in enumerate(pods.get(_REQUIRED, ())):
                _validate_pod_term(term, f"{path}.{field}.{_REQUIRED}[{index}]", errs)
            for index, weighted in enumerate(pods.get(_PREFERRED, ())):
                where = f"{path}.{field}.{_PREFERRED}[{index}]"
                _validate_weight(weighted, where, errs)
                _validate_pod_term(weighted.get("podAffinityTerm", {}), f"{where}.podAffinityTerm", errs)


def _validate_node_affinity(affinity: NodeAffinity, path: str, errs: list[FieldError]) -> None:
    if _REQUIRED in affinity:
        errs.extend(validate_node_selector(affinity[_REQUIRED], f"{path}.{_REQUIRED}"))
    for index, term in enumerate(affinity.get(_PREFERRED, ())):
        where = f"{path}.{_PREFERRED}[{index}]"
        _validate_weight(term, where, errs)
        # Preferences may have any values: one that matches nothing is harmless.
        selector: NodeSelector = {"nodeSelectorTerms": [term.get("preference", {})]}
        for err in validate_node_selector(selector, "."):
            inside = err.field.removeprefix("..nodeSelectorTerms[0]")
            if not (_values_of_preference(inside) and inside.startswith(".matchExpressions")):
                errs.append(err._replace(field=f"{where}.preference{inside}"))


def _validate_weight(
    term: PreferredSchedulingTerm | WeightedPodAffinityTerm, path: str, errs: list[FieldError]
) -> None:
    if not 1 <= term.get("weight", 0) <= 100:
        errs.append(invalid(f"{path}.weight", term.get("weight", 0), "must be in the range 1-100"))


def _validate_pod_term(term: PodAffinityTerm, path: str, errs: list[FieldError]) -> None:
    for field in ("labelSelector", "namespaceSelector"):
        if field in term:
            errs.extend(validate_label_selector(term[field], f"{path}.{field}"))
    for namespace in term.get("namespaces", ()):
        errs += validate_dns_label(namespace, f"{path}.namespace")
    if "matchLabelKeys" in term or "mismatchLabelKeys" in term:
        _validate_label_key(term, path, errs)
    key = term.get("topologyKey", "")
    if not key:
        errs.append(required(f"{path}.topologyKey", "can not be empty"))
    errs.extend(invalid(f"{path}.topologyKey", key, err) for err in qualified_name(key))


def _validate_label_key(term: PodAffinityTerm | TopologySpreadConstraint, path: str, errs: list[FieldError]) -> None:
    selector = term.get("labelSelector")
    matching = term.get("matchLabelKeys") or []
    mismatching = cast("PodAffinityTerm", term).get("mismatchLabelKeys") or []  # Spread constraints never have it.
    for field, keys in (("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)):
        if keys and selector is None:
            errs.append(forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        else:
            for index, key in enumerate(keys):
                errs += validate_qualified_name(key, f"{path}.{field}[{index}]")
    if selector is not None and matching:
        selected = set(selector.get("matchLabels") or ())
        places = {key: index for index, key in reversed(list(enumerate(matching)))}
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key", "")
            if key in places and key in selected:
                # The keys were merged into the selector before: a second one is from the client.
                detail = "exists in both matchLabelKeys and labelSelector"
                errs.append(invalid(f"{path}[{places[key]}]", key, detail))
            selected.add(key)
    excluded = set(mismatching)
    for index, key in enumerate(matching):
        if key in excluded:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errs.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))


def validate_toleration(tolerations: Sequence[Toleration], path: str, errs: list[FieldError]) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        effect, value = toleration.get("effect", ""), toleration.get("value", "")
        if key:
            if wrong := qualified_name(key):
                errs.extend(invalid(f"{path}[{index}].key", key, err) for err in wrong)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errs.append(invalid(f"{path}[{index}].operator", operator, detail))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(invalid(f"{path}[{index}].effect", effect, detail))
        if operator in ("", "Equal"):
            if value and (odd := label_value(value)):
                errs.append(invalid(f"{path}[{index}].operator", value, ";".join(odd)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errs.append(invalid(f"{path}[{index}].operator", value, detail))
        elif operator in ("Lt", "Gt"):
            errs.append(not_supported(f"{path}[{index}].operator", operator, ["Equal", "Exists", "Lt", "Gt"]))
        else:
            errs.append(not_supported(f"{path}[{index}].operator", operator, ["Equal", "Exists"]))
        if effect and effect not in _EFFECTS:
            errs.append(not_supported(f"{path}[{index}].effect", effect, _EFFECTS))


def validate_spread(constraints: list[TopologySpreadConstraint], path: str, errs: list[FieldError]) -> None:
    last = {
        (constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")): index
        for index, constraint in enumerate(constraints)
    }
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if constraint.get("maxSkew", 0) <= 0:
            errs.append(invalid(f"{where}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not key:
            errs.append(required(f"{where}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            supported = ["DoNotSchedule", "ScheduleAnyway"]
            errs.append(not_supported(f"{where}.whenUnsatisfiable", action, supported))
        if last[key, action] > index:
            errs.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                errs.append(invalid(f"{where}.minDomains", domains, "must be greater than zero"))
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errs.append(invalid(f"{where}.minDomains", domains, detail))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if field in constraint and constraint[field] not in ("Honor", "Ignore"):
                errs.append(not_supported(f"{where}.{field}", constraint[field], ["Honor", "Ignore"]))
        _validate_label_key(constraint, where, errs)
        errs.extend(validate_label_selector(constraint.get("labelSelector"), f"{where}.labelSelector"))
