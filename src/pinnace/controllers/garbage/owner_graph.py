"""The graph of owners and dependents across all kinds. It only names the objects to check, and decides nothing.

A node stands for an object that was observed, or for an owner that is referenced and was not observed yet. Such a
virtual owner may be anything: a kind that is not watched, a mistake, or an object whose event is still on its way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pinnace.model.objects import Key, Kind

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
REMEMBERED_ABSENT = 500
"""As many as in Kubernetes. An owner that is forgotten is read again."""
_SCANNED = 8
"""Owners that are searched one by one; more are indexed by uid."""


class Owner(NamedTuple):
    """One owner reference of an object."""

    kind: Kind
    name: str
    uid: str
    blocks: bool
    """When deleted in the foreground, the owner waits for this object."""


class Place(NamedTuple):
    """The identity of an object: its kind, namespace, name and uid."""

    kind: Kind
    key: Key
    uid: str

    def __str__(self) -> str:
        kind, key = self.kind, self.key
        return f"[{kind.api_version}/{kind.name}, namespace: {key.namespace}, name: {key.name}, uid: {self.uid}]"


class Node:
    __slots__ = ("_by_uid", "dependents", "finalizer", "is_deleted", "is_observed", "owners", "place", "unverified")

    def __init__(self, place: Place, *, is_observed: bool) -> None:
        self.place = place
        self.is_observed = is_observed
        self.owners: tuple[Owner, ...] = ()
        self._by_uid: tuple[tuple[Owner, ...], dict[str, list[Owner]]] | None = None
        """An index of these owners, kept by objects with many of them."""
        self.unverified = 0
        """How many of its owners are referenced but not observed: they may not exist."""
        self.dependents: dict[str, Node] | None = None
        self.is_deleted = False
        """It has a deletion timestamp."""
        self.finalizer = ""
        """ORPHAN or FOREGROUND once the object is being deleted by that policy: its dependents come first."""

    def references_to(self, uid: str) -> list[Owner]:
        """Return the owner references with this uid. An object with thousands of owners keeps an index of them."""
        owners = self.owners
        if len(owners) <= _SCANNED:
            return [owner for owner in owners if owner.uid == uid]
        return self._index().get(uid, [])

    def _index(self) -> dict[str, list[Owner]]:
        if self._by_uid is None or self._by_uid[0] is not self.owners:
            index: dict[str, list[Owner]] = {}
            for owner in self.owners:
                index.setdefault(owner.uid, []).append(owner)
            self._by_uid = self.owners, index
        return self._by_uid[1]

    def extend_owners(self, owners: tuple[Owner, ...]) -> list[Owner] | None:
        """Add owners after those that it has, and return the new ones; None if `owners` do not begin with those.

        The work grows with the new owners only: an object with thousands is observed a part at a time.
        """
        count = len(self.owners)
        if count <= _SCANNED or owners[:count] != self.owners:
            return None
        index, fresh, seen = self._index(), list[Owner](), set[Owner]()
        for owner in owners[count:]:
            before = index.setdefault(owner.uid, [])
            if owner not in seen and (not before or owner not in before):
                fresh.append(owner)
                seen.add(owner)
            before.append(owner)
        self.owners, self._by_uid = owners, (owners, index)
        return fresh

    def blocking(self) -> list[Node]:
        """Return the dependents that block its deletion."""
        uid = self.place.uid
        return [
            dependent
            for dependent in (self.dependents or {}).values()
            if any(owner.blocks for owner in dependent.references_to(uid))
        ]

    def waits_for(self, other: Node) -> bool:
        """Whether its deletion waits for another object, directly or through others that wait as well."""
        seen: dict[str, Node] = {}
        ahead = [self]
        while ahead:
            node = ahead.pop()
            if node.finalizer == FOREGROUND and node.place.uid not in seen:
                seen[node.place.uid] = node
                ahead += node.blocking()
        return any(other in node.blocking() for node in seen.values())


def is_at(owner: Owner, namespace: str, place: Place) -> bool:
    """Whether a reference from an object in `namespace` leads here: owners are in its namespace, or in none."""
    if (owner.uid, owner.name, owner.kind) != (place.uid, place.key.name, place.kind):
        return False
    return place.key.namespace in ("", namespace)


class OwnerGraph:
    """Calls `look` with the uid of each object to check again, and `misplaced` for owners in other namespaces."""

    def __init__(self, *, look: Callable[[str], None], misplaced: Callable[[Node, Owner], None]) -> None:
        self._nodes: dict[str, Node] = {}
        self._look = look
        self._misplaced = misplaced
        self._absent: OrderedDict[Place, None] = OrderedDict()

    def get(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    # Observed objects

    def observe(self, place: Place, owners: tuple[Owner, ...], *, is_deleted: bool, finalizers: Iterable[str]) -> None:
        """Record an object in its current state."""
        node = self._nodes.get(place.uid)
        if node is None:
            node = self._nodes[place.uid] = Node(place, is_observed=True)
        elif not node.is_observed or node.place != place:
            self._recognize(node, place)
        self.change_owners(node, owners)
        if not is_deleted:
            return
        node.is_deleted = True
        finalizer = next((name for name in finalizers if name in (ORPHAN, FOREGROUND)), "")
        if finalizer == node.finalizer:
            return
        node.finalizer = finalizer
        if finalizer == FOREGROUND:
            for uid in node.dependents or ():
                self._look(uid)
        if finalizer:
            self._look(place.uid)

    def remove(self, place: Place) -> None:
        """Record that an object was deleted."""
        node = self._nodes.pop(place.uid, None)
        if node is None:
            return
        self._leave_owners(node, node.owners)
        if not node.is_observed:
            self._mark_verified(node)
        for owner in node.owners:
            above = self._nodes.get(owner.uid)
            if above is not None and above.finalizer == FOREGROUND:
                self._look(owner.uid)
        if node.dependents:
            self._record_absent(place)
            for uid in node.dependents:
                self._look(uid)

    def mark_unknown(self, uid: str) -> None:
        """Record that its kind is no longer served, so that its state is unknown. A lookup may still find it."""
        node = self._nodes.get(uid)
        if node is None:
            return
        if node.is_observed:
            for dependent in (node.dependents or {}).values():
                dependent.unverified += 1
        node.is_observed = False
        if node.dependents:
            self._look(uid)
        else:
            del self._nodes[uid]
            self._leave_owners(node, node.owners)

    # Looked-up owners

    def mark_absent(self, place: Place) -> None:
        """Record the server's answer that no object with this uid is at this place."""
        self._record_absent(place)
        node = self._nodes.get(place.uid)
        if node is None:
            return
        others = []
        for uid, dependent in (node.dependents or {}).items():
            for owner in dependent.references_to(place.uid):
                elsewhere = Place(owner.kind, Key(dependent.place.key.namespace, owner.name), owner.uid)
                if is_at(owner, dependent.place.key.namespace, place):
                    self._look_unless_unverified(uid, dependent)
                elif not self.is_known_absent(elsewhere):
                    others.append(elsewhere)
        if node.is_observed:
            return  # It exists elsewhere: dependents that reference it here have no owner.
        if others:
            node.place = min(others)  # Some dependents reference it at another place: check there, too.
            self._look(place.uid)
        else:
            del self._nodes[place.uid]
            self._mark_verified(node)
            self._leave_owners(node, node.owners)

    def _mark_verified(self, owner: Node) -> None:
        """Record that an owner is no longer virtual: it was observed, or does not exist."""
        for uid, dependent in (owner.dependents or {}).items():
            dependent.unverified -= 1
            if dependent.unverified == 0 and len(dependent.owners) > _SCANNED:
                self._look(uid)

    def _look_unless_unverified(self, uid: str, dependent: Node) -> None:
        """Check a dependent once all its owners are known: a check after each of 20,000 owners would be quadratic."""
        if dependent.unverified == 0 or len(dependent.owners) <= _SCANNED:
            self._look(uid)

    def is_known_absent(self, place: Place) -> bool:
        """Whether an earlier lookup found nothing with this uid there, or in any namespace."""
        return place in self._absent or Place(place.kind, Key("", place.key.name), place.uid) in self._absent

    def _record_absent(self, place: Place) -> None:
        self._absent[place] = None
        self._absent.move_to_end(place)
        if len(self._absent) > REMEMBERED_ABSENT:
            self._absent.popitem(last=False)

    # Edges

    def _recognize(self, node: Node, place: Place) -> None:
        """Record a virtual owner as observed, and check again the dependents that reference it wrongly."""
        node.place = place
        if not node.is_observed:
            self._mark_verified(node)
        node.is_observed = True
        for dependent in (node.dependents or {}).values():
            self._check(dependent, node)

    def _check(self, dependent: Node, owner_node: Node) -> bool:
        """Check whether a dependent references the owner that exists."""
        place, namespace = owner_node.place, dependent.place.key.namespace
        wrong = [owner for owner in dependent.references_to(place.uid) if not is_at(owner, namespace, place)]
        if wrong and owner_node.is_observed and place.key.namespace not in ("", namespace):
            self._misplaced(dependent, wrong[0])
        if wrong:
            self._look(dependent.place.uid)
        return not wrong

    def change_owners(self, node: Node, owners: tuple[Owner, ...]) -> None:
        """Record the owners of an observed object."""
        if owners == node.owners:
            return
        if (more := node.extend_owners(owners)) is not None:
            self._add_owners(node, more)
            return
        before, node.owners = node.owners, owners
        now = {owner.uid: owner for owner in owners}
        for owner in before:
            kept = now.get(owner.uid)
            if owner.blocks and (kept is None or not kept.blocks):
                self._look(owner.uid)
        self._leave_owners(node, [owner for owner in before if owner.uid not in now])
        known = set(before)
        self._add_owners(node, [owner for owner in owners if owner not in known])

    def _add_owners(self, node: Node, fresh: list[Owner]) -> None:
        for owner in fresh:
            above = self._nodes.get(owner.uid)
            if above is None:
                guess = Place(owner.kind, Key(node.place.key.namespace, owner.name), owner.uid)
                above = self._nodes[owner.uid] = Node(guess, is_observed=False)
                self._look(owner.uid)
            if above.dependents is None:
                above.dependents = {}
            if node.place.uid not in above.dependents and not above.is_observed:
                node.unverified += 1
            above.dependents[node.place.uid] = node
        for owner in fresh:
            above = self._nodes[owner.uid]
            if above.finalizer == FOREGROUND:
                self._look(node.place.uid)  # It was created late, but has to be deleted as well.
            if not self._check(node, above):
                break

    def _leave_owners(self, node: Node, owners: Iterable[Owner]) -> None:
        for owner in owners:
            above = self._nodes.get(owner.uid)
            if above is None or above.dependents is None:
                continue
            if above.dependents.pop(node.place.uid, None) is not None and not above.is_observed:
                node.unverified -= 1
            if not above.dependents:
                above.dependents = None
                if not above.is_observed:
                    del self._nodes[owner.uid]
