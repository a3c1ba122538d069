"""Tells of policies whose expressions no object of their kinds can satisfy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pinnace.kinds.admissionregistration.expressions import NO_PARAMS
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.schema.cel.declarations import declaration_of
from pinnace.schema.cel.errors import CompileError, InstantiationError
from pinnace.schema.cel.policies import compile_policy_expression, own_variable
from pinnace.schema.cel.program import Variable
from pinnace.schema.cel.types import DYN


def type_warnings(policy: Object, resources: Iterable[Resource]) -> list[Object]:
    """Return the type errors of a validating policy's expressions for the kinds that it names."""
    spec = policy.get("spec") or {}
    found: dict[str, list[str]] = {}
    without = frozenset() if spec.get("paramKind") else NO_PARAMS
    for resource in resources:
        declared = declaration_of(resource.schema, is_root=True)
        if declared is None:
            continue
        types: dict[str, Variable] = {"object": declared, "oldObject": declared}
        for variable in spec.get("variables") or ():
            types[own_variable(variable.get("name", ""))] = _type_of(variable.get("expression", ""), types, without)
        for index, one in enumerate(spec.get("validations") or ()):
            for field in ("expression", "messageExpression"):
                if not one.get(field):
                    continue
                try:
                    compile_policy_expression(one[field], types, without=without)
                except (CompileError, InstantiationError) as err:
                    kind = resource.kind
                    told = f"{kind.api_version}, Kind={kind.name}: {err}"
                    found.setdefault(f"spec.validations[{index}].{field}", []).append(told)
    return [{"fieldRef": place, "warning": "\n".join(told)} for place, told in found.items()]


def _type_of(expression: str, types: Mapping[str, Variable], without: Collection[str]) -> Variable:
    try:
        return compile_policy_expression(expression, types, without=without).result_type
    except (CompileError, InstantiationError):
        return DYN
