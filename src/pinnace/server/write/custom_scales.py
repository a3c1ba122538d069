"""The scale of a custom kind, whose definition names the paths of replicas and selector."""

from __future__ import annotations

from pinnace.model import errors
from pinnace.model.jsonpath import JsonPathError, integer_at, put_at, text_at
from pinnace.model.objects import Object
from pinnace.model.resources import ScalePaths

_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Object, paths: ScalePaths) -> Object:
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
        raise errors.InternalError(f'the spec replicas field "{shown_path(paths.spec)}" does not exist')


def check_said_replicas(live: Object, paths: ScalePaths) -> None:
    """Raise if replicas are set to zero and were never set: the client may have left them out by mistake."""
    if integer_at(live, paths.spec) is None:
        raise errors.BadRequest(f'the spec replicas field "{shown_path(paths.spec)}" cannot be empty')


def shown_path(path: tuple[str, ...]) -> str:
    return "".join(f".{field}" for field in path)


def with_replicas(obj: Object, path: tuple[str, ...], replicas: int) -> Object:
    """Return a copy of the object with another number of replicas."""
    new: Object = {**obj, "metadata": dict(obj["metadata"])}
    new["metadata"].pop("managedFields", None)
    place = new
    for field in path[:-1]:
        copy = dict(place.get(field) or {})
        place[field] = copy
        place = copy
    put_at(new, path, replicas)
    return new
