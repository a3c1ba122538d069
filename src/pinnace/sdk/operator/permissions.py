"""Which permissions an operator needs, and in words which one it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pinnace.model import errors
from pinnace.model.objects import Object

READ = ("get", "list", "watch")
MAKE = (*READ, "create", "update", "patch", "delete")
APPLY = ("create", "patch")
"""What it takes to apply an object: it may be there, or not."""
OWN = ("update",)
"""What it takes, of the owner's finalizers, to own with blockOwnerDeletion."""

_REFUSED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r"(?P<where>.*?)(?:: |$)"
)
_MAY_NOT_OWN = "cannot set blockOwnerDeletion"


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


class MayNotApply(errors.Forbidden):
    """An apply was refused. The server names but the verb that it asked about first; these are all rules it takes."""

    def __init__(self, refusal: errors.Forbidden, rules: Sequence[Permission]) -> None:
        # It says what the server said, and is not built as its parent is.
        errors.ApiError.__init__(self, refusal.message, details=refusal.details)
        self.rules = tuple(rules)


def missing(refusal: errors.Forbidden, declared: Sequence[Permission] = ()) -> MissingPermission | None:
    """All rules that a refusal asks for; None if a gate refused that no rule opens.

    With all that was `declared` to be needed of these resources: else the next verb would be refused next.
    """
    found = _REFUSED.search(refusal.message)
    rules = refusal.rules if isinstance(refusal, MayNotApply) else ()
    if found is not None:
        rules = rules or (Permission(found["group"], found["resource"], (found["verb"],)),)
        whose = f"a {'Role' if 'in the namespace' in found['where'] else 'ClusterRole'} of {found['user']}"
    elif rules and _MAY_NOT_OWN in refusal.message:
        whose = "its role"
    else:
        return None
    wanted = [rule_for(one.group, one.resource, one.verbs, declared) for one in rules]
    what = "this rule" if len(wanted) == 1 else "these rules"
    return MissingPermission(f"{refusal.message}; add {what} to {whose}: {', '.join(str(one) for one in wanted)}")


def rule_for(group: str, resource: str, verbs: Iterable[str], declared: Iterable[Permission]) -> Permission:
    """These verbs on a resource, and those that are declared for all of its objects, in the usual order."""
    known = [one for one in declared if (one.group, one.resource, one.names) == (group, resource, ())]
    wanted = dict.fromkeys([*verbs, *(verb for one in known for verb in one.verbs)])
    ordered = [verb for verb in MAKE if verb in wanted] + [verb for verb in wanted if verb not in MAKE]
    return Permission(group, resource, tuple(ordered))


def merged(permissions: Iterable[Permission]) -> list[Permission]:
    """One permission per resource and set of verbs, each said once, in order."""
    verbs: dict[tuple[str, str], dict[str, None]] = {}
    for one in permissions:
        verbs.setdefault((one.group, one.resource), {}).update(dict.fromkeys(one.verbs))
    return [Permission(group, resource, tuple(known)) for (group, resource), known in sorted(verbs.items())]
