"""Store the status that a handler has left in its object, without losing what others have written meanwhile."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pinnace.client.client import Client
from pinnace.client.typed import wire_of
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.process.clock import Clock
from pinnace.reconcile.conditions import set_condition
from pinnace.sdk.resources.custom_resource import CustomResource
from pinnace.sdk.resources.models import Condition, Model

_ATTEMPTS = 5
_WAITING = "Reconciling"
"""The condition that `kubectl` and other tools understand as: not done yet."""
_WAITING_REASON = "Retry"


class StatusChange:
    """The status of one object before and after a call of a handler."""

    def __init__(self, client: Client, manager: str, obj: Object, instance: Any) -> None:
        self._client = client
        self._manager = manager
        self._obj = obj
        self._instance = instance
        # The handler changes a plain object in place: copy the stored status before the call.
        self._stored, self._before = status_of(obj), status_of(instance)
        self.changes: Object = {}
        """The merge patch that `store` found necessary."""

    async def store(self) -> str:
        """Store the changes by one patch; none is sent if there are none. Return the version that was written, if any.

        A merge patch replaces lists. It therefore names the version of the object if it has any; after a conflict the
        changes are made to the newer list: conditions by their type, other lists only if they are still the same.
        """
        after = status_of(self._instance)
        changes = status_changes(self._stored, self._before, after, read_assigned_status(self._instance))
        self.changes = changes
        if not changes:
            return ""
        latest = self._obj
        for attempt in range(1, _ATTEMPTS + 1):
            metadata: Object = {"uid": latest["metadata"]["uid"]}  # Not another object that has taken the name.
            if _has_list(changes):
                metadata["resourceVersion"] = latest["metadata"]["resourceVersion"]
            try:
                return await self._patch({"metadata": metadata, "status": changes})
            except errors.NotFound:
                return ""  # The object was removed while the handler worked.
            except errors.Conflict as conflict:
                stored = await self._read()
                if stored is None or stored["metadata"]["uid"] != self._obj["metadata"]["uid"]:
                    return ""
                rebased = rebase(changes, self._before, status_of(stored))
                if attempt == _ATTEMPTS or rebased is None:
                    raise conflict
                latest, changes = stored, rebased
        return ""

    async def _patch(self, patch: Object) -> str:
        metadata = self._obj["metadata"]
        answer = await self._client.patch(
            kind_of(self._obj),
            metadata["name"],
            patch,
            namespace=metadata.get("namespace", ""),
            subresource="status",
            field_manager=self._manager,
        )
        return str(answer["metadata"]["resourceVersion"])

    async def _read(self) -> Object | None:
        metadata = self._obj["metadata"]
        return await self._client.get_or_none(
            kind_of(self._obj), metadata["name"], namespace=metadata.get("namespace", "")
        )


def status_of(obj: Any) -> Object:
    """Return a copy of the status of a typed or plain object, in its wire form."""
    if isinstance(obj, CustomResource):
        return obj.status.to_wire() if isinstance(obj.status, Model) else {}
    return deepcopy(wire_of(obj).get("status") or {})


def read_assigned_status(obj: Any) -> Object:
    """Return the part of a status that was stored or that the handler has assigned, without defaults."""
    status = None if isinstance(obj, dict) else obj.status
    if not isinstance(status, Model):
        return status_of(obj)
    return status.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


def status_changes(stored: Object, before: Object, after: Object, assigned: Object) -> Object:
    """Return the merge patch that stores a handler's changes; empty if there are none.

    `before` and `after` are the status as the handler received and left it. Fields of `stored` that its class does
    not know stay. A default is stored only after the handler has `assigned` it.
    """
    changes: Object = {}
    for name, value in after.items():
        known = stored.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            inner = status_changes(known, before.get(name) or {}, value, assigned.get(name) or {})
            if inner:
                changes[name] = inner
        elif before.get(name) != value or (name not in stored and name in assigned):
            changes[name] = value
    changes.update({name: None for name in before if name not in after and name in stored})
    return changes


def rebase(changes: Object, before: Object, latest: Object) -> Object | None:
    """Return the changes for a status that others have changed meanwhile.

    None if they have changed the same list, and its items have no `type` that identifies them.
    """
    rebased: Object = {}
    for name, value in changes.items():
        was, now = before.get(name), latest.get(name)
        if isinstance(value, dict):
            value = rebase(value, was if isinstance(was, dict) else {}, now if isinstance(now, dict) else {})
        elif isinstance(value, list) and now != was:
            value = _merge(value, was or [], now or [])
        if value is None and changes[name] is not None:
            return None
        rebased[name] = value
    return rebased


def _merge(value: list[Any], was: list[Any], now: list[Any]) -> list[Any] | None:
    """Return the newer list with the items that the handler has changed, added or removed."""
    wanted, old, new = _by_type(value), _by_type(was), _by_type(now)
    if wanted is None or old is None or new is None:
        return None
    result = {**new, **{type: item for type, item in wanted.items() if old.get(type) != item}}
    return [item for type, item in result.items() if type in wanted or type not in old]


def _by_type(items: list[Any]) -> dict[str, Object] | None:
    """Return the items of a list by their `type`, as conditions are identified; None if it is another list."""
    if not all(isinstance(item, dict) and "type" in item for item in items):
        return None
    return {item["type"]: item for item in items}


def _has_list(changes: Object) -> bool:
    return any(isinstance(value, list) or (isinstance(value, dict) and _has_list(value)) for value in changes.values())


def set_waiting(instance: Any, obj: Object, reason: str, clock: Clock) -> None:
    """Set the condition Reconciling, with the reason for which a handler must wait, if the status has conditions."""
    known = _conditions(instance)
    if known is None:
        return
    about = {"metadata": obj["metadata"], "status": {"conditions": [condition.to_wire() for condition in known]}}
    set_condition(about, _WAITING, True, reason=_WAITING_REASON, message=reason, clock=clock)
    instance.status.conditions = [Condition(**condition) for condition in about["status"]["conditions"]]


def clear_waiting(instance: Any) -> None:
    """Remove that condition after a success."""
    known = _conditions(instance)
    if known and any(condition.type == _WAITING and condition.reason == _WAITING_REASON for condition in known):
        instance.status.conditions = [
            condition for condition in known if (condition.type, condition.reason) != (_WAITING, _WAITING_REASON)
        ]


def _conditions(instance: Any) -> list[Condition] | None:
    if not isinstance(instance, CustomResource) or not isinstance(instance.status, Model):
        return None
    conditions = getattr(instance.status, "conditions", None)
    return (
        conditions
        if isinstance(conditions, list) and all(isinstance(condition, Condition) for condition in conditions)
        else None
    )
