"""The verbs of a client that write: create, replace, patch, apply and delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

from pinnace.client.addressing import Addressing
from pinnace.client.exchange import JSON, JSON_PATCH, Parameters, target_of
from pinnace.client.mapping import KindLike, KindName, ServedKind, kind_from
from pinnace.client.typed import Resource, applied_of, typed, wire_of
from pinnace.model.objects import Key, Object, key_of, kind_of

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": JSON_PATCH,
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"

PatchForm = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]
WriteListener = Callable[[ServedKind, Key, Object], None]
"""Told of each write that worked: the object as it is now, or the Status that says that it is gone."""


class Writing(Addressing):
    """The part of a `Client` that changes something. Who gives an instance of a class gets one, and else a dict."""

    field_manager: str
    _listeners: tuple[WriteListener, ...]

    async def send(self, method: str, target: str, body: object = None, *, content_type: str = JSON) -> Object:
        """Any request that changes something, with parameters that the verbs below have no name for."""
        return await self._exchange.write(method, target, body, content_type=content_type)

    @overload
    async def create(
        self, obj: Resource, *, namespace: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Resource: ...
    @overload
    async def create(
        self, obj: Object, *, namespace: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object: ...
    async def create(self, obj: Any, *, namespace: str = "", field_manager: str = "", dry_run: bool = False) -> Any:
        """Make an object; it comes back as it was stored. Raises AlreadyExists and Invalid."""
        wire = wire_of(obj)
        served = await self.kinds.find(kind_of(wire))
        path = self._path(served, "", namespace or (wire.get("metadata") or {}).get("namespace", ""), "")
        options = self._options(field_manager, dry_run=dry_run)
        return typed(obj, await self._write("POST", served, path, wire, options=options))

    async def create_below(
        self, kind: KindLike, name: str, subresource: str, obj: Object, *, namespace: str = ""
    ) -> Object:
        """POST to a subresource of an object: pods/eviction, pods/binding, serviceaccounts/token."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        return await self._write("POST", served, path, obj, options={})

    @overload
    async def update(
        self, obj: Resource, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Resource: ...
    @overload
    async def update(
        self, obj: Object, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object: ...
    async def update(self, obj: Any, *, subresource: str = "", field_manager: str = "", dry_run: bool = False) -> Any:
        """Replace an object. Raises Conflict if it has changed since it was read: read it again and redo the edit."""
        wire = wire_of(obj)
        served = await self.kinds.find(kind_of(wire))
        metadata = wire["metadata"]
        path = self._path(served, metadata["name"], metadata.get("namespace", ""), subresource)
        options = self._options(field_manager, dry_run=dry_run)
        return typed(obj, await self._write("PUT", served, path, wire, options=options))

    @overload
    async def update_status(self, obj: Resource, *, field_manager: str = "") -> Resource: ...
    @overload
    async def update_status(self, obj: Object, *, field_manager: str = "") -> Object: ...
    async def update_status(self, obj: Any, *, field_manager: str = "") -> Any:
        """Replace an object's status; what else differs is ignored."""
        return await self.update(obj, subresource="status", field_manager=field_manager)

    @overload
    async def patch(
        self,
        kind: type[Resource],
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        form: PatchForm = "merge",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Resource: ...
    @overload
    async def patch(
        self,
        kind: KindName,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        form: PatchForm = "merge",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Object: ...
    async def patch(
        self,
        kind: Any,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        form: PatchForm = "merge",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> Any:
        """Change a part of an object: with a merge patch, with the operations of a JSON patch, or strategically."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        options = self._options(field_manager, dry_run=dry_run)
        answer = await self._write("PATCH", served, path, patch, options=options, content_type=_PATCHES[form])
        return typed(kind, answer) if answer.get("kind") == served.kind.name else answer

    @overload
    async def apply(
        self,
        obj: Resource,
        *,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        namespace: str = "",
        dry_run: bool = False,
    ) -> Resource: ...
    @overload
    async def apply(
        self,
        obj: Object,
        *,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        namespace: str = "",
        dry_run: bool = False,
    ) -> Object: ...
    async def apply(
        self,
        obj: Any,
        *,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        namespace: str = "",
        dry_run: bool = False,
    ) -> Any:
        """Server-side apply: say what fields are to be, and own them; made if it is not there.

        Raises ApplyConflict if another manager owns one of them with another value; `force` takes them over. Of an
        instance of a class all is applied but its status.
        """
        wire = applied_of(obj)
        served = await self.kinds.find(kind_of(wire))
        metadata = wire["metadata"]
        path = self._path(served, metadata["name"], namespace or metadata.get("namespace", ""), subresource)
        options: Parameters = {**self._options(field_manager, dry_run=dry_run), "force": force}
        return typed(obj, await self._write("PATCH", served, path, wire, options=options, content_type=_APPLY))

    async def delete(
        self,
        kind: KindLike,
        name: str,
        *,
        namespace: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        uid: str = "",
        version: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Delete an object. Raises NotFound, and Conflict if it has not this `uid` or `version`.

        The answer is a Status, or the object if it stays for now: for its finalizers, or to stop gracefully.
        """
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, "")
        body = _delete_options(propagation, grace_seconds, uid, version)
        options = {"dryRun": _dry(dry_run)}
        answer = await self._write("DELETE", served, path, body, options=options)
        if answer.get("kind") == "Status" and not dry_run:
            where = namespace or self.namespace if served.namespaced else ""
            self._tell(served, Key(where, name), answer)
        return answer

    async def delete_collection(
        self,
        kind: KindLike,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete every object of a kind, or those of one namespace, that the selectors choose."""
        served = await self.kinds.find(kind)
        parameters = {"labelSelector": labels, "fieldSelector": fields}
        body = _delete_options(propagation, grace_seconds, "", "")
        target = target_of(served.path(namespace=namespace), parameters)
        with self._served_there(served):
            await self._exchange.write("DELETE", target, body)

    async def scale(self, kind: KindLike, name: str, replicas: int, *, namespace: str = "") -> Object:
        """Set how many replicas are wanted, through /scale."""
        patch = {"spec": {"replicas": replicas}}
        return await self.patch(kind_from(kind), name, patch, namespace=namespace, subresource="scale")

    def _options(self, field_manager: str, *, dry_run: bool) -> dict[str, str]:
        return {"fieldManager": field_manager or self.field_manager, "dryRun": _dry(dry_run)}

    async def _write(
        self,
        method: str,
        served: ServedKind,
        path: str,
        body: object,
        *,
        options: Parameters,
        content_type: str = JSON,
    ) -> Object:
        with self._served_there(served):
            answer = await self._exchange.write(method, target_of(path, options), body, content_type=content_type)
        # A Scale or a token comes back from a subresource, and a review has no name: nothing that a listener knows.
        if (
            answer.get("kind") == served.kind.name
            and (answer.get("metadata") or {}).get("name")
            and not options.get("dryRun")
        ):
            self._tell(served, key_of(answer), answer)
        return answer

    def _tell(self, served: ServedKind, key: Key, answer: Object) -> None:
        for listener in self._listeners:
            listener(served, key, answer)


def _dry(dry_run: bool) -> str:
    return "All" if dry_run else ""


def _delete_options(
    propagation: Propagation | None, grace_seconds: int | None, uid: str, version: str
) -> Object | None:
    body: Object = {}
    if propagation is not None:
        body["propagationPolicy"] = propagation
    if grace_seconds is not None:
        body["gracePeriodSeconds"] = grace_seconds
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
    if preconditions:
        body["preconditions"] = preconditions
    return {"kind": "DeleteOptions", "apiVersion": "v1", **body} if body else None
