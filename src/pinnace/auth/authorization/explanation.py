"""Explains a denied action and the ways to allow it: bindings to join, roles to bind, a rule to add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pinnace.auth.authorization.rbac import Grant, Rbac
from pinnace.auth.authorization.rules import Rule
from pinnace.model.authorization import Action
from pinnace.model.users import MASTERS, User

_FEW = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    """`allowed_by` is the binding that allows the action, if any; the rest are ways to allow it."""

    allowed_by: str
    held: tuple[Grant, ...]
    """The user's roles there, none of which is sufficient."""
    joinable: tuple[Grant, ...]
    """Bindings that allow it for other users."""
    bindable: tuple[tuple[str, str], ...]
    """Kind and name of the roles that allow it, narrowest first."""
    rule: Rule
    """The least that must be added to a role that is bound to the user."""


def explain(rbac: Rbac, user: User, action: Action) -> Explanation:
    decision = rbac.decide(user, action)
    held = tuple(rbac.grants(user, action.namespace if action.resource else ""))
    allowed_by = decision.reason.removeprefix("RBAC: allowed by ") if decision.is_allowed else ""
    if MASTERS in user.groups:
        allowed_by = f'membership in Group "{MASTERS}"'
    joinable = tuple(
        grant
        for grant in rbac.all_grants()
        if grant.namespace in ("", action.namespace)
        and grant not in held
        and not _is_for_a_controller(grant.binding)
        and any(rule.allows(action) for rule in rbac.rules_of_grant(grant) or ())
    )
    return Explanation(allowed_by, held, joinable[:_FEW], tuple(_bindable(rbac, action))[:_FEW], _least_rule(action))


def _bindable(rbac: Rbac, action: Action) -> Iterator[tuple[str, str]]:
    candidates = []
    for kind, key, rules in rbac.roles():
        namespace, _, name = key.rpartition("/")
        if (namespace and namespace != action.namespace) or _is_for_a_controller(name):
            continue
        if any(rule.allows(action) for rule in rules):
            candidates.append((_is_for_everything(rules), name.startswith("system:"), _breadth(rules), kind, name))
    for _, _, _, kind, name in sorted(candidates):
        yield kind, name


def _is_for_a_controller(name: str) -> bool:
    """Whether a role is made for one part of the system: it is no suggestion for users."""
    return name.startswith(("system:controller:", "system:kube-", "pinnace:"))


def _is_for_everything(rules: tuple[Rule, ...]) -> bool:
    """Whether a role leaves nothing that it does not allow: the last that one should bind."""
    return any("*" in rule.verbs and "*" in rule.groups and "*" in rule.resources for rule in rules)


def _breadth(rules: tuple[Rule, ...]) -> int:
    """Return a rough measure of how much a role allows."""
    many = 1000
    return sum(
        (many if "*" in rule.verbs else len(rule.verbs)) * (many if "*" in rule.resources else len(rule.resources) or 1)
        for rule in rules
    )


def _least_rule(action: Action) -> Rule:
    if not action.resource:
        return Rule((action.verb,), urls=(action.path,))
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    return Rule((action.verb,), (action.group,), (resource,), (action.name,) if action.name else ())
