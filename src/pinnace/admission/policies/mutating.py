"""MutatingAdmissionPolicy: CEL expressions that say what else an object is to have, or how it is to be patched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pinnace.admission.cel_executor import CelExecutor
from pinnace.admission.chain import AdmissionPlugin
from pinnace.admission.expressions import Budget, ConditionFailed, Oracles, all_hold, try_compile
from pinnace.admission.policies.bindings import (
    Binding,
    NotConfigured,
    ParametersOf,
    Policy,
    PolicyTable,
    Situation,
    parameters_of,
)
from pinnace.admission.rules import is_message, put_back
from pinnace.model import errors
from pinnace.model.objects import Object, deep_copy
from pinnace.model.patches import json_and_merge
from pinnace.model.resources import Resource
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.cel.errors import CelError, CompileError
from pinnace.schema.golang.decode import DecodeError
from pinnace.schema.merge.merge import merge
from pinnace.schema.merge.structure import ATOMIC, MergeNode, structure

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Program

Read = Callable[[Resource, Object], None]


class NotMutated(Exception):
    """A mutation has no value, or one that cannot be applied."""


@dataclass(frozen=True, slots=True)
class Mutation:
    is_json_patch: bool
    expression: str
    program: Program | CompileError


@dataclass(frozen=True, slots=True)
class Mutations:
    steps: tuple[Mutation, ...]
    is_reinvoked: bool


def compile_mutations(policy: Policy) -> Mutations:
    steps = []
    for mutation in policy.spec.get("mutations") or ():
        is_json_patch = mutation.get("patchType") == "JSONPatch"
        expression = (mutation.get("jsonPatch" if is_json_patch else "applyConfiguration") or {}).get("expression", "")
        steps.append(Mutation(is_json_patch, expression, try_compile(expression, policy.types)))
    return Mutations(tuple(steps), policy.spec.get("reinvocationPolicy") == "IfNeeded")


class MutatingPolicies(AdmissionPlugin):
    """One after the other, each sees what those before it have made of the object."""

    def __init__(
        self,
        table: PolicyTable[Mutations],
        namespaces: WatchedObjects,
        oracles: Oracles,
        kinds: ParametersOf,
        read: Read,
        executor: CelExecutor,
    ) -> None:
        self._table = table
        self._namespaces = namespaces
        self._oracles = oracles
        self._kinds = kinds
        self._read = read
        self._executor = executor

    def is_idle(self) -> bool:
        return self._table.is_empty()

    def on_configured(self, changed: Callable[[], None]) -> None:
        self._table.on_change(changed)

    def mutate(self, review: Review) -> NowOrLater[None]:
        matching = self._table.of(review)
        return self._mutate(review, matching) if matching and review.new is not None else None

    async def _mutate(self, review: Review, matching: list[tuple[Policy, Mutations, Resource]]) -> None:
        reinvocation = review.reinvocation
        for policy, mutations, target in matching:
            if not policy.matcher.selects(review, self._namespaces):
                continue
            for binding in policy.bindings:
                name = f"policy/{policy.name}/{binding.name}"
                if reinvocation.is_second and name not in reinvocation.due:
                    continue
                if not self._table.is_bound(binding, review, self._namespaces):
                    continue
                if await self._apply(policy, binding, mutations, review, target):
                    reinvocation.require_previous()
                    reinvocation.is_wanted = True
                if mutations.is_reinvoked:
                    reinvocation.previous.add(name)

    async def _apply(
        self, policy: Policy, binding: Binding, mutations: Mutations, review: Review, target: Resource
    ) -> bool:
        """Whether anything is other than before."""
        is_changed = False
        try:
            params = parameters_of(policy, binding, review, self._kinds)
        except NotConfigured as err:
            self._fail(policy, binding, review, f"failed to configure binding: {err}")
            return False
        for param in params:
            situation = await Situation.of(review, target, self._namespaces)
            try:
                if not await self._is_selected(policy, situation, param):
                    continue
                before = situation.request["object"]
                for step in mutations.steps:
                    value = await self._value(policy, step, situation, param)
                    situation.request["object"] = self._step(step, situation.request["object"], target, value)
            except (ConditionFailed, NotMutated) as err:
                self._fail(policy, binding, review, str(err))
                continue
            if situation.request["object"] != before:
                await put_back(situation.request["object"], review, target)
                if not is_message(review.changed, review.resource):
                    review.resource.strategy.default(review.changed)
                is_changed = True
        return is_changed

    async def _is_selected(self, policy: Policy, situation: Situation, param: Object | None) -> bool:
        """Whether the policy's conditions hold. Raise ConditionFailed."""
        if not policy.conditions:
            return True

        def holding(oracles: Oracles, inline_budget: int | None) -> bool:
            variables = situation.variables(oracles, param)
            return all_hold(policy.conditions, variables, fails_closed=policy.fails_closed, inline_budget=inline_budget)

        return await self._executor.evaluate(
            situation.review, f"mutating/{policy.name}", policy, holding, self._oracles
        )

    async def _value(self, policy: Policy, step: Mutation, situation: Situation, param: Object | None) -> Any:
        """Return the value of a mutation's expression. Raise NotMutated."""
        program = step.program

        def evaluated(oracles: Oracles, inline_budget: int | None) -> Any:
            if isinstance(program, CompileError):
                raise CelError(f"compilation error: {program}")
            variables = situation.variables(oracles, param)
            return Budget(variables, policy.variables, inline_budget=inline_budget).evaluate(program)

        try:
            return await self._executor.evaluate(
                situation.review, f"mutating/{policy.name}", policy, evaluated, self._oracles
            )
        except CelError as err:
            raise NotMutated(f"expression '{step.expression.strip()}' resulted in error: {err}") from None

    def _step(self, step: Mutation, obj: Object, target: Resource, value: Any) -> Object:
        """Return the object after one mutation. Raise NotMutated."""
        try:
            changed = deep_copy(_apply_patch(obj, value) if step.is_json_patch else _merge(obj, value, target))
            if is_message(obj, target):
                return changed
            self._read(target, changed)
        except json_and_merge.PatchRefused as err:
            raise NotMutated(f"JSON Patch: {err.why}") from None
        except (errors.ApiError, DecodeError, ValueError) as err:
            raise NotMutated(str(err)) from None
        metadata, before = changed.get("metadata"), obj["metadata"]
        if not isinstance(metadata, dict) or any(metadata.get(name) != before.get(name) for name in _IDENTITY):
            raise NotMutated("a policy may not make another object of this one")
        return changed

    def _fail(self, policy: Policy, binding: Binding, review: Review, why: str) -> None:
        if policy.fails_closed:
            raise Unmutated(review, f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}")


