"""The account of one quota: its bounds, and how much of each every counted object uses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from pinnace.kinds.core.quota_usage import Amounts, Place, counted_by, is_in_scope, usage_of
from pinnace.model.objects import AnyObject, Object
from pinnace.model.quantity import of, parse
from pinnace.model.typed_objects import ResourceQuotaSpec

NONE = of(0)


@dataclass(slots=True)
class QuotaAccount:
    """The sum is kept with each change of an object: its cost does not grow with the number of objects."""

    spec: ResourceQuotaSpec
    hard: Amounts
    places: frozenset[Place]
    used: Amounts
    shares: dict[tuple[Place, str], Amounts] = field(default_factory=dict)
    """The usage of each object that uses any, by its place and its namespace/name."""

    def usage(self, place: Place, obj: AnyObject, all_usage: Amounts) -> Amounts:
        """Return the part of an object's usage that this quota limits."""
        if not is_in_scope(place, obj, self.spec):
            return {}
        return {name: amount for name, amount in all_usage.items() if name in self.hard}

    def count(self, place: Place, key: str, obj: Object | None, now: datetime) -> bool:
        """Count an object as it is, None if it is gone. Return whether that changes the sum."""
        return self.charge(place, key, self.usage(place, obj, usage_of(place, obj, now)) if obj is not None else {})

    def charge(self, place: Place, key: str, usage: Amounts) -> bool:
        """Replace the usage of one object. Return whether it was another one."""
        before = self.shares.get((place, key), {})
        if before == usage:
            return False
        for name in before.keys() | usage.keys():
            self.used[name] = self.used[name] + (usage.get(name, NONE) - before.get(name, NONE))
        if usage:
            self.shares[place, key] = usage
        else:
            del self.shares[place, key]
        return True


def places_of(spec: ResourceQuotaSpec) -> set[Place]:
    """Return the resources whose objects a quota counts."""
    return {place for name in spec.get("hard") or () if (place := counted_by(name)) is not None}


def open_account(spec: ResourceQuotaSpec, places: Collection[Place]) -> QuotaAccount:
    """Return an account without usage. `places` are the resources that are served: others are not counted."""
    hard = {name: parse(amount) for name, amount in (spec.get("hard") or {}).items()}
    counted = {name: place for name in hard if (place := counted_by(name)) in places and place is not None}
    return QuotaAccount(spec, hard, frozenset(counted.values()), dict.fromkeys(counted, NONE))
