"""The Scale of a workload, and the edit of a workload through its Scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from pinnace.model import errors, field_errors, selectors
from pinnace.model.objects import Object
from pinnace.model.patches.apply import ApplyFailed
from pinnace.model.resources import Resource
from pinnace.server.cache.served_versions import decode_served
from pinnace.server.cache.watch_cache import CachedObject
from pinnace.server.request.call import Call
from pinnace.server.write import custom_scales
from pinnace.server.write.edits import Owning
from pinnace.server.write.scale_owners import SCALE_VERSION, ReplicasIn, own_replicas, owners_of_scale


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
        custom_scales.check_says_replicas(obj, resource.custom.scale)
        return custom_scales.scale_of(obj, resource.custom.scale)
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
        scale = scale_of(live, call.resource) if paths is None else custom_scales.scale_of(live, paths)
        entries = live["metadata"].get("managedFields")
        try:
            scale["metadata"]["managedFields"] = owners_of_scale(entries, self.replicas_in)
        except ValueError as err:
            raise ApplyFailed(f"failed to decode managed fields: {err}") from None
        wanted = self.edit_scale(scale)
        if paths is not None and not (wanted.get("spec") or {}).get("replicas"):
            custom_scales.check_said_replicas(live, paths)
        self._check(wanted, live, is_custom=paths is not None)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if paths is not None:
            new = custom_scales.with_replicas(live, paths.spec, replicas)
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
