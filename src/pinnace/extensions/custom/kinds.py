"""Keeps the registry in step with the definitions: kinds come, change and go while the server runs.

A change of a definition is applied before its writer gets an answer: a client that sees it can use the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import orjson

from pinnace.model.objects import Object
from pinnace.model.resources import Registry, Resource
from pinnace.model.typed_objects import CustomResourceDefinitionCondition
from pinnace.serving.custom.definitions import BuiltIn, Definition, Names, resources_of
from pinnace.serving.custom.versions import Convert

MakeConverter = Callable[[Object], Convert | None]
"""Returns the converter of a definition; None if it needs none."""


class CustomKinds:
    """The custom kinds of a registry."""

    def __init__(
        self,
        registry: Registry,
        built_in: BuiltIn,
        *,
        make_converter: MakeConverter = lambda definition: None,
        on_replaced: Callable[[Resource], None] = lambda resource: None,
    ) -> None:
        """`on_replaced` is called with one of a kind's resources when the kind is no longer served as before."""
        self._registry = registry
        self._built_in = built_in
        self._make_converter = make_converter
        self._on_replaced = on_replaced
        self._definitions: dict[str, Definition] = {}
        self._groups: dict[str, set[str]] = {}
        self._names: dict[str, Names] = {}
        self._served: dict[str, tuple[Resource, ...]] = {}

    def load(self, bodies: Iterable[bytes]) -> None:
        """Load the stored definitions. Those with accepted names come first and keep their names."""
        waiting = []
        for body in bodies:
            obj: Object = orjson.loads(body)
            definition = Definition.read(obj, body)
            self._know(definition)
            if definition.accepted.plural:
                self._serve(obj, definition)
            else:
                waiting.append(definition.name)
        for each in waiting:
            self._serve(orjson.loads(self._definitions[each].body), self._definitions[each])

    def put(self, body: bytes) -> None:
        """Serve a definition that was created or changed."""
        obj: Object = orjson.loads(body)
        definition = Definition.read(obj, body)
        before = self._definitions.get(definition.name)
        if before is not None and _is_same_spec(before, definition):
            # Only its status or metadata changed: its objects are as settled as before.
            definition = replace(definition, spec_revision=before.spec_revision)
            if self._is_served_so(before, definition):
                self._definitions[definition.name] = definition
                return
        self._know(definition)
        self._serve(obj, definition)

    def drop(self, each: str) -> None:
        """Stop serving a deleted definition."""
        definition = self._definitions.pop(each, None)
        if definition is None:
            return
        self._groups[definition.group].discard(each)
        self._names.pop(each, None)
        self._withdraw(each, ())
        self._reconsider(definition.group)

    def definition(self, each: str) -> Definition | None:
        return self._definitions.get(each)

    def in_group(self, group: str) -> list[str]:
        return sorted(self._groups.get(group, ()))

    def served(self, each: str) -> tuple[Resource, ...]:
        return self._served.get(each, ())

    def naming(self, definition: Definition) -> Naming:
        """Return the names that the definition gets, given those of other definitions."""
        others = [self._names[name] for name in self._groups.get(definition.group, ()) if name != definition.name]
        return name(definition.requested, definition.accepted, others)

    def _know(self, definition: Definition) -> None:
        self._definitions[definition.name] = definition
        self._groups.setdefault(definition.group, set()).add(definition.name)
        self._names.setdefault(definition.name, definition.accepted)

    def _is_served_so(self, before: Definition, now: Definition) -> bool:
        """Whether the served resources can stay as they are."""
        accepted = self.naming(now).accepted
        return (
            before.is_leaving == now.is_leaving
            and bool(self._served.get(now.name))
            and accepted == self._names[now.name]
        )

    def _serve(self, obj: Object, definition: Definition) -> None:
        naming = self.naming(definition)
        self._names[definition.name] = naming.accepted
        if not definition.is_established and not naming.is_settled:
            self._withdraw(definition.name, ())
            return
        made = resources_of(
            obj,
            definition,
            naming.accepted,
            self._built_in,
            self._make_converter(obj),
            partial(self._body, definition.name),
        )
        served = tuple(resource for resource in made if not self._is_taken(resource, definition))
        self._withdraw(definition.name, served)
        for resource in served:
            self._registry.add(resource)
        self._served[definition.name] = served

    def _body(self, each: str) -> bytes:
        """Return the current bytes of a definition, so that no old copy is kept."""
        known = self._definitions.get(each)
        return known.body if known is not None else b'{"spec":{}}'

    def _is_taken(self, resource: Resource, definition: Definition) -> bool:
        """Whether a built-in resource has this URL: it is not replaced."""
        present = self._registry.find(resource.group, resource.version, resource.plural)
        return present is not None and all(
            present is not resource for resource in self._served.get(definition.name, ())
        )

    def _withdraw(self, each: str, remaining: Iterable[Resource]) -> None:
        kept = {(resource.version, resource.plural, resource.kind): resource.fingerprint for resource in remaining}
        replaced: Resource | None = None
        for resource in self._served.pop(each, ()):
            place = (resource.version, resource.plural, resource.kind)
            if place not in kept:
                self._registry.remove(resource)
            if kept.get(place) != resource.fingerprint:
                replaced = resource
        if replaced is not None:
            self._on_replaced(replaced)

    def _reconsider(self, group: str) -> None:
        """Accept the names of other definitions again: a name was freed."""
        for each in self.in_group(group):
            if each not in self._served:
                definition = self._definitions[each]
                self._serve(orjson.loads(definition.body), definition)


def _is_same_spec(before: Definition, now: Definition) -> bool:
    """Return whether only the deletion of a definition began, which raises its generation but changes nothing."""
    was_marked = now.is_leaving and not before.is_leaving
    return before.uid == now.uid and (before.generation == now.generation or was_marked)


@dataclass(frozen=True, slots=True)
class Naming:
    """The accepted names, and reason and message of the NamesAccepted condition."""

    accepted: Names
    reason: str
    message: str

    @property
    def is_settled(self) -> bool:
        return self.reason == "NoConflicts"

    def condition(self) -> CustomResourceDefinitionCondition:
        status = "True" if self.is_settled else "False"
        return {"type": "NamesAccepted", "status": status, "reason": self.reason, "message": self.message}


def name(requested: Names, accepted: Names, others: Iterable[Names]) -> Naming:
    """Decide which requested names are accepted. `others` are the accepted names of the group's other definitions."""
    words: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        words.update((other.plural, other.singular, *other.short_names))
        kinds.update((other.kind, other.list_kind))
    reason, message = "", ""

    def settled(wanted: str, had: str, taken: set[str], err: str) -> str:
        nonlocal reason, message
        if wanted == had or wanted not in taken:
            return wanted
        reason, message = err, in_use(wanted)
        return had

    plural = settled(requested.plural, accepted.plural, words, "PluralConflict")
    singular = settled(requested.singular, accepted.singular, words, "SingularConflict")
    short_names = requested.short_names
    held = frozenset(accepted.short_names)
    taken = [name for name in requested.short_names if name not in held and name in words]
    if taken:
        messages = [in_use(address) for address in dict.fromkeys(taken)]
        reason, message = "ShortNamesConflict", messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        short_names = accepted.short_names
    kind = settled(requested.kind, accepted.kind, kinds, "KindConflict")
    list_kind = settled(requested.list_kind, accepted.list_kind, kinds, "ListKindConflict")
    names = Names(plural, singular, kind, list_kind, short_names, requested.categories)
    return Naming(names, reason or "NoConflicts", message or "no conflicts found")


def in_use(word: str) -> str:
    return f'"{word}" is already in use'
