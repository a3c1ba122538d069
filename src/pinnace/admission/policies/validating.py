"""ValidatingAdmissionPolicy: CEL expressions that refuse a write, warn of it, or have it written down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from pinnace.admission.cel_executor import CelExecutor
from pinnace.admission.chain import AdmissionPlugin
from pinnace.admission.expressions import OUT_OF_BUDGET, Budget, ConditionFailed, Oracles, all_hold, try_compile
from pinnace.admission.metrics import AdmissionMetrics
from pinnace.admission.policies.bindings import (
    Binding,
    NotConfigured,
    ParametersOf,
    Policy,
    PolicyNotConfigured,
    PolicyTable,
    Situation,
    parameters_of,
)
from pinnace.model import errors
from pinnace.model.errors import qualified
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.cel.errors import CelError, CompileError

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Program

_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_LONGEST_MESSAGE = 5 * 1024
_LONGEST_ANNOTATION = 10 * 1024
_ERROR_TYPES = (
    ("compilation", "compile_error"),
    ("validation failed due to running out of cost budget", "out_of_budget"),
)
"""The error types of metrics, by the beginning of a failure's message."""
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"


class Refused(errors.ApiError):
    """A policy's refusal, with the reason that it gives."""

    def __init__(self, review: Review, message: str, reason: str) -> None:
        resource = review.resource
        named = f'{qualified(resource.group, resource.plural)} "{review.name}"'
        details = {"name": review.name, "group": resource.group, "kind": resource.plural}
        kept: dict[str, Any] = {name: value for name, value in details.items() if value}
        super().__init__(f"{named} is forbidden: {message}", details={**kept, "causes": [{"message": message}]})
        # The policy chooses the code, which is a property of the class elsewhere.
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
    is_of_annotation: bool = False
    """An annotation that has no value denies, whatever the binding does about validations."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a policy for one write with one parameter."""

    failures: tuple[Failure, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


class _OutOfBudget(Exception):
    """All expressions together cost too much."""


def compile_validations(policy: Policy) -> Validations:
    checks = tuple(
        Validation(
            expression=validation["expression"],
            program=try_compile(validation["expression"], policy.types),
            message=validation.get("message", ""),
            message_program=try_compile(validation["messageExpression"], policy.types)
            if validation.get("messageExpression")
            else None,
            reason=validation.get("reason") or "Invalid",
        )
        for validation in policy.spec.get("validations") or ()
    )
    annotations = tuple(
        Annotation(
            annotation["key"], annotation["valueExpression"], try_compile(annotation["valueExpression"], policy.types)
        )
        for annotation in policy.spec.get("auditAnnotations") or ()
    )
    return Validations(checks, annotations)


class ValidatingPolicies(AdmissionPlugin):
    def __init__(
        self,
        table: PolicyTable[Validations],
        namespaces: WatchedObjects,
        oracles: Oracles,
        kinds: ParametersOf,
        executor: CelExecutor,
        metrics: AdmissionMetrics,
    ) -> None:
        self._metrics = metrics
        self._table = table
        self._namespaces = namespaces
        self._oracles = oracles
        self._kinds = kinds
        self._executor = executor

    def is_idle(self) -> bool:
        return self._table.is_empty()

    def on_configured(self, changed: Callable[[], None]) -> None:
        self._table.on_change(changed)

    def validate(self, review: Review) -> NowOrLater[None]:
        matching = self._table.of(review)
        return self._validate(review, matching) if matching else None

    async def _validate(self, review: Review, matching: list[tuple[Policy, Validations, Resource]]) -> None:
        denied: list[Refused] = []
        situations: dict[int, Situation] = {}
        for policy, validations, target in matching:
            if not policy.matcher.selects(review, self._namespaces):
                continue
            for binding in policy.bindings:
                if not self._table.is_bound(binding, review, self._namespaces):
                    continue
                if id(target) not in situations:
                    situations[id(target)] = await Situation.of(review, target, self._namespaces)
                denied += await self._judge(policy, binding, validations, situations[id(target)])
        if denied:
            raise denied[0]

    async def _judge(
        self, policy: Policy, binding: Binding, validations: Validations, situation: Situation
    ) -> list[Refused]:
        review = situation.review
        who = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        try:
            params = parameters_of(policy, binding, review, self._kinds)
        except PolicyNotConfigured as err:
            alone = f"ValidatingAdmissionPolicy '{policy.name}' denied request"
            why = f"{alone}: failed to configure policy: {err}"
            return [Refused(review, why, "Invalid")] if policy.fails_closed else []
        except NotConfigured as err:
            why = f"{who} denied request: failed to configure binding: {err}"
            return [Refused(review, why, "Invalid")] if policy.fails_closed else []
        denied: list[Refused] = []
        for param in params:

            def judged(oracles: Oracles, inline_budget: int | None, param: Object | None = param) -> Judgement:
                return _evaluate_policy(policy, validations, situation.variables(oracles, param), inline_budget)

            began = time.perf_counter()
            judgement = await self._executor.evaluate(
                review, f"validating/{policy.name}", policy, judged, self._oracles
            )
            seconds = (time.perf_counter() - began) / max(1, len(validations.checks))
            for failure in judgement.failures:
                if failure.is_of_annotation or "Deny" in binding.actions:
                    denied.append(Refused(review, f"{who} denied request: {failure.message}", failure.reason))
                actions = ("Deny",) if failure.is_of_annotation else binding.actions
                self._observe(policy, binding, failure, actions, seconds)
                if failure.is_of_annotation:
                    continue
                if "Warn" in binding.actions:
                    review.warnings.append(f"Validation failed for {who}: {failure.message}")
                if "Audit" in binding.actions:
                    review.audit[_FAILURE] = _failure_record(policy, binding, failure)
            for key, value in judgement.annotations:
                _annotate(review, f"{policy.name}/{key}", value)
        return denied

    def _observe(
        self, policy: Policy, binding: Binding, failure: Failure, actions: Iterable[str], seconds: float
    ) -> None:
        """Count a failure once for each action that the binding takes. Passed validations are not counted."""
        error_type = next((type for start, type in _ERROR_TYPES if failure.message.startswith(start)), "invalid_error")
        for action in actions:
            self._metrics.observe_policy(
                policy.name, binding.name, seconds, action=action.lower(), error_type=error_type
            )


def _evaluate_policy(
    policy: Policy, validations: Validations, variables: dict[str, Any], inline_budget: int | None
) -> Judgement:
    """Return the judgement of the policy. Raise ExceedsInlineBudget.

    An expression that costs too much has no value, and the others are still evaluated. When all together cost too much,
    the whole policy fails.
    """
    try:
        if not all_hold(policy.conditions, variables, fails_closed=policy.fails_closed, inline_budget=inline_budget):
            return Judgement()
    except ConditionFailed as err:
        return Judgement((Failure(0, str(err)),))
    try:
        failures = _failures(policy, validations, Budget(variables, policy.variables, inline_budget=inline_budget))
        annotations = list(_annotations(policy, validations, variables, inline_budget))
    except _OutOfBudget:
        return Judgement((Failure(0, OUT_OF_BUDGET),) if policy.fails_closed else ())
    of_annotations = (annotation for annotation in annotations if isinstance(annotation, Failure))
    return Judgement(
        (*failures, *of_annotations),
        tuple(annotation for annotation in annotations if not isinstance(annotation, Failure)),
    )


def _failures(policy: Policy, validations: Validations, budget: Budget) -> list[Failure]:
    """Return false validations and, if the policy fails closed, those without a value. Raise _OutOfBudget."""
    failed: list[tuple[int, Validation, str]] = []
    for index, check in enumerate(validations.checks):
        try:
            if _value(check.program, check.expression, budget) is not True:
                failed.append((index, check, ""))
        except CelError as err:
            if policy.fails_closed:
                failed.append((index, check, str(err)))
    # Messages are worked out at the end, with what is left of the budget.
    failures: list[Failure] = []
    for index, check, why in failed:
        try:
            failures.append(Failure(index, why) if why else Failure(index, _message(check, budget), check.reason))
        except _OutOfBudget:
            if policy.fails_closed:
                failures.append(Failure(index, f"failed messageExpression: {OUT_OF_BUDGET}"))
    return failures


def _value(program: Program | CompileError, expression: str, budget: Budget) -> Any:
    """Return the value of an expression. Raise CelError with the whole message, or _OutOfBudget."""
    if isinstance(program, CompileError):
        raise CelError(f"compilation error: {program}")
    try:
        return budget.evaluate(program)
    except CelError as err:
        if budget.is_spent:
            raise _OutOfBudget from None
        raise CelError(f"expression '{expression.strip()}' resulted in error: {err}") from None


def _message(check: Validation, budget: Budget) -> str:
    message = ""
    if check.message_program is not None and not isinstance(check.message_program, CompileError):
        try:
            text = _value(check.message_program, "", budget)
            message = text.strip() if isinstance(text, str) else ""
        except CelError:
            message = ""
        if len(message) > _LONGEST_MESSAGE or "\n" in message:
            message = ""
    return message or check.message.strip() or f"failed expression: {check.expression.strip()}"


def _annotations(
    policy: Policy, validations: Validations, variables: dict[str, Any], inline_budget: int | None
) -> Iterator[tuple[str, str] | Failure]:
    """They have a budget of their own. Raise _OutOfBudget."""
    if not validations.annotations:
        return
    budget = Budget(variables, policy.variables, inline_budget=inline_budget)
    for index, annotation in enumerate(validations.annotations):
        try:
            value = _value(annotation.program, annotation.expression, budget)
        except CelError as err:
            if policy.fails_closed:
                yield Failure(index, str(err), is_of_annotation=True)
            continue
        if isinstance(value, str) and value.strip():
            yield annotation.key, value.strip()[:_LONGEST_ANNOTATION]


def _annotate(review: Review, key: str, value: str) -> None:
    before = review.audit.get(key)
    review.audit[key] = f"{before}, {value}" if before and before != value else value


def _failure_record(policy: Policy, binding: Binding, failure: Failure) -> str:
    record = {
        "message": failure.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": failure.index,
        "validationActions": list(binding.actions),
    }
    return orjson.dumps([record]).decode()
