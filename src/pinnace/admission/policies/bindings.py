"""Shared by validating and mutating policies: bindings, the writes that they select, and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pinnace.admission.chain import Review
from pinnace.admission.expressions import (
    Condition,
    Oracles,
    bindings,
    read_conditions,
    try_compile,
)
from pinnace.admission.rules import Equivalents, Matcher, Scope, is_exempt, is_namespace, is_question, shown_in
from pinnace.admission.webhooks.reviews import request_of
from pinnace.model.objects import Object, new_uid
from pinnace.model.resources import Resource
from pinnace.model.selectors import from_object
from pinnace.model.watched_objects import WatchedObjects
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


class Parameters(Protocol):
    """The objects of a kind that policies are parameterized with."""

    @property
    def namespaced(self) -> bool: ...

    def get(self, key: str) -> Object | None: ...

    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]:
        """Return the objects of one namespace, or all if it is empty."""


ParametersOf = Callable[[str, str], Parameters | None]
"""By apiVersion and kind; None for a kind that is not served."""


@dataclass(frozen=True, slots=True)
class Binding:
    name: str
    matcher: Matcher | None
    actions: tuple[str, ...]
    reference: Mapping[str, Any] | None

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

    @classmethod
    def read(cls, obj: Object, found: Iterable[Object]) -> Policy:
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
            bindings=tuple(Binding.read(one) for one in found),
        )

    @property
    def parameter_kind(self) -> Mapping[str, Any] | None:
        kind: Mapping[str, Any] | None = self.spec.get("paramKind")
        return kind


class PolicyTable(Generic[Compiled]):
    """The policies that are bound, by what they are about. Compiled when first needed, again when one has changed."""

    def __init__(
        self,
        policies: WatchedObjects,
        bound: WatchedObjects,
        compile_policy: Callable[[Policy], Compiled],
        equivalents: Equivalents,
        revision: Callable[[], int],
    ) -> None:
        self._policies = policies
        self._bound = bound
        self._compile = compile_policy
        self._equivalents = equivalents
        self._revision = revision
        self._all: list[tuple[Policy, Compiled]] | None = None
        self._known: dict[tuple[str, str, str, str, str], list[tuple[Policy, Compiled, Resource]]] = {}
        self._known_at = -1
        self._listeners: list[Callable[[], None]] = []
        policies.on_change(self._forget)
        bound.on_change(self._forget)

    def is_empty(self) -> bool:
        """Whether no policy is bound."""
        return not (self._all if self._all is not None else self._read())

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call back at every change of a policy or a binding."""
        self._listeners.append(changed)

    def of(self, review: Review) -> list[tuple[Policy, Compiled, Resource]]:
        """Return the policies whose constraints match this write, each with the version that it wants the object in."""
        everything = self._all if self._all is not None else self._read()
        if not everything:
            return []
        if self._known_at != self._revision():
            self._known.clear()
            self._known_at = self._revision()
        resource = review.resource
        place = (resource.group, resource.version, resource.plural, review.subresource, review.operation)
        found = self._known.get(place)
        if found is None:
            scope = Scope(resource, review.subresource, review.operation)
            found = self._known[place] = list(self._select(everything, scope))
        if any(policy.matcher.names_matter for policy, _, _ in found):
            scope = Scope(resource, review.subresource, review.operation)
            named = (one for one in found if self.matches(one[0].matcher, scope, review.name))
            return list(named)
        return found

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
            everything = ({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "*/*"]},)
            wide = Matcher(everything, matcher.exclusions, matcher.namespaces, matcher.objects, True)
            if not self.matches(wide, scope, review.name):
                return False
        return matcher.selects(review, namespaces)

    def _select(
        self, everything: list[tuple[Policy, Compiled]], scope: Scope
    ) -> Iterator[tuple[Policy, Compiled, Resource]]:
        if is_exempt(scope.resource) or is_question(scope.resource):
            return
        for policy, program in everything:
            matcher = policy.matcher
            wide = Matcher(
                _drop_resource_names(matcher.rules), (), matcher.namespaces, matcher.objects, matcher.takes_equivalents
            )
            target = (wide if matcher.names_matter else matcher).target(scope, self._equivalents)
            if target is not None:
                yield policy, program, target

    def _read(self) -> list[tuple[Policy, Compiled]]:
        by_policy: dict[str, list[Object]] = {}
        for _, binding in sorted(self._bound.items(), key=_first):
            by_policy.setdefault((binding.get("spec") or {}).get("policyName", ""), []).append(binding)
        read = (
            Policy.read(obj, by_policy[key])
            for key, obj in sorted(self._policies.items(), key=_first)
            if key in by_policy
        )
        self._all = [(policy, self._compile(policy)) for policy in read]
        return self._all

    def _forget(self, key: str) -> None:
        self._all = None
        self._known.clear()
        for changed in self._listeners:
            changed()


def _first(item: tuple[str, Object]) -> str:
    return item[0]


def _drop_resource_names(rules: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple({name: value for name, value in rule.items() if name != "resourceNames"} for rule in rules)


def parameters_of(policy: Policy, binding: Binding, review: Review, kinds: ParametersOf) -> list[Object | None]:
    """Return the parameters to evaluate the policy with, one by one; [None] if it has none. Raise NotConfigured."""
    kind, reference = policy.parameter_kind, binding.reference
    if kind is None or reference is None:
        return [None]
    source = kinds(kind.get("apiVersion", ""), kind.get("kind", ""))
    if source is None:
        shown = f"{kind.get('apiVersion', '')}, Kind={kind.get('kind', '')}"
        raise PolicyNotConfigured(f"failed to find resource referenced by paramKind: '{shown}'")
    namespace = reference.get("namespace") or ""
    if source.namespaced:
        namespace = namespace or ("" if is_namespace(review.resource) else review.namespace)
        if not namespace:
            raise NotConfigured(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif namespace:
        raise NotConfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    found: list[Object | None]
    if reference.get("name"):
        name = reference["name"]
        one = source.get(f"{namespace}/{name}" if source.namespaced else name)
        found = [one] if one is not None else []
    else:
        selector = from_object(reference.get("selector"))
        found = [
            one for _, one in source.in_namespace(namespace) if selector.matches(one["metadata"].get("labels") or {})
        ]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise NotConfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


class Situation:
    """One write as the expressions of a policy see it."""

    def __init__(self, review: Review, target: Resource, request: Object, namespace: Object | None) -> None:
        self.review = review
        self.target = target
        self.request = request
        self.namespace = namespace

    @classmethod
    async def of(cls, review: Review, target: Resource, namespaces: WatchedObjects) -> Situation:
        new = await shown_in(review.new, review.resource, target)
        old = await shown_in(review.old, review.resource, target)
        request = request_of(review, target, new, old, uid=new_uid())
        namespace = None
        if review.namespace and not is_namespace(review.resource):
            namespace = namespaces.get(review.namespace)
        return cls(review, target, request, namespace)

    def variables(self, oracles: Oracles, params: Object | None) -> dict[str, Any]:
        return bindings(self.review, oracles, request=self.request, params=params, namespace=self.namespace)
