"""RBAC: roles and bindings indexed by subject, and the decision for one action."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from pinnace.auth.authorization.nodes import node_name
from pinnace.auth.authorization.rules import Rule, rules_of
from pinnace.model.authorization import NO_OPINION, Action, Decision
from pinnace.model.objects import NOTHING, AnyObject
from pinnace.model.typed_objects import RoleRef, Subject
from pinnace.model.users import User, service_account_name
from pinnace.model.watched_objects import WatchedObjects

_USERS_REMEMBERED = 10_000
_ACTIONS_REMEMBERED = 5_000
"""The most decisions that are remembered for one user. When there are more, all are forgotten."""
_ROLE_KINDS = {"Role": "role", "ClusterRole": "clusterrole"}
_GROUP = "rbac.authorization.k8s.io"

_Subject = tuple[str, str]  # Its kind and name.


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, bound to a subject in a namespace, or everywhere if that is empty."""

    binding: str
    namespace: str
    role_kind: str
    role: str
    subject: str
    """The subject in messages, such as Group "developers"."""

    @property
    def role_key(self) -> str:
        return f"{self.namespace}/{self.role}" if self.role_kind == "Role" else self.role

    def __str__(self) -> str:
        if self.namespace:
            binding = f'RoleBinding "{self.binding}/{self.namespace}"'
        else:
            binding = f'ClusterRoleBinding "{self.binding}"'
        return f'{binding} of {self.role_kind} "{self.role}" to {self.subject}'


_Outcome = Decision | list[tuple[frozenset[str], Decision]]
"""The decision for an action. If it depends on the object's name: the names with their decisions, the best first."""


class _Held:
    """The rules that one subject holds in one place, found by the resource that they are about."""

    __slots__ = ("_by_resource", "_count", "missing")

    def __init__(self) -> None:
        self._by_resource: dict[str, list[tuple[int, Grant, Rule]]] = {}
        self._count = 0
        self.missing: dict[str, None] = {}
        """Messages about roles that are bound but do not exist."""

    def add(self, grant: Grant, rules: tuple[Rule, ...] | None) -> None:
        if rules is None:
            self.missing[f'{_ROLE_KINDS[grant.role_kind]}.{_GROUP} "{grant.role}" not found'] = None
            return
        for rule in rules:
            self._count += 1
            for resource in dict.fromkeys((*rule.resources, *(("",) if rule.urls else ()))):
                self._by_resource.setdefault(resource, []).append((self._count, grant, rule))

    def about(self, action: Action) -> Iterator[tuple[Grant, Rule]]:
        """Yield the rules that may apply to an action, in the order of their bindings."""
        if not action.resource:
            places: tuple[str, ...] = ("",)
        elif action.subresource:
            places = (f"{action.resource}/{action.subresource}", f"*/{action.subresource}", "*")
        else:
            places = (action.resource, "*")
        matching = [self._by_resource[place] for place in places if place in self._by_resource]
        for _, grant, rule in (
            matching[0] if len(matching) == 1 else sorted(itertools.chain(*matching), key=itemgetter(0))
        ):
            yield grant, rule


