"""ValidatingAdmissionPolicy: CEL expressions that refuse a write, warn of it, or have it written down."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from pinnace.admission.chain import Review
from pinnace.admission.expressions import Budget, ConditionFailed, Oracles, all_hold, tried
from pinnace.admission.policies import (
    Binding,
    NotConfigured,
    ParametersOf,
    Policy,
    PolicyNotConfigured,
    PolicyTable,
    Situation,
    parameters_of,
)
from pinnace.admission.sources import Objects
from pinnace.model import errors
from pinnace.model.errors import qualified
from pinnace.model.resources import Resource
from pinnace.schema.cel_errors import CelError, CompileError, CostExceeded
from pinnace.schema.cel_program import Program

_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_LONGEST_MESSAGE = 5 * 1024
_LONGEST_ANNOTATION = 10 * 1024
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"


class Refused(errors.ApiError):
    """A policy's refusal, with the reason that it gives."""

    def __init__(self, review: Review, message: str, reason: str) -> None:
        resource = review.resource
        named = f'{qualified(resource.group, resource.plural)} "{review.name}"'
        details = {"name": review.name, "group": resource.group, "kind": resource.plural}
        kept: dict[str, Any] = {name: value for name, value in details.items() if value}
        super().__init__(f"{named} is forbidden: {message}", details={**kept, "causes": [{"message": message}]})
        # What is a property of the class elsewhere is said by the policy here.
        self.__dict__["code"] = _CODES.get(reason, 422)
        self.__dict__["reason"] = reason


@dataclass(frozen=True, slots=True)
class Validation:
    expression: str
    program: Program | CompileError
    message: str
    message_program: Program | CompileError | None
    reason: str


@dataclass(frozen=True, slots=True)
class Annotation:
    key: str
    expression: str
    program: Program | CompileError


@dataclass(frozen=True, slots=True)
class Validations:
    checks: tuple[Validation, ...]
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    index: int
    message: str
    reason: str = "Invalid"


def compile_validations(policy: Policy) -> Validations:
    checks = tuple(
        Validation(
            expression=one["expression"],
            program=tried(one["expression"], policy.types),
            message=one.get("message", ""),
            message_program=tried(one["messageExpression"], policy.types) if one.get("messageExpression") else None,
            reason=one.get("reason") or "Invalid",
        )
        for one in policy.spec.get("validations") or ()
    )
    annotations = tuple(
        Annotation(one["key"], one["valueExpression"], tried(one["valueExpression"], policy.types))
        for one in policy.spec.get("auditAnnotations") or ()
    )
    return Validations(checks, annotations)


class ValidatingPolicies:
    def __init__(
        self, table: PolicyTable[Validations], namespaces: Objects, oracles: Oracles, kinds: ParametersOf
    ) -> None:
        self._table = table
        self._namespaces = namespaces
        self._oracles = oracles
        self._kinds = kinds

    def validate(self, review: Review) -> Awaitable[None] | None:
        meant = self._table.of(review)
        return self._validate(review, meant) if meant else None

    async def _validate(self, review: Review, meant: list[tuple[Policy, Validations, Resource]]) -> None:
        denied: list[Refused] = []
        shown: dict[int, Situation] = {}
        for policy, validations, target in meant:
            if not policy.matcher.selects(review, self._namespaces):
                continue
            for binding in policy.bindings:
                if not self._table.is_bound(binding, review, self._namespaces):
                    continue
                if id(target) not in shown:
                    shown[id(target)] = await Situation.of(review, target, self._namespaces)
                denied += self._judge(policy, binding, validations, shown[id(target)])
        if denied:
            raise denied[0]

    def _judge(
        self, policy: Policy, binding: Binding, validations: Validations, situation: Situation
    ) -> Iterator[Refused]:
        review = situation.review
        who = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        try:
            params = parameters_of(policy, binding, review, self._kinds)
        except PolicyNotConfigured as fault:
            if policy.fails_closed:
                alone = f"ValidatingAdmissionPolicy '{policy.name}'"
                yield Refused(review, f"{alone} denied request: failed to configure policy: {fault}", "Invalid")
            return
        except NotConfigured as fault:
            if policy.fails_closed:
                yield Refused(review, f"{who} denied request: failed to configure binding: {fault}", "Invalid")
            return
        for param in params:
            variables = situation.variables(self._oracles, param)
            budget = Budget(variables, policy.variables)
            for failure in _failures(policy, validations, variables, budget):
                if "Deny" in binding.actions:
                    yield Refused(review, f"{who} denied request: {failure.message}", failure.reason)
                if "Warn" in binding.actions:
                    review.warnings.append(f"Validation failed for {who}: {failure.message}")
                if "Audit" in binding.actions:
                    review.audit[_FAILURE] = _failure_record(policy, binding, failure)
            for annotation in validations.annotations:
                yield from _annotate(review, policy, annotation, budget, who)


def _failures(policy: Policy, validations: Validations, variables: dict[str, Any], budget: Budget) -> Iterator[Failure]:
    """What does not hold, and what has no value, where that is to count."""
    try:
        if not all_hold(policy.conditions, variables, fails_closed=policy.fails_closed):
            return
    except ConditionFailed as fault:
        yield Failure(0, str(fault))
        return
    for index, check in enumerate(validations.checks):
        try:
            if isinstance(check.program, CompileError):
                raise CelError(f"compilation error: {check.program}")
            holds = budget.evaluate(check.program) is True
        except CelError as fault:
            if policy.fails_closed:
                yield Failure(index, f"expression '{check.expression.strip()}' resulted in error: {fault}")
            if isinstance(fault, CostExceeded):
                return
            continue
        if not holds:
            yield Failure(index, _message(check, budget), check.reason)


def _message(check: Validation, budget: Budget) -> str:
    message = ""
    if isinstance(check.message_program, Program):
        try:
            said = budget.evaluate(check.message_program)
            message = said.strip() if isinstance(said, str) else ""
        except CelError:
            message = ""
        if len(message) > _LONGEST_MESSAGE or "\n" in message:
            message = ""
    return message or check.message.strip() or f"failed expression: {check.expression.strip()}"


def _annotate(review: Review, policy: Policy, annotation: Annotation, budget: Budget, who: str) -> Iterator[Refused]:
    try:
        if isinstance(annotation.program, CompileError):
            raise CelError(f"compilation error: {annotation.program}")
        value = budget.evaluate(annotation.program)
    except CelError as fault:
        if policy.fails_closed:
            why = f"expression '{annotation.expression.strip()}' resulted in error: {fault}"
            yield Refused(review, f"{who} denied request: {why}", "Invalid")
        return
    if isinstance(value, str) and value.strip():
        key = f"{policy.name}/{annotation.key}"
        before = review.audit.get(key)
        kept = value.strip()[:_LONGEST_ANNOTATION]
        review.audit[key] = f"{before}, {kept}" if before and before != kept else kept


def _failure_record(policy: Policy, binding: Binding, failure: Failure) -> str:
    record = {
        "message": failure.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": failure.index,
        "validationActions": list(binding.actions),
    }
    return orjson.dumps([record]).decode()
