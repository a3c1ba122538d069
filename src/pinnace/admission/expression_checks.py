"""Refuses webhooks and policies whose expressions do not compile, and warns of those that no object can satisfy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pinnace.admission.chain import WRITES, Review
from pinnace.admission.expressions import compiled, own_variable
from pinnace.admission.rules import GROUP
from pinnace.model import errors
from pinnace.model.causes import Cause, invalid
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.schema.cel_declarations import declaration_of
from pinnace.schema.cel_errors import CompileError, InstantiationError
from pinnace.schema.cel_program import Variable
from pinnace.schema.cel_types import DYN, Type

_PLURALS = (
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicies",
)
_TYPED_ELSEWHERE = frozenset(("request", "namespaceObject"))
_NO_PARAMS = frozenset(("params",))
_NO_VARIABLES = frozenset(("variables",))


class ExpressionChecks:
    interests = tuple((GROUP, plural, WRITES) for plural in _PLURALS)

    def validate(self, review: Review) -> None:
        new, old = review.changed, review.old
        if review.subresource or (old is not None and old.get("spec") == new.get("spec") and "spec" in new):
            return
        if old is not None and "webhooks" in new and old.get("webhooks") == new["webhooks"]:
            return
        faults = list(expression_faults(new))
        if faults:
            kind = review.resource.kind
            raise errors.Invalid(faults, group=kind.group, kind=kind.name, name=review.name)


def expression_faults(obj: Object) -> Iterator[Cause]:
    """What is wrong with the expressions of a webhook configuration or a policy."""
    for index, hook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}].matchConditions"
        yield from _conditions(hook, path, _NO_PARAMS | _NO_VARIABLES | {"namespaceObject"})
    if "spec" not in obj:
        return
    spec = obj["spec"] or {}
    without = frozenset() if spec.get("paramKind") else _NO_PARAMS
    yield from _conditions(spec, "spec.matchConditions", without | _NO_VARIABLES)
    types: dict[str, Variable] = {}
    hidden = without | _NO_VARIABLES
    for index, variable in enumerate(spec.get("variables") or ()):
        found, faults = _checked(
            variable.get("expression", ""), f"spec.variables[{index}].expression", (), types, hidden
        )
        yield from faults
        types[own_variable(variable.get("name", ""))] = found
        hidden = without
    for index, one in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        yield from _fault(one.get("expression", ""), f"{path}.expression", ("bool",), types, hidden)
        if one.get("messageExpression"):
            yield from _fault(
                one["messageExpression"], f"{path}.messageExpression", ("string",), types, hidden | {"authorizer"}
            )
    for index, one in enumerate(spec.get("auditAnnotations") or ()):
        path = f"spec.auditAnnotations[{index}].valueExpression"
        yield from _fault(one.get("valueExpression", ""), path, ("string", "null_type"), types, hidden)
    for index, one in enumerate(spec.get("mutations") or ()):
        for field, wanted in (("applyConfiguration", "Object"), ("jsonPatch", "list(JSONPatch)")):
            if (said := (one.get(field) or {}).get("expression")) is not None:
                yield from _fault(said, f"spec.mutations[{index}].{field}.expression", (wanted,), types, hidden)


def type_warnings(policy: Object, resources: Iterable[Resource]) -> list[Object]:
    """What the expressions of a validating policy get wrong about the kinds that it is about."""
    spec = policy.get("spec") or {}
    found: dict[str, list[str]] = {}
    without = frozenset() if spec.get("paramKind") else _NO_PARAMS
    for resource in resources:
        declared = declaration_of(resource.schema, is_root=True)
        if declared is None:
            continue
        types: dict[str, Variable] = {"object": declared, "oldObject": declared}
        for variable in spec.get("variables") or ():
            result, _ = _checked(variable.get("expression", ""), "", (), types, without)
            types[own_variable(variable.get("name", ""))] = result
        for index, one in enumerate(spec.get("validations") or ()):
            for field in ("expression", "messageExpression"):
                if not one.get(field):
                    continue
                try:
                    compiled(one[field], types, without=without)
                except (CompileError, InstantiationError) as fault:
                    kind = resource.kind
                    told = f"{kind.api_version}, Kind={kind.name}: {fault}"
                    found.setdefault(f"spec.validations[{index}].{field}", []).append(told)
    return [{"fieldRef": place, "warning": "\n".join(told)} for place, told in found.items()]


def _conditions(said: Mapping[str, Any], path: str, without: Collection[str]) -> Iterator[Cause]:
    for index, one in enumerate(said.get("matchConditions") or ()):
        yield from _fault(one.get("expression", ""), f"{path}[{index}].expression", ("bool",), {}, without)


def _fault(
    expression: str, path: str, wanted: tuple[str, ...], types: Mapping[str, Variable], without: Collection[str]
) -> list[Cause]:
    return _checked(expression, path, wanted, types, without)[1]


def _checked(
    expression: str, path: str, wanted: tuple[str, ...], types: Mapping[str, Variable], without: Collection[str]
) -> tuple[Type, list[Cause]]:
    """The type of its value, and what is wrong with it."""
    if not expression.strip():
        return DYN, []  # Told already.
    try:
        program = compiled(expression, types, without=without)
    except CompileError as fault:
        return DYN, [invalid(path, expression, f"compilation failed: {fault}")]
    except InstantiationError as fault:
        return DYN, [invalid(path, expression, f"program instantiation failed: {fault}")]
    shown = str(program.result_type)
    if not wanted or shown in wanted or _is_written_out(shown, wanted):
        return program.result_type, []
    if shown == "dyn" and program.uses & _TYPED_ELSEWHERE:
        return program.result_type, []  # Kubernetes knows the types of these, and so may know this one.
    asked = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
    return program.result_type, [invalid(path, expression, f"must evaluate to {asked} but got {shown}")]


def _is_written_out(shown: str, wanted: tuple[str, ...]) -> bool:
    """Objects are maps here, and lists of patches lists of maps."""
    if "Object" in wanted:
        return shown.startswith("map(")
    return "list(JSONPatch)" in wanted and shown in ("list(map(string, dyn))", "list(map(dyn, dyn))")
