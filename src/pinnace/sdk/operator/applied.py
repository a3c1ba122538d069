"""Find out from a cached object that applying it again would change nothing, so that no request is needed."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import orjson

from pinnace.model.objects import Key, Kind, Object

_IDENTITY = ("apiVersion", "kind")
_NAMES = ("name", "namespace")
_MOST = 100_000


class AppliedObjects:
    """Remembers the result of each apply. An apply changes nothing while its fields and their owner are the same."""

    def __init__(self) -> None:
        self._digests: OrderedDict[tuple[Kind, Key], tuple[bytes, bytes]] = OrderedDict()

    def is_applied(self, kind: Kind, key: Key, wanted: Object, present: Object, *, manager: str) -> bool:
        """Return whether `present` is the result of applying `wanted`."""
        entry = _entry_of(present, manager, wanted["apiVersion"])
        if entry is None:
            return False
        known = self._digests.get((kind, key))
        if known is not None and known == (_digest(wanted), _state(wanted, present, entry)):
            return True
        # After a restart nothing is remembered: the field manager's own fields are compared one by one.
        return _has_exactly(entry.get("fieldsV1") or {}, wanted, present)

    def remember(self, kind: Kind, key: Key, wanted: Object, answer: Object, *, manager: str) -> None:
        """Remember the answer to an apply. The server may have normalized values and added defaults."""
        entry = _entry_of(answer, manager, wanted["apiVersion"])
        if entry is not None:
            self._digests[kind, key] = (_digest(wanted), _state(wanted, answer, entry))
            self._digests.move_to_end((kind, key))
            if len(self._digests) > _MOST:
                self._digests.popitem(last=False)


def _entry_of(obj: Object, manager: str, api_version: str) -> Object | None:
    """Return the managedFields entry of a manager's applies."""
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return entry if entry.get("apiVersion") == api_version else None
    return None


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _state(wanted: Object, present: Object, entry: Object) -> bytes:
    return _digest([_project(wanted, present), entry.get("fieldsV1")])


def _project(wanted: Any, present: Any) -> Any:
    """Return the part of `present` that `wanted` describes."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        return {name: _project(value, present.get(name)) for name, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(present, list) and len(wanted) == len(present):
        return [_project(inner, other) for inner, other in zip(wanted, present, strict=True)]
    return present


def _has_exactly(fields: Object, wanted: Object, present: Object) -> bool:
    """Return whether the manager owns the fields of `wanted`, no others, and they have the wanted values."""
    metadata = {name: value for name, value in wanted["metadata"].items() if name not in _NAMES}
    described = {name: value for name, value in wanted.items() if name not in _IDENTITY and name != "metadata"}
    if metadata:
        described["metadata"] = metadata
    return _matches(fields, described, present)


def _matches(fields: Object, wanted: Any, present: Any) -> bool:
    owned = {name: inner for name, inner in fields.items() if name != "."}
    if not owned:
        return bool(wanted == present)  # A leaf, or an atomic map or list.
    if isinstance(wanted, dict) and isinstance(present, dict):
        return {f"f:{name}" for name in wanted} == owned.keys() and all(
            name in present and _matches(owned[f"f:{name}"], value, present[name]) for name, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(present, list):
        return len(wanted) == len(owned) and all(
            _item_matches(name, inner, wanted, present) for name, inner in owned.items()
        )
    return False


def _item_matches(name: str, fields: Object, wanted: list[Any], present: list[Any]) -> bool:
    """Compare an item of a list, which `name` identifies by its keys or by its value."""
    form, _, text = name.partition(":")
    try:
        identity = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    if form == "v":
        return identity in wanted and identity in present
    if form != "k" or not isinstance(identity, dict):
        return False
    first, other = _find(wanted, identity), _find(present, identity)
    return first is not None and other is not None and _matches(fields, first, other)


def _find(items: list[Any], identity: Object) -> Object | None:
    for item in items:
        # A key that is missing has its default, as the protocol of a port.
        if isinstance(item, dict) and all(item.get(name, value) == value for name, value in identity.items()):
            return item
    return None
