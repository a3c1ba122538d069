"""The audit policy: the audit level of each request, as a pure function of user and action."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import yaml

from pinnace.model.authorization import Action
from pinnace.model.users import User

log = logging.getLogger(__name__)

REQUEST_RECEIVED = "RequestReceived"
RESPONSE_STARTED = "ResponseStarted"
RESPONSE_COMPLETE = "ResponseComplete"
PANIC = "Panic"
STAGES = (REQUEST_RECEIVED, RESPONSE_STARTED, RESPONSE_COMPLETE, PANIC)

_VERSIONS = ("audit.k8s.io/v1",)
_CONFIDENTIAL = frozenset((("", "secrets"), ("", "serviceaccounts/token"), ("authentication.k8s.io", "tokenreviews")))
"""Resources with passwords and tokens: their bodies are audited only if a rule names them."""


class AuditLevel(IntEnum):
    """How much an event contains: each level more than the one before."""

    Nothing = 0
    Metadata = 1
    Request = 2
    RequestResponse = 3

    @property
    def label(self) -> str:
        """The name in Kubernetes."""
        return "None" if self is AuditLevel.Nothing else self.name


_LEVELS = {level.label: level for level in AuditLevel}


class AuditPolicyError(ValueError):
    """The policy is invalid. The message says where, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class GroupResources:
    """Resources of one API group, or of all for *; all resources of the group if none is named."""

    group: str = ""
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def covers(self, action: Action) -> bool:
        if self.group not in ("*", action.group):
            return False
        if not self.resources:
            return True
        if self.names and action.name not in self.names:
            return False
        wanted = {"*", _combine(action), f"{action.resource}/*"}
        if action.subresource:
            wanted.add(f"*/{action.subresource}")
        return not wanted.isdisjoint(self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRule:
    """The level of the requests that match the rule. Empty fields match everything."""

    level: AuditLevel
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    omitted_stages: frozenset[str] = frozenset()
    omits_managed_fields: bool = False

    def matches(self, user: User, action: Action) -> bool:
        if self.users and user.name not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(user.groups):
            return False
        if self.verbs and action.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not action.resource or (self.namespaces and action.namespace not in self.namespaces):
                return False
            return not self.resources or any(resource.covers(action) for resource in self.resources)
        if self.paths:
            return not action.resource and any(_is_path(action.path, path) for path in self.paths)
        return True

    def names(self, action: Action) -> bool:
        """Whether the rule names this resource itself, not only a wildcard."""
        return any(
            resource.group == action.group and _combine(action) in resource.resources for resource in self.resources
        )


@dataclass(frozen=True, slots=True)
class AuditDecision:
    """How one request is audited."""

    level: AuditLevel
    omitted_stages: frozenset[str] = frozenset()
    omits_managed_fields: bool = False
    is_confidential: bool = False
    """The event must not contain anything of the bodies, not even in error messages."""


_NOTHING = AuditDecision(AuditLevel.Nothing)


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """Rules, of which the first that matches decides. A request without a match is not audited."""

    rules: tuple[AuditRule, ...]

    def decide(self, user: User, action: Action) -> AuditDecision:
        for rule in self.rules:
            if rule.matches(user, action):
                hidden = (action.group, _combine(action)) in _CONFIDENTIAL and not rule.names(action)
                level = min(rule.level, AuditLevel.Metadata) if hidden else rule.level
                return AuditDecision(level, rule.omitted_stages, rule.omits_managed_fields, hidden)
        return _NOTHING


def read_policy(path: Path) -> AuditPolicy:
    """Read a policy file. Raise AuditPolicyError."""
    try:
        manifest = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise AuditPolicyError(f"cannot read the audit policy {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise AuditPolicyError(f"the audit policy {path} is not YAML: {error}") from None
    try:
        return parse_policy(manifest)
    except AuditPolicyError as error:
        raise AuditPolicyError(f"the audit policy {path} is invalid: {error}") from None


def parse_policy(manifest: Any) -> AuditPolicy:
    """Parse a manifest of kind Policy. Raise AuditPolicyError."""
    if not isinstance(manifest, dict) or manifest.get("kind") != "Policy":
        raise AuditPolicyError("expected an object of kind Policy")
    if manifest.get("apiVersion") not in _VERSIONS:
        raise AuditPolicyError(f"apiVersion: expected {_VERSIONS[0]}, found {manifest.get('apiVersion')!r}")
    _warn_of_unknown(manifest, ("apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"), "")
    omitted = _stages(manifest, "")
    omits = manifest.get("omitManagedFields") is True
    rules = manifest.get("rules")
    if not isinstance(rules, list) or not rules:
        raise AuditPolicyError("rules: expected at least one rule")
    return AuditPolicy(
        tuple(_rule(rule, f"rules[{index}]", omitted=omitted, omits=omits) for index, rule in enumerate(rules))
    )


_RULE_FIELDS = (
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
)


def _rule(manifest: Any, where: str, *, omitted: frozenset[str], omits: bool) -> AuditRule:
    if not isinstance(manifest, dict):
        raise AuditPolicyError(f"{where}: expected an object")
    _warn_of_unknown(manifest, _RULE_FIELDS, where)
    level = manifest.get("level", "")
    if level is None or str(level) not in _LEVELS:
        raise AuditPolicyError(f"{where}.level: expected one of {', '.join(_LEVELS)}, found {level!r}")
    paths = _texts(manifest, "nonResourceURLs", where)
    resources = tuple(
        _resources(resource, f"{where}.resources[{i}]") for i, resource in enumerate(manifest.get("resources") or ())
    )
    namespaces = frozenset(_texts(manifest, "namespaces", where))
    if paths and (resources or namespaces):
        message = "rules cannot apply to both regular resources and non-resource URLs"
        raise AuditPolicyError(f"{where}.nonResourceURLs: {message}")
    for index, path in enumerate(paths):
        if path != "*" and not path.startswith("/"):
            message = "non-resource URL rules must begin with a '/' character"
            raise AuditPolicyError(f"{where}.nonResourceURLs[{index}]: {path!r}: {message}")
        if "*" in path[:-1]:
            message = "non-resource URL wildcards '*' must be the final character of the rule"
            raise AuditPolicyError(f"{where}.nonResourceURLs[{index}]: {path!r}: {message}")
    own = manifest.get("omitManagedFields")
    return AuditRule(
        level=_LEVELS[str(level)],
        users=frozenset(_texts(manifest, "users", where)),
        groups=frozenset(_texts(manifest, "userGroups", where)),
        verbs=frozenset(_texts(manifest, "verbs", where)),
        resources=resources,
        namespaces=namespaces,
        paths=paths,
        omitted_stages=omitted | _stages(manifest, f"{where}."),
        omits_managed_fields=omits if own is None else own is True,
    )


def _resources(manifest: Any, where: str) -> GroupResources:
    if not isinstance(manifest, dict):
        raise AuditPolicyError(f"{where}: expected an object")
    _warn_of_unknown(manifest, ("group", "resources", "resourceNames"), where)
    group = manifest.get("group") or ""
    if not isinstance(group, str) or "/" in group:
        raise AuditPolicyError(f"{where}.group: expected the name of a group without its version, found {group!r}")
    resources, names = _texts(manifest, "resources", where), _texts(manifest, "resourceNames", where)
    if names and not resources:
        raise AuditPolicyError(f"{where}.resourceNames: using resourceNames requires at least one resource")
    return GroupResources(group, resources, names)


def _stages(manifest: dict[str, Any], where: str) -> frozenset[str]:
    stages = _texts(manifest, "omitStages", where.removesuffix("."))
    for index, stage in enumerate(stages):
        if stage not in STAGES:
            message = f"{stage!r}: allowed stages are {','.join(STAGES)}"
            raise AuditPolicyError(f"{where}omitStages[{index}]: {message}")
    return frozenset(stages)


def _texts(manifest: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    texts = manifest.get(name)
    if texts is None:
        return ()
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise AuditPolicyError(f"{where}.{name}: expected a list of strings")
    return tuple(texts)


def _warn_of_unknown(manifest: dict[str, Any], known: Iterable[str], where: str) -> None:
    """Log unknown fields and continue, as Kubernetes does."""
    for name in sorted(map(str, set(manifest) - set(known))):
        log.warning("audit policy: unknown field %s", f"{where}.{name}".lstrip("."))


def _combine(action: Action) -> str:
    return f"{action.resource}/{action.subresource}" if action.subresource else action.resource


def _is_path(path: str, wanted: str) -> bool:
    return wanted in ("*", path) or (wanted.endswith("*") and path.startswith(wanted.rstrip("*")))
