"""One rule of a role: which verbs on which resources, names and paths."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from pinnace.model import selectors
from pinnace.model.authorization import Action
from pinnace.model.objects import AnyObject, Object
from pinnace.model.typed_objects import PolicyRule

_ALL = "*"
_FEW = 8
"""So many values are found as fast in a tuple as in a set, which takes longer to make."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Compiled for matching when it is made; equal rules say the same in the same order."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    _verbs: Container[str] | None = field(init=False, repr=False, compare=False)
    _groups: Container[str] | None = field(init=False, repr=False, compare=False)
    _resources: Container[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_verbs", _compile(self.verbs))
        object.__setattr__(self, "_groups", _compile(self.groups))
        object.__setattr__(self, "_resources", _compile(self.resources))

    @classmethod
    def of(cls, rule: AnyObject) -> Rule:
        rule = cast("PolicyRule", rule)
        return cls(
            tuple(rule.get("verbs") or ()),
            tuple(rule.get("apiGroups") or ()),
            tuple(rule.get("resources") or ()),
            tuple(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
        )

    def applies_to(self, action: Action) -> bool:
        """Whether the rule allows the action, if it is on one of the rule's names where it has some."""
        if self._verbs is not None and action.verb not in self._verbs:
            return False
        if not action.resource:
            return any(_url_covers(url, action.path) for url in self.urls)
        if self._groups is not None and action.group not in self._groups:
            return False
        resources = self._resources
        if resources is None:
            return True
        if not action.subresource:
            return action.resource in resources
        return f"{action.resource}/{action.subresource}" in resources or f"*/{action.subresource}" in resources

    def allows(self, action: Action) -> bool:
        return self.applies_to(action) and (not action.resource or not self.names or action.name in self.names)

    def part_of(self, box: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        """Return the part that this rule allows of a box of verbs, groups, resources and names, or of verbs and paths.

        If it allows none of one dimension, it allows nothing of the box. The name of objects without one is "".
        """
        verbs, *places = box
        if self._verbs is not None:
            verbs = tuple(verb for verb in verbs if verb in self._verbs)
        if not verbs:
            return (verbs,)
        if len(places) == 1:
            return verbs, tuple(path for path in places[0] if any(_url_covers(url, path) for url in self.urls))
        groups, resources, names = places
        if self.urls:
            return ((),)
        if self._groups is not None:
            groups = tuple(group for group in groups if group in self._groups)
        if self._resources is not None and groups:
            resources = tuple(resource for resource in resources if self._covers_resource(resource))
        if self.names and groups and resources:
            known = frozenset(self.names)
            names = tuple(name for name in names if name in known)
        return verbs, groups, resources, names

    def _covers_resource(self, resource: str) -> bool:
        if self._resources is None or resource in self._resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self._resources

    def __str__(self) -> str:
        """As a refusal shows it."""
        parts = {
            "APIGroups": self.groups,
            "Resources": self.resources,
            "NonResourceURLs": self.urls,
            "ResourceNames": self.names,
            "Verbs": self.verbs,
        }
        return "{" + ", ".join(f"{name}:{quoted(values)}" for name, values in parts.items() if values) + "}"

    @property
    def on_the_wire(self) -> Object:
        rule: Object = {"verbs": list(self.verbs)}
        parts = {
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.urls,
        }
        return rule | {name: list(values) for name, values in parts.items() if values}


def _compile(values: tuple[str, ...]) -> Container[str] | None:
    """Return the values for lookups; None for all values."""
    if _ALL in values:
        return None
    return values if len(values) <= _FEW else frozenset(values)


def rules_of(role: AnyObject) -> tuple[Rule, ...]:
    return tuple(Rule.of(rule) for rule in role.get("rules") or ())


def quoted(values: Iterable[str]) -> str:
    """Return a list of texts as Go prints it with %q."""
    return "[" + " ".join(json.dumps(value, ensure_ascii=False) for value in values) + "]"


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith(_ALL) and path.startswith(url.rstrip(_ALL)))


def aggregate_rules(role: AnyObject, roles: Iterable[AnyObject]) -> list[Object] | None:
    """Return the rules of all roles that the role's selectors match, each once, by role name; None without selectors.

    `roles` may contain the role itself, which is left out.
    """
    if not aggregation_selectors(role):
        return None
    return unite_rules(chosen for chosen in choose_roles(role, roles) if chosen is not None)


def aggregation_selectors(role: AnyObject) -> Sequence[Object]:
    """Return the selectors by which a role chooses others, whose rules it has."""
    return (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()


def choose_roles(role: AnyObject, roles: Iterable[AnyObject]) -> Iterator[AnyObject | None]:
    """Yield each role that a selector matches, once. Yield None at every other step: there may be millions."""
    others = sorted(roles, key=lambda other: str(other["metadata"]["name"]))
    chosen = {role["metadata"]["name"]}
    for wanted in aggregation_selectors(role):
        selector = selectors.from_object(wanted)
        for other in others:
            name, labels = other["metadata"]["name"], other["metadata"].get("labels") or {}
            if name not in chosen and selector.matches(labels):
                chosen.add(name)
                yield other
            else:
                yield None


def unite_rules(roles: Iterable[AnyObject]) -> list[Object]:
    """Return the rules of roles, each once."""
    rules: dict[tuple[tuple[str, tuple[str, ...]], ...], Object] = {}
    for role in roles:
        for rule in role.get("rules") or ():
            rules.setdefault(tuple((name, tuple(rule[name] or ())) for name in sorted(rule)), rule)
    return list(rules.values())
