"""Which names a definition gets: those it asks for, unless another definition of its group has them already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pinnace.extensions.custom.definitions import Names
from pinnace.model.objects import Object


@dataclass(frozen=True, slots=True)
class Naming:
    """The names that were accepted, and the word and sentence on those that were not."""

    accepted: Names
    reason: str
    message: str

    @property
    def is_settled(self) -> bool:
        return self.reason == "NoConflicts"

    def condition(self) -> Object:
        status = "True" if self.is_settled else "False"
        return {"type": "NamesAccepted", "status": status, "reason": self.reason, "message": self.message}


def name(asked: Names, accepted: Names, others: Iterable[Names]) -> Naming:
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

    plural = settled(asked.plural, accepted.plural, words, "PluralConflict")
    singular = settled(asked.singular, accepted.singular, words, "SingularConflict")
    short_names = asked.short_names
    taken = [one for one in asked.short_names if one not in accepted.short_names and one in words]
    if taken:
        told = [in_use(one) for one in dict.fromkeys(taken)]
        reason, message = "ShortNamesConflict", told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        short_names = accepted.short_names
    kind = settled(asked.kind, accepted.kind, kinds, "KindConflict")
    list_kind = settled(asked.list_kind, accepted.list_kind, kinds, "ListKindConflict")
    names = Names(plural, singular, kind, list_kind, short_names, asked.categories)
    return Naming(names, reason or "NoConflicts", message or "no conflicts found")


def in_use(word: str) -> str:
    return f'"{word}" is already in use'
