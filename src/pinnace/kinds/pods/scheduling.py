"""What is wrong with where a pod wants to run: affinity, tolerations and spreading."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pinnace.kinds.validation.field_lists import dns_label_faults, label_value, qualified_name, qualified_name_faults
from pinnace.kinds.validation.node_selectors import node_selector_faults
from pinnace.model.field_errors import Cause, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.selectors import label_selector_faults

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_values_of_preference = re.compile(r"\.values\[\d+\]$").search


def affinity_faults(affinity: Object, path: str, faults: list[Cause]) -> None:
    nodes = affinity.get("nodeAffinity")
    if nodes:
        _node_affinity_faults(nodes, f"{path}.nodeAffinity", faults)
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field)
        if pods:
            for index, term in enumerate(pods.get(_REQUIRED, ())):
                _pod_term_faults(term, f"{path}.{field}.{_REQUIRED}[{index}]", faults)
            for index, weighted in enumerate(pods.get(_PREFERRED, ())):
                where = f"{path}.{field}.{_PREFERRED}[{index}]"
                _weight_faults(weighted, where, faults)
                _pod_term_faults(weighted.get("podAffinityTerm", {}), f"{where}.podAffinityTerm", faults)


def _node_affinity_faults(affinity: Object, path: str, faults: list[Cause]) -> None:
    if _REQUIRED in affinity:
        faults.extend(node_selector_faults(affinity[_REQUIRED], f"{path}.{_REQUIRED}"))
    for index, term in enumerate(affinity.get(_PREFERRED, ())):
        where = f"{path}.{_PREFERRED}[{index}]"
        _weight_faults(term, where, faults)
        # A preference's values may be anything: what matches nothing does no harm.
        selector = {"nodeSelectorTerms": [term.get("preference", {})]}
        for fault in node_selector_faults(selector, "."):
            inside = fault.field.removeprefix("..nodeSelectorTerms[0]")
            if not (_values_of_preference(inside) and inside.startswith(".matchExpressions")):
                faults.append(fault._replace(field=f"{where}.preference{inside}"))


def _weight_faults(term: Object, path: str, faults: list[Cause]) -> None:
    if not 1 <= term.get("weight", 0) <= 100:
        faults.append(invalid(f"{path}.weight", term.get("weight", 0), "must be in the range 1-100"))


def _pod_term_faults(term: Object, path: str, faults: list[Cause]) -> None:
    for field in ("labelSelector", "namespaceSelector"):
        if field in term:
            faults.extend(label_selector_faults(term[field], f"{path}.{field}"))
    for namespace in term.get("namespaces", ()):
        dns_label_faults(namespace, f"{path}.namespace", faults)
    if "matchLabelKeys" in term or "mismatchLabelKeys" in term:
        _label_key_faults(term, path, faults)
    key = term.get("topologyKey", "")
    if not key:
        faults.append(required(f"{path}.topologyKey", "can not be empty"))
    faults.extend(invalid(f"{path}.topologyKey", key, fault) for fault in qualified_name(key))


def _label_key_faults(term: Object, path: str, faults: list[Cause]) -> None:
    selector = term.get("labelSelector")
    matching, mismatching = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    for field, keys in (("matchLabelKeys", matching), ("mismatchLabelKeys", mismatching)):
        if keys and selector is None:
            faults.append(forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        else:
            for index, key in enumerate(keys):
                qualified_name_faults(key, f"{path}.{field}[{index}]", faults)
    if selector is not None and matching:
        selected = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key", "")
            if key in matching and key in selected:
                # The keys were merged into the selector before: a second one was the client's own.
                detail = "exists in both matchLabelKeys and labelSelector"
                faults.append(invalid(f"{path}[{matching.index(key)}]", key, detail))
            selected.add(key)
    for index, key in enumerate(matching):
        if key in mismatching:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            faults.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))


def toleration_faults(tolerations: Sequence[Object], path: str, faults: list[Cause]) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        effect, value = toleration.get("effect", ""), toleration.get("value", "")
        if key:
            if wrong := qualified_name(key):
                faults.extend(invalid(f"{path}[{index}].key", key, fault) for fault in wrong)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            faults.append(invalid(f"{path}[{index}].operator", operator, detail))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            faults.append(invalid(f"{path}[{index}].effect", effect, detail))
        if operator in ("", "Equal"):
            if value and (odd := label_value(value)):
                faults.append(invalid(f"{path}[{index}].operator", value, ";".join(odd)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                faults.append(invalid(f"{path}[{index}].operator", value, detail))
        elif operator in ("Lt", "Gt"):
            faults.append(not_supported(f"{path}[{index}].operator", operator, ["Equal", "Exists", "Lt", "Gt"]))
        else:
            faults.append(not_supported(f"{path}[{index}].operator", operator, ["Equal", "Exists"]))
        if effect and effect not in _EFFECTS:
            faults.append(not_supported(f"{path}[{index}].effect", effect, _EFFECTS))


def spread_faults(constraints: list[Object], path: str, faults: list[Cause]) -> None:
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if constraint.get("maxSkew", 0) <= 0:
            faults.append(invalid(f"{where}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
        if not key:
            faults.append(required(f"{where}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            supported = ["DoNotSchedule", "ScheduleAnyway"]
            faults.append(not_supported(f"{where}.whenUnsatisfiable", action, supported))
        for other in constraints[index + 1 :]:
            if other.get("topologyKey", "") == key and other.get("whenUnsatisfiable", "") == action:
                faults.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
                break
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                faults.append(invalid(f"{where}.minDomains", domains, "must be greater than zero"))
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                faults.append(invalid(f"{where}.minDomains", domains, detail))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if field in constraint and constraint[field] not in ("Honor", "Ignore"):
                faults.append(not_supported(f"{where}.{field}", constraint[field], ["Honor", "Ignore"]))
        _label_key_faults(constraint, where, faults)
        faults.extend(label_selector_faults(constraint.get("labelSelector"), f"{where}.labelSelector"))
