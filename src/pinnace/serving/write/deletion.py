"""Reads the options of a delete request, and decides its effect: remove the object, mark it, or leave it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pinnace.model import errors, field_errors
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Resource
from pinnace.process.clock import later, to_rfc3339
from pinnace.schema.golang.decode import DecodeError
from pinnace.serving.request.body import read_untyped
from pinnace.serving.request.call import Call, dry_run_errors
from pinnace.serving.write.body_decoder import BodyDecoder

_CHECKED_AS_STORED = ("namespaces", "customresourcedefinitions")
"""Kinds that Kubernetes marks by a write first, and so refuses with the message of a write."""

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_IGNORE_ERRORS = "ignoreStoreReadErrorWithClusterBreakingPotential"
_POLICIES = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str = ""
    orphan_dependents: bool | None = None
    uid: str | None = None
    resource_version: str | None = None
    is_dry_run: bool = False

    @property
    def says_of_dependents(self) -> bool:
        return bool(self.propagation) or self.orphan_dependents is not None

    @property
    def has_preconditions(self) -> bool:
        return self.uid is not None or self.resource_version is not None

    @classmethod
    def of(cls, options: Object) -> DeleteOptions:
        """Parse a DeleteOptions object. Raise Invalid with every error."""
        if not options:
            return _WITHOUT
        errs = []
        propagation = options.get("propagationPolicy")
        if propagation is not None and options.get("orphanDependents") is not None:
            errs.append(
                field_errors.invalid(
                    "propagationPolicy",
                    propagation,
                    "orphanDependents and deletionPropagation cannot be both set",
                )
            )
        if propagation is not None and propagation not in _POLICIES:
            errs.append(field_errors.not_supported("propagationPolicy", propagation, [*_POLICIES, "nil"]))
        dry_run = options.get("dryRun") or []
        errs.extend(dry_run_errors(dry_run))
        if errs:
            raise errors.Invalid(errs, group="meta.k8s.io", kind="DeleteOptions", name="")
        preconditions = options.get("preconditions") or {}
        grace: Any = options.get("gracePeriodSeconds")
        return cls(
            grace_seconds=None if grace is None else 1 if grace < 0 else int(grace),
            propagation=propagation or "",
            orphan_dependents=options.get("orphanDependents"),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            is_dry_run=bool(dry_run),
        )


_WITHOUT = DeleteOptions()
"""The options of most deletions."""


def check_preconditions(resource: Resource, obj: Object, options: DeleteOptions) -> None:
    metadata = obj["metadata"]
    why = ""
    if resource.plural in _CHECKED_AS_STORED and "deletionTimestamp" not in metadata:
        _check_as_stored(resource, metadata, options)
    if options.uid is not None and options.uid != metadata.get("uid"):
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata.get('uid')}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version is not None and options.resource_version != metadata.get("resourceVersion"):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({metadata.get('resourceVersion')}). The object might have been modified"
        )
    if why:
        raise errors.Conflict(why, group=resource.stored.group, plural=resource.kind.name, name=metadata["name"])


def _check_as_stored(resource: Resource, metadata: Object, options: DeleteOptions) -> None:
    for what, wanted, actual in (
        ("UID", options.uid, metadata.get("uid")),
        ("ResourceVersion", options.resource_version, metadata.get("resourceVersion")),
    ):
        if wanted is not None and wanted != actual:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
            raise errors.Conflict(why, group=resource.group, plural=resource.plural, name=metadata["name"])


def marked_for_deletion(resource: Resource, obj: Object, options: DeleteOptions, now: datetime) -> bool:
    """Mark `obj` for deletion: change its top level and its metadata. Return whether it can be removed now."""
    metadata = obj["metadata"]
    is_pending = "deletionTimestamp" in metadata
    if not is_pending:
        resource.strategy.mark(obj, now)
    is_graceful = _begin_grace(resource, obj, options, now)
    if is_graceful is None:
        return False  # Already marked, and this request does not shorten its grace period.
    finalizers = _finalizers(resource, metadata.get("finalizers") or [], options)
    if finalizers != metadata.get("finalizers", []):
        metadata["finalizers"] = finalizers
        if not finalizers:
            del metadata["finalizers"]
    if _is_held_by_spec(resource, obj):
        metadata.setdefault("deletionTimestamp", to_rfc3339(now))
        return False
    if not finalizers and not (is_graceful and metadata["deletionGracePeriodSeconds"] > 0):
        return True
    if not is_graceful and "deletionTimestamp" not in metadata:
        _mark(obj, now)
    return False


def is_finished(resource: Resource, obj: Object) -> bool:
    """Whether an update removed the last finalizer of an object that is marked for deletion."""
    metadata = obj["metadata"]
    is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return not is_held and not _is_held_by_spec(resource, obj)


def _begin_grace(resource: Resource, obj: Object, options: DeleteOptions, now: datetime) -> bool | None:
    """Set the grace period: True if there is one, False if the kind knows none, None if deletion is pending already."""
    grace_of = resource.strategy.grace
    metadata = obj["metadata"]
    if grace_of is None:
        return False
    if "deletionTimestamp" in metadata:
        running = metadata.get("deletionGracePeriodSeconds") or 0
        if running == 0:
            return False
        wanted = options.grace_seconds
        if wanted is None or wanted >= running:
            return None
        due = later(datetime.fromisoformat(metadata["deletionTimestamp"]), wanted - running)
        if due < now:
            due, wanted = now, 1 if wanted else 0
        metadata["deletionTimestamp"] = to_rfc3339(due)
        metadata["deletionGracePeriodSeconds"] = wanted
        return True
    seconds = grace_of(obj, options.grace_seconds)
    metadata["deletionTimestamp"] = to_rfc3339(later(now, seconds))
    metadata["deletionGracePeriodSeconds"] = seconds
    if metadata.get("generation"):
        metadata["generation"] += 1
    return True


def _mark(obj: Object, now: datetime) -> None:
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = to_rfc3339(now)
        if metadata.get("generation"):
            metadata["generation"] += 1
    metadata["deletionGracePeriodSeconds"] = 0


def _finalizers(resource: Resource, present: list[str], options: DeleteOptions) -> list[str]:
    """Return the finalizers with the one that tells the garbage collector what to do with the dependents."""
    default = resource.strategy.dependents
    if default == "none":
        return present
    if options.orphan_dependents is not None:
        wanted = ORPHAN if options.orphan_dependents else ""
    elif options.propagation:
        wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND, "Background": ""}[options.propagation]
    else:
        wanted = next((name for name in present if name in (ORPHAN, FOREGROUND)), "")
        if not wanted and default == "orphan":
            wanted = ORPHAN
    kept = [name for name in present if name not in (ORPHAN, FOREGROUND)]
    return [*kept, wanted] if wanted else kept


def _is_held_by_spec(resource: Resource, obj: Object) -> bool:
    """Whether a namespace still has finalizers in its spec; set its phase to Terminating if so."""
    if resource.plural != "namespaces" or resource.group:
        return False
    if (obj.get("spec") or {}).get("finalizers"):
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return True
    return False


_DELETE_OPTIONS = Kind("", "v1", "DeleteOptions")
_META_SCHEME = "pkg/apis/meta/internalversion/scheme/register.go:27"


def read_delete_options(call: Call, decoder: BodyDecoder) -> tuple[Object, DeleteOptions]:
    """Return the options as the client sent them, and parsed."""
    raw = _read_body(call, decoder) if call.request.body else _read_query(call)
    return raw, parse_delete_options(call, raw)


def parse_delete_options(call: Call, raw: Object) -> DeleteOptions:
    """Parse the options. A dry run may be asked for in the query or in the options."""
    options = DeleteOptions.of(raw)
    if options.is_dry_run:
        call.request.body_says_dry_run = True
    if raw.get(_IGNORE_ERRORS):
        call.warnings.append(
            f"{_IGNORE_ERRORS}: has no effect in this cluster: objects that cannot be read are not deleted"
        )
    return options


def _read_body(call: Call, decoder: BodyDecoder) -> Object:
    """Read DeleteOptions of any version, or without a kind."""
    options = read_untyped(call.request.body, call.request.head.content_type)
    kind = options.get("kind") or _DELETE_OPTIONS.name
    if kind != _DELETE_OPTIONS.name:
        version = options.get("apiVersion", "")
        raise errors.BadRequest(f'no kind "{kind}" is registered for version "{version}" in scheme "{_META_SCHEME}"')
    try:
        decoder.decoder_of(_DELETE_OPTIONS)(options)
    except DecodeError as error:
        raise errors.BadRequest(str(error)) from None
    return options


def _read_query(call: Call) -> Object:
    options: Object = {}
    if not call.request.raw_query:
        return options
    grace = call.number("gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if call.request.parameter("propagationPolicy") is not None:
        options["propagationPolicy"] = call.text("propagationPolicy")
    if call.request.parameter("orphanDependents") is not None:
        options["orphanDependents"] = call.flag("orphanDependents")
    if "dryRun" in call.request.query:
        options["dryRun"] = call.request.query["dryRun"]
    preconditions = {name: value for name in ("uid", "resourceVersion") if (value := call.text(name))}
    if preconditions:
        options["preconditions"] = preconditions
    return options
