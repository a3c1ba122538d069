"""Writes type errors of validating policies' expressions into their status."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import product, starmap
from typing import TYPE_CHECKING

from pinnace.admission.rules import GROUP
from pinnace.kinds.admissionregistration.expressions import NO_PARAMS
from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.schema.cel.errors import CompileError, InstantiationError
from pinnace.schema.cel.types import DYN
from pinnace.server.foundation import Foundation
from pinnace.server.status.writer import StatusWriter

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Variable


def type_warnings(policy: Object, resources: Iterable[Resource]) -> list[Object]:
    """Return the type errors of a validating policy's expressions for the kinds that it names."""
    # Few clusters have policies.
    from pinnace.schema.cel.declarations import declaration_of  # noqa: PLC0415
    from pinnace.schema.cel.policies import compile_policy_expression, own_variable  # noqa: PLC0415

    def type_of(expression: str) -> Variable:
        try:
            return compile_policy_expression(expression, types, without=without).result_type
        except (CompileError, InstantiationError):
            return DYN

    spec = policy.get("spec") or {}
    warnings: dict[str, list[str]] = {}
    without = frozenset() if spec.get("paramKind") else NO_PARAMS
    for resource in resources:
        declared = declaration_of(resource.schema, is_root=True)
        if declared is None:
            continue
        types: dict[str, Variable] = {"object": declared, "oldObject": declared}
        for variable in spec.get("variables") or ():
            types[own_variable(variable.get("name", ""))] = type_of(variable.get("expression", ""))
        for index, validation in enumerate(spec.get("validations") or ()):
            for field in ("expression", "messageExpression"):
                if not validation.get(field):
                    continue
                try:
                    compile_policy_expression(validation[field], types, without=without)
                except (CompileError, InstantiationError) as err:
                    kind = resource.kind
                    warning = f"{kind.api_version}, Kind={kind.name}: {err}"
                    warnings.setdefault(f"spec.validations[{index}].{field}", []).append(warning)
    return [{"fieldRef": place, "warning": "\n".join(lines)} for place, lines in warnings.items()]


_MOST_KINDS = 10


def policy_status_writer(foundation: Foundation) -> StatusWriter | None:
    """Return the background part that checks each generation of a policy once; None before 1.30, which has none."""
    resource = foundation.registry.find(GROUP, "v1", "validatingadmissionpolicies")
    if resource is None:
        return None
    writer = StatusWriter(foundation.fanout, foundation.store, resource, partial(_status_of, foundation.registry))
    foundation.fanout.on_change(resource.prefix, lambda event: writer.note(event.key))
    return writer


def _status_of(registry: Registry, key: str, policy: Object) -> Object | None:
    """Return the status with the type errors; None if this generation of the policy was checked."""
    if _is_known(policy):
        return None
    warnings = type_warnings(policy, _kinds_of(policy, registry))
    status = {**(policy.get("status") or {}), "observedGeneration": policy["metadata"].get("generation", 1)}
    status["typeChecking"] = {"expressionWarnings": warnings} if warnings else {}
    return status


def _kinds_of(policy: Object, registry: Registry) -> list[Resource]:
    """Return the kinds that the policy names. A wildcard names none: it is not checked."""
    named: dict[object, Resource] = {}
    for rule in ((policy.get("spec") or {}).get("matchConstraints") or {}).get("resourceRules") or ():
        places = product(*(rule.get(field) or () for field in ("apiGroups", "apiVersions", "resources")))
        for resource in starmap(registry.find, places):
            if resource is not None:
                named[resource.kind] = resource
    return list(named.values())[:_MOST_KINDS]


def _is_known(policy: Object) -> bool:
    status = policy.get("status") or {}
    return "typeChecking" in status and status.get("observedGeneration") == policy["metadata"].get("generation", 1)
