"""JSON patch (RFC 6902) and merge patch (RFC 7386), as the API server applies them."""

from __future__ import annotations

from typing import Any

import orjson

from pinnace.model.errors import ApiError, BadRequest, TooLarge
from pinnace.model.objects import Object
from pinnace.process.work_slices import give_way
from pinnace.schema.golang.numbers import parse_int

MOST_OPERATIONS = 10_000
MOST_COPIED_BYTES = 3 * 1024 * 1024
TOO_DEEP = "exceeded max depth: the object would nest too deep; keep its parts flat"


class PatchRefused(ApiError):
    """The patch is well-formed but does not apply: 422. The details are not sent, as in Kubernetes."""

    code, reason = 422, "Invalid"
    always_shows_details = True

    def __init__(self, why: str) -> None:
        super().__init__("the server rejected our request due to an error in our request")
        self.why = why


def json_patch(document: Any, operations: Any) -> Any:
    """Apply all operations and return the result. Neither argument is changed; untouched parts are shared.

    Raise BadRequest for an invalid patch or a result that nests too deep, TooLarge for too many operations,
    PatchRefused for one that fails.
    """
    if operations is None:
        return document
    if not isinstance(operations, list):
        raise _undecodable(operations, "Go value of type []handlers.jsonPatchOp")
    for operation in operations:
        _refuse_malformed(operation)
    if len(operations) > MOST_OPERATIONS:
        raise TooLarge(f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}")
    patched = _Patched(document)
    try:
        for operation in operations:
            patched.apply(operation or {})
        orjson.dumps(patched.document)
    except (RecursionError, orjson.JSONEncodeError):  # Each copy into itself doubles the depth.
        raise BadRequest(TOO_DEEP) from None
    return patched.document


