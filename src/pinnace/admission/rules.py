"""Match writes with the rules and selectors of a webhook or policy, in any version of the resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pinnace.model import errors
from pinnace.model.objects import Object, deep_copy
from pinnace.model.resources import Resource
from pinnace.model.selectors import LabelSelector, from_object
from pinnace.model.typed_objects import NamedRuleWithOperations, RuleWithOperations
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    (
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
)
_QUESTIONS = frozenset(
    (
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    )
)

AnyRule = RuleWithOperations | NamedRuleWithOperations
Equivalents = Callable[[Resource], Iterable[Resource]]
"""The other versions in which the objects of a resource are served."""


def is_static(obj: Object) -> bool:
    """Return whether a configuration comes from a file of the server: each object of the API has a uid."""
    return "uid" not in obj["metadata"]


def static_first(item: tuple[str, Object]) -> tuple[bool, str]:
    """Return the sort key of a name and its configuration."""
    name, obj = item
    return not is_static(obj), name


def is_exempt(resource: Resource) -> bool:
    """Return whether a resource configures webhooks or policies. Only those of files review it: a bad one must be
    repairable."""
    return resource.group == GROUP and resource.plural in _EXEMPT


def is_question(resource: Resource) -> bool:
    """Return whether a resource is a review of access or identity. Policies skip it: one could lock all users out."""
    return (resource.group, resource.plural) in _QUESTIONS


class Scope(NamedTuple):
    """The part of a review that rules match; selectors are evaluated for each review."""

    resource: Resource
    subresource: str
    operation: str


@dataclass(frozen=True, slots=True)
class Matcher:
    """The rules of one webhook, policy or binding, compiled."""

    rules: Sequence[AnyRule]
    exclusions: Sequence[AnyRule]
    namespaces: LabelSelector
    objects: LabelSelector
    takes_equivalents: bool
    names_matter: bool = field(default=False)

    @classmethod
    def read(cls, constraints: Mapping[str, Any], *, rules: str = "rules") -> Matcher:
        included, excluded = constraints.get(rules) or (), constraints.get("excludeResourceRules") or ()
        return cls(
            rules=included,
            exclusions=excluded,
            namespaces=from_object(constraints.get("namespaceSelector") or {}),
            objects=from_object(constraints.get("objectSelector") or {}),
            takes_equivalents=constraints.get("matchPolicy", "Equivalent") == "Equivalent",
            names_matter=any(rule.get("resourceNames") for rule in (*included, *excluded)),
        )

    def target(self, scope: Scope, equivalents: Equivalents, *, name: str = "") -> Resource | None:
        """Return the version in which the webhook or policy gets the object; None if its rules do not match."""
        if self._find(self.exclusions, scope, equivalents, name) is not None:
            return None
        return self._find(self.rules, scope, equivalents, name)

    def _find(self, rules: Sequence[AnyRule], scope: Scope, equivalents: Equivalents, name: str) -> Resource | None:
        if any(_matches(rule, scope.resource, scope, name) for rule in rules):
            return scope.resource
        if self.takes_equivalents:
            others = [other for other in equivalents(scope.resource) if other.kind != scope.resource.kind]
            for rule in rules:
                for other in others:
                    if _matches(rule, other, scope, name):
                        return other
        return None

    def selects(self, review: Review, namespaces: WatchedObjects) -> bool:
        """Return whether the selectors match the labels of the object and of its namespace."""
        if not self.objects.matches_everything and not any(
            self.objects.matches(obj["metadata"].get("labels") or {})
            for obj in (review.new, review.old)
            if obj is not None and "metadata" in obj
        ):
            return False
        if self.namespaces.matches_everything:
            return True
        labels = namespace_labels(review, namespaces)
        return labels is None or self.namespaces.matches(labels)


Entry = TypeVar("Entry")
Match = tuple[Entry, Resource]
"""A webhook or policy, and the version in which it gets the object."""


class MatchTable(Generic[Entry]):
    """Webhooks or policies, by the writes that their rules match: read when first needed, again after a change."""

    def __init__(self, *sources: WatchedObjects, equivalents: Equivalents, revision: Callable[[], int]) -> None:
        """`revision` changes with the kinds that are served, and so with the versions that are equivalent."""
        self._equivalents = equivalents
        self._revision = revision
        self._entries: tuple[Entry, ...] | None = None
        self._known: dict[tuple[str, str, str, str, str], list[Match[Entry]]] = {}
        self._known_at = -1
        self._listeners: list[Callable[[], None]] = []
        for source in sources:
            source.on_change(self._forget)

    def is_empty(self) -> bool:
        return not self._all()

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call back at every change of a source."""
        self._listeners.append(changed)

    def matching(self, resource: Resource, subresource: str, operation: str) -> list[Match[Entry]]:
        """Return the entries whose rules match this write. The list is shared: do not change it."""
        entries = self._entries if self._entries is not None else self._all()
        if not entries:
            return []
        if self._known_at != self._revision():
            self._known.clear()
            self._known_at = self._revision()
        place = (resource.group, resource.version, resource.plural, subresource, operation)
        matches = self._known.get(place)
        if matches is None:
            scope = Scope(resource, subresource, operation)
            matches = self._known[place] = list(self._select(self._reviewers(entries, resource), scope))
        return matches

    def _reviewers(self, entries: Iterable[Entry], resource: Resource) -> Iterable[Entry]:
        """Return the entries that may review a resource at all."""
        if self._skips(resource):
            return ()
        return filter(self._is_static, entries) if is_exempt(resource) else entries

    def _is_static(self, entry: Entry) -> bool:
        raise NotImplementedError

    def _read(self) -> Iterable[Entry]:
        raise NotImplementedError

    def _matcher_of(self, entry: Entry) -> Matcher:
        raise NotImplementedError

    def _skips(self, resource: Resource) -> bool:
        return False

    def _select(self, entries: Iterable[Entry], scope: Scope) -> Iterator[Match[Entry]]:
        for entry in entries:
            if (target := self._matcher_of(entry).target(scope, self._equivalents)) is not None:
                yield entry, target

    def _all(self) -> tuple[Entry, ...]:
        if self._entries is None:
            self._entries = tuple(self._read())
        return self._entries

    def _forget(self, key: str) -> None:
        self._entries = None
        self._known.clear()
        for changed in self._listeners:
            changed()


