"""The scale of a custom kind, which says itself where it keeps its replicas and their selector."""

from __future__ import annotations

from typing import Any

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.resources import ScalePaths

_OF_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Object, paths: ScalePaths) -> Object:
    """The Scale that stands for a custom object. What it does not say is not shown, or zero."""
    metadata = obj["metadata"]
    wanted = _integer(obj, paths.spec)
    scale: Object = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _OF_METADATA if name in metadata},
        "spec": {} if wanted is None else {"replicas": wanted},
        "status": {"replicas": _integer(obj, paths.status) or 0},
    }
    selector = found(obj, paths.selector) if paths.selector else None
    if selector is not None:
        if not isinstance(selector, str):
            raise _wrong(paths.selector, selector, "string")
        scale["status"]["selector"] = selector
    return scale


def with_replicas(obj: Object, path: tuple[str, ...], replicas: int) -> Object:
    """The object with another number of replicas. Shares nothing that it changes with the one given."""
    new: Object = {**obj, "metadata": dict(obj["metadata"])}
    new["metadata"].pop("managedFields", None)
    place = new
    for field in path[:-1]:
        below = place.get(field)
        if below is not None and not isinstance(below, dict):
            where = ".".join(path[:-1])
            raise errors.InternalError(f"value cannot be set because .{where} is not a map[string]interface{{}}")
        copy = dict(below or {})
        place[field] = copy
        place = copy
    place[path[-1]] = replicas
    return new


def found(obj: Any, path: tuple[str, ...]) -> Any:
    for field in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(field)
    return obj


def _integer(obj: Object, path: tuple[str, ...]) -> int | None:
    value = found(obj, path)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(path, value, "int64")
    return value


_GO_NAMES = {str: "string", bool: "bool", float: "float64", int: "int64", list: "[]interface {}"}


def _wrong(path: tuple[str, ...], value: Any, wanted: str) -> errors.InternalError:
    found_type = _GO_NAMES.get(type(value), "map[string]interface {}")
    return errors.InternalError(
        f".{'.'.join(path)} accessor error: {value} is of the type {found_type}, expected {wanted}"
    )
