"""Shared by validating and mutating policies: bindings, the writes that they select, and parameters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pinnace.admission.expressions import (
    Condition,
    Oracles,
    bindings,
    read_conditions,
    try_compile,
)
from pinnace.admission.rules import (
    AnyRule,
    Equivalents,
    Matcher,
    MatchTable,
    Scope,
    convert_for_review,
    is_namespace,
    is_question,
    is_static,
    static_first,
    to_version,
)
from pinnace.admission.webhooks.reviews import request_of
from pinnace.model.objects import Object, new_uid
from pinnace.model.resources import Resource
from pinnace.model.selectors import from_object
from pinnace.model.typed_objects import NamedRuleWithOperations, ParamKind, ParamRef
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.schema.cel.errors import CompileError
from pinnace.schema.cel.types import DYN

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Program, Variable

Compiled = TypeVar("Compiled")
"""The compiled expressions of a kind of policy."""


class NotConfigured(Exception):
    """A policy or binding cannot be used; the message says why."""


class PolicyNotConfigured(NotConfigured):
    """No binding could use it."""


class Parameters:
    """The objects of a kind that policies are parameterized with, in the version that a policy names."""

    def __init__(self, objects: WatchedObjects, resource: Resource) -> None:
        self._objects = objects
        self._resource = resource
        self.namespaced = resource.namespaced

    def get(self, key: str) -> Object | None:
        obj = self._objects.get(key)
        return self._in_version(obj) if obj is not None else None

    def in_namespace(self, namespace: str) -> Iterator[Object]:
        """Yield the objects of one namespace, or all if it is empty."""
        return (self._in_version(obj) for _, obj in self._objects.in_namespace(namespace))

    def _in_version(self, obj: Object) -> Object:
        custom = self._resource.custom
        if custom is None:
            return to_version(obj, self._resource)
        if obj.get("apiVersion") == self._resource.kind.api_version:
            return obj
        converted = custom.to_served([obj])
        if isinstance(converted, list):
            return converted[0]
        if isinstance(converted, Coroutine):
            converted.close()
        return obj  # Only a webhook could convert it; the stored version is better than none.


ParametersOf = Callable[[str, str], Parameters | None]
"""By apiVersion and kind; None for a kind that is not served."""


@dataclass(frozen=True, slots=True)
class Binding:
    name: str
    matcher: Matcher | None
    actions: tuple[str, ...]
    reference: ParamRef | None

    @classmethod
    def read(cls, obj: Object) -> Binding:
        spec = obj.get("spec") or {}
        matched = spec.get("matchResources")
        return cls(
            name=obj["metadata"]["name"],
            matcher=Matcher.read(matched, rules="resourceRules") if matched is not None else None,
            actions=tuple(spec.get("validationActions") or ()),
            reference=spec.get("paramRef"),
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy with those who have put it to use."""

    name: str
    spec: Object
    matcher: Matcher
    conditions: tuple[Condition, ...]
    variables: Mapping[str, Program | CompileError]
    types: Mapping[str, Variable]
    fails_closed: bool
    bindings: tuple[Binding, ...]
    is_static: bool

    @classmethod
    def read(cls, obj: Object, objects: Iterable[Object]) -> Policy:
        from pinnace.schema.cel.policies import own_variable  # noqa: PLC0415 - few clusters have policies.

        spec = obj.get("spec") or {}
        programs: dict[str, Program | CompileError] = {}
        types: dict[str, Variable] = {}
        for variable in spec.get("variables") or ():
            name = own_variable(variable["name"])
            program = programs[name] = try_compile(variable["expression"], types)
            types[name] = DYN if isinstance(program, CompileError) else program.result_type
        return cls(
            name=obj["metadata"]["name"],
            spec=spec,
            matcher=Matcher.read(spec.get("matchConstraints") or {}, rules="resourceRules"),
            conditions=read_conditions(spec.get("matchConditions")),
            variables=programs,
            types=types,
            fails_closed=spec.get("failurePolicy", "Fail") != "Ignore",
            bindings=tuple(Binding.read(binding) for binding in objects),
            is_static=is_static(obj),
        )

    @property
    def parameter_kind(self) -> ParamKind | None:
        kind: ParamKind | None = self.spec.get("paramKind")
        return kind


