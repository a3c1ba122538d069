"""Writes type errors of validating policies' expressions into their status."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.admission.rules import GROUP
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.status.writer import StatusWriter
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource

_MOST_KINDS = 10


def policy_status_writer(foundation: Foundation) -> StatusWriter | None:
    """Return the background part that checks each generation of a policy once; None before 1.30, which has none."""
    resource = foundation.registry.find(GROUP, "v1", "validatingadmissionpolicies")
    if resource is None:
        return None
    checks = _TypeChecks(foundation.registry)
    writer = StatusWriter(foundation.fanout, foundation.store, resource, checks.status_of)
    foundation.fanout.on_change(resource.prefix, lambda event: writer.note(event.key))
    return writer


class _TypeChecks:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def status_of(self, key: str, policy: Object) -> Object | None:
        if _is_known(policy):
            return None

        from pinnace.admission.policies.type_checks import type_warnings  # noqa: PLC0415 - few clusters have policies.

        warnings = type_warnings(policy, self._kinds(policy))
        status = {**(policy.get("status") or {}), "observedGeneration": policy["metadata"].get("generation", 1)}
        status["typeChecking"] = {"expressionWarnings": warnings} if warnings else {}
        return status

    def _kinds(self, policy: Object) -> Iterator[Resource]:
        """Yield the kinds that the policy names. A wildcard names none: it is not checked."""
        found: dict[object, Resource] = {}
        constraints = (policy.get("spec") or {}).get("matchConstraints") or {}
        for rule in constraints.get("resourceRules") or ():
            for group in rule.get("apiGroups") or ():
                for version in rule.get("apiVersions") or ():
                    for plural in rule.get("resources") or ():
                        resource = self._registry.find(group, version, plural)
                        if resource is not None:
                            found[resource.kind] = resource
        yield from list(found.values())[:_MOST_KINDS]


def _is_known(policy: Object) -> bool:
    status = policy.get("status") or {}
    return "typeChecking" in status and status.get("observedGeneration") == policy["metadata"].get("generation", 1)
