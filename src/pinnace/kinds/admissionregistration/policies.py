"""Defaults and validation of admission policies and their bindings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, cast

from pinnace.kinds.admissionregistration.expressions import OBJECT, PATCHES, PolicyExpressions
from pinnace.kinds.admissionregistration.webhooks import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    OPERATIONS,
    REINVOCATION_POLICIES,
    default_rules,
    validate_match_condition,
    validate_rule,
)
from pinnace.kinds.validation.fields import (
    find_repeats,
    validate_choice,
    validate_condition,
    validate_given_choice,
    validate_given_name,
    validate_name,
)
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label_selector
from pinnace.model.typed_objects import (
    AuditAnnotation,
    MatchResources,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    MutatingAdmissionPolicySpec,
    Mutation,
    ParamKind,
    ParamRef,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec,
    Validation,
    Variable,
)

MUTATING_OPERATIONS = tuple(operation for operation in OPERATIONS if operation != "DELETE")
VALIDATION_ACTIONS = ("Audit", "Deny", "Warn")
VALIDATION_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
PATCH_TYPES = ("ApplyConfiguration", "JSONPatch")
MAX_AUDIT_ANNOTATIONS = 20
MAX_VALUE_EXPRESSION = 5 * 1024
AT_LEAST_ONE = "validations or auditAnnotations must contain at least one item"
EXCLUSIVE = "name and selector are mutually exclusive"
DENY_AND_WARN = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
    "headers serves no purpose)"
)

_is_identifier = re.compile("[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)


def _default_match_resources(matched: MatchResources) -> None:
    matched.setdefault("matchPolicy", "Equivalent")
    matched.setdefault("namespaceSelector", {})
    matched.setdefault("objectSelector", {})
    for field in ("resourceRules", "excludeResourceRules"):
        default_rules(matched.get(field) or [])


def _default_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    if (matched := spec.get("matchConstraints")) is not None:
        _default_match_resources(matched)


def _default_validating_policy(policy: Object) -> None:
    _default_policy(policy)
    policy.setdefault("status", {})


def _default_binding(binding: Object) -> None:
    if (matched := binding.setdefault("spec", {}).get("matchResources")) is not None:
        _default_match_resources(matched)


def _validate_matched(matched: MatchResources, path: str) -> Iterator[FieldError]:
    yield from validate_choice(matched.get("matchPolicy"), MATCH_POLICIES, f"{path}.matchPolicy")
    yield from validate_label_selector(matched.get("namespaceSelector"), f"{path}.namespaceSelector")
    yield from validate_label_selector(matched.get("objectSelector"), f"{path}.objectSelector")
    for field in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(matched.get(field) or []):
            place, resource_names = f"{path}.{field}[{i}]", rule.get("resourceNames") or []
            repeated = find_repeats(resource_names)
            for j, name in enumerate(resource_names):
                yield from validate_name(name, names.path_segment, f"{place}.resourceNames[{j}]")
                if repeated[j]:
                    yield duplicate(f"{place}.resourceNames[{j}]", name)
            yield from validate_rule(rule, place)


def _validate_mutating_operation(matched: MatchResources, path: str) -> Iterator[FieldError]:
    for rule in matched.get("resourceRules") or []:
        for operation in rule.get("operations") or []:
            yield from validate_choice(operation, MUTATING_OPERATIONS, f"{path}.resourceRules.operations")


def _validate_common_policy(
    spec: ValidatingAdmissionPolicySpec | MutatingAdmissionPolicySpec,
    before: ValidatingAdmissionPolicySpec | MutatingAdmissionPolicySpec | None,
    expressions: PolicyExpressions,
    *,
    mutating: bool,
) -> Iterator[FieldError]:
    yield from validate_choice(spec.get("failurePolicy"), FAILURE_POLICIES, "spec.failurePolicy")
    if (param_kind := spec.get("paramKind")) is not None:
        yield from _validate_param_kind(param_kind, "spec.paramKind")
    if (matched := spec.get("matchConstraints")) is None:
        yield required("spec.matchConstraints")
    else:
        yield from _validate_matched(matched, "spec.matchConstraints")
        if not matched.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        if mutating:
            yield from _validate_mutating_operation(matched, "spec.matchConstraints")
    unchanged = before is not None and all(
        (before.get(field) or None) == (spec.get(field) or None) for field in ("paramKind", "matchConditions")
    )
    if not unchanged:
        conditions = spec.get("matchConditions") or []
        yield from validate_match_condition(conditions, "spec.matchConditions", expressions.validate_condition)
    for i, variable in enumerate(spec.get("variables") or []):
        yield from _validate_variable(variable, f"spec.variables[{i}]", expressions)


def _validate_param_kind(kind: ParamKind, path: str) -> Iterator[FieldError]:
    api_version, name = kind.get("apiVersion", ""), kind.get("kind", "")
    if not api_version:
        yield required(f"{path}.apiVersion")
    elif api_version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", api_version, f"unexpected GroupVersion string: {api_version}")
    else:
        group, _, version = api_version.rpartition("/")
        if group and (errs := names.dns_subdomain(group)):
            yield invalid(f"{path}.apiVersion", group, ",".join(errs))
        if not version:
            yield invalid(f"{path}.apiVersion", api_version, "version must be specified")
        elif errs := names.dns1035_label(version):
            yield invalid(f"{path}.apiVersion", version, ",".join(errs))
    if not name:
        yield required(f"{path}.kind")
    elif errs := names.dns1035_label(name.lower()):
        yield invalid(f"{path}.kind", name, "may have mixed case, but should otherwise match: " + ",".join(errs))


def _validate_variable(variable: Variable, path: str, expressions: PolicyExpressions) -> Iterator[FieldError]:
    name, expression = variable.get("name", ""), variable.get("expression", "")
    if not name.strip():
        yield required(f"{path}.name", "name is not specified")
    elif not _is_identifier(name) or name in _RESERVED:
        yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from expressions.validate_variable(name, expression, f"{path}.expression")


# --- validating policies


def _validate_validating_policy(
    policy: ValidatingAdmissionPolicy, old: ValidatingAdmissionPolicy | None
) -> Iterator[FieldError]:
    spec, before = policy.get("spec", {}), None if old is None else old.get("spec", {})
    if spec == before:
        return
    expressions = PolicyExpressions(spec, mutating=False)
    yield from _validate_common_policy(spec, before, expressions, mutating=False)
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        yield required("spec.validations", AT_LEAST_ONE)
        yield required("spec.auditAnnotations", AT_LEAST_ONE)
    for i, validation in enumerate(validations):
        yield from _validate_validation(validation, f"spec.validations[{i}]", expressions)
    yield from _validate_audit_annotation(annotations, policy["metadata"].get("name", ""), expressions)


def _validate_validation(validation: Validation, path: str, expressions: PolicyExpressions) -> Iterator[FieldError]:
    message, composed = validation.get("message", ""), validation.get("messageExpression", "")
    expression = validation.get("expression", "")
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from expressions.validate_validation(expression, f"{path}.expression")
    if composed and not composed.strip():
        yield invalid(f"{path}.messageExpression", composed, "must be non-empty if specified")
    elif composed:
        yield from expressions.validate_message(composed, f"{path}.messageExpression")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    yield from validate_choice(validation.get("reason"), VALIDATION_REASONS, f"{path}.reason")


def _validate_audit_annotation(
    annotations: Sequence[AuditAnnotation], policy_name: str, expressions: PolicyExpressions
) -> Iterator[FieldError]:
    path = "spec.auditAnnotations"
    if len(annotations) > MAX_AUDIT_ANNOTATIONS:
        views = [
            {"Key": item.get("key", ""), "ValueExpression": item.get("valueExpression", "")} for item in annotations
        ]
        yield invalid(path, views, f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations")
    seen: set[str] = set()
    for i, annotation in enumerate(annotations):
        key, written = annotation.get("key", ""), annotation.get("valueExpression", "")
        expression = written.strip()
        if policy_name:
            yield from validate_name(f"{policy_name}/{key}", names.qualified_name, f"{path}[{i}].key")
        else:
            yield invalid(f"{path}[{i}].key", key, "requires metadata.name be non-empty")
        if not expression:
            yield required(f"{path}[{i}].valueExpression", "valueExpression is not specified")
        elif len(expression.encode()) > MAX_VALUE_EXPRESSION:
            yield required(f"{path}[{i}].valueExpression", f"must not exceed {MAX_VALUE_EXPRESSION} bytes in length")
        else:
            yield from expressions.validate_annotation(written, f"{path}[{i}].valueExpression")
        if key in seen:
            yield duplicate(f"{path}[{i}].key", key)
        seen.add(key)


def _validate_validating_status(
    policy: ValidatingAdmissionPolicy, old: ValidatingAdmissionPolicy | None
) -> Iterator[FieldError]:
    status = policy.get("status", {})
    for i, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or []):
        path = f"status.typeChecking.expressionWarnings[{i}]"
        if not warning.get("warning"):
            yield required(f"{path}.warning")
        if not warning.get("fieldRef", "").strip():
            yield required(f"{path}.fieldRef")
    yield from validate_condition(status.get("conditions") or [], "status.conditions")


# --- mutating policies


def _validate_mutating_policy(
    policy: MutatingAdmissionPolicy, old: MutatingAdmissionPolicy | None
) -> Iterator[FieldError]:
    spec, before = policy.get("spec", {}), None if old is None else old.get("spec", {})
    if spec == before:
        return
    expressions = PolicyExpressions(spec, mutating=True)
    yield from _validate_common_policy(spec, before, expressions, mutating=True)
    mutations = spec.get("mutations") or []
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for i, mutation in enumerate(mutations):
        yield from _validate_mutation(mutation, f"spec.mutations[{i}]", expressions)
    yield from validate_given_choice(spec.get("reinvocationPolicy"), REINVOCATION_POLICIES, "spec.reinvocationPolicy")


_PATCH_FIELD: Mapping[str, Literal["jsonPatch", "applyConfiguration"]] = {
    "JSONPatch": "jsonPatch",
    "ApplyConfiguration": "applyConfiguration",
}


def _validate_mutation(mutation: Mutation, path: str, expressions: PolicyExpressions) -> Iterator[FieldError]:
    patch_type = mutation.get("patchType", "")
    if not patch_type:
        yield required(f"{path}.patchType")
        return
    if patch_type not in _PATCH_FIELD:
        yield not_supported(f"{path}.patchType", patch_type, PATCH_TYPES)
        return
    field = _PATCH_FIELD[patch_type]
    other = next(name for name in _PATCH_FIELD.values() if name != field)
    if mutation.get(field) is None:
        yield required(f"{path}.{field}", f"must be specified when patchType is {patch_type}")
    elif not (expression := mutation[field].get("expression", "").strip()):
        yield required(f"{path}.{field}.expression")
    else:
        wanted = PATCHES if patch_type == "JSONPatch" else OBJECT
        yield from expressions.validate_mutation(expression, f"{path}.{field}.expression", wanted=wanted)
    if mutation.get(other) is not None:
        yield invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {patch_type}")


# --- bindings


def _validate_binding(
    binding: ValidatingAdmissionPolicyBinding | MutatingAdmissionPolicyBinding,
    old: ValidatingAdmissionPolicyBinding | MutatingAdmissionPolicyBinding | None,
    *,
    mutating: bool,
) -> Iterator[FieldError]:
    spec = binding.get("spec", {})
    yield from validate_given_name(spec.get("policyName"), names.dns_subdomain, "spec.policyName")
    if (reference := spec.get("paramRef")) is not None:
        yield from _validate_param_reference(reference, "spec.paramRef")
    if (matched := spec.get("matchResources")) is not None:
        yield from _validate_matched(matched, "spec.matchResources")
        if mutating:
            yield from _validate_mutating_operation(matched, "spec.matchResources")
    if not mutating:
        actions = cast("ValidatingAdmissionPolicyBindingSpec", spec).get("validationActions") or []
        yield from _validate_action(actions, "spec.validationActions")


def _validate_param_reference(reference: ParamRef, path: str) -> Iterator[FieldError]:
    name, selector = reference.get("name", ""), reference.get("selector")
    if name:
        yield from validate_name(name, names.path_segment, f"{path}.name")
    if name and selector is not None:
        yield forbidden(f"{path}.name", EXCLUSIVE)
    yield from validate_label_selector(selector, f"{path}.selector")
    if name and selector is not None:
        yield forbidden(f"{path}.selector", EXCLUSIVE)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    if not reference.get("parameterNotFoundAction"):
        yield required(f"{path}.parameterNotFoundAction")
    else:
        action = reference["parameterNotFoundAction"]
        yield from validate_choice(action, ("Deny", "Allow"), f"{path}.parameterNotFoundAction")


def _validate_action(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    repeated = find_repeats(actions)
    for i, action in enumerate(actions):
        yield from validate_choice(action, VALIDATION_ACTIONS, f"{path}[{i}]")
        if repeated[i]:
            yield duplicate(f"{path}[{i}]", action)
    if "Deny" in actions and "Warn" in actions:
        yield invalid(path, list(actions), DENY_AND_WARN)
    if not actions:
        yield required(path)


VALIDATING_ADMISSION_POLICY = Strategy(
    qualified_finalizers=False,
    default=_default_validating_policy,
    validate=_validate_validating_policy,
    validate_status=_validate_validating_status,
    tracks_generation=True,
    may_update_unconditionally=False,
)
VALIDATING_ADMISSION_POLICY_BINDING = Strategy(
    qualified_finalizers=False,
    default=_default_binding,
    validate=partial(_validate_binding, mutating=False),
    tracks_generation=True,
    may_update_unconditionally=False,
)
MUTATING_ADMISSION_POLICY = Strategy(
    qualified_finalizers=False,
    default=_default_policy,
    validate=_validate_mutating_policy,
    tracks_generation=True,
    may_update_unconditionally=False,
)
MUTATING_ADMISSION_POLICY_BINDING = Strategy(
    qualified_finalizers=False,
    default=_default_binding,
    validate=partial(_validate_binding, mutating=True),
    tracks_generation=True,
    may_update_unconditionally=False,
)
