"""The verbs of a client that write: create, replace, patch, apply and delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, cast, overload

from pinnace.client.exchange import JSON, JSON_PATCH, Parameters, decode_object, target_of
from pinnace.client.mapping import Addressing, KindLike, KindName, ServedKind, kind_from
from pinnace.client.typed import Resource, applied_of, typed, wire_of
from pinnace.model import errors
from pinnace.model.objects import AnyObject, Key, Object, key_of, kind_of
from pinnace.model.selectors import LabelsLike, selector_text

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": JSON_PATCH,
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"

PatchForm = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]
WriteListener = Callable[[ServedKind, Key, Object, bytes], None]
"""Called after each successful write, with the new state of the object, or the Status of its deletion.

The last argument is the same as the server sent it; empty for a Status.
"""


class WriteParameters(TypedDict, total=False):
    """The parameters that most writes have."""

    field_manager: str
    dry_run: bool


class Preconditions(TypedDict, total=False):
    """The object that a delete expects; any if empty."""

    uid: str
    version: str


class Writing(Addressing):
    """The writing part of a `Client`. It returns an instance of a class if it was given one, and else a dict."""

    field_manager: str
    _listeners: tuple[WriteListener, ...]

    async def send(self, method: str, target: str, body: object = None, *, content_type: str = JSON) -> Object:
        """Send any write, with parameters that the verbs below do not have."""
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
        """Create an object, and return it as it was stored. Raise AlreadyExists or Invalid."""
        wire = wire_of(obj)
        served = await self.kinds.find(kind_of(wire))
        namespace = namespace or (wire.get("metadata") or {}).get("namespace", "") or self.namespace
        path = served.path(namespace=namespace)
        options = self._options(field_manager, dry_run=dry_run)
        return typed(obj, await self._write("POST", served, path, wire, options=options))

    async def create_below(
        self, kind: KindLike, name: str, subresource: str, obj: AnyObject, *, namespace: str = ""
    ) -> Object:
        """POST to a subresource of an object: pods/eviction, pods/binding, serviceaccounts/token."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        return await self._write("POST", served, path, obj, options={})

    async def create_many(
        self, kind: KindLike, objects: Sequence[AnyObject], *, namespace: str, subresource: str = ""
    ) -> list[errors.ApiError | None] | None:
        """Create objects of one namespace at once; return the error of each, None for those that are created.

        Objects of a subresource are created each below the object with its name. Only a server in this process can do
        that, and not always: without an answer, create them one by one. The caller gives the objects away, and
        listeners are not called.
        """
        served = await self.kinds.find(kind)
        if subresource:
            path = self._path(served, objects[0]["metadata"]["name"], namespace, subresource)
        else:
            path = served.path(namespace=namespace or self.namespace)
        options = {} if subresource else self._options("", dry_run=False)
        return await self._exchange.write_many(
            "POST", target_of(path, options), [cast("Object", obj) for obj in objects]
        )

    async def patch_many(
        self, kind: KindLike, patches: Sequence[AnyObject], *, namespace: str, subresource: str = ""
    ) -> list[errors.ApiError | None] | None:
        """Change objects of one namespace with strategic merge patches at once; return the error of each, or None.

        Each patch has the metadata.name of its object. As `create_many`, only a server in this process can do that.
        """
        return await self._write_many("PATCH", kind, patches, namespace, subresource)

    async def update_many(
        self, kind: KindLike, objects: Sequence[AnyObject], *, namespace: str, subresource: str = ""
    ) -> list[errors.ApiError | None] | None:
        """Replace objects of one namespace at once; return the error of each, or None.

        Each has the resourceVersion at which it was read. As `create_many`, only a server in this process can do that,
        and it does not check the types of fields.
        """
        return await self._write_many("PUT", kind, objects, namespace, subresource)

    async def delete_many(
        self, kind: KindLike, names: Mapping[str, str], *, namespace: str
    ) -> list[errors.ApiError | None] | None:
        """Delete objects of one namespace at once, by name, if each has the uid given; return the error of each.

        As `create_many`, only a server in this process can do that.
        """
        objects = [{"metadata": {"name": name, "uid": uid}} for name, uid in names.items()]
        return await self._write_many("DELETE", kind, objects, namespace, "")

    async def _write_many(
        self, method: str, kind: KindLike, objects: Sequence[AnyObject], namespace: str, subresource: str
    ) -> list[errors.ApiError | None] | None:
        served = await self.kinds.find(kind)
        path = self._path(served, objects[0]["metadata"]["name"], namespace, subresource)
        options = {} if method == "DELETE" else self._options("", dry_run=False)
        return await self._exchange.write_many(
            method, target_of(path, options), [cast("Object", obj) for obj in objects]
        )

    @overload
    async def update(
        self, obj: Resource, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Resource: ...
    @overload
    async def update(
        self, obj: Object, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object: ...
    async def update(self, obj: Any, *, subresource: str = "", field_manager: str = "", dry_run: bool = False) -> Any:
        """Replace an object. Raise Conflict if it has changed since it was read: read it again and redo the edit."""
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
        """Replace an object's status; other differences are ignored."""
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
        **parameters: Unpack[WriteParameters],
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
        **parameters: Unpack[WriteParameters],
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
        **parameters: Unpack[WriteParameters],
    ) -> Any:
        """Change a part of an object with a merge patch, a JSON patch or a strategic merge patch."""
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, subresource)
        options = self._options(parameters.get("field_manager", ""), dry_run=parameters.get("dry_run", False))
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
        """Apply an object server-side: set its fields and own them. The object is created if it does not exist.

        Raise ApplyConflict if another manager owns a field with another value; `force` takes it over. Of an instance
        of a class everything but its status is applied.
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
        dry_run: bool = False,
        **preconditions: Unpack[Preconditions],
    ) -> Object:
        """Delete an object. Raise NotFound, and Conflict if it does not have this `uid` or `version`.

        Return a Status, or the object if it stays for now: for its finalizers, or to stop gracefully.
        """
        served = await self.kinds.find(kind)
        path = self._path(served, name, namespace, "")
        body = _delete_options(propagation, grace_seconds, preconditions)
        options = {"dryRun": _dry(dry_run)}
        answer = await self._write("DELETE", served, path, body, options=options)
        if answer.get("kind") == "Status" and not dry_run:
            where = namespace or self.namespace if served.namespaced else ""
            self._notify(served, Key(where, name), answer, b"")
        return answer

    async def delete_collection(
        self,
        kind: KindLike,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete every object of a kind, or of one namespace, that the selectors match."""
        served = await self.kinds.find(kind)
        parameters = {"labelSelector": selector_text(labels), "fieldSelector": fields}
        body = _delete_options(propagation, grace_seconds, {})
        target = target_of(served.path(namespace=namespace), parameters)
        with self._forgetting_if_missing(served):
            await self._exchange.write_encoded("DELETE", target, body)  # It lists all that was deleted.

    async def scale(self, kind: KindLike, name: str, replicas: int, *, namespace: str = "") -> Object:
        """Set the desired number of replicas, through /scale."""
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
        with self._forgetting_if_missing(served):
            target = target_of(path, options)
            encoded = await self._exchange.write_encoded(method, target, body, content_type=content_type)
            answer = decode_object(encoded)
        # Subresources return a Scale or a token, and a review has no name: listeners get only objects of the kind.
        if (
            answer.get("kind") == served.kind.name
            and (answer.get("metadata") or {}).get("name")
            and not options.get("dryRun")
        ):
            self._notify(served, key_of(answer), answer, encoded)
        return answer

    def _notify(self, served: ServedKind, key: Key, answer: Object, encoded: bytes) -> None:
        for listener in self._listeners:
            listener(served, key, answer, encoded)


def _dry(dry_run: bool) -> str:
    return "All" if dry_run else ""


def _delete_options(
    propagation: Propagation | None, grace_seconds: int | None, expected: Preconditions
) -> Object | None:
    body: Object = {}
    if propagation is not None:
        body["propagationPolicy"] = propagation
    if grace_seconds is not None:
        body["gracePeriodSeconds"] = grace_seconds
    preconditions = {"uid": expected.get("uid"), "resourceVersion": expected.get("version")}
    if any(preconditions.values()):
        body["preconditions"] = {name: value for name, value in preconditions.items() if value}
    return {"kind": "DeleteOptions", "apiVersion": "v1", **body} if body else None
