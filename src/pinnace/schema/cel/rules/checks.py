"""Check the types and costs of a schema's CEL rules when a CustomResourceDefinition is written."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.process.work_slices import give_way
from pinnace.schema import field_errors
from pinnace.schema.cel.cost.ranges import UNLIMITED
from pinnace.schema.cel.declarations import MAXIMUM_REQUEST, Declaration, declaration_of
from pinnace.schema.cel.rules.rules import CelRule, RuleError, is_stated
from pinnace.schema.crd.internal_form import rule_form
from pinnace.schema.field_errors import FieldError
from pinnace.schema.shape import Schema

EXPRESSION_LIMIT = 10_000_000
TOTAL_LIMIT = 100_000_000
_NAMED_COSTS = 4
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, "
    "and strings are declared)"
)


def validate_rule(schema: Schema, path: str) -> list[FieldError]:
    """Return the errors of the rules of a version's schema, which has passed all other checks.

    `path` is the path of the schema: spec.versions[0].schema.openAPIV3Schema.
    """
    costs = _Costs()
    errs = list(_errs(schema, path, costs, count=1, unrelated="", is_root=True))
    if costs.total > TOTAL_LIMIT:
        contributed = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errs += [field_errors.forbidden(where, contributed) for where, _ in costs.highest]
        whole = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errs.append(field_errors.forbidden(path, _over_budget(whole, costs.total, TOTAL_LIMIT)))
    return errs


class _Costs:
    """The total cost of all rules, and the highest single costs."""

    def __init__(self) -> None:
        self.total = 0
        self.highest: list[tuple[str, int]] = []

    def add(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, UNLIMITED)
        if cost >= TOTAL_LIMIT // 100:
            self.highest.append((path, cost))
            self.highest.sort(key=lambda each: -each[1])
            del self.highest[_NAMED_COSTS:]


def _errs(
    schema: Schema, path: str, costs: _Costs, *, count: int | None, unrelated: str, is_root: bool
) -> Iterator[FieldError]:
    """`count`: the most such values in one object, None for no limit. `unrelated`: the path of the list above whose
    items cannot be correlated with old ones."""
    below = _count_below(schema, count)
    if schema.additional is not None:
        where = f"{path}.additionalProperties"
        yield from _errs(schema.additional, where, costs, count=below, unrelated=unrelated, is_root=False)
    for name, child in schema.properties.items():
        where = f"{path}.properties[{name}]"
        yield from _errs(child, where, costs, count=below, unrelated=unrelated, is_root=False)
    if schema.items is not None:
        lost = unrelated or ("" if schema.list_type == "map" else path)
        yield from _errs(schema.items, f"{path}.items", costs, count=below, unrelated=lost, is_root=False)
    if schema.raw.get("x-kubernetes-validations"):
        is_resource = is_root or schema.is_embedded_resource
        yield from _validate_own(schema, path, costs, count, unrelated, is_resource)


def _validate_own(
    schema: Schema, path: str, costs: _Costs, count: int | None, unrelated: str, is_resource: bool
) -> Iterator[FieldError]:
    declaration = declaration_of(schema, is_root=is_resource)
    where = f"{path}.x-kubernetes-validations"
    if declaration is None:
        broken = "internal error: failed to construct type information for x-kubernetes-validations rules"
        detail = f"Internal error: {broken}: unable to convert structural schema to CEL declarations"
        yield FieldError(where, "InternalError", detail)
        return
    for index, raw in enumerate(schema.raw["x-kubernetes-validations"]):
        if is_stated(raw):
            give_way()
            times = count if count is not None else MAXIMUM_REQUEST // (declaration.least_bytes + 1)
            rule = CelRule(raw, schema, declaration)
            yield from _validate_one(rule, f"{where}[{index}]", costs, times, unrelated, declaration)


def _validate_one(
    rule: CelRule, path: str, costs: _Costs, times: int, unrelated: str, declaration: Declaration
) -> Iterator[FieldError]:
    uses_old = False
    try:
        cost = min(rule.program.estimated_cost().most * times, UNLIMITED)
        uses_old = rule.uses_old
        if cost > EXPRESSION_LIMIT:
            message = _over_budget("estimated rule cost", cost, EXPRESSION_LIMIT)
            yield field_errors.forbidden(f"{path}.rule", message)
        costs.add(f"{path}.rule", cost)
        message_program = rule.message_program
        if message_program is not None:
            cost = message_program.estimated_cost().most
            if cost > EXPRESSION_LIMIT:
                message = _over_budget("estimated messageExpression cost", cost, EXPRESSION_LIMIT)
                yield field_errors.forbidden(f"{path}.messageExpression", message)
            costs.add(f"{path}.messageExpression", cost)
    except RuleError as error:
        rule_json = field_errors.go_json(rule_form(rule.raw), sorts=False)
        yield FieldError(f"{path}.{error.field}", "FieldValueInvalid", f"Invalid value: {rule_json}: {error.message}")
    if uses_old and unrelated:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {unrelated}"
        yield field_errors.invalid(f"{path}.rule", rule.raw["rule"], detail)
    elif not uses_old and rule.raw.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield field_errors.invalid(f"{path}.optionalOldSelf", rule.raw["optionalOldSelf"], detail)


def _count_below(schema: Schema, count: int | None) -> int | None:
    if count is None:
        return None
    if schema.type == "array":
        limit = schema.raw.get("maxItems")
    elif schema.type == "object" and schema.raw.get("additionalProperties") is not None:
        limit = schema.raw.get("maxProperties")
    else:
        return count
    return None if limit is None else min(count * max(0, int(limit)), UNLIMITED)


def _over_budget(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        excess = "more than 100x"
    elif factor < 1.5:
        excess = f"{factor:f}x"
    else:
        excess = f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {excess} {_ADVICE}"