class PolicyTable(MatchTable[tuple[Policy, Compiled]]):
    """The policies that are bound, each with its compiled expressions."""

    def __init__(
        self,
        policies: WatchedObjects,
        bound: WatchedObjects,
        compile_policy: Callable[[Policy], Compiled],
        equivalents: Equivalents,
        revision: Callable[[], int],
    ) -> None:
        super().__init__(policies, bound, equivalents=equivalents, revision=revision)
        self._policies = policies
        self._bound = bound
        self._compile = compile_policy

    def of(self, review: Review) -> list[tuple[Policy, Compiled, Resource]]:
        """Return the policies whose constraints match this write, each with the version that it wants the object in."""
        scope = Scope(review.resource, review.subresource, review.operation)
        return [
            (policy, compiled, target)
            for (policy, compiled), target in self.matching(*scope)
            if not policy.matcher.names_matter or self.matches(policy.matcher, scope, review.name)
        ]

    def matches(self, matcher: Matcher, scope: Scope, name: str) -> bool:
        return matcher.target(scope, self._equivalents, name=name) is not None

    def is_bound(self, binding: Binding, review: Review, namespaces: WatchedObjects) -> bool:
        """Whether a binding means this write, too."""
        matcher = binding.matcher
        if matcher is None:
            return True
        scope = Scope(review.resource, review.subresource, review.operation)
        if matcher.rules and not self.matches(matcher, scope, review.name):
            return False
        if matcher.exclusions and not matcher.rules:
            everything: Sequence[AnyRule] = (
                {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "*/*"]},
            )
            wide = Matcher(everything, matcher.exclusions, matcher.namespaces, matcher.objects, True)
            if not self.matches(wide, scope, review.name):
                return False
        return matcher.selects(review, namespaces)

    def _skips(self, resource: Resource) -> bool:
        return is_question(resource)

    def _is_static(self, entry: tuple[Policy, Compiled]) -> bool:
        return entry[0].is_static

    def _matcher_of(self, entry: tuple[Policy, Compiled]) -> Matcher:
        """Return the matcher of a policy without the names of objects, which `of` compares."""
        matcher = entry[0].matcher
        if not matcher.names_matter:
            return matcher
        rules = _drop_resource_names(matcher.rules)
        return Matcher(rules, (), matcher.namespaces, matcher.objects, matcher.takes_equivalents)

    def _read(self) -> Iterator[tuple[Policy, Compiled]]:
        by_policy: dict[tuple[bool, str], list[Object]] = {}
        for _, binding in sorted(self._bound.items(), key=static_first):
            name = (binding.get("spec") or {}).get("policyName", "")
            by_policy.setdefault((is_static(binding), name), []).append(binding)
        for key, obj in sorted(self._policies.items(), key=static_first):
            if bindings := by_policy.get((is_static(obj), key)):
                policy = Policy.read(obj, bindings)
                yield policy, self._compile(policy)


def _drop_resource_names(rules: Iterable[AnyRule]) -> list[AnyRule]:
    dropped = [cast("NamedRuleWithOperations", {**rule}) for rule in rules]
    for rule in dropped:
        rule.pop("resourceNames", None)
    return [*dropped]


def parameters_of(policy: Policy, binding: Binding, review: Review, kinds: ParametersOf) -> list[Object | None]:
    """Return the parameters to evaluate the policy with, one by one; [None] if it has none. Raise NotConfigured."""
    kind, reference = policy.parameter_kind, binding.reference
    if kind is None or reference is None:
        return [None]
    source = kinds(kind.get("apiVersion", ""), kind.get("kind", ""))
    if source is None:
        kind_text = f"{kind.get('apiVersion', '')}, Kind={kind.get('kind', '')}"
        raise PolicyNotConfigured(f"failed to find resource referenced by paramKind: '{kind_text}'")
    namespace = reference.get("namespace") or ""
    if source.namespaced:
        namespace = namespace or ("" if is_namespace(review.resource) else review.namespace)
        if not namespace:
            raise NotConfigured(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif namespace:
        raise NotConfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    params: list[Object | None]
    if reference.get("name"):
        name = reference["name"]
        param = source.get(f"{namespace}/{name}" if source.namespaced else name)
        params = [param] if param is not None else []
    else:
        selector = from_object(reference.get("selector"))
        params = [
            param for param in source.in_namespace(namespace) if selector.matches(param["metadata"].get("labels") or {})
        ]
    if not params and reference.get("parameterNotFoundAction") == "Deny":
        raise NotConfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    return params


class Situation:
    """One write as the expressions of a policy see it."""

    def __init__(self, review: Review, target: Resource, request: Object, namespace: Object | None) -> None:
        self.review = review
        self.target = target
        self.request = request
        self.namespace = namespace

    @classmethod
    async def of(cls, review: Review, target: Resource, namespaces: WatchedObjects) -> Situation:
        new = await convert_for_review(review.new, review.resource, target)
        old = await convert_for_review(review.old, review.resource, target)
        request = request_of(review, target, new, old, uid=new_uid())
        namespace = None
        if review.namespace and not is_namespace(review.resource):
            namespace = namespaces.get(review.namespace)
        return cls(review, target, request, namespace)

    def variables(self, oracles: Oracles, params: Object | None) -> dict[str, Any]:
        return bindings(self.review, oracles, request=self.request, params=params, namespace=self.namespace)