_IDENTITY = ("name", "namespace", "uid")


class Unmutated(errors.ApiError):
    """A policy could not do its work, and nothing may pass without."""

    code, reason = 403, "Invalid"

    def __init__(self, review: Review, message: str) -> None:
        resource = review.resource
        details = {"name": review.name, "group": resource.group, "kind": resource.plural}
        kept: dict[str, Any] = {name: value for name, value in details.items() if value}
        super().__init__(message, details={**kept, "causes": [{"message": message}]})


def _apply_patch(obj: Object, operations: Any) -> Object:
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise NotMutated("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    patched = json_and_merge.json_patch(obj, operations)
    if not isinstance(patched, dict):
        raise NotMutated("a patch must leave an object, and this one leaves something else")
    return patched


def _merge(obj: Object, configuration: Any, target: Resource) -> Object:
    if not isinstance(configuration, dict):
        raise NotMutated("ApplyConfiguration expressions must evaluate to an Object")
    if atomics := list(_atomics(structure(target.schema), configuration, "")):
        raise NotMutated(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            + ", ".join(atomics)
        )
    merged: Object = merge(obj, configuration, target.schema)
    return merged


def _atomics(node: MergeNode, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of atomic values in an apply configuration: setting a part of one would drop the rest."""
    if not isinstance(value, dict | list):
        return
    if node.view_for(value).shape == ATOMIC:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _atomics(node.fields.get(key) or node.rest, inner, f"{path}.{key}")
    else:
        for index, inner in enumerate(value):
            yield from _atomics(node.item, inner, f"{path}[{index}]")
