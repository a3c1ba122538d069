"""Defaults and validation of roles and role bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import validate_choice, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector

RBAC_GROUP = "rbac.authorization.k8s.io"
_ROLE_REF = GoStruct("APIGroup:apiGroup='' Kind='' Name=''")


def _default_role(role: Object) -> None:
    role["rules"] = role.get("rules") or None  # Kubernetes writes null for an empty list.
    for rule in role["rules"] or []:
        rule["verbs"] = rule.get("verbs") or None


def _validate_rule(rule: Mapping[str, Any], path: str, *, namespaced: bool) -> Iterator[FieldError]:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            yield invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(f"{path}.nonResourceURLs", urls, detail)
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _validate_role(role: Object, old: Object | None, *, namespaced: bool) -> Iterator[FieldError]:
    for i, rule in enumerate(role.get("rules") or []):
        yield from _validate_rule(rule, f"rules[{i}]", namespaced=namespaced)
    if namespaced or (aggregation := role.get("aggregationRule")) is None:
        return
    selectors = aggregation.get("clusterRoleSelectors") or []
    if not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required("aggregationRule.clusterRoleSelectors", detail)
    for i, selector in enumerate(selectors):
        path = f"aggregationRule.clusterRoleSelectors[{i}]"
        if errs := list(validate_label_selector(selector, path)):
            yield from errs
            yield invalid(path, None, "invalid label selector.")


def _default_binding(binding: Object) -> None:
    role = binding.setdefault("roleRef", {})
    if not role.get("apiGroup"):
        role["apiGroup"] = RBAC_GROUP
    for subject in binding.get("subjects") or []:
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = RBAC_GROUP


def _validate_binding(binding: Object, old: Object | None, *, namespaced: bool) -> Iterator[FieldError]:
    role = binding.get("roleRef", {})
    yield from validate_choice(role.get("apiGroup", ""), [RBAC_GROUP], "roleRef.apiGroup")
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    yield from validate_choice(role.get("kind", ""), kinds, "roleRef.kind")
    if not role.get("name"):
        yield required("roleRef.name")
    else:
        yield from validate_name(role["name"], names.path_segment, "roleRef.name")
    for i, subject in enumerate(binding.get("subjects") or []):
        yield from _validate_subject(subject, f"subjects[{i}]", namespaced=namespaced)
    if old is not None and _ROLE_REF.view(role) != _ROLE_REF.view(old.get("roleRef", {})):
        yield invalid("roleRef", _ROLE_REF.view(role), "cannot change roleRef")


def _validate_subject(subject: Mapping[str, Any], path: str, *, namespaced: bool) -> Iterator[FieldError]:
    name, group, kind = subject.get("name", ""), subject.get("apiGroup", ""), subject.get("kind", "")
    if not name:
        yield required(f"{path}.name")
    if kind == "ServiceAccount":
        if name:
            yield from validate_name(name, names.dns_subdomain, f"{path}.name")
        yield from validate_choice(group, [""], f"{path}.apiGroup")
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        yield from validate_choice(group, [RBAC_GROUP], f"{path}.apiGroup")
    else:
        yield not_supported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"])


_access = partial(Strategy, name_rule=names.path_segment, may_create_on_update=True)
ROLE = _access(default=_default_role, validate=partial(_validate_role, namespaced=True))
CLUSTER_ROLE = _access(default=_default_role, validate=partial(_validate_role, namespaced=False))
ROLE_BINDING = _access(default=_default_binding, validate=partial(_validate_binding, namespaced=True))
CLUSTER_ROLE_BINDING = _access(default=_default_binding, validate=partial(_validate_binding, namespaced=False))
