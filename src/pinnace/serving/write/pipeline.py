"""The order of every write, once, from top to bottom: the steps of `Pipeline.write`."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.model import errors, names
from pinnace.model.authorization import Action, Authorizer, Decision, forbidden_error
from pinnace.model.field_errors import FieldError
from pinnace.model.metadata import validate_metadata, validate_metadata_update
from pinnace.model.objects import Object
from pinnace.model.resources import Resource, Strategy
from pinnace.model.write_review import Review
from pinnace.process.clock import Clock, SecondFormatter, enter_server_clock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.work_slices import SliceQueue
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CachedObject, restamp, stamp
from pinnace.serving.long_work import run_beside
from pinnace.serving.request.call import Call
from pinnace.serving.write import deletion
from pinnace.serving.write.admission import Admission, Check, NoAdmission, review_of
from pinnace.serving.write.allocation import Reservation, Reservations
from pinnace.serving.write.deletion import DeleteOptions
from pinnace.serving.write.edits import (
    Edit,
    Ownerships,
    Versions,
    decode_current,
    dry_run_entry,
    encode,
    encode_for_store,
    is_long_write,
    is_stored_as,
    refuse_revision,
)
from pinnace.serving.write.preparation import prepare
from pinnace.store import store as stores


class Written(NamedTuple):
    """The outcome of a write. `entry` is the object as it is now, or as it last was when `is_deleted`."""

    entry: CachedObject
    is_created: bool = False
    is_deleted: bool = False
    uid: str = ""
    """The uid of a deleted object."""


MARKED_SECONDS = 0.003
"""How long a pod that is deleted without a grace period exists after it was marked. In Kubernetes two writes to etcd
take more than a millisecond, in which controllers see the deletionTimestamp. Here they would never see it."""
_ENDPOINTS = "/registry/core/endpoints/"
_DELETED = b"deletionTimestamp"


@dataclass(eq=False)
class Write:
    """One attempt to write. Each step of the pipeline reads and fills in its parts; `end` or `fail` ends it."""

    call: Call
    edit: Edit
    key: str
    now: str
    options: Object | None
    seen: int
    """The revision of the cached objects on which the write is decided."""
    is_creation: bool
    entry: CachedObject | None = None
    """The object as it is stored now."""
    old: Object | None = None
    new: Object = field(init=False)
    is_long: bool = field(default=False, init=False)
    """Whether the steps of this write run beside the loop."""
    review: Review = field(init=False)
    reservation: Reservation | None = field(default=None, init=False)
    done: Written | None = field(default=None, init=False)
    """None if another writer was faster."""

    def fail(self, error: BaseException) -> None:
        """Give back the reservation and end the review: nothing is stored, or the client left before it was known."""
        if self.reservation is not None:
            self.reservation.give_back()
        self.review.end(is_open=isinstance(error, asyncio.CancelledError))

    def end(self) -> None:
        """End the review and the reservation, which is kept if the object is stored."""
        self.review.end()
        if self.reservation is None:
            return
        if self.done is None or self.done.is_deleted or self.call.is_dry_run:
            self.reservation.give_back()
        else:
            self.reservation.keep()


class Pipeline:
    """Turns an edit into a stored object. Writers of one key take turns; writers of other keys never wait."""

    def __init__(
        self,
        *,
        fanout: Fanout,
        store: stores.WriteStore,
        clock: Clock,
        admission: Admission,
        authorizer: Authorizer,
        reservations: Reservations,
        ownerships: Ownerships,
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._is_shared = store.is_shared
        self._clock = clock
        self._seconds = SecondFormatter()
        self._admission = admission
        self._authorizer = authorizer
        self._reservations = reservations
        self._versions = Versions(ownerships)
        self._turns = WriteTurns()
        self._slices = SliceQueue.of_loop()
        self._unadmitted: Pipeline | None = None

    async def write(self, call: Call, edit: Edit, *, options: Object | None = None) -> Written:
        """Create, replace, patch or apply. The edit may run again if another writer was faster."""
        key, is_creation = call.resource.prefix + call.key, call.verb == "create" and not call.subresource
        if not self._turns.begin_at_once(key):
            await self._turns.begin(key)
        enter_server_clock(self._clock)
        try:
            while True:
                if (waiting := self._refresh(call)) is not None:
                    await waiting
                now = self._seconds.format(self._clock.now())
                write = Write(call, edit, key, now, options, self._fanout.revision, is_creation)
                if not is_creation and (waiting := self._read_current(write)) is not None:
                    await waiting
                if (waiting := self._edit(write)) is not None:
                    await waiting
                if (waiting := self._mutate(write)) is not None:
                    await waiting
                prepare(call, write.new, write.old, write.now)
                write.reservation = self._reservations.reserve(call.resource, write.new, write.old)
                try:
                    if (waiting := self._validate(write)) is not None:
                        await waiting
                    if (waiting := self._admit(write)) is not None:
                        await waiting
                    if write.is_long:  # The next step takes some milliseconds, and so did admission.
                        await self._slices.wait()
                    write.done = await self._store_result(write)
                except BaseException as error:
                    write.fail(error)
                    raise
                write.end()
                if write.done is not None:
                    return write.done
                # Lost a race: edit the newer object, or let the edit refuse it.
        finally:
            self._turns.end(key)

    async def rewrite(self, call: Call, edit: Callable[[Object], None]) -> Written:
        """Store an object after an edit of the server itself: without defaults, field managers and admission."""
        key = call.resource.prefix + call.key
        if not self._turns.begin_at_once(key):
            await self._turns.begin(key)
        try:
            while True:
                entry = self._find(call)
                if entry is None:
                    raise call.not_found()
                obj = entry.decode()
                edit(obj)
                if (done := await self._put(call, key, entry, obj)) is not None:
                    return done
        finally:
            self._turns.end(key)

    async def delete(self, call: Call, options: DeleteOptions, *, raw_options: Object | None = None) -> Written:
        """Delete one object, or mark it for deletion."""
        key = call.resource.prefix + call.key
        if not self._turns.begin_at_once(key):
            await self._turns.begin(key)
        if call.resource.strategy.deletion_warning and not options.says_of_dependents:
            call.warnings.append(call.resource.strategy.deletion_warning)
        try:
            while True:
                if (waiting := self._refresh(call)) is not None:
                    await waiting
                entry = self._find(call)
                if entry is None:
                    raise call.not_found()
                old = entry.decode()
                deletion.check_preconditions(call.resource, old, options)
                review = review_of(call, None, old, raw_options)
                if (waiting := self._admission.mutate(review)) is not None:
                    await waiting
                if (waiting := self._admission.validate(review)) is not None:
                    await waiting
                marked = {**old, "metadata": dict(old["metadata"])}
                if deletion.marked_for_deletion(call.resource, marked, options, self._clock.now()):
                    done = await self._remove_last(call, key, entry, old, marked)
                elif marked == old:
                    done = Written(entry) if await self._is_newest(call, entry) else None
                else:
                    done = await self._put(call, key, entry, marked)
                if done is not None:
                    return done
        finally:
            self._turns.end(key)

    async def admit(self, call: Call, message: Object, *, check: Check | None = None) -> None:
        """Run admission on a message that is not stored: a binding, an eviction, a review. `check` it in between."""
        below = call.resource.subresource(call.subresource)
        kind = below.kind if below is not None else call.resource.kind
        message["kind"], message["apiVersion"] = kind.name, kind.api_version
        message["metadata"] = message.get("metadata") or {}
        review = review_of(call, message, None, None)
        try:
            if (waiting := self._admission.mutate(review)) is not None:
                await waiting
            if check is not None and (waiting := check(review.changed)) is not None:
                await waiting
            if (waiting := self._admission.validate(review)) is not None:
                await waiting
        finally:
            review.end()

    def without_admission(self) -> Pipeline:
        """Return the same pipeline for writes that are part of an admitted one."""
        if self._unadmitted is None:
            self._unadmitted = copy.copy(self)
            self._unadmitted._admission = NoAdmission()
        return self._unadmitted

    def reviews_unstored(self, resource: Resource) -> bool:
        """Whether reviews of this kind, which are never stored, pass admission."""
        return self._admission.reviews_unstored(resource)

    # The steps of a write, in their order. A step returns an awaitable only if it has to wait.

    def _read_current(self, write: Write) -> NowOrLater[None]:
        entry = write.entry = self._find(write.call)
        if entry is None:
            return None
        if write.call.resource.custom is not None:
            return self._read_custom(write, entry)
        write.old = entry.decode()
        return None

    async def _read_custom(self, write: Write, entry: CachedObject) -> None:
        write.old = await decode_current(entry, write.call.resource)

    def _edit(self, write: Write) -> NowOrLater[None]:
        call, entry = write.call, write.entry
        write.is_long = is_long_write(call, entry)
        if write.is_long or call.resource.custom is not None:
            return self._edit_later(write)
        write.new = self._versions.edit_now(call, write.edit, entry, write.old, write.now)
        return None

    async def _edit_later(self, write: Write) -> None:
        call = write.call
        write.new = await self._versions.edit(
            call, write.edit, write.entry, write.old, write.now, is_long=write.is_long
        )
        if write.old is None and call.resource.custom is not None and call.resource.custom.is_leaving:
            raise call.forbidden("create not allowed while custom resource definition is terminating")

    def _mutate(self, write: Write) -> NowOrLater[None]:
        write.review = review_of(write.call, write.new, write.old, write.options)
        return self._admission.mutate(write.review)

    def _validate(self, write: Write) -> NowOrLater[None]:
        if write.is_long:
            return self._validate_beside(write)
        try:
            validate(write.call, write.new, write.old)
        except ExceedsInlineBudget:
            return run_beside(write.call.user.name, validate, write.call, write.new, write.old)
        except errors.Invalid as invalid:
            return self._add_errors(write, invalid)
        return None

    async def _validate_beside(self, write: Write) -> None:
        try:
            await run_beside(write.call.user.name, validate, write.call, write.new, write.old)
        except errors.Invalid as invalid:
            await self._add_errors(write, invalid)

    async def _add_errors(self, write: Write, invalid: errors.Invalid) -> None:
        """Raise the error with those that admission plug-ins find in the object."""
        if errs := await self._admission.errs(write.review):
            raise invalid.after(errs) from None
        raise invalid

    def _admit(self, write: Write) -> NowOrLater[None]:
        if not write.is_creation:
            return self._admission.validate(write.review) if write.entry is not None else self._admit_creation(write)
        if (waiting := self._admission.validate(write.review)) is not None:
            return self._check_name_later(write, waiting)
        self._check_name(write)
        return None

    async def _admit_creation(self, write: Write) -> None:
        """Admit an update or an apply that creates the object."""
        await self._authorize_create(write.call)
        if (waiting := self._admission.validate(write.review)) is not None:
            await waiting

    async def _check_name_later(self, write: Write, waiting: Awaitable[None]) -> None:
        await waiting
        self._check_name(write)

    def _check_name(self, write: Write) -> None:
        """Raise AlreadyExists if the name of a new object is taken: every other error comes first."""
        if "resourceVersion" in write.new["metadata"] and not write.call.is_dry_run:
            refuse_revision(write.new["metadata"])
        if write.key in self._fanout.unreadable:
            raise write.call.already_exists(is_leaving=False)
        if (there := self._find(write.call)) is not None:
            # Few objects have the word at all, and a large one takes milliseconds to decode.
            is_leaving = _DELETED in there.body and "deletionTimestamp" in there.decode()["metadata"]
            raise write.call.already_exists(is_leaving=is_leaving)

    def _store_result(self, write: Write) -> Awaitable[Written | None]:
        """Store, remove or leave the object. The result is None if another writer was faster."""
        if write.entry is not None and is_unchanged(write.new, write.old):
            return self._leave(write, write.entry)
        return self._store_changed(write)

    async def _leave(self, write: Write, entry: CachedObject) -> Written | None:
        if self._store.is_stale(write.key) or not await is_stored_as(write.call, entry, write.new):
            return await self._store_changed(write)
        return Written(entry) if await self._is_newest(write.call, entry) else None

    def _store_changed(self, write: Write) -> Awaitable[Written | None]:
        call, entry, new = write.call, write.entry, write.new
        if entry is not None and "deletionTimestamp" in new["metadata"] and deletion.is_finished(call.resource, new):
            return self._remove(call, write.key, entry, entry.decode(), answer=new)
        if write.reservation is not None and write.reservation.has_objects and not call.is_dry_run:
            return self._put_with_addresses(write, write.reservation)
        return self._put(call, write.key, entry, new, guard=self._guard_of(write) if self._is_shared else None)

    def _guard_of(self, write: Write) -> stores.Guard | None:
        """Return the guard of a write that allocates: two servers must not give away the same."""
        names = ["node-ports"] if write.reservation is not None and write.reservation.taken_ports else []
        if write.review.afterwards:
            names.append(f"quotas/{write.call.namespace}")
        return stores.Guard(tuple(names), write.seen) if names else None

    async def _put_with_addresses(self, write: Write, reservation: Reservation) -> Written | None:
        """Store a service after the objects of its new addresses; those of its former ones go last."""
        if not await self._reservations.record(reservation, write.new):
            return None
        try:
            guard = self._guard_of(write) if self._is_shared else None
            done = await self._put(write.call, write.key, write.entry, write.new, guard=guard)
        except BaseException:
            await self._reservations.forget(reservation.taken_addresses)
            raise
        await self._reservations.forget(reservation.taken_addresses if done is None else reservation.unused_addresses)
        return done

    async def _authorize_create(self, call: Call) -> None:
        """Raise Forbidden if an update or an apply would create an object that the user may not create."""
        resource = call.resource
        is_namespace = resource.plural == "namespaces" and not resource.group
        action = Action(
            "create",
            group=resource.group,
            resource=resource.plural,
            subresource=call.subresource,
            namespace=call.name if is_namespace else call.namespace,
            name=call.name,
            version=resource.version,
        )
        decision = self._authorizer.decide(call.user, action)
        if not isinstance(decision, Decision):
            decision = await decision
        if not decision.is_allowed:
            raise forbidden_error(call.user, action, decision.reason)

    # Reads and writes of the store.

    def _refresh(self, call: Call) -> NowOrLater[None]:
        """Do nothing: the store reports every change. A pipeline over another store may have to read the object."""
        return None

    def _find(self, call: Call) -> CachedObject | None:
        """Return the stored object. Raise InternalError if it cannot be decrypted."""
        entry = self._fanout.cache(call.resource.prefix).entries.get(call.key)
        if entry is None and self._fanout.unreadable:
            self._fanout.refuse_unreadable(call.resource.prefix + call.key)
        return entry

    async def _is_newest(self, call: Call, entry: CachedObject) -> bool:
        """Whether no server has changed an object that a write would leave as it is."""
        if not self._is_shared:
            return True
        await self._store.sync()
        return self._find(call) is entry

    async def _put(
        self, call: Call, key: str, entry: CachedObject | None, new: Object, *, guard: stores.Guard | None = None
    ) -> Written | None:
        """Return None if another writer was faster."""
        value = encode(new, call.resource) if call.resource.custom is None else await encode_for_store(call, new)
        if call.is_dry_run:
            return Written(dry_run_entry(value, entry, new["metadata"]), is_created=entry is None)
        self._slices.begin_write()
        try:
            revision = await self._store.put(key, value, expected=entry.revision if entry else 0, guard=guard)
        except stores.Conflict as conflict:
            self._check_progress(call, entry, conflict)
            return None
        finally:
            self._slices.end_write()
        written = self._find(call)
        if written is None or written.revision != revision:  # Changed again already: answer with this write's object.
            written = CachedObject(stamp(value, revision), revision)
        return Written(written, is_created=entry is None)

    def _check_progress(self, call: Call, entry: CachedObject | None, conflict: stores.Conflict) -> None:
        """Raise StoreError if the cache does not have the newer object: the write would go round for ever."""
        if not self._is_shared and self._find(call) is entry:
            raise stores.StoreError(f"the watch cache has missed a change: {conflict}; restart the server")

    def _remove_last(
        self, call: Call, key: str, entry: CachedObject, old: Object, marked: Object
    ) -> Awaitable[Written | None]:
        """Remove an object that nothing holds back."""
        if marked == old:
            return self._remove(call, key, entry, old, answer=None)
        if call.resource.strategy.grace is None or call.is_dry_run:
            return self._remove(call, key, entry, old, answer=marked)
        return self._mark_and_remove(call, key, entry, old, marked)

    async def _mark_and_remove(
        self, call: Call, key: str, entry: CachedObject, old: Object, marked: Object
    ) -> Written | None:
        """Remove an object after a grace period: watchers first see that it is over."""
        stored = await self._put(call, key, entry, marked)
        if stored is None:
            return None
        if "deletionTimestamp" not in old["metadata"]:
            await asyncio.sleep(MARKED_SECONDS)
        return await self._remove(call, key, stored.entry, old, answer=None)

    async def _remove(
        self, call: Call, key: str, entry: CachedObject, old: Object, *, answer: Object | None
    ) -> Written | None:
        """Return None if another writer was faster.

        `answer` is the object for the answer where that differs from the stored one; its revision is the stored one.
        """
        last, uid = entry, old["metadata"].get("uid", "")
        if answer is not None:
            last = CachedObject(stamp(await encode_for_store(call, answer), entry.revision), entry.revision)
        if call.is_dry_run:
            return Written(last, is_deleted=True, uid=uid)
        self._slices.begin_write()
        try:
            revision = await self._store.delete(key, expected=entry.revision)
        except stores.Conflict as conflict:
            self._check_progress(call, entry, conflict)
            return None
        finally:
            self._slices.end_write()
        if addresses := self._reservations.release(call.resource, old):
            await self._reservations.forget(addresses)
        if call.resource.plural == "services" and not call.resource.group:
            await self._remove_endpoints(call)
        if answer is None and call.resource.strategy.answers_with_deleted:
            last = CachedObject(restamp(last.body, revision), revision)
        return Written(last, is_deleted=True, uid=uid)

    async def _remove_endpoints(self, call: Call) -> None:
        """Remove the Endpoints of a service that is gone: a new service of that name must not get them."""
        with suppress(stores.Conflict):  # It has none.
            await self._store.delete(f"{_ENDPOINTS}{call.key}", expected=None)


class WriteTurns:
    """The keys that are being written, each with the future that the next writers of the key wait for."""

    __slots__ = ("_writing",)

    def __init__(self) -> None:
        self._writing: dict[str, asyncio.Future[None] | None] = {}

    def begin_at_once(self, key: str) -> bool:
        """Begin a turn. Return False if another writer has the key: then await `begin`."""
        if key in self._writing:
            return False
        self._writing[key] = None
        return True

    async def begin(self, key: str) -> None:
        """Begin a turn when no writer has the key."""
        while not self.begin_at_once(key):
            before = self._writing[key]
            if before is None:
                before = self._writing[key] = asyncio.get_running_loop().create_future()
            await asyncio.shield(before)

    def end(self, key: str) -> None:
        waited_for = self._writing.pop(key)
        if waited_for is not None:
            waited_for.set_result(None)


_NAMES_OF_KIND = frozenset(("kind", "apiVersion"))


def is_unchanged(new: Object, old: Object | None) -> bool:
    """Whether two objects are equal, except for revisions and the times of field managers."""
    if old is None or new.keys() - _NAMES_OF_KIND != old.keys() - _NAMES_OF_KIND:
        return False
    for name, value in new.items():
        if name not in _NAMES_OF_KIND and name != "metadata" and value != old[name]:
            return False
    return has_same_metadata(new, old)


def has_same_metadata(new: Object, old: Object) -> bool:
    """Whether the metadata of two objects are equal, except for revisions and the times of field managers."""
    before, after = old["metadata"], new["metadata"]
    if {**after, **_COMPARED_APART} != {**before, **_COMPARED_APART}:
        return False
    owned_before, owned_after = before.get("managedFields", ()), after.get("managedFields", ())
    return len(owned_before) == len(owned_after) and all(map(_is_same_entry, owned_after, owned_before))


_COMPARED_APART = {"managedFields": None, "resourceVersion": None}
_TIMELESS = {"time": None}


def _is_same_entry(new: Object, old: Object) -> bool:
    return new is old or {**new, **_TIMELESS} == {**old, **_TIMELESS}


def validate(call: Call, new: Object, old: Object | None) -> None:
    """Raise Invalid with every field error, or add the warnings of the object's kind to the call.

    Raise ExceedsInlineBudget if the rules of a custom resource are better evaluated in a thread.
    """
    resource, strategy = call.resource, call.resource.strategy
    errs: list[FieldError] = []  # `list[FieldError]()` would raise and catch an AttributeError.
    if old is None or not has_same_metadata(new, old):  # Metadata that stay as they are were checked before.
        errs += validate_metadata(
            new,
            namespaced=resource.namespaced,
            qualified_finalizers=strategy.qualified_finalizers,
            name_rule=strategy.name_rule if old is None else names.path_segment,
        )
        errs += () if old is None else validate_metadata_update(new, old)
    if old is None:
        errs += strategy.validate(new, None)
    elif not call.subresource:
        errs += strategy.validate(new, old)
    else:
        errs += _subresource_rule(strategy, call.subresource)(new, old)
    if errs:
        kind = resource.kind.name if resource.custom is None else str(new.get("kind") or resource.kind.name)
        raise errors.Invalid(errs, group=resource.stored.group, kind=kind, name=call.name)
    if call.subresource in ("", "scale"):
        call.warnings.extend(strategy.warnings(new, old))
        if resource.inert is not None and (warn := resource.inert.warn) is not None:
            call.warnings.extend(warn(new))


def _subresource_rule(strategy: Strategy, subresource: str) -> Callable[[Object, Object], Iterable[FieldError]]:
    if subresource == "binding":
        return _accept
    if subresource == "status":
        return strategy.validate_status
    return strategy.validate_subresource.get(subresource, strategy.validate)


def _accept(new: Object, old: Object) -> Iterable[FieldError]:
    """Return no error: the edit of a binding decides by itself what it may change."""
    return ()
