"""The order of every write, once, from top to bottom: the steps of `Pipeline.write`."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import orjson

from pinnace.admission.chain import AdmissionChain, Review
from pinnace.auth.authorization.authorizers import Action, Authorizer, Decision, forbidden_error
from pinnace.model import errors
from pinnace.model.clock import Clock, enter_server_clock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.schema.cel.errors import ExceedsInlineBudget
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.watch_cache import CachedObject, restamp, stamp
from pinnace.server.long_work import run_beside
from pinnace.server.request.call import Call
from pinnace.server.write import deletion
from pinnace.server.write.deletion import DeleteOptions
from pinnace.server.write.edits import Edit
from pinnace.server.write.field_ownership import Ownerships
from pinnace.server.write.preparation import prepare
from pinnace.server.write.revisions import refuse_revision
from pinnace.server.write.turns import WriteTurns
from pinnace.server.write.validation import validate
from pinnace.server.write.versions import Versions, decode_current, encode_for_store, is_long_write, is_stored_as
from pinnace.store import store as stores


class Written(NamedTuple):
    """The outcome of a write. `entry` is the object as it is now, or as it last was when `is_deleted`."""

    entry: CachedObject
    is_created: bool = False
    is_deleted: bool = False
    uid: str = ""
    """The uid of a deleted object."""


class Reservation(Protocol):
    """Addresses and ports that one write has taken. Either method ends it."""

    @property
    def taken_addresses(self) -> Collection[str]: ...
    @property
    def unused_addresses(self) -> Collection[str]: ...
    @property
    def has_objects(self) -> bool:
        """Whether it has addresses of either sort: they are objects of their own."""

    def keep(self) -> None:
        """Free what the object no longer uses: the write is stored."""

    def give_back(self) -> None:
        """Restore the state before the write: it failed."""


class Reservations(Protocol):
    """Values that exist once in the cluster and are allocated by a write: service addresses and node ports."""

    def reserve(self, resource: Resource, new: Object, old: Object | None) -> Reservation:
        """Allocate what the object needs and fill it in. Raise Invalid for a value that another object has."""

    def release(self, resource: Resource, old: Object) -> Collection[str]:
        """Free what a deleted object held. Return the addresses whose objects are to be forgotten."""

    async def record(self, reservation: Any, new: Object) -> bool:
        """Create the objects of taken addresses. Return False if another server was faster."""

    async def forget(self, addresses: Collection[str]) -> None:
        """Delete the objects of addresses."""


MARKED_SECONDS = 0.003
"""How long a pod that is deleted without a grace period exists after it was marked. In Kubernetes two writes to etcd
take more than a millisecond, in which controllers see the deletionTimestamp. Here they would never see it."""
_ENDPOINTS = "/registry/core/endpoints/"


class Write:
    """One attempt to write. Each step of the pipeline reads and fills in its parts; `with` gives back on failure."""

    entry: CachedObject | None = None
    """The object as it is stored now."""
    old: Object | None = None
    new: Object
    review: Review
    reservation: Reservation
    done: Written | None = None
    """None if another writer was faster."""

    def __init__(self, call: Call, edit: Edit, key: str, now: str, options: Object | None) -> None:
        self.call = call
        self.edit = edit
        self.key = key
        self.now = now
        self.options = options

    @property
    def is_creation(self) -> bool:
        return self.call.verb == "create" and not self.call.subresource

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the reservation and the review: kept if the object is stored, else given back."""
        if error is not None:
            self.reservation.give_back()
            self.review.end(is_open=isinstance(error, asyncio.CancelledError))
            return
        self.review.end()
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
        store: stores.Store,
        clock: Clock,
        admission: AdmissionChain,
        authorizer: Authorizer,
        reservations: Reservations,
        ownerships: Ownerships,
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._clock = clock
        self._admission = admission
        self._authorizer = authorizer
        self._reservations = reservations
        self._versions = Versions(ownerships)
        self._turns = WriteTurns()
        self._unadmitted: Pipeline | None = None

    async def write(self, call: Call, edit: Edit, *, options: Object | None = None) -> Written:
        """Create, replace, patch or apply. The edit may run again if another writer was faster."""
        key = call.resource.prefix + call.key
        if self._turns.is_taken(key):
            await self._turns.wait(key)
        self._turns.begin(key)
        enter_server_clock(self._clock)
        try:
            while True:
                write = Write(call, edit, key, to_rfc3339(self._clock.now()), options)
                await self._read_current(write)
                await self._edit(write)
                await self._mutate(write)
                prepare(call, write.new, write.old, write.now)
                self._reserve(write)
                with write:
                    await self._validate(write)
                    await self._admit(write)
                    write.done = await self._store_result(write)
                if write.done is not None:
                    return write.done
                # Lost a race: edit the newer object, or let the edit refuse it.
        finally:
            self._turns.end(key)

    async def delete(self, call: Call, options: DeleteOptions, *, raw_options: Object | None = None) -> Written:
        """Delete one object, or mark it for deletion."""
        key = call.resource.prefix + call.key
        if self._turns.is_taken(key):
            await self._turns.wait(key)
        self._turns.begin(key)
        if call.resource.strategy.deletion_warning and not options.says_of_dependents:
            call.warnings.append(call.resource.strategy.deletion_warning)
        try:
            while True:
                entry = self._find(call)
                if entry is None:
                    raise call.not_found()
                old = entry.decode()
                deletion.check_preconditions(call.resource, old, options)
                await self._review_message(_review(call, None, old, raw_options), check=None)
                marked = {**old, "metadata": dict(old["metadata"])}
                if deletion.marked_for_deletion(call.resource, marked, options, self._clock.now()):
                    done = await self._remove_last(call, key, entry, old, marked)
                elif marked == old:
                    return Written(entry)
                else:
                    done = await self._put(call, key, entry, marked)
                if done is not None:
                    return done
        finally:
            self._turns.end(key)

    async def admit(self, call: Call, message: Object, *, check: Callable[[Object], None] | None = None) -> None:
        """Run admission on a message that is not stored: a binding, an eviction, a review. `check` it in between."""
        below = call.resource.subresource(call.subresource)
        kind = below.kind if below is not None else call.resource.kind
        message["kind"], message["apiVersion"] = kind.name, kind.api_version
        message["metadata"] = message.get("metadata") or {}
        review = _review(call, message, None, None)
        try:
            await self._review_message(review, check=check)
        finally:
            review.end()

    def without_admission(self) -> Pipeline:
        """Return the same pipeline for writes that are part of an admitted one."""
        if self._unadmitted is None:
            self._unadmitted = copy.copy(self)
            self._unadmitted._admission = AdmissionChain()
        return self._unadmitted

    def asks_about(self, resource: Resource) -> bool:
        """Whether reviews of this kind, which are never stored, pass admission."""
        return self._admission.asks_about(resource)

    # The steps of a write, in their order.

    async def _read_current(self, write: Write) -> None:
        if not write.is_creation and (entry := self._find(write.call)) is not None:
            write.entry, write.old = entry, await decode_current(entry, write.call.resource)

    async def _edit(self, write: Write) -> None:
        call = write.call
        write.new = await self._versions.edit(call, write.edit, write.entry, write.old, write.now)
        if write.old is None and call.resource.custom is not None and call.resource.custom.is_leaving:
            raise call.forbidden("create not allowed while custom resource definition is terminating")

    async def _mutate(self, write: Write) -> None:
        write.review = _review(write.call, write.new, write.old, write.options)
        if (waiting := self._admission.mutate(write.review)) is not None:
            await waiting

    def _reserve(self, write: Write) -> None:
        write.reservation = self._reservations.reserve(write.call.resource, write.new, write.old)

    async def _validate(self, write: Write) -> None:
        try:
            if is_long_write(write.call, write.entry):
                await run_beside(validate, write.call, write.new, write.old)
            else:
                validate(write.call, write.new, write.old)
        except ExceedsInlineBudget:
            await asyncio.to_thread(validate, write.call, write.new, write.old)
        except errors.Invalid as invalid:
            if found := await self._admission.errs(write.review):
                raise invalid.after(found) from None
            raise

    async def _admit(self, write: Write) -> None:
        if write.entry is None and not write.is_creation:
            await self._authorize_create(write.call)
        if (waiting := self._admission.validate(write.review)) is not None:
            await waiting
        if not write.is_creation:
            return
        if "resourceVersion" in write.new["metadata"] and not write.call.is_dry_run:
            refuse_revision(write.new["metadata"])
        if (there := self._find(write.call)) is not None:
            raise write.call.already_exists(is_leaving="deletionTimestamp" in there.decode()["metadata"])

    async def _store_result(self, write: Write) -> Written | None:
        """Store, remove or leave the object. Return None if another writer was faster."""
        call, entry, new = write.call, write.entry, write.new
        if entry is not None:
            if _is_unchanged(new, write.old) and await is_stored_as(call, entry, new):
                return Written(entry)
            if deletion.is_finished(call.resource, new):
                return await self._remove(call, write.key, entry, entry.decode(), shown=new)
        if write.reservation.has_objects and not call.is_dry_run:
            return await self._put_with_addresses(write)
        return await self._put(call, write.key, entry, new)

    async def _put_with_addresses(self, write: Write) -> Written | None:
        """Store a service after the objects of its new addresses; those of its former ones go last."""
        reservation = write.reservation
        if not await self._reservations.record(reservation, write.new):
            return None
        try:
            done = await self._put(write.call, write.key, write.entry, write.new)
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

    def _find(self, call: Call) -> CachedObject | None:
        return self._fanout.cache(call.resource.prefix).entries.get(call.key)

    async def _put(self, call: Call, key: str, entry: CachedObject | None, new: Object) -> Written | None:
        """Return None if another writer was faster."""
        value = await encode_for_store(call, new)
        if call.is_dry_run:
            return Written(_dry_run_entry(value, entry, new["metadata"]), is_created=entry is None)
        try:
            revision = await self._store.put(key, value, expected=entry.revision if entry else 0)
        except stores.Conflict:
            return None
        written = self._find(call)
        if written is None or written.revision != revision:  # Changed again already: answer with this write's object.
            written = CachedObject(stamp(value, revision), revision)
        return Written(written, is_created=entry is None)

    async def _remove_last(
        self, call: Call, key: str, entry: CachedObject, old: Object, marked: Object
    ) -> Written | None:
        """Remove an object that nothing holds back. After a grace period, watchers first see that it is over."""
        if marked == old:
            return await self._remove(call, key, entry, old, shown=None)
        if call.resource.strategy.grace is None or call.is_dry_run:
            return await self._remove(call, key, entry, old, shown=marked)
        stored = await self._put(call, key, entry, marked)
        if stored is None:
            return None
        if "deletionTimestamp" not in old["metadata"]:
            await asyncio.sleep(MARKED_SECONDS)
        return await self._remove(call, key, stored.entry, old, shown=None)

    async def _remove(
        self, call: Call, key: str, entry: CachedObject, old: Object, *, shown: Object | None
    ) -> Written | None:
        """Return None if another writer was faster.

        `shown` is the object for the answer where that differs from the stored one; its revision is the stored one.
        """
        last, uid = entry, old["metadata"].get("uid", "")
        if shown is not None:
            last = CachedObject(stamp(await encode_for_store(call, shown), entry.revision), entry.revision)
        if call.is_dry_run:
            return Written(last, is_deleted=True, uid=uid)
        try:
            revision = await self._store.delete(key, expected=entry.revision)
        except stores.Conflict:
            return None
        if addresses := self._reservations.release(call.resource, old):
            await self._reservations.forget(addresses)
        if call.resource.plural == "services" and not call.resource.group:
            await self._remove_endpoints(call)
        if shown is None:
            last = CachedObject(restamp(last.body, revision), revision)
        return Written(last, is_deleted=True, uid=uid)

    async def _remove_endpoints(self, call: Call) -> None:
        """Remove the Endpoints of a service that is gone: a new service of that name must not get them."""
        with suppress(stores.Conflict):  # It has none.
            await self._store.delete(f"{_ENDPOINTS}{call.key}", expected=None)

    async def _review_message(self, review: Review, *, check: Callable[[Object], None] | None) -> None:
        """Run mutating, then validating admission on what is not stored itself."""
        if (waiting := self._admission.mutate(review)) is not None:
            await waiting
        if check is not None:
            check(review.changed)
        if (waiting := self._admission.validate(review)) is not None:
            await waiting


