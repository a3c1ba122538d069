"""One rule of a role: which verbs on which resources, names and paths; and whether some rules cover others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pinnace.auth.authorization.authorizers import Action
from pinnace.model.objects import Object

_ALL = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """Compiled for matching when it is made; equal rules say the same in the same order."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    _verbs: frozenset[str] | None = field(init=False, repr=False, compare=False)
    _groups: frozenset[str] | None = field(init=False, repr=False, compare=False)
    _resources: frozenset[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("verbs", "groups", "resources"):
            values = getattr(self, name)
            object.__setattr__(self, f"_{name}", None if _ALL in values else frozenset(values))

    @classmethod
    def of(cls, rule: Object) -> Rule:
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

    def covers(self, part: Rule) -> bool:
        """Whether all that `part` allows is allowed by this rule; `part` names one resource or path."""
        if self._verbs is not None and not self._verbs.issuperset(part.verbs):
            return False
        if part.urls:
            return all(any(_url_covers(url, wanted) for url in self.urls) for wanted in part.urls)
        if self.urls or (self._groups is not None and not self._groups.issuperset(part.groups)):
            return False
        if self.names and not (part.names and set(part.names) <= set(self.names)):
            return False
        return all(self._covers_resource(resource) for resource in part.resources)

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
        shown: Object = {"verbs": list(self.verbs)}
        parts = {
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.urls,
        }
        return shown | {name: list(values) for name, values in parts.items() if values}


def rules_of(role: Object) -> tuple[Rule, ...]:
    return tuple(Rule.of(rule) for rule in role.get("rules") or ())


def missing_from(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the wanted rules that are not held, one resource or path at a time, in the order of messages."""
    missing: dict[tuple[str, str, str], list[str]] = {}
    paths: list[Rule] = []
    for rule in wanted:
        for part in _parts(rule):
            if any(own.covers(part) for own in held):
                continue
            if part.urls:
                paths.append(part)
                continue
            verbs = missing.setdefault((part.groups[0], part.resources[0], part.names[0] if part.names else ""), [])
            verbs += [verb for verb in part.verbs if verb not in verbs]
    resources = [
        Rule(tuple(verbs), (group,), (resource,), (name,) if name else ())
        for (group, resource, name), verbs in missing.items()
    ]
    return sorted([*resources, *dict.fromkeys(paths)], key=str)


def quoted(values: Iterable[str]) -> str:
    """Return a list of texts as Go prints it with %q."""
    return "[" + " ".join(json.dumps(value, ensure_ascii=False) for value in values) + "]"


def _parts(rule: Rule) -> Iterable[Rule]:
    """Yield the parts of the rule: one verb on one resource and name, or on one path."""
    for url in rule.urls:
        for verb in rule.verbs:
            yield Rule((verb,), urls=(url,))
    for group in rule.groups:
        for resource in rule.resources:
            for name in rule.names or ("",):
                for verb in rule.verbs:
                    yield Rule((verb,), (group,), (resource,), (name,) if name else ())


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith(_ALL) and path.startswith(url.rstrip(_ALL)))
