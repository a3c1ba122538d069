"""Which writes a webhook or policy is about: rules, the versions of a kind that are one, and selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pinnace.admission.chain import Review
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.model.selectors import LabelSelector, from_object
from pinnace.model.watched_objects import WatchedObjects

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

Equivalents = Callable[[Resource], Iterable[Resource]]
"""The other versions in which the objects of a resource are served."""


def is_exempt(resource: Resource) -> bool:
    """Webhooks and policies are never called for their own configurations: a bad one could not be repaired."""
    return resource.group == GROUP and resource.plural in _EXEMPT


def is_question(resource: Resource) -> bool:
    """Webhooks are asked about questions too; policies are not, since one of them could lock everybody out."""
    return (resource.group, resource.plural) in _QUESTIONS


class Scope(NamedTuple):
    """The part of a review that rules match; selectors are evaluated for each review."""

    resource: Resource
    subresource: str
    operation: str


@dataclass(frozen=True, slots=True)
class Matcher:
    """The rules of one webhook, policy or binding, compiled."""

    rules: Sequence[Mapping[str, Any]]
    exclusions: Sequence[Mapping[str, Any]]
    namespaces: LabelSelector
    objects: LabelSelector
    takes_equivalents: bool
    names_matter: bool = field(default=False)

    @classmethod
    def read(cls, said: Mapping[str, Any], *, rules: str = "rules") -> Matcher:
        included, excluded = said.get(rules) or (), said.get("excludeResourceRules") or ()
        return cls(
            rules=included,
            exclusions=excluded,
            namespaces=from_object(said.get("namespaceSelector") or {}),
            objects=from_object(said.get("objectSelector") or {}),
            takes_equivalents=said.get("matchPolicy", "Equivalent") == "Equivalent",
            names_matter=any(rule.get("resourceNames") for rule in (*included, *excluded)),
        )

    def target(self, scope: Scope, equivalents: Equivalents, *, name: str = "") -> Resource | None:
        """Return the version in which the webhook or policy gets the object; None if its rules do not match."""
        if self._find(self.exclusions, scope, equivalents, name) is not None:
            return None
        return self._find(self.rules, scope, equivalents, name)

    def _find(
        self, rules: Sequence[Mapping[str, Any]], scope: Scope, equivalents: Equivalents, name: str
    ) -> Resource | None:
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
        """Whether the labels of the object and of its namespace are those that are meant."""
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


def namespace_labels(review: Review, namespaces: WatchedObjects) -> Mapping[str, str] | None:
    """Return the labels of the namespace of a write; None for cluster-scoped objects."""
    if is_namespace(review.resource):
        obj = review.new or review.old or {"metadata": {}}
        return obj["metadata"].get("labels") or {}
    if not review.namespace:
        return None
    found = namespaces.get(review.namespace)
    if found is None:
        raise errors.NotFound(group="", plural="namespaces", name=review.namespace)
    return found["metadata"].get("labels") or {}


def is_namespace(resource: Resource) -> bool:
    return resource.plural == "namespaces" and not resource.group


def request_namespace(review: Review) -> str:
    """Return the namespace of a write; a Namespace counts as inside itself."""
    return review.name if is_namespace(review.resource) else review.namespace


def _matches(rule: Mapping[str, Any], resource: Resource, scope: Scope, name: str) -> bool:
    if not _has(rule.get("operations"), scope.operation) or not _has(rule.get("apiGroups"), resource.group):
        return False
    if not _has(rule.get("apiVersions"), resource.version):
        return False
    wanted = rule.get("scope") or "*"
    if wanted != "*" and (wanted == "Namespaced") is not resource.namespaced:
        return False
    if (named := rule.get("resourceNames")) and name not in named:
        return False
    for said in rule.get("resources") or ():
        plural, _, subresource = said.partition("/")
        if plural in ("*", resource.plural) and subresource in ("*", scope.subresource):
            return True
    return False


def _has(values: Sequence[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


async def shown_in(obj: Object | None, resource: Resource, target: Resource) -> Object | None:
    """Return a copy of a review's object in the version of the target."""
    if obj is None:
        return None
    shown = copied(obj)
    if is_message(shown, resource):
        return shown
    if target.custom is not None:
        if shown.get("apiVersion") != target.kind.api_version:
            converted = target.custom.to_served([shown])
            shown = (converted if isinstance(converted, list) else await converted)[0]
        return shown
    if target.kind != target.stored and target.is_converted:
        shown = target.from_stored(shown)
    shown["apiVersion"], shown["kind"] = target.kind.api_version, target.kind.name
    return shown


def is_message(obj: Object, resource: Resource) -> bool:
    """Whether it is not the resource's own kind that travels: a binding of a pod, or the options of a command."""
    return obj.get("kind") not in (None, resource.kind.name, resource.stored.name)


async def put_back(shown: Object, review: Review, target: Resource) -> None:
    """Make the review's object what was shown of it, and changed there."""
    new = review.changed
    if is_message(new, review.resource):
        new.clear()
        new.update(shown)
        return
    if target.custom is not None:
        if shown.get("apiVersion") != new.get("apiVersion") and review.resource.custom is not None:
            converted = review.resource.custom.to_served([shown])
            shown = (converted if isinstance(converted, list) else await converted)[0]
    else:
        if target.kind != target.stored and target.is_converted:
            shown = target.to_stored(shown)
        for name in ("apiVersion", "kind"):
            if name in new:
                shown[name] = new[name]
            else:
                shown.pop(name, None)
    new.clear()
    new.update(shown)


def copied(value: Object) -> Object:
    """Deep enough to be changed."""

    def copy(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {name: copy(one) for name, one in inner.items()}
        if isinstance(inner, list):
            return [copy(one) for one in inner]
        return inner

    return {name: copy(inner) for name, inner in value.items()}
