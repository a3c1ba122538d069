"""Refuses writes by which a namespace would use more than its quotas allow, also when many write at once.

Each quota has an account: the usage of every counted object, and the sum. A write is charged before it is stored, in
one step with the check; when it is stored, or has failed, the object is read and counted again as it then is. So the
sum is never too low, and too high only while a write is under way.

The status of a quota belongs to its controller. As in Kubernetes, this plug-in only raises the usage in it for a write
that it has admitted; the controller does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from pinnace.admission.chain import WRITES, AdmissionPlugin
from pinnace.kinds.core.quota_account import NONE, QuotaAccount, open_account, places_of
from pinnace.kinds.core.quota_usage import (
    CLAIMS,
    IGNORED,
    PODS,
    RESOURCE_CLAIMS,
    SERVICES,
    Amounts,
    Place,
    counted_by,
    is_ending,
    unsaid,
    usage_of,
)
from pinnace.model.objects import NOTHING, Object
from pinnace.model.quantity import Quantity, parse
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review
from pinnace.process.clock import Clock


class LimitedResource(NamedTuple):
    """Usage of a kind that needs a quota: that of names which contain one of these texts."""

    place: Place
    contains: tuple[str, ...]


class ResourceQuota(AdmissionPlugin):
    interests = (("*", "*", WRITES),)

    def __init__(
        self,
        quotas: WatchedObjects,
        counted: Callable[[Place], WatchedObjects | None],
        clock: Clock,
        limited: Sequence[LimitedResource] = (),
    ) -> None:
        self._limited = limited
        self._quotas = quotas
        self._counted = counted
        self._clock = clock
        self._accounts: dict[str, dict[str, QuotaAccount]] = {}
        self._followed: dict[Place, WatchedObjects] = {}
        self._raised: set[tuple[Place, str]] = set()
        """Objects whose admitted write uses more and is not stored yet."""
        self._on_raise: list[Callable[[str], None]] = []
        self._listeners: list[Callable[[], None]] = []
        for key, quota in quotas.items():
            self._open(key, quota)
        quotas.on_change(self._quota_changed)

    def is_idle(self) -> bool:
        return not self._accounts and not self._limited

    def on_configured(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def on_raise(self, raised: Callable[[str], None]) -> None:
        """Call back with the key of a quota of which a stored write uses more than before."""
        self._on_raise.append(raised)

    def raise_status(self, key: str, quota: Object) -> Object | None:
        """Return the status of a quota with at least the usage of its account; None if its controller has none yet."""
        account = self._accounts.get(key.partition("/")[0], {}).get(key)
        status = quota.get("status") or {}
        if account is None or not status.get("hard"):
            return None
        used: dict[str, str] = dict(status.get("used") or {})
        for name, amount in account.used.items():
            if name in status["hard"] and (name not in used or amount > parse(used[name])):
                used[name] = str(amount)
        return {**status, "used": used}

    def validate(self, review: Review) -> None:
        accounts = self._accounts.get(review.namespace)
        if accounts is None and not self._limited:
            return
        place = (review.resource.group, review.resource.plural)
        if not review.namespace or place in IGNORED or not _is_checked(place, review):
            return
        obj, key = review.changed, f"{review.namespace}/{review.name}"
        usage = usage_of(place, obj, self._clock.now())
        accounts = accounts or {}
        self._require_quotas(review, place, usage, accounts.values())
        charges = []
        for quota, account in accounts.items():
            if place in account.places:
                share = account.usage(place, obj, usage)
                if share:
                    _check(review, quota, account, share)
                charges.append((account, share))
        if review.is_dry_run or not charges:
            return
        for account, share in charges:
            if account.charge(place, key, share):
                self._raised.add((place, key))
        review.call_afterwards(partial(self._recount, place, key))

    def _require_quotas(self, review: Review, place: Place, usage: Amounts, accounts: Iterable[QuotaAccount]) -> None:
        """Raise Forbidden if a limited resource is used and no quota counts it."""
        texts = [text for limited in self._limited if limited.place == place for text in limited.contains]
        if not texts:
            return
        more = dict(usage)
        if review.operation == "UPDATE" and review.old is not None:
            before = usage_of(place, review.old, self._clock.now())
            more = {name: amount - before.get(name, NONE) for name, amount in usage.items()}
        needed = {name for name, amount in more.items() if amount > NONE and any(text in name for text in texts)}
        for account in accounts:
            if place in account.places:
                needed -= account.usage(place, review.changed, usage).keys()
        if needed:
            raise review.forbidden(f"insufficient quota to consume: {','.join(sorted(needed))}")

    def _open(self, key: str, quota: Object) -> None:
        namespace = key.partition("/")[0]
        spec = quota.get("spec") or NOTHING
        sources = {place: source for place in places_of(spec) if (source := self._follow(place)) is not None}
        account = open_account(spec, sources)
        now = self._clock.now()
        for place, source in sources.items():
            for counted, obj in source.in_namespace(namespace):
                account.count(place, counted, obj, now)
        self._accounts.setdefault(namespace, {})[key] = account

    def _follow(self, place: Place) -> WatchedObjects | None:
        source = self._followed.get(place)
        if source is None:
            source = self._counted(place)
            if source is None:
                return None
            self._followed[place] = source
            source.on_change(partial(self._recount, place))
        return source

    def _quota_changed(self, key: str) -> None:
        was_idle = self.is_idle()
        self._update_account(key)
        if self.is_idle() != was_idle:  # Not at every change: the status of a quota changes often.
            for changed in self._listeners:
                changed()

    def _update_account(self, key: str) -> None:
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

    def _recount(self, place: Place, key: str) -> None:
        """Count an object as it is now."""
        accounts = self._accounts.get(key.partition("/")[0])
        is_raised = (place, key) in self._raised
        self._raised.discard((place, key))
        if accounts is None:
            return
        obj = self._followed[place].get(key) if place in self._followed else None
        now = self._clock.now()
        for quota, account in accounts.items():
            if place in account.places:
                account.count(place, key, obj, now)
                if is_raised and obj is not None:
                    self._notify(quota)

    def _notify(self, quota: str) -> None:
        for notify in self._on_raise:
            notify(quota)


def _is_checked(place: Place, review: Review) -> bool:
    """Only writes that can use more are refused; all others are counted when they are done."""
    if place == PODS:
        if review.subresource == "resize":
            return review.operation == "UPDATE"
        if review.operation == "UPDATE" and not review.subresource:
            return review.old is not None and is_ending(review.old) != is_ending(review.changed)
    elif place in (SERVICES, CLAIMS, RESOURCE_CLAIMS):
        return not review.subresource
    return review.operation == "CREATE" and not review.subresource


def _check(review: Review, quota: str, account: QuotaAccount, share: Amounts) -> None:
    """Raise Forbidden if the write needs more of a quota than is left."""
    place = (review.resource.group, review.resource.plural)
    name_of_quota = quota.partition("/")[2]
    before = account.shares.get((place, f"{review.namespace}/{review.name}"), {})
    if place == PODS:
        limited = [name for name in account.hard if counted_by(name) == PODS]
        why = unsaid(review.changed.get("spec") or NOTHING, limited)
        if why:
            raise review.forbidden(f"failed quota: {name_of_quota}: {why}")
    requested = {name: amount - before.get(name, NONE) for name, amount in share.items()}
    exceeded = [
        name for name, more in requested.items() if more > NONE and account.used[name] + more > account.hard[name]
    ]
    if exceeded:
        raise review.forbidden(
            f"exceeded quota: {name_of_quota}, requested: {_format_amounts(requested, exceeded)}, "
            f"used: {_format_amounts(account.used, exceeded)}, limited: {_format_amounts(account.hard, exceeded)}"
        )


def _format_amounts(amounts: dict[str, Quantity], names: list[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names))