def namespace_labels(review: Review, namespaces: WatchedObjects) -> Mapping[str, str] | None:
    """Return the labels of the namespace of a write; None for cluster-scoped objects."""
    if is_namespace(review.resource):
        obj = review.new or review.old or {"metadata": {}}
        return obj["metadata"].get("labels") or {}
    if not review.namespace:
        return None
    stored = namespaces.get(review.namespace)
    if stored is None:
        raise errors.NotFound(group="", plural="namespaces", name=review.namespace)
    return stored["metadata"].get("labels") or {}


def is_namespace(resource: Resource) -> bool:
    return resource.plural == "namespaces" and not resource.group


def request_namespace(review: Review) -> str:
    """Return the namespace of a write; a Namespace counts as inside itself."""
    return review.name if is_namespace(review.resource) else review.namespace


def _matches(rule: AnyRule, resource: Resource, scope: Scope, name: str) -> bool:
    if not _has(rule.get("operations"), scope.operation) or not _has(rule.get("apiGroups"), resource.group):
        return False
    if not _has(rule.get("apiVersions"), resource.version):
        return False
    wanted = rule.get("scope") or "*"
    if wanted != "*" and (wanted == "Namespaced") is not resource.namespaced:
        return False
    if (named := cast("NamedRuleWithOperations", rule).get("resourceNames")) and name not in named:
        return False
    for resources in rule.get("resources") or ():
        plural, _, subresource = resources.partition("/")
        if plural in ("*", resource.plural) and subresource in ("*", scope.subresource):
            return True
    return False


def _has(values: Sequence[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


async def convert_for_review(obj: Object | None, resource: Resource, target: Resource) -> Object | None:
    """Return a copy of a review's object in the version of the target."""
    if obj is None:
        return None
    converted_obj = deep_copy(obj)
    if is_message(converted_obj, resource):
        return converted_obj
    if target.custom is not None:
        if converted_obj.get("apiVersion") != target.kind.api_version:
            converted = target.custom.to_served([converted_obj])
            converted_obj = (converted if isinstance(converted, list) else await converted)[0]
        return converted_obj
    return to_version(converted_obj, target)


def to_version(obj: Object, resource: Resource) -> Object:
    """Convert a stored object of a built-in kind. May change the given object."""
    if resource.kind != resource.stored and resource.is_converted:
        obj = resource.from_stored(obj)
    obj["apiVersion"], obj["kind"] = resource.kind.api_version, resource.kind.name
    return obj


def is_message(obj: Object, resource: Resource) -> bool:
    """Return whether a body is of another kind than the resource: the binding of a pod, or the options of exec."""
    return obj.get("kind") not in (None, resource.kind.name, resource.stored.name)


async def put_back(changed: Object, review: Review, target: Resource) -> None:
    """Copy the changed object from the webhook's version back into the review."""
    new = review.changed
    if is_message(new, review.resource):
        new.clear()
        new.update(changed)
        return
    if target.custom is not None:
        if changed.get("apiVersion") != new.get("apiVersion") and review.resource.custom is not None:
            converted = review.resource.custom.to_served([changed])
            changed = (converted if isinstance(converted, list) else await converted)[0]
    else:
        if target.kind != target.stored and target.is_converted:
            changed = target.to_stored(changed)
        for name in ("apiVersion", "kind"):
            if name in new:
                changed[name] = new[name]
            else:
                changed.pop(name, None)
    new.clear()
    new.update(changed)
