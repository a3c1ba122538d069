"""The order of every write, once, from top to bottom."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import orjson

from pinnace.admission.chain import AdmissionChain, Review
from pinnace.kinds.validation.metadata_repeats import CUSTOM, asks_for_domains, rounds
from pinnace.model import errors, names
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.field_errors import FieldError
from pinnace.model.metadata import validate_metadata, validate_metadata_update, validate_repeated_update
from pinnace.model.objects import Object, new_uid
from pinnace.model.patches import managed_fields
from pinnace.model.resources import Resource, Strategy
from pinnace.schema.cel.errors import TakesLong
from pinnace.schema.equality import identical
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.served_versions import in_version, prepare, shown_object, waits_for
from pinnace.server.cache.watch_cache import Entry, restamp, stamp
from pinnace.server.request.call import Call
from pinnace.server.write import deletion
from pinnace.server.write.deletion import DeleteOptions
from pinnace.server.write.edits import Edit, Owning
from pinnace.server.write.field_ownership import Ownerships, ToConvert
from pinnace.server.write.subresources import keep_from
from pinnace.store import store as stores

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 63 - 5


class Written(NamedTuple):
    """What a write came to. `entry` is the object as it now is (or last was, when `is_deleted`)."""

    entry: Entry
    is_created: bool = False
    is_deleted: bool = False
    uid: str = ""
    """Of what is deleted."""


class Reservation(Protocol):
    """What one write has taken. Either method ends it."""

    def keep(self) -> None:
        """The write is through: what the object no longer uses is free."""

    def give_back(self) -> None:
        """The write came to nothing: all is as it was."""


class Reservations(Protocol):
    """Things that exist once in the cluster and are given out on a write: service addresses and node ports."""

    def reserve(self, resource: Resource, new: Object, old: Object | None) -> Reservation:
        """Fill in and take what the object needs. Raises Invalid for what somebody else has."""

    def release(self, resource: Resource, old: Object) -> None:
        """The object is gone: what it held is free."""


class Pipeline:
    """Turns an edit into a stored object. Writers of one key take turns; nobody else waits."""

    def __init__(
        self,
        *,
        fanout: Fanout,
        store: stores.Store,
        clock: Clock,
        admission: AdmissionChain,
        reservations: Reservations,
        ownerships: Ownerships,
    ) -> None:
        self._fanout = fanout
        self._store = store
        self._clock = clock
        self._admission = admission
        self._reservations = reservations
        self._ownerships = ownerships
        self._writing: dict[str, asyncio.Future[None] | None] = {}
        """The keys that are being written, each with what those wait for who come next."""

    def unguarded(self) -> Pipeline:
        """The same, for what the server writes to do what was admitted as a whole."""
        twin = copy.copy(self)
        twin._admission = AdmissionChain()
        return twin

    def asks_about(self, resource: Resource) -> bool:
        """Whether questions of this kind, which are never stored, are to be admitted."""
        return self._admission.asks_about(resource)

    async def admit(self, call: Call, message: Object, *, check: Callable[[Object], None] | None = None) -> None:
        """Have what is not stored itself looked at: a binding, an eviction, a question. `check` it as it then is."""
        below = call.resource.subresource(call.subresource)
        kind = below.kind if below is not None else call.resource.kind
        message["kind"], message["apiVersion"] = kind.name, kind.api_version
        message["metadata"] = message.get("metadata") or {}
        review = _review(call, message, None, None)
        try:
            if (waiting := self._admission.mutate(review)) is not None:
                await waiting
            if check is not None:
                check(message)
            if (waiting := self._admission.validate(review)) is not None:
                await waiting
        finally:
            review.end()

    async def write(self, call: Call, edit: Edit, *, options: Object | None = None) -> Written:
        """Create, replace, patch or apply. The edit may be asked again if someone else was faster."""
        key = self._store_key(call)
        if key in self._writing:
            await self._turn(key)
        self._writing[key] = None
        is_creation = call.verb == "create" and not call.subresource
        try:
            while True:
                entry = None if is_creation else self._current(call)
                old = await self._shown(call, entry) if entry else None
                now = to_rfc3339(self._clock.now())
                if waits_for(call.resource):
                    new = await self._edited_later(call, edit, entry, old, now)
                else:
                    new = self._edited(call, edit, entry, old, now)
                if old is None and call.resource.custom is not None and call.resource.custom.is_leaving:
                    raise call.forbidden("create not allowed while custom resource definition is terminating")
                review = _review(call, new, old, options)
                if (waiting := self._admission.mutate(review)) is not None:
                    await waiting
                self._prepare(call, new, old, now)
                reservation = self._reservations.reserve(call.resource, new, old)
                try:
                    try:
                        self._check(call, new, old)
                    except TakesLong:
                        await asyncio.to_thread(self._check, call, new, old)
                    except errors.Invalid as error:
                        if found := await self._admission.errs(review):
                            raise error.after(found) from None
                        raise
                    if (waiting := self._admission.validate(review)) is not None:
                        await waiting
                    if is_creation and (there := self._current(call)) is not None:
                        raise call.already_exists(is_leaving="deletionTimestamp" in there.decode()["metadata"])
                    if entry is not None and _is_unchanged(new, old) and await self._is_kept_so(call, entry, new):
                        done: Written | None = Written(entry)
                    elif entry is not None and deletion.is_finished(call.resource, new):
                        done = await self._remove(call, key, entry, entry.decode(), shown=new)
                    else:
                        done = await self._store_object(call, key, entry, new)
                except BaseException as error:
                    reservation.give_back()
                    review.end(is_open=isinstance(error, asyncio.CancelledError))
                    raise
                review.end()
                if done is None or done.is_deleted or call.is_dry_run:
                    reservation.give_back()
                else:
                    reservation.keep()
                if done is not None:
                    return done
                # Lost a race: edit the newer object, or let the edit refuse it.
        finally:
            self._end_turn(key)

    async def delete(self, call: Call, options: DeleteOptions, *, raw_options: Object | None = None) -> Written:
        """Delete one object, or set it on its way out."""
        key = self._store_key(call)
        if key in self._writing:
            await self._turn(key)
        self._writing[key] = None
        if call.resource.strategy.deletion_warning and not options.says_of_dependents:
            call.warnings.append(call.resource.strategy.deletion_warning)
        try:
            while True:
                entry = self._current(call)
                if entry is None:
                    raise call.not_found()
                old = entry.decode()
                deletion.check_preconditions(call.resource, old, options)
                review = _review(call, None, old, raw_options)
                if (waiting := self._admission.mutate(review)) is not None:
                    await waiting
                if (waiting := self._admission.validate(review)) is not None:
                    await waiting
                marked = {**old, "metadata": dict(old["metadata"])}
                if deletion.marked_for_deletion(call.resource, marked, options, self._clock.now()):
                    done = await self._remove_last(call, key, entry, old, marked)
                elif marked == old:
                    return Written(entry)
                else:
                    done = await self._store_object(call, key, entry, marked)
                if done is not None:
                    return done
        finally:
            self._end_turn(key)

    # The steps, in the order in which they are taken.

    def _current(self, call: Call) -> Entry | None:
        return self._fanout.shelf(call.resource.prefix).entries.get(call.key)

    async def _shown(self, call: Call, entry: Entry) -> Object:
        """What is there: as it is stored, but of custom kinds in the version of the request."""
        if call.resource.custom is None:
            return entry.decode()
        converting = prepare([entry], call.resource)
        if converting is not None:
            await converting
        return shown_object(entry, call.resource)

    async def _is_kept_so(self, call: Call, entry: Entry, new: Object) -> bool:
        """An object that was stored in another version, or before it had a default, is written again."""
        if call.resource.custom is None:
            return True
        return stamp(await self._encoded(call, new), entry.revision) == entry.body

    def _edited(self, call: Call, edit: Edit, entry: Entry | None, old: Object | None, now: str) -> Object:
        """The edit's result as it would be stored, with defaults and with its fields' owners."""
        resource = call.resource
        live = old
        if entry is not None and resource.custom is not None:
            live = orjson.loads(orjson.dumps(old))
        elif entry is not None and (resource.is_converted or call.verb == "patch" or call.subresource):
            live = in_version(entry.decode(), resource)  # Shared with the result, so not to be shared with `old`.
        new = edit(live)
        if resource.kind == resource.stored or resource.custom is not None:
            if resource.custom is None:  # Or else the client's words were filled in when they were read.
                resource.strategy.default(new)
            if not isinstance(edit, Owning):
                self._own(call, new, old, now)
            return new
        if resource.is_converted:
            new = resource.to_stored(new)
            new.setdefault("apiVersion", resource.kind.api_version)
        resource.strategy.default(new)
        if not isinstance(edit, Owning):
            # Fields are owned as they are called in the version of the request, and defaults are the writer's.
            shown = in_version(orjson.loads(orjson.dumps(new)), resource)
            self._own(call, shown, in_version(entry.decode(), resource) if entry is not None else None, now)
            new["metadata"].pop("managedFields", None)
            if "managedFields" in shown["metadata"]:
                new["metadata"]["managedFields"] = shown["metadata"]["managedFields"]
        return new

    async def _edited_later(self, call: Call, edit: Edit, entry: Entry | None, old: Object | None, now: str) -> Object:
        """As `_edited`, where fields may be owned in versions that only a webhook knows."""
        while True:
            try:
                return self._edited(call, edit, entry, old, now)
            except ToConvert as missing:
                await missing.convert(is_needed=isinstance(edit, Owning))

    def _own(self, call: Call, new: Object, live: Object | None, now: str) -> None:
        managed_fields.after_update(live, new, self._ownerships.of(call), manager=manager_name(call), now=now)

    def _prepare(self, call: Call, new: Object, old: Object | None, now: str) -> None:
        """Set what the server alone decides, and put aside what a client may not set here."""
        resource, strategy = call.resource, call.resource.strategy
        metadata = new["metadata"]
        facet = call.subresource
        if old is None:
            metadata.pop("deletionTimestamp", None)
            metadata.pop("deletionGracePeriodSeconds", None)
            metadata.pop("selfLink", None)
            metadata["uid"] = new_uid()
            metadata["creationTimestamp"] = now
            if resource.has_status and not strategy.keeps_status_on_create:
                new.pop("status", None)
                if (status := resource.empty_status()) is not None:
                    new["status"] = status
            if strategy.tracks_generation:
                metadata["generation"] = 1
        else:
            keep_from(old, new, resource, facet=facet)
        if not facet:
            strategy.prepare(new, old)
        elif facet == "status":
            strategy.prepare_status(new, old)
        elif old is not None and facet in strategy.prepare_subresource:
            strategy.prepare_subresource[facet](new, old)
        if (
            old is not None
            and strategy.tracks_generation
            and facet not in _WITHOUT_GENERATION
            and _spec_changed(new, old, has_status=resource.has_status, is_open=resource.custom is not None)
        ):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1

    def _check(self, call: Call, new: Object, old: Object | None) -> None:
        """Collect every error. Raises TakesLong of a custom resource whose rules are better asked in a thread."""
        resource, strategy = call.resource, call.resource.strategy
        errs: list[FieldError] = []
        if old is not None:
            errs.extend(validate_metadata_update(new, old))
        errs.extend(
            validate_metadata(
                new,
                namespaced=resource.namespaced,
                qualified_finalizers=strategy.qualified_finalizers,
                name_rule=strategy.name_rule if old is None else names.path_segment,
                has_contents_checked=old is not None,
            )
        )
        if errs:
            errs = list(_as_told(call, new, old))
        if old is None:
            errs.extend(strategy.validate(new, None))
        else:
            errs.extend(_validate_update(strategy, call.subresource)(new, old))
        if errs:
            kind = resource.kind.name if resource.custom is None else str(new.get("kind") or resource.kind.name)
            raise errors.Invalid(errs, group=resource.stored.group, kind=kind, name=call.name)
        if call.subresource in ("", "scale"):
            call.warnings.extend(strategy.warnings(new, old))

    async def _store_object(self, call: Call, key: str, entry: Entry | None, new: Object) -> Written | None:
        """None if another writer was faster: look again."""
        resource = call.resource
        value = encoded(new, resource) if resource.custom is None else await self._encoded(call, new)
        if call.is_dry_run:
            return Written(_dry(value, entry), is_created=entry is None)
        try:
            revision = await self._store.put(key, value, expected=entry.revision if entry else 0)
        except stores.Conflict:
            return None
        written = self._current(call)
        if written is None or written.revision != revision:  # Changed again already: show what this writer wrote.
            written = Entry(stamp(value, revision), revision)
        return Written(written, is_created=entry is None)

    async def _remove_last(self, call: Call, key: str, entry: Entry, old: Object, marked: Object) -> Written | None:
        """Remove what nothing holds back. Where there is a grace period, watchers first hear that it is over."""
        if marked == old:
            return await self._remove(call, key, entry, old, shown=None)
        if call.resource.strategy.grace is None or call.is_dry_run:
            return await self._remove(call, key, entry, old, shown=marked)
        told = await self._store_object(call, key, entry, marked)
        return await self._remove(call, key, told.entry, old, shown=None) if told is not None else None

    async def _remove(self, call: Call, key: str, entry: Entry, old: Object, *, shown: Object | None) -> Written | None:
        """None if another writer was faster.

        `shown` is what the answer shows where that is not what is stored, at the revision that is.
        """
        last, uid = entry, old["metadata"].get("uid", "")
        if shown is not None:
            last = Entry(stamp(await self._encoded(call, shown), entry.revision), entry.revision)
        if call.is_dry_run:
            return Written(last, is_deleted=True, uid=uid)
        try:
            revision = await self._store.delete(key, expected=entry.revision)
        except stores.Conflict:
            return None
        self._reservations.release(call.resource, old)
        if shown is None:
            last = Entry(restamp(last.body, revision), revision)
        return Written(last, is_deleted=True, uid=uid)

    async def _encoded(self, call: Call, new: Object) -> bytes:
        custom = call.resource.custom
        # Deleting goes on where converting fails: what is marked stays in the version that it is stored in.
        is_other = new.get("apiVersion") != call.resource.stored.api_version
        if custom is not None and is_other and call.verb not in ("delete", "deletecollection"):
            kept = custom.kept(new)
            new = kept if isinstance(kept, dict) else await kept
        return encoded(new, call.resource)

    def _store_key(self, call: Call) -> str:
        return call.resource.prefix + call.key

    async def _turn(self, key: str) -> None:
        """One writer of a key at a time, so that a race is lost in a queue and not in wasted work."""
        while key in self._writing:
            before = self._writing[key]
            if before is None:
                before = self._writing[key] = asyncio.get_running_loop().create_future()
            await asyncio.shield(before)

    def _end_turn(self, key: str) -> None:
        waited_for = self._writing.pop(key)
        if waited_for is not None:
            waited_for.set_result(None)


def encoded(obj: Object, resource: Resource) -> bytes:
    """The bytes that are stored: kind, apiVersion and metadata first, no revision (see shelves)."""
    metadata = dict(obj["metadata"])
    metadata.pop("resourceVersion", None)
    api_version = resource.stored.api_version if resource.custom is None else obj["apiVersion"]
    ordered = {"kind": resource.stored.name, "apiVersion": api_version, "metadata": metadata}
    for name, value in obj.items():
        if name not in ordered:
            ordered[name] = value
    # What orjson returns keeps the whole buffer it was written in, ten times its size: keep a copy that fits.
    return bytes(memoryview(orjson.dumps(ordered)))


def generated_name(prefix: str) -> str:
    return prefix[:_MAX_GENERATED] + "".join(random.choices(NAME_LETTERS, k=5))


def manager_name(call: Call) -> str:
    """Whose edit this is: what the client says, or the first word of its User-Agent."""
    return call.text("fieldManager") or call.request.head.agent


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
    """Those that came in the query, as who is asked about the write sees them."""
    query = call.request.query
    if not query:
        return {}
    given: Object = {name: query[name][0] for name in ("fieldManager", "fieldValidation") if query.get(name)}
    return {"dryRun": list(query["dryRun"]), **given} if query.get("dryRun") else given


def _as_told(call: Call, new: Object, old: Object | None) -> Iterable[FieldError]:
    """The errors of metadata that has some: Kubernetes finds some of them again and again, others not everywhere."""
    resource = call.resource
    place = (resource.stored.group, resource.plural)
    if old is not None:
        word = CUSTOM if resource.custom is not None else rounds(*place, call.subresource)
        return validate_repeated_update(new, old, word, namespaced=resource.namespaced)
    return validate_metadata(
        new,
        namespaced=resource.namespaced,
        qualified_finalizers=resource.custom is None and asks_for_domains(*place),
        name_rule=resource.strategy.name_rule,
    )


def _validate_update(strategy: Strategy, facet: str) -> Callable[[Object, Object], Iterable[FieldError]]:
    if facet == "binding":
        return _accept
    if facet == "status":
        return strategy.validate_status
    return strategy.validate_subresource.get(facet, strategy.validate)


def _accept(new: Object, old: Object) -> Iterable[FieldError]:
    """The scheduler's word counts: what a binding may change is decided by its edit."""
    return ()


_WITHOUT_GENERATION = frozenset(("status", "binding"))
_NAMES_OF_KIND = frozenset(("kind", "apiVersion"))


def _spec_changed(new: Object, old: Object, *, has_status: bool, is_open: bool) -> bool:
    """`is_open` says that a schema may leave open what stands somewhere, where Python would take true for 1."""
    names = (new.keys() | old.keys()) - {"metadata", "kind", "apiVersion"}
    if has_status:
        names.discard("status")
    if any(new.get(name) != old.get(name) for name in names):
        return True
    return is_open and not all(identical(new.get(name), old.get(name)) for name in names)


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


def _dry(value: bytes, entry: Entry | None) -> Entry:
    """What would have been written; a new object has no revision yet."""
    return Entry(stamp(value, entry.revision), entry.revision) if entry else Entry(value, 0)
