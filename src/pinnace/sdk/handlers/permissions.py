"""The RBAC rules that an operator needs, and the message that names a missing one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pinnace.model import errors
from pinnace.model.objects import Object

READ = ("get", "list", "watch")
MAKE = (*READ, "create", "update", "patch", "delete")
APPLY = ("create", "patch")
"""The verbs that apply needs, since the object may or may not exist."""
OWN = ("update",)
"""The verb on the owner's finalizers that an owner reference with blockOwnerDeletion needs."""

_DENIED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r"(?P<where>.*?)(?:: |$)"
)
_CANNOT_OWN = "cannot set blockOwnerDeletion"


@dataclass(frozen=True, slots=True)
class Permission:
    """The verbs that are allowed on one resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Only the objects with these names; all if empty."""

    def to_rule(self) -> Object:
        rule: Object = {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule

    def __str__(self) -> str:
        verbs = ", ".join(f'"{verb}"' for verb in self.verbs)
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: [{verbs}]}}'


class MissingPermission(Exception):
    """The server forbids a handler's request. The message names the rule that would allow it."""


class ApplyForbidden(errors.Forbidden):
    """An apply was denied. The server's message names only the verb that it checked first; `rules` are all it needs."""

    def __init__(self, denied: errors.Forbidden, rules: Sequence[Permission]) -> None:
        # It carries the server's message unchanged, which the parent's constructor would format anew.
        errors.ApiError.__init__(self, denied.message, details=denied.details)
        self.rules = tuple(rules)


def missing_permission(denied: errors.Forbidden, declared: Sequence[Permission] = ()) -> MissingPermission | None:
    """Return an error that names the missing rules; None if something other than RBAC denied the request.

    The rules include the verbs that are `declared` for these resources: otherwise the next verb would be denied next.
    """
    match = _DENIED.search(denied.message)
    rules = denied.rules if isinstance(denied, ApplyForbidden) else ()
    if match is not None:
        rules = rules or (Permission(match["group"], match["resource"], (match["verb"],)),)
        whose = f"a {'Role' if 'in the namespace' in match['where'] else 'ClusterRole'} of {match['user']}"
    elif rules and _CANNOT_OWN in denied.message:
        whose = "its role"
    else:
        return None
    wanted = [rule_for(rule.group, rule.resource, rule.verbs, declared) for rule in rules]
    what = "this rule" if len(wanted) == 1 else "these rules"
    return MissingPermission(f"{denied.message}; add {what} to {whose}: {', '.join(str(rule) for rule in wanted)}")


def rule_for(group: str, resource: str, verbs: Iterable[str], declared: Iterable[Permission]) -> Permission:
    """Return a permission for these verbs and those declared for all objects of the resource, in the usual order."""
    known = [
        permission
        for permission in declared
        if (permission.group, permission.resource, permission.names) == (group, resource, ())
    ]
    wanted = dict.fromkeys([*verbs, *(verb for permission in known for verb in permission.verbs)])
    ordered = [verb for verb in MAKE if verb in wanted] + [verb for verb in wanted if verb not in MAKE]
    return Permission(group, resource, tuple(ordered))


def merge(permissions: Iterable[Permission]) -> list[Permission]:
    """Return one permission per resource with all of its verbs, sorted by group and resource."""
    verbs: dict[tuple[str, str], dict[str, None]] = {}
    for permission in permissions:
        verbs.setdefault((permission.group, permission.resource), {}).update(dict.fromkeys(permission.verbs))
    return [Permission(group, resource, tuple(known)) for (group, resource), known in sorted(verbs.items())]
