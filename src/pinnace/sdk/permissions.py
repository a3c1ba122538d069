"""Which permissions an operator needs, and in words which one it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pinnace.model import errors
from pinnace.model.objects import Object

READ = ("get", "list", "watch")
MAKE = (*READ, "create", "update", "patch", "delete")

_REFUSED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r"(?P<where>.*?)(?:: |$)"
)


@dataclass(frozen=True, slots=True)
class Permission:
    """What may be done to one resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Only these objects; all if empty."""

    def on_the_wire(self) -> Object:
        rule: Object = {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule

    def __str__(self) -> str:
        verbs = ", ".join(f'"{verb}"' for verb in self.verbs)
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: [{verbs}]}}'


class MissingPermission(Exception):
    """The server forbids what a handler does. The message says which rule would allow it."""


def missing(refusal: errors.Forbidden) -> MissingPermission | None:
    """The rule that a refusal asks for; None if a gate other than RBAC refused."""
    found = _REFUSED.search(refusal.message)
    if found is None:
        return None
    permission = Permission(found["group"], found["resource"], (found["verb"],))
    role = "Role" if "in the namespace" in found["where"] else "ClusterRole"
    return MissingPermission(f"{refusal.message}; add this rule to a {role} of {found['user']}: {permission}")


def merged(permissions: Iterable[Permission]) -> list[Permission]:
    """One permission per resource and set of verbs, each said once, in order."""
    verbs: dict[tuple[str, str], dict[str, None]] = {}
    for one in permissions:
        verbs.setdefault((one.group, one.resource), {}).update(dict.fromkeys(one.verbs))
    return [Permission(group, resource, tuple(known)) for (group, resource), known in sorted(verbs.items())]
