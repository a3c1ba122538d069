"""Applies the Pod Security levels of a namespace's labels to its pods: enforce, warn and audit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from pinnace.admission.chain import CREATE, UPDATE, WRITES
from pinnace.admission.plugins.pod_security_standards import NEWEST, checks_of
from pinnace.model import errors
from pinnace.model.field_errors import FieldError, invalid
from pinnace.model.objects import NOTHING, Object
from pinnace.model.typed_objects import Pod
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.schema.golang.numbers import parse_int

PREFIX = "pod-security.kubernetes.io/"
STRICTNESS = {"privileged": 0, "baseline": 1, "restricted": 2}
_MODES = ("enforce", "audit", "warn")
_IGNORED = frozenset(("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"))
_MOST_PODS = 3000
_version = re.compile(r"v1\.(0|[1-9][0-9]*)").fullmatch


class Level(NamedTuple):
    """A level, and the minor version of the standard; None for the newest."""

    name: str = "privileged"
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.name}:{'latest' if self.minor is None else f'v1.{self.minor}'}"


class NamespacePolicy(NamedTuple):
    enforce: Level = Level()
    audit: Level = Level()
    warn: Level = Level()


@dataclass(frozen=True, slots=True)
class Exemptions:
    """Users, namespaces and runtime classes whose pods are not checked."""

    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


class PodSecurity:
    interests = (
        ("", "namespaces", WRITES),
        ("", "pods", WRITES),
        *((group, plural, WRITES) for group, plural in (("", "replicationcontrollers"), ("", "podtemplates"))),
        *(("apps", plural, WRITES) for plural in ("replicasets", "deployments", "statefulsets", "daemonsets")),
        *(("batch", plural, WRITES) for plural in ("jobs", "cronjobs")),
    )

    def __init__(
        self,
        namespaces: WatchedObjects,
        pods: WatchedObjects,
        defaults: NamespacePolicy = NamespacePolicy(),  # noqa: B008 - a tuple
        exemptions: Exemptions = Exemptions(),
    ) -> None:
        self._defaults = defaults
        self._exemptions = exemptions
        self._namespaces = namespaces
        self._pods = pods
        self._policies: dict[str, NamespacePolicy | None] = {}
        namespaces.on_change(self._forget)

    def validate(self, review: Review) -> None:
        if not review.resource.namespaced:
            if not review.subresource:
                self._check_namespace(review)
            return
        policy = self._policy_of(review.namespace)
        if policy is None:
            return
        if review.resource.plural == "pods":
            if review.subresource in _IGNORED or not _is_new(review):
                return
            if not self._is_exempt(review, review.changed):
                self._check_pod(review, policy)
        elif not review.subresource:
            template = _template_of(review.changed)
            if template is not None and not self._is_exempt(review, template):
                _warn_and_audit(review, policy, template)

    def _is_exempt(self, review: Review, pod: Object) -> bool:
        exempt = self._exemptions
        by = ""
        if review.namespace in exempt.namespaces:
            by = "namespace"
        elif review.user.name in exempt.usernames:
            by = "user"
        elif (pod.get("spec") or NOTHING).get("runtimeClassName") in exempt.runtime_classes:
            by = "runtimeClass"
        if by:
            review.audit["pod-security.kubernetes.io/exempt"] = by
        return bool(by)

    def _policy_of(self, namespace: str) -> NamespacePolicy | None:
        """Return the policy of a namespace; None if it does not restrict pods."""
        if namespace not in self._policies:
            stored = self._namespaces.get(namespace)
            policy, errs = policy_of((stored or {"metadata": {}})["metadata"].get("labels") or {}, self._defaults)
            is_open = not errs and all(level.name == "privileged" for level in policy)
            self._policies[namespace] = None if is_open else policy
        return self._policies[namespace]

    def _forget(self, namespace: str) -> None:
        self._policies.pop(namespace, None)

    def _check_pod(self, review: Review, policy: NamespacePolicy) -> None:
        review.audit["pod-security.kubernetes.io/enforce-policy"] = str(policy.enforce)
        _, details = violations(review.changed, policy.enforce)
        if details:
            raise review.forbidden(f'violates PodSecurity "{policy.enforce}": {details}')
        _warn_and_audit(review, policy, review.changed)

    def _check_namespace(self, review: Review) -> None:
        labels = review.changed["metadata"].get("labels") or {}
        policy, errs = policy_of(labels, self._defaults)
        is_exempt = review.name in self._exemptions.namespaces
        if review.operation in CREATE:
            if errs:
                raise errors.Invalid(errs, group="", kind="Namespace", name=review.name)
            if is_exempt:
                review.warnings.extend(_exemption_warning(review.name, policy, labels))
            return
        before, old_errors = policy_of((review.old or {"metadata": {}})["metadata"].get("labels") or {}, self._defaults)
        if errs and errs != old_errors:
            raise errors.Invalid(errs, group="", kind="Namespace", name=review.name)
        is_weaker = policy.enforce.minor == before.enforce.minor and (
            STRICTNESS[policy.enforce.name] <= STRICTNESS[before.enforce.name]
        )
        if policy.enforce == before.enforce or policy.enforce.name == "privileged" or is_weaker:
            return
        if is_exempt:
            review.warnings.extend(_exemption_warning(review.name, policy, labels))
            return
        review.warnings.extend(self._find_violating(review.name, policy.enforce))

    def _find_violating(self, namespace: str, level: Level) -> list[str]:
        """Return warnings for existing pods that violate the new policy of their namespace."""
        pods = [pod for _, pod in self._pods.in_namespace(namespace)]
        violating: dict[str, list[str]] = {}
        for pod in pods[:_MOST_PODS]:
            reasons, _ = violations(pod, level)
            if reasons:
                violating.setdefault(reasons, []).append(pod["metadata"]["name"])
        warnings = []
        if len(pods) > _MOST_PODS:
            warnings.append(
                f"new PodSecurity enforce level only checked against the first {_MOST_PODS} "
                f"of {len(pods)} existing pods"
            )
        if violating:
            warnings.append(
                f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{level}"'
            )
        return warnings + sorted(f"{_first_of(names)}: {reasons}" for reasons, names in violating.items())


def _exemption_warning(namespace: str, policy: NamespacePolicy, labels: Mapping[str, str]) -> list[str]:
    """Return the warning that the labels of a namespace do not act, if it has some that restrict pods."""
    levels = [
        f"{mode}={level}"
        for mode, level in zip(_MODES, policy, strict=True)
        if level.name != "privileged" and f"{PREFIX}{mode}" in labels
    ]
    if not levels:
        return []
    return [
        f'namespace "{namespace}" is exempt from Pod Security, and the policy ({", ".join(levels)}) will be ignored'
    ]


def policy_of(
    labels: Mapping[str, str],
    defaults: NamespacePolicy = NamespacePolicy(),  # noqa: B008 - a tuple
) -> tuple[NamespacePolicy, list[FieldError]]:
    """Return the policy in the labels of a namespace, over the defaults, and the labels that are invalid."""
    errs: list[FieldError] = []
    levels: dict[str, Level] = {}
    for mode in _MODES:
        name, minor = getattr(defaults, mode)
        if (value := labels.get(f"{PREFIX}{mode}")) is not None:
            name = value
            if value not in STRICTNESS:
                name = "restricted" if mode == "enforce" else "privileged"
                why = "must be one of privileged, baseline, restricted"
                errs.append(invalid(f"metadata.labels[{PREFIX}{mode}]", value, why))
        if (value := labels.get(f"{PREFIX}{mode}-version")) is not None:
            minor = None
            if value == "latest":
                pass
            elif match := _version(value):
                minor = parse_int(match[1])
            else:
                errs.append(invalid(f"metadata.labels[{PREFIX}{mode}-version]", value, 'must be "latest" or "v1.x"'))
        levels[mode] = Level(name, minor)
    enforced = labels.get(f"{PREFIX}enforce")
    if f"{PREFIX}warn" not in labels and STRICTNESS.get(enforced or "", 0) > STRICTNESS[levels["warn"].name]:
        # A workload whose pods would be refused is admitted with a warning.
        has_version = f"{PREFIX}warn-version" in labels
        minor = levels["warn"].minor if has_version else levels["enforce"].minor
        levels["warn"] = Level(levels["enforce"].name, minor)
    return NamespacePolicy(**levels), errs


def violations(pod: Object, level: Level) -> tuple[str, str]:
    """Return why a pod or template does not meet the level, short and in detail; both empty if it does."""
    if level.name == "privileged":
        return "", ""
    minor = NEWEST if level.minor is None else min(level.minor, NEWEST)
    annotations, spec = (pod.get("metadata") or {}).get("annotations") or {}, pod.get("spec") or NOTHING
    breaches = [
        breach for check in checks_of(level.name, minor) if (breach := check(annotations, spec, minor)) is not None
    ]
    details = ", ".join(f"{reason} ({detail})" for reason, detail in breaches)
    return ", ".join(reason for reason, _ in breaches), details


def _warn_and_audit(review: Review, policy: NamespacePolicy, pod: Object) -> None:
    _, audited = violations(pod, policy.audit)
    if audited:
        review.audit["pod-security.kubernetes.io/audit-violations"] = (
            f'would violate PodSecurity "{policy.audit}": {audited}'
        )
    _, warned = violations(pod, policy.warn)
    if warned:
        review.warnings.append(f'would violate PodSecurity "{policy.warn}": {warned}')


def _first_of(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"


def _is_new(review: Review) -> bool:
    """Return whether a pod is new or its containers have changed: others are not checked again."""
    if review.operation not in UPDATE or review.old is None:
        return True
    return _images(review.changed) - _images(cast("Pod", review.old)) != set()


def _images(pod: Pod) -> set[tuple[str, str, str]]:
    spec = pod.get("spec") or NOTHING
    return {
        (field, container.get("name", ""), container.get("image", ""))
        for field in ("containers", "initContainers", "ephemeralContainers")
        for container in spec.get(field) or ()
    }


def _template_of(workload: Object) -> Object | None:
    spec = workload.get("spec") or {}
    if "jobTemplate" in spec:
        spec = (spec["jobTemplate"] or {}).get("spec") or {}
    template: Object | None = spec.get("template") or workload.get("template")
    return template
