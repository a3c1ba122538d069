"""No namespace uses more than its quotas allow, however many write at once.

Each quota has an account: what every object that counts uses of it, and the sum. A write is charged before it is
stored, in one step with the check; when it is stored, or has come to nothing, the object is looked at and counted
again as it then is. So the sum is never too low, and too high only while a write is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pinnace.admission.chain import WRITES, Review
from pinnace.admission.plugins.quota_usage import (
    CLAIMS,
    IGNORED,
    PODS,
    SERVICES,
    Amounts,
    Place,
    counted_by,
    is_ending,
    is_in_scope,
    unsaid,
    usage_of,
)
from pinnace.model.clock import Clock
from pinnace.model.objects import Object
from pinnace.model.quantity import Quantity, of, parse
from pinnace.model.watched_objects import WatchedObjects

_NONE = of(0)


class Counted(Protocol):
    """The objects of one kind that quotas count."""

    def get(self, key: str) -> Object | None: ...

    def in_namespace(self, namespace: str) -> Iterable[tuple[str, Object]]: ...

    def on_change(self, changed: Callable[[str], None]) -> None: ...


@dataclass(slots=True)
class _Account:
    """One quota: its bounds, and who uses how much of it."""

    name: str
    spec: Object
    hard: Amounts
    places: frozenset[Place]
    used: Amounts
    shares: dict[tuple[Place, str], Amounts] = field(default_factory=dict)

    def usage(self, place: Place, obj: Object, all_usage: Amounts) -> Amounts:
        """The part of an object's usage that this quota limits."""
        if not is_in_scope(place, obj, self.spec):
            return {}
        return {name: amount for name, amount in all_usage.items() if name in self.hard}

    def charge(self, place: Place, key: str, usage: Amounts) -> bool:
        """From now on the object uses this much. Whether that is a change."""
        before = self.shares.get((place, key), {})
        if before == usage:
            return False
        for name in before.keys() | usage.keys():
            self.used[name] = self.used[name] + (usage.get(name, _NONE) - before.get(name, _NONE))
        if usage:
            self.shares[place, key] = usage
        else:
            del self.shares[place, key]
        return True


class ResourceQuota:
    interests = (("*", "*", WRITES),)

    def __init__(self, quotas: WatchedObjects, counted: Callable[[Place], Counted | None], clock: Clock) -> None:
        self._quotas = quotas
        self._counted = counted
        self._clock = clock
        self._accounts: dict[str, dict[str, _Account]] = {}
        self._followed: dict[Place, Counted] = {}
        self._status_error: list[Callable[[str], None]] = []
        for key, quota in quotas.items():
            self._open(key, quota)
        quotas.on_change(self._quota_changed)

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call back with the key of a quota whose status is no longer what it says."""
        self._status_error.append(changed)

    def status_of(self, key: str) -> Object | None:
        """The status of a quota; None if there is no such quota."""
        account = self._accounts.get(key.partition("/")[0], {}).get(key)
        if account is None:
            return None
        hard = {name: str(amount) for name, amount in sorted(account.hard.items())}
        used = {name: str(account.used[name]) for name in sorted(account.used)}
        return {"hard": hard, "used": used} if hard else {}

    def validate(self, review: Review) -> None:
        accounts = self._accounts.get(review.namespace)
        if accounts is None:
            return
        place = (review.resource.group, review.resource.plural)
        if place in IGNORED or not _is_checked(place, review):
            return
        obj, key = review.changed, f"{review.namespace}/{review.name}"
        usage = usage_of(place, obj, self._clock.now())
        charges = []
        for account in accounts.values():
            if place in account.places:
                share = account.usage(place, obj, usage)
                if share:
                    _check(review, account, place, share, account.shares.get((place, key), {}))
                charges.append((account, share))
        if review.is_dry_run or not charges:
            return
        for account, share in charges:
            account.charge(place, key, share)
        review.afterwards.append(partial(self._recount, place, key))

    def _open(self, key: str, quota: Object) -> None:
        namespace, _, name = key.partition("/")
        spec = quota.get("spec") or {}
        hard = {name: parse(amount) for name, amount in (spec.get("hard") or {}).items()}
        places: dict[Place, Counted] = {}
        known: set[str] = set()
        for resource in hard:
            place = counted_by(resource)
            source = self._follow(place) if place is not None else None
            if place is not None and source is not None:
                places[place] = source
                known.add(resource)
        account = _Account(name, spec, hard, frozenset(places), dict.fromkeys(known, _NONE))
        now = self._clock.now()
        for place, source in places.items():
            for counted, obj in source.in_namespace(namespace):
                account.charge(place, counted, account.usage(place, obj, usage_of(place, obj, now)))
        self._accounts.setdefault(namespace, {})[key] = account

    def _follow(self, place: Place) -> Counted | None:
        source = self._followed.get(place)
        if source is None:
            source = self._counted(place)
            if source is None:
                return None
            self._followed[place] = source
            source.on_change(partial(self._recount, place))
        return source

    def _quota_changed(self, key: str) -> None:
        namespace = key.partition("/")[0]
        quota = self._quotas.get(key)
        known = self._accounts.get(namespace, {}).get(key)
        if quota is None:
            if known is not None:
                del self._accounts[namespace][key]
                if not self._accounts[namespace]:
                    del self._accounts[namespace]
            return
        if known is None or known.spec != (quota.get("spec") or {}):
            self._open(key, quota)
        self._tell(key)

    def _recount(self, place: Place, key: str) -> None:
        """Count an object as it is now."""
        accounts = self._accounts.get(key.partition("/")[0])
        if accounts is None:
            return
        obj = self._followed[place].get(key) if place in self._followed else None
        usage = usage_of(place, obj, self._clock.now()) if obj is not None else {}
        for quota, account in accounts.items():
            if place in account.places:
                account.charge(place, key, account.usage(place, obj, usage) if obj is not None else {})
                self._tell(quota)

    def _tell(self, key: str) -> None:
        for told in self._status_error:
            told(key)


def _is_checked(place: Place, review: Review) -> bool:
    """Only writes that can use more are refused; all others are counted when they are done."""
    if place == PODS:
        if review.subresource == "resize":
            return review.operation == "UPDATE"
        if review.operation == "UPDATE" and not review.subresource:
            return review.old is not None and is_ending(review.old) != is_ending(review.changed)
    elif place in (SERVICES, CLAIMS):
        return not review.subresource
    return review.operation == "CREATE" and not review.subresource


def _check(review: Review, account: _Account, place: Place, share: Amounts, before: Amounts) -> None:
    if place == PODS:
        limited = [name for name in account.hard if counted_by(name) == PODS]
        why = unsaid(review.changed.get("spec") or {}, limited)
        if why:
            raise review.forbidden(f"failed quota: {account.name}: {why}")
    asked = {name: amount - before.get(name, _NONE) for name, amount in share.items()}
    exceeded = [name for name, more in asked.items() if more > _NONE and account.used[name] + more > account.hard[name]]
    if exceeded:
        raise review.forbidden(
            f"exceeded quota: {account.name}, requested: {_format_amounts(asked, exceeded)}, "
            f"used: {_format_amounts(account.used, exceeded)}, limited: {_format_amounts(account.hard, exceeded)}"
        )


def _format_amounts(amounts: dict[str, Quantity], names: list[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names))