class Rbac:
    """Decides by roles. Follows every change at once; decisions are remembered until something changes."""

    def __init__(
        self,
        *,
        roles: WatchedObjects,
        cluster_roles: WatchedObjects,
        bindings: WatchedObjects,
        cluster_bindings: WatchedObjects,
    ) -> None:
        self._roles = {"Role": roles, "ClusterRole": cluster_roles}
        self._rules: dict[tuple[str, str], tuple[Rule, ...] | None] = {}
        self._grants: dict[_Subject, dict[str, dict[str, Grant]]] = {}  # By subject, namespace and binding.
        self._subjects: dict[tuple[str, str], list[_Subject]] = {}  # By namespace and binding.
        self._indexed: dict[tuple[_Subject, str], _Held] = {}  # Of those that have been asked about.
        self._known: dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], _Outcome]] = {}
        for source in (bindings, cluster_bindings):
            for key, binding in source.items():
                self._bound(key, binding)
        bindings.on_change(lambda key: self._bound(key, bindings.get(key)))
        cluster_bindings.on_change(lambda key: self._bound(key, cluster_bindings.get(key)))
        roles.on_change(lambda key: self._role_changed("Role", key))
        cluster_roles.on_change(lambda key: self._role_changed("ClusterRole", key))

    def decide(self, user: User, action: Action) -> Decision:
        who = (user.name, user.groups)
        known = self._known.get(who)
        if known is None:
            if len(self._known) >= _USERS_REMEMBERED:
                self._known.clear()
            known = self._known[who] = {}
        what = action[:6]  # The names and versions of objects make no difference, except in rules that name objects.
        decisions = known.get(what)
        if decisions is None:
            if len(known) >= _ACTIONS_REMEMBERED:
                known.clear()
            decisions = known[what] = self._find(user, action)
        if isinstance(decisions, Decision):
            return decisions
        for names, decision in decisions:
            if not names or action.name in names:
                return decision
        return NO_OPINION

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """Yield the bindings of a user, cluster-wide and in a namespace."""
        subjects = (("User", user.name), *(("Group", group) for group in user.groups))
        for where in ("", namespace) if namespace else ("",):
            for subject in subjects:
                places = self._grants.get(subject)
                if places is not None and where in places:
                    yield from places[where].values()

    def all_grants(self) -> Iterator[Grant]:
        for places in self._grants.values():
            for bindings in places.values():
                yield from bindings.values()

    def rules_of_grant(self, grant: Grant) -> tuple[Rule, ...] | None:
        """Return the rules of a granted role; None if there is no such role."""
        return self.rules_of_role(grant.role_kind, grant.role_key)

    def rules_of_role(self, kind: str, key: str) -> tuple[Rule, ...] | None:
        place = (kind, key)
        if place not in self._rules:
            role = self._roles[kind].get(key)
            self._rules[place] = rules_of(role) if role is not None else None
        return self._rules[place]

    def rules_for(self, user: User, namespace: str) -> list[Rule]:
        """Return every rule that applies to a user in a namespace."""
        return [rule for grant in self.grants(user, namespace) for rule in self.rules_of_grant(grant) or ()]

    def roles(self) -> Iterator[tuple[str, str, tuple[Rule, ...]]]:
        """Yield every role with its kind, key and rules."""
        for kind, source in self._roles.items():
            for key, role in source.items():
                yield kind, key, rules_of(role)

    def _find(self, user: User, action: Action) -> _Outcome:
        by_name: list[tuple[frozenset[str], Decision]] = []
        missing: dict[str, None] = {}
        for held in self._held(user, action.namespace if action.resource else ""):
            missing |= held.missing
            for grant, rule in held.about(action):
                if not rule.applies_to(action):
                    continue
                decision = Decision("allow", f"RBAC: allowed by {grant}")
                if rule.names and action.resource:
                    by_name.append((frozenset(rule.names), decision))
                elif by_name:
                    return [*by_name, (frozenset(), decision)]
                else:
                    return decision
        refused = NO_OPINION
        if missing:
            messages = list(missing)
            refused = Decision(
                "no opinion", f"RBAC: {messages[0] if len(messages) == 1 else '[' + ', '.join(messages) + ']'}"
            )
        return [*by_name, (frozenset(), refused)] if by_name else refused

    def _held(self, user: User, namespace: str) -> Iterator[_Held]:
        """Yield the rules of each of a user's subjects, cluster-wide and in a namespace."""
        subjects = (("User", user.name), *(("Group", group) for group in user.groups))
        for where in ("", namespace) if namespace else ("",):
            for subject in subjects:
                places = self._grants.get(subject)
                if places is None or where not in places:
                    continue
                held = self._indexed.get((subject, where))
                if held is None:
                    held = self._indexed[(subject, where)] = _Held()
                    for grant in places[where].values():
                        held.add(grant, self.rules_of_grant(grant))
                yield held

    # Changes.

    def _role_changed(self, kind: str, key: str) -> None:
        self._rules.pop((kind, key), None)
        self._known.clear()
        self._indexed.clear()

    def _bound(self, key: str, binding: AnyObject | None) -> None:
        namespace, _, name = key.rpartition("/")
        self._known.clear()
        for subject in self._subjects.pop((namespace, name), ()):
            places = self._grants[subject]
            self._indexed.pop((subject, namespace), None)
            del places[namespace][name]
            if not places[namespace]:
                del places[namespace]
            if not places:
                del self._grants[subject]
        if binding is None:
            return
        role: RoleRef = binding.get("roleRef") or NOTHING
        if role.get("kind") not in _ROLE_KINDS:
            return
        subjects: dict[_Subject, str] = {}
        for given in binding.get("subjects") or ():
            subject, description = _subject(given, namespace)
            subjects.setdefault(subject, description)
        for subject, description in subjects.items():
            grant = Grant(name, namespace, role["kind"], role.get("name", ""), description)
            self._grants.setdefault(subject, {}).setdefault(namespace, {})[name] = grant
            self._indexed.pop((subject, namespace), None)
        self._subjects[(namespace, name)] = list(subjects)


def _subject(given: Subject, namespace: str) -> tuple[_Subject, str]:
    kind, name = given.get("kind", ""), given.get("name", "")
    if kind == "ServiceAccount":
        where = given.get("namespace") or namespace
        return ("User", service_account_name(where, name)), f'ServiceAccount "{name}/{where}"'
    return (kind, name), f'{kind} "{name}"'


class HeldRules:
    """The rules that a user holds by roles. Those of nodes, and the decisions of a webhook, are not rules."""

    def __init__(self, rbac: Rbac, *, has_webhook: Callable[[], bool]) -> None:
        self._rbac = rbac
        self._has_webhook = has_webhook

    def rules_for(self, user: User, namespace: str) -> list[Rule]:
        return self._rbac.rules_for(user, namespace)

    def unknown_for(self, user: User) -> str:
        """Return why the rules may be incomplete; empty if they are complete."""
        others = ["node"] if node_name(user) is not None else []
        others += ["webhook"] if self._has_webhook() else []
        reasons = [f"{other} authorizer does not support user rule resolution" for other in others]
        return reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]" if reasons else ""
