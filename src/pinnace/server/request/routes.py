"""A cache of parsed targets: clients request the same ones again and again."""

from __future__ import annotations

from array import array
from typing import TypeAlias

from pinnace.auth.authorization.authorizers import Action
from pinnace.model.resources import Registry, Resource
from pinnace.server.http.messages import Request
from pinnace.server.request.call import Call

_MOST_KNOWN = 4096
"""A round of 1,000 autoscalers has 2,000 targets."""
_MOST_CHARACTERS = 400_000
_LONGEST = 512
_SLOTS = 1 << 15
"""So many that few of the targets of a round of requests meet in one."""


Route: TypeAlias = tuple[tuple[str, Resource, str, str, str, str], Action, bool]
"""The first fields of a call, which follow from the method and target alone, its action, and whether that is to get or
list objects, or to get a scale."""
_READS = frozenset(("get", "list"))
_READ_SUBRESOURCES = frozenset(("", "scale"))


class Routes:
    """Targets that were requested more than once lately. All are forgotten when the served resources change.

    A target is kept at its second request. Many are requested once: by a walk over 20,000 objects, for instance, whose
    targets would stay in the memory that the walk has freed, so that it could not be given back.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._revision = registry.revision
        self._known: dict[tuple[str, str], Route] = {}
        self._characters = 0
        self._seen = array("H", bytes(2 * _SLOTS))
        """Of each target that was requested a part of its hash, at the place that the rest names. Later ones replace
        it."""

    def find(self, request: Request) -> Route | None:
        if self._revision != self._registry.revision:
            self._revision = self._registry.revision
            self._forget_all()
        return self._known.get((request.method, request.target))

    def learn(self, call: Call) -> Route:
        """Called for each request whose target is unknown, with the parsed call."""
        parts = (call.verb, call.resource, call.namespace, call.name, call.subresource, call.tail)
        route = (parts, _action_of(call), call.verb in _READS and call.subresource in _READ_SUBRESOURCES)
        request = call.request
        # Computed objects are never read at once, which only known targets are.
        if not call.resource.strategy.is_computed and self._is_repeated(request.target):
            if len(self._known) >= _MOST_KNOWN or self._characters >= _MOST_CHARACTERS:
                self._forget_all()
            self._known[request.method, request.target] = route
            self._characters += len(request.target)
        return route

    def _is_repeated(self, target: str) -> bool:
        """Whether a target was requested before, and is short enough to be kept."""
        if len(target) > _LONGEST:
            return False
        tag, slot = divmod(hash(target), _SLOTS)
        tag &= 0xFFFF
        is_repeated = self._seen[slot] == tag
        self._seen[slot] = tag
        return is_repeated

    def _forget_all(self) -> None:
        self._known.clear()
        self._characters = 0


def _action_of(call: Call) -> Action:
    resource, group, plural, name = call.resource, call.resource.group, call.resource.plural, call.name
    # A namespace counts as inside itself, so that a role in it can grant access to it.
    namespace = name if plural == "namespaces" and not group else call.namespace
    fields = ""
    if call.request.raw_query:
        fields = call.text("fieldSelector")
        name = name or _selected_name(fields)
    return Action(call.verb, "", group, plural, call.subresource, namespace, name, resource.version, fields)


def _selected_name(fields: str) -> str:
    """Return the name that a field selector fixes: a role may grant access by name."""
    for part in fields.split(","):
        field, equals, name = part.partition("=")
        if equals and field == "metadata.name":
            return name.removeprefix("=")
    return ""
