"""Holds pods to the security level that their namespace's labels ask for: enforced, warned about, written down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from pinnace.admission.chain import CREATE, UPDATE, WRITES, Review
from pinnace.admission.plugins.pod_security_standards import NEWEST, checks_of
from pinnace.model import errors
from pinnace.model.field_errors import FieldError, invalid
from pinnace.model.objects import Object
from pinnace.model.watched_objects import WatchedObjects
from pinnace.schema.golang.numbers import parse_int

PREFIX = "pod-security.kubernetes.io/"
_STRICTNESS = {"privileged": 0, "baseline": 1, "restricted": 2}
_MODES = ("enforce", "audit", "warn")
_IGNORED = frozenset(("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"))
_MOST_PODS = 3000
_version = re.compile(r"v1\.(0|[1-9][0-9]*)").fullmatch


class Level(NamedTuple):
    """How strict, by the standard of which minor (None: the newest)."""

    name: str = "privileged"
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.name}:{'latest' if self.minor is None else f'v1.{self.minor}'}"


class NamespacePolicy(NamedTuple):
    enforce: Level = Level()
    audit: Level = Level()
    warn: Level = Level()


class NamespacedPods(Protocol):
    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]: ...


class PodSecurity:
    interests = (
        ("", "namespaces", WRITES),
        ("", "pods", WRITES),
        *((group, plural, WRITES) for group, plural in (("", "replicationcontrollers"), ("", "podtemplates"))),
        *(("apps", plural, WRITES) for plural in ("replicasets", "deployments", "statefulsets", "daemonsets")),
        *(("batch", plural, WRITES) for plural in ("jobs", "cronjobs")),
    )

    def __init__(self, namespaces: WatchedObjects, pods: NamespacedPods) -> None:
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
            self._check_pod(review, policy)
        elif not review.subresource:
            template = _template_of(review.changed)
            if template is not None:
                _tell(review, policy, template)

    def _policy_of(self, namespace: str) -> NamespacePolicy | None:
        """Return the policy of a namespace; None if it does not restrict pods."""
        if namespace not in self._policies:
            found = self._namespaces.get(namespace)
            policy, errs = policy_of((found or {"metadata": {}})["metadata"].get("labels") or {})
            is_open = not errs and all(level.name == "privileged" for level in policy)
            self._policies[namespace] = None if is_open else policy
        return self._policies[namespace]

    def _forget(self, namespace: str) -> None:
        self._policies.pop(namespace, None)

    def _check_pod(self, review: Review, policy: NamespacePolicy) -> None:
        review.audit["pod-security.kubernetes.io/enforce-policy"] = str(policy.enforce)
        _, told = violations(review.changed, policy.enforce)
        if told:
            raise review.forbidden(f'violates PodSecurity "{policy.enforce}": {told}')
        _tell(review, policy, review.changed)

    def _check_namespace(self, review: Review) -> None:
        policy, errs = policy_of(review.changed["metadata"].get("labels") or {})
        if review.operation in CREATE:
            if errs:
                raise errors.Invalid(errs, group="", kind="Namespace", name=review.name)
            return
        before, old_errors = policy_of((review.old or {"metadata": {}})["metadata"].get("labels") or {})
        if errs and errs != old_errors:
            raise errors.Invalid(errs, group="", kind="Namespace", name=review.name)
        is_weaker = policy.enforce.minor == before.enforce.minor and (
            _STRICTNESS[policy.enforce.name] <= _STRICTNESS[before.enforce.name]
        )
        if policy.enforce == before.enforce or policy.enforce.name == "privileged" or is_weaker:
            return
        review.warnings.extend(self._find_violating(review.name, policy.enforce))

    def _find_violating(self, namespace: str, level: Level) -> list[str]:
        """Return warnings for existing pods that violate the new policy of their namespace."""
        pods = [pod for _, pod in self._pods.in_namespace(namespace)]
        found: dict[str, list[str]] = {}
        for pod in pods[:_MOST_PODS]:
            reasons, _ = violations(pod, level)
            if reasons:
                found.setdefault(reasons, []).append(pod["metadata"]["name"])
        told = []
        if len(pods) > _MOST_PODS:
            told.append(
                f"new PodSecurity enforce level only checked against the first {_MOST_PODS} "
                f"of {len(pods)} existing pods"
            )
        if found:
            told.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{level}"')
        return told + sorted(f"{_first_of(names)}: {reasons}" for reasons, names in found.items())


def policy_of(labels: Mapping[str, str]) -> tuple[NamespacePolicy, list[FieldError]]:
    """Return the policy in the labels of a namespace, and the labels that are invalid."""
    errs: list[FieldError] = []
    levels: dict[str, Level] = {}
    for mode in _MODES:
        name, minor = "privileged", None
        if (said := labels.get(f"{PREFIX}{mode}")) is not None:
            name = said
            if said not in _STRICTNESS:
                name = "restricted" if mode == "enforce" else "privileged"
                why = "must be one of privileged, baseline, restricted"
                errs.append(invalid(f"metadata.labels[{PREFIX}{mode}]", said, why))
        if (said := labels.get(f"{PREFIX}{mode}-version")) is not None and said != "latest":
            if found := _version(said):
                minor = parse_int(found[1])
            else:
                errs.append(invalid(f"metadata.labels[{PREFIX}{mode}-version]", said, 'must be "latest" or "v1.x"'))
        levels[mode] = Level(name, minor)
    enforced = labels.get(f"{PREFIX}enforce")
    if f"{PREFIX}warn" not in labels and _STRICTNESS.get(enforced or "", 0) > 0:
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
    annotations, spec = (pod.get("metadata") or {}).get("annotations") or {}, pod.get("spec") or {}
    found = [one for check in checks_of(level.name, minor) if (one := check(annotations, spec, minor)) is not None]
    return ", ".join(reason for reason, _ in found), ", ".join(f"{reason} ({detail})" for reason, detail in found)


def _tell(review: Review, policy: NamespacePolicy, pod: Object) -> None:
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
    """Only a pod whose containers have changed is checked again."""
    if review.operation not in UPDATE or review.old is None:
        return True
    return _images(review.changed) - _images(review.old) != set()


def _images(pod: Object) -> set[tuple[str, str, str]]:
    spec = pod.get("spec") or {}
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