def _review(call: Call, new: Object | None, old: Object | None, options: Object | None) -> Review:
    operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    review = Review(
        operation=operation,
        resource=call.resource,
        subresource=call.subresource,
        namespace=call.namespace,
        name=call.name,
        new=new,
        old=old,
        user=call.user,
        verb=call.verb,
        is_dry_run=call.is_dry_run,
        options=options or _options(call),
        warnings=call.warnings,
    )
    if call.request.notes is not None:
        call.request.notes.admission[call.key] = review.audit
    return review


def _options(call: Call) -> Object:
    """Return the options in the query, as admission plug-ins see them."""
    query = call.request.query
    if not query:
        return {}
    given: Object = {name: query[name][0] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    return {"dryRun": list(query["dryRun"]), **given} if query.get("dryRun") else given


_NAMES_OF_KIND = frozenset(("kind", "apiVersion"))


def _is_unchanged(new: Object, old: Object | None) -> bool:
    if old is None or new.keys() - _NAMES_OF_KIND != old.keys() - _NAMES_OF_KIND:
        return False
    for name, value in new.items():
        if name not in _NAMES_OF_KIND and name != "metadata" and value != old[name]:
            return False
    before, after = dict(old["metadata"]), dict(new["metadata"])
    owned_before, owned_after = before.pop("managedFields", []), after.pop("managedFields", [])
    before.pop("resourceVersion", None)
    after.pop("resourceVersion", None)
    return before == after and [_timeless(one) for one in owned_before] == [_timeless(one) for one in owned_after]


def _timeless(entry: Object) -> Object:
    return {name: value for name, value in entry.items() if name != "time"}


def _dry_run_entry(value: bytes, entry: CachedObject | None, metadata: Object) -> CachedObject:
    """Return the object that would have been written; a new object has only the revision that the client sent."""
    if entry is not None:
        return CachedObject(stamp(value, entry.revision), entry.revision)
    if not metadata.get("resourceVersion"):
        return CachedObject(value, 0)
    obj = orjson.loads(value)
    obj["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    return CachedObject(orjson.dumps(obj), 0)
