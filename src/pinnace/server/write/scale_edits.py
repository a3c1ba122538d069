"""The Scale of a workload, and the edit of a workload through its Scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from pinnace.model import errors, field_errors, selectors
from pinnace.model.jsonpath import JsonPathError, integer_at, put_at, text_at
from pinnace.model.objects import Object
from pinnace.model.patches.apply import ApplyFailed
from pinnace.model.patches.managed_fields import FieldManager, OwnedFields, decode, write
from pinnace.model.resources import Resource, ScalePaths
from pinnace.schema.merge import field_sets
from pinnace.serving.cache.served_versions import decode_served
from pinnace.serving.cache.watch_cache import CachedObject
from pinnace.serving.request.call import Call
from pinnace.serving.write.edits import Owning


class _Selected(TypedDict, total=False):
    replicas: int | None
    selector: dict[str, Any] | None


class _Scaled(TypedDict, total=False):
    replicas: int | None


class _Workload(TypedDict, total=False):
    """The fields of a built-in workload that its Scale has. Decoding a whole one takes several times as long."""

    metadata: dict[str, Any]
    spec: _Selected | None
    status: _Scaled | None


_decode_workload = msgspec.json.Decoder(_Workload).decode


def read_scale(entry: CachedObject, resource: Resource) -> Object:
    """Return the Scale of a cached workload. Call `prepare` first if needed."""
    if resource.custom is None and resource.kind == resource.stored:
        return scale_of(dict(_decode_workload(entry.body)), resource)
    return scale_of(decode_served(entry, resource), resource)


def scale_of(obj: Object, resource: Resource) -> Object:
    """Return the Scale of a workload."""
    if resource.custom is not None and resource.custom.scale is not None:
        check_says_replicas(obj, resource.custom.scale)
        return custom_scale_of(obj, resource.custom.scale)
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    scale: Object = {
        "kind": "Scale",
        "apiVersion": SCALE_VERSION,
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {},
        "status": {"replicas": status.get("replicas", 0)},
    }
    if spec.get("replicas"):
        scale["spec"]["replicas"] = spec["replicas"]
    text = _selector_text(spec.get("selector"))
    if text:
        scale["status"]["selector"] = text
    return scale


def _selector_text(selector: Any) -> str:
    if not selector:
        return ""
    if "matchLabels" in selector or "matchExpressions" in selector:
        return str(selectors.from_object(selector))
    return str(selectors.from_labels(selector))


@dataclass(frozen=True, slots=True)
class Rescaling(Owning):
    """The edit of a workload through its Scale, managedFields included."""

    call: Call
    edit_scale: Callable[[Object], Object]
    replicas_in: ReplicasIn

    def __call__(self, live: Object | None) -> Object:
        call = self.call
        if live is None:
            raise call.not_found()
        paths = call.resource.custom.scale if call.resource.custom is not None else None
        scale = scale_of(live, call.resource) if paths is None else custom_scale_of(live, paths)
        entries = live["metadata"].get("managedFields")
        try:
            scale["metadata"]["managedFields"] = owners_of_scale(entries, self.replicas_in)
        except ValueError as err:
            raise ApplyFailed(f"failed to decode managed fields: {err}") from None
        wanted = self.edit_scale(scale)
        if paths is not None and not (wanted.get("spec") or {}).get("replicas"):
            check_stated_replicas(live, paths)
        self._check(wanted, live, is_custom=paths is not None)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if paths is not None:
            new = with_replicas(live, paths.spec, replicas)
        else:
            new = {**live, "metadata": dict(live["metadata"]), "spec": {**live["spec"], "replicas": replicas}}
        owners = wanted["metadata"].get("managedFields")
        own_replicas(new, entries, owners, self.replicas_in, call.resource.kind.api_version)
        return new

    def _check(self, wanted: Object, live: Object, *, is_custom: bool) -> None:
        call, metadata = self.call, wanted["metadata"]
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            raise errors.BadRequest("json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32")
        if call.verb == "patch" and not metadata.get("name"):
            raise errors.BadRequest(
                f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
            )
        if metadata.get("name", call.name) != call.name:
            raise errors.BadRequest(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
            )
        if replicas < 0 and not is_custom:
            err = field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise errors.Invalid([err], group="autoscaling", kind="Scale", name=call.name)
        version = metadata.get("resourceVersion", "")
        if version and version != live["metadata"]["resourceVersion"]:
            raise call.conflict(errors.MODIFIED)
        uid, current = metadata.get("uid", ""), live["metadata"]["uid"]
        if uid and uid != current:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current}"
            resource = call.resource
            if call.verb == "update":
                raise call.conflict(why)
            raise errors.Conflict(why, group=resource.group, plural=f"{resource.plural}/scale", name=call.name)


SCALE_VERSION = "autoscaling/v1"
_IN_SCALE = field_sets.of_paths(("f:spec", "f:replicas"))

ReplicasIn = Callable[[str], tuple[str, ...] | None]
"""The path of the replicas in one version of a workload: () if it has none, None if the version is unknown."""


def owners_of_scale(entries: Any, replicas_in: ReplicasIn) -> list[Object]:
    """Return the entries that own the replicas, as entries of a Scale. Raise ValueError for a malformed entry."""
    owners = {}
    for manager, entry in decode(entries).items():
        path = replicas_in(entry.api_version)
        if path and field_sets.contains(entry.owned, _elements(path)):
            version = SCALE_VERSION if manager.operation == "Update" else ""
            owners[manager._replace(api_version=version)] = OwnedFields(_IN_SCALE, SCALE_VERSION, entry.time)
    scale: Object = {"metadata": {}}
    write(scale, owners)
    return list(scale["metadata"].get("managedFields", ()))


def own_replicas(workload: Object, entries: Any, of_scale: Any, replicas_in: ReplicasIn, api_version: str) -> None:
    """Set the managedFields of a workload from the entries `of_scale` of its Scale.

    As in Kubernetes, an Update entry is identified by its version, so that the replicas of an existing manager become
    a new entry, and a new entry has no time.
    """
    before, scalers = decode(entries), decode(of_scale)
    owners: dict[FieldManager, OwnedFields] = {}
    for manager, entry in before.items():
        path = replicas_in(entry.api_version)
        if path is None:
            continue
        if not path or not field_sets.contains(entry.owned, _elements(path)):
            owners[manager] = entry
        elif manager in scalers:
            owners[manager] = entry
            del scalers[manager]
        elif left := field_sets.difference(entry.owned, field_sets.of_paths(_elements(path))):
            owners[manager] = entry.holding(left)
    here = field_sets.of_paths(_elements(replicas_in(api_version) or ()))
    for manager, entry in scalers.items():
        if field_sets.contains(entry.owned, ("f:spec", "f:replicas")):
            known = before.get(manager)
            owners[manager] = OwnedFields(here, api_version, known.time if known is not None else "")
    write(workload, owners)


def _elements(path: tuple[str, ...]) -> field_sets.Path:
    return tuple(f"f:{name}" for name in path)


_DEEPEST = 1_000
"""Fields of a path; an object nests less deep."""
_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def custom_scale_of(obj: Object, paths: ScalePaths) -> Object:
    """Return the Scale of a custom object. Missing values are left out, or zero."""
    metadata = obj["metadata"]
    try:
        wanted, present = integer_at(obj, paths.spec), integer_at(obj, paths.status)
        selector = text_at(obj, paths.selector) if paths.selector else None
    except JsonPathError as err:
        raise errors.InternalError(str(err)) from None
    scale: Object = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _OF_METADATA if name in metadata},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": present or 0},
    }
    if selector:
        scale["status"]["selector"] = selector
    return scale


def check_says_replicas(obj: Object, paths: ScalePaths) -> None:
    """Raise if an object has no replicas field: it has no scale to read."""
    if integer_at(obj, paths.spec) is None:
        raise errors.InternalError(f'the spec replicas field "{format_path(paths.spec)}" does not exist')


def check_stated_replicas(live: Object, paths: ScalePaths) -> None:
    """Raise if replicas are set to zero and were never set: the client may have left them out by mistake."""
    if integer_at(live, paths.spec) is None:
        raise errors.BadRequest(f'the spec replicas field "{format_path(paths.spec)}" cannot be empty')


def format_path(path: tuple[str, ...]) -> str:
    return "".join(f".{field}" for field in path)


def with_replicas(obj: Object, path: tuple[str, ...], replicas: int) -> Object:
    """Return a copy of the object with another number of replicas. Raise BadRequest if it would nest too deep."""
    if len(path) > _DEEPEST:
        raise errors.BadRequest("exceeded max depth: the object would nest too deep; keep its parts flat")
    new: Object = {**obj, "metadata": dict(obj["metadata"])}
    new["metadata"].pop("managedFields", None)
    place = new
    for field in path[:-1]:
        copy = dict(place.get(field) or {})
        place[field] = copy
        place = copy
    put_at(new, path, replicas)
    return new
