"""rbac.authorization.k8s.io: roles and bindings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, cast

from pinnace.kinds.cells import AGE, NAME, string, text
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.rows import GA, Row, old
from pinnace.kinds.validation.fields import validate_choice, validate_given_name, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Column, Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    AggregationRule,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    Subject,
)

GROUP = "rbac.authorization.k8s.io"


def _role(binding: ClusterRoleBinding | RoleBinding, now: datetime) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> Any:
    def value(binding: ClusterRoleBinding | RoleBinding, now: datetime) -> str:
        return ", ".join(_subject(subject) for subject in binding.get("subjects") or () if subject.get("kind") == kind)

    return value


def _subject(subject: Subject) -> str:
    name = text(subject.get("name"))
    return f"{subject.get('namespace', '')}/{name}" if subject.get("kind") == "ServiceAccount" else name


def _binding_columns(name: str, role_description: str) -> tuple[Column, ...]:
    """Return the columns in the words of v1beta1, which Kubernetes still uses."""
    return (
        NAME,
        string("Role", role_description, _role),
        AGE,
        string("Users", f"Users in the {name}", _subjects("User"), wide=True),
        string("Groups", f"Groups in the {name}", _subjects("Group"), wide=True),
        string("ServiceAccounts", f"ServiceAccounts in the {name}", _subjects("ServiceAccount"), wide=True),
    )


_ROLE_REF = GoStruct("APIGroup:apiGroup='' Kind='' Name=''")


def _default_role(role: Object) -> None:
    role["rules"] = role.get("rules") or None  # Kubernetes writes null for an empty list.
    for rule in role["rules"] or []:
        rule["verbs"] = rule.get("verbs") or None


def _validate_rule(rule: PolicyRule, path: str, *, namespaced: bool) -> Iterator[FieldError]:
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


def _validate_role(
    role: ClusterRole | Role, old: ClusterRole | Role | None, *, namespaced: bool
) -> Iterator[FieldError]:
    rules = role.get("rules") or []
    for i, rule in enumerate(rules):
        yield from _validate_rule(rule, f"rules[{i}]", namespaced=namespaced)
    if not namespaced and (aggregation := cast("ClusterRole", role).get("aggregationRule")) is not None:
        yield from _validate_aggregation(aggregation)
    for i, rule in enumerate(rules):
        if not rule.get("verbs"):
            yield required(f"rules[{i}].verbs")


def _validate_aggregation(aggregation: AggregationRule) -> Iterator[FieldError]:
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
        role["apiGroup"] = GROUP
    for subject in binding.get("subjects") or []:
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


def _validate_binding(
    binding: ClusterRoleBinding | RoleBinding, old: ClusterRoleBinding | RoleBinding | None, *, namespaced: bool
) -> Iterator[FieldError]:
    role = binding.get("roleRef", {})
    yield from validate_choice(role.get("apiGroup", ""), [GROUP], "roleRef.apiGroup")
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    yield from validate_choice(role.get("kind", ""), kinds, "roleRef.kind")
    yield from validate_given_name(role.get("name"), names.path_segment, "roleRef.name")
    for i, subject in enumerate(binding.get("subjects") or []):
        yield from _validate_subject(subject, f"subjects[{i}]", namespaced=namespaced)
    for i, subject in enumerate(binding.get("subjects") or []):
        if not subject.get("name"):
            yield required(f"subjects[{i}].name")
    if old is not None and _ROLE_REF.view(role) != _ROLE_REF.view(old.get("roleRef", {})):
        yield invalid("roleRef", _ROLE_REF.view(role), "cannot change roleRef")


def _validate_subject(subject: Subject, path: str, *, namespaced: bool) -> Iterator[FieldError]:
    name, group, kind = subject.get("name", ""), subject.get("apiGroup", ""), subject.get("kind", "")
    if kind == "ServiceAccount":
        if name:
            yield from validate_name(name, names.dns_subdomain, f"{path}.name")
        yield from validate_choice(group, [""], f"{path}.apiGroup")
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        yield from validate_choice(group, [GROUP], f"{path}.apiGroup")
    else:
        yield not_supported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"])


_access = partial(Strategy, name_rule=names.path_segment, may_create_on_update=True)

_VERSIONS = (GA, old("v1beta1", deprecated="1.17", removed="1.22", replacement="rbac.authorization.k8s.io/v1"))

_row = partial(Row, group=GROUP)

ROWS = (
    _row(
        name="ClusterRoleBinding",
        plural="clusterrolebindings",
        columns=_binding_columns(
            "clusterRoleBinding",
            "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the "
            "Authorizer must return an error.",
        ),
        namespaced=False,
        versions=_VERSIONS,
        strategy=_access(default=_default_binding, validate=partial(_validate_binding, namespaced=False)),
    ),
    _row(
        name="ClusterRole",
        plural="clusterroles",
        namespaced=False,
        versions=_VERSIONS,
        strategy=_access(default=_default_role, validate=partial(_validate_role, namespaced=False)),
    ),
    _row(
        name="RoleBinding",
        plural="rolebindings",
        columns=_binding_columns(
            "roleBinding",
            "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the "
            "RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        versions=_VERSIONS,
        strategy=_access(default=_default_binding, validate=partial(_validate_binding, namespaced=True)),
    ),
    _row(
        name="Role",
        plural="roles",
        versions=_VERSIONS,
        strategy=_access(default=_default_role, validate=partial(_validate_role, namespaced=True)),
    ),
)