def merge_patch(document: Any, patch: Any) -> Any:
    """Merge a patch: null deletes, objects merge, others replace. Neither argument is changed.

    Raise BadRequest if the patch is not an object.
    """
    if patch is None:
        raise BadRequest("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _undecodable(patch, "Go value of type map[string]interface {}")
    return _merge(document, patch)


def unknown_patch_fields(operations: list[Any]) -> list[str]:
    """Yield warnings for unknown fields of JSON patch operations."""
    return [
        f'json patch unknown field "[{index}].{name}"'
        for index, operation in enumerate(operations)
        if isinstance(operation, dict)
        for name in operation
        if name not in ("op", "path", "from", "value")
    ]


def _merge(current: Any, patch: Any) -> Any:
    give_way()
    if not isinstance(current, dict):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        return patch
    merged = dict(current)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif merged.get(key) is None:
            merged[key] = _without_nulls(value)
        else:
            merged[key] = _merge(merged[key], value)
    return merged


def _without_nulls(value: Any) -> Any:
    """Remove nulls, also from objects in lists, where RFC 7386 would keep them; nulls as items of lists stay."""
    if isinstance(value, dict):
        give_way()
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _undecodable(value: Any, wanted: str) -> BadRequest:
    return BadRequest(f"error decoding patch: json: cannot unmarshal {_json_type(value)} into {wanted}")


def _json_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _refuse_malformed(operation: Any) -> None:
    if operation is None:
        return
    if not isinstance(operation, dict):
        raise _undecodable(operation, "Go value of type handlers.jsonPatchOp")
    for field in ("op", "path", "from"):
        value = operation.get(field)
        if value is not None and not isinstance(value, str):
            raise _undecodable(value, f"Go struct field jsonPatchOp.{field} of type string")


class _Patched:
    """A document that is being patched. Containers are copied before the first write to them."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied_bytes = 0
        self._own: dict[int, Any] = {}  # Copied containers, referenced so that their ids stay unique.

    def apply(self, operation: Object) -> None:
        give_way()
        match operation.get("op"):
            case "add":
                self._put(operation, self._path(operation, "path", "add"), operation.get("value"), "add")
            case "remove":
                self._remove(self._path(operation, "path", "remove"), "remove")
            case "replace":
                self._replace(operation)
            case "move":
                self._move(operation)
            case "copy":
                self._copy(operation)
            case "test":
                self._test(operation)
            case other:
                raise PatchRefused(f"Unexpected kind: {'unknown' if other is None else other}")

    def _path(self, operation: Object, field: str, verb: str) -> str:
        path = operation.get(field)
        if path is None:
            raise PatchRefused(f"{verb} operation failed to decode {field}: missing value")
        return str(path)

    def _put(self, operation: Object, path: str, value: Any, verb: str) -> None:
        container, key = self._writable(path, f'{verb} operation does not apply: doc is missing path: "{path}"')
        if isinstance(container, dict):
            container[key] = value
        elif key == "-":
            container.append(value)
        else:
            container.insert(_index(key, len(container) + 1), value)

    def _remove(self, path: str, verb: str) -> Any:
        container, key = self._writable(path, f'{verb} operation does not apply: doc is missing path: "{path}"')
        if isinstance(container, list):
            return container.pop(_index(key, len(container)))
        if key not in container:
            where = path if verb == "remove" else key
            why = f"Unable to remove nonexistent key: {key}: missing value"
            raise PatchRefused(f"error in {verb} for path: '{where}': {why}")
        return container.pop(key)

    def _replace(self, operation: Object) -> None:
        path, value = self._path(operation, "path", "replace"), operation.get("value")
        if path == "":
            if not isinstance(value, dict | list):
                raise PatchRefused("replace operation value must be object or array")
            self.document = value
            return
        container, key = self._writable(path, f"replace operation does not apply: doc is missing path: {path}")
        # A missing key is added: the library that Kubernetes uses does so, against the RFC.
        container[key if isinstance(container, dict) else _index(key, len(container))] = value

    def _move(self, operation: Object) -> None:
        value = self._remove(self._path(operation, "from", "move"), "move")
        self._put(operation, self._path(operation, "path", "move"), value, "move")

    def _copy(self, operation: Object) -> None:
        value = self._at(self._path(operation, "from", "copy"), "copy")
        if value is not None:
            encoded = orjson.dumps(value)
            self._copied_bytes += len(encoded)
            if self._copied_bytes > MOST_COPIED_BYTES:
                raise PatchRefused(
                    f"Unable to complete the copy, the accumulated size increase of copy is {self._copied_bytes}, "
                    f"exceeding the limit {MOST_COPIED_BYTES}"
                )
            value = orjson.loads(encoded)
        self._put(operation, self._path(operation, "path", "copy"), value, "copy")

    def _test(self, operation: Object) -> None:
        path, expected = self._path(operation, "path", "test"), operation.get("value")
        value = self.document if path == "" else self._at(path, "test")
        if not _equal(value, expected):
            raise PatchRefused(f"testing value {path} failed: test failed")

    def _at(self, path: str, verb: str) -> Any:
        *parents, key = _keys(path, f"{verb} operation does not apply: doc is missing path: {path}")
        container = self.document
        for parent in parents:
            container = _child(container, parent)
            if not isinstance(container, dict | list):
                raise PatchRefused(f"{verb} operation does not apply: doc is missing path: {path}: missing value")
        return _child(container, key)

    def _writable(self, path: str, error: str) -> tuple[Any, str]:
        """Return the container of the path's last key, after copying it and its parents."""
        *parents, last = _keys(path, error)
        container = self.document = self._copy_once(self.document)
        for key in parents:
            child = _child(container, key)
            if not isinstance(child, dict | list):
                raise PatchRefused(f"{error}: missing value")
            owned = self._copy_once(child)
            container[key if isinstance(container, dict) else _index(key, len(container))] = owned
            container = owned
        return container, last

    def _copy_once(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        copied = container.copy()
        self._own[id(copied)] = copied
        return copied


def _keys(path: str, error: str) -> list[str]:
    keys = path.split("/")[1:]
    if not keys:
        raise PatchRefused(f"{error}: missing value")
    return [key.replace("~1", "/").replace("~0", "~") for key in keys] if "~" in path else keys


def _child(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key)
    return container[_index(key, len(container))]


def _index(key: str, length: int) -> int:
    """Return an index in a list; negative ones count from the end, which the API server allows."""
    index = parse_int(key)
    if index is None:
        raise PatchRefused(f"value was not a proper array index: '{key}'")
    if not -length <= index < length:
        raise PatchRefused(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + length if index < 0 else index


def _equal(left: Any, right: Any) -> bool:
    """Compare JSON values: unlike in Python, true is not 1 and 1 is not 1.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)
