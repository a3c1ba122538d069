"""The verbs of `pinnace.client.sync.SyncClient`. Written by `tools/sync_client.py`; do not edit."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from pinnace.client.exchange import JSON
from pinnace.client.mapping import KindLike, KindName
from pinnace.client.reading import PAGE, Objects, Page
from pinnace.client.streams import LogOptions
from pinnace.client.sync.driver import Driver
from pinnace.client.typed import Resource, Unfit
from pinnace.client.writing import PatchForm, Preconditions, Propagation, WriteParameters
from pinnace.model.objects import AnyObject, Object
from pinnace.model.selectors import LabelsLike


class SyncVerbs(Driver):
    """Each method does what the one of `pinnace.client.Client` with its name does, and returns when it is done."""

    @overload
    def get(self, kind: type[Resource], name: str, *, namespace: str = "", subresource: str = "") -> Resource: ...

    @overload
    def get(self, kind: KindName, name: str, *, namespace: str = "", subresource: str = "") -> Object: ...

    def get(self, kind: Any, name: str, *, namespace: str = "", subresource: str = "") -> Any:
        """Return one object, or a subresource as a dict. Raise NotFound."""
        return self._call(self._driven.get(kind, name, namespace=namespace, subresource=subresource))

    @overload
    def get_or_none(self, kind: type[Resource], name: str, *, namespace: str = "") -> Resource | None: ...

    @overload
    def get_or_none(self, kind: KindName, name: str, *, namespace: str = "") -> Object | None: ...

    def get_or_none(self, kind: Any, name: str, *, namespace: str = "") -> Any:
        """Return one object, or None if there is none of that name."""
        return self._call(self._driven.get_or_none(kind, name, namespace=namespace))

    @overload
    def list(
        self,
        kind: type[Resource],
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        unfit: Literal["skip", "raise"] = "skip",
    ) -> builtins.list[Resource]: ...

    @overload
    def list(
        self,
        kind: type[Resource],
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        unfit: Literal["raw"],
    ) -> builtins.list[Resource | Object]: ...

    @overload
    def list(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
    ) -> Objects: ...

    def list(
        self,
        kind: Any,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        metadata_only: bool = False,
        unfit: Unfit = "skip",
    ) -> builtins.list[Any]:
        """Return the objects of a kind, of all namespaces unless one is given; at most `limit` if that is given.

        An object that does not fit the class is logged and skipped; `unfit` keeps it as a dict or raises instead.
        """
        return self._call(
            self._driven.list(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                limit=limit,
                metadata_only=metadata_only,
                unfit=unfit,
            )
        )

    @overload
    def each(
        self, kind: type[Resource], *, namespace: str = "", labels: LabelsLike = "", fields: str = "", limit: int = PAGE
    ) -> Generator[Resource, None, None]: ...

    @overload
    def each(
        self, kind: KindName, *, namespace: str = "", labels: LabelsLike = "", fields: str = "", limit: int = PAGE
    ) -> Generator[Object, None, None]: ...

    def each(
        self, kind: Any, *, namespace: str = "", labels: LabelsLike = "", fields: str = "", limit: int = PAGE
    ) -> Generator[Any, None, None]:
        """Yield the objects of a kind, read `limit` at a time: for lists that are too large for memory.

        An object that does not fit the class is logged and skipped.
        """
        return self._iterate(self._driven.each(kind, namespace=namespace, labels=labels, fields=fields, limit=limit))

    def page(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        metadata_only: bool = False,
    ) -> Page:
        """Return a list with its version, or the page that `token` names."""
        return self._call(
            self.client.page(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                limit=limit,
                token=token,
                metadata_only=metadata_only,
            )
        )

    def pages(
        self,
        kind: KindName,
        *,
        namespace: str = "",
        labels: LabelsLike = "",
        fields: str = "",
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> Generator[Page, None, None]:
        """Yield a list, page by page, all of one version. Raise Expired if the server has compacted that version."""
        return self._iterate(
            self.client.pages(
                kind, namespace=namespace, labels=labels, fields=fields, limit=limit, metadata_only=metadata_only
            )
        )

    def read(self, target: str, *, accept: str = "*/*") -> bytes:
        """Return the body of any page: /version, /openapi/v3, a Table. `target` is the path with its query."""
        return self._call(self.client.read(target, accept=accept))

    @overload
    def changes(
        self, kind: type[Resource], *, namespace: str = "", labels: LabelsLike = "", fields: str = ""
    ) -> Generator[tuple[str, Resource], None, None]: ...

    @overload
    def changes(
        self, kind: KindName, *, namespace: str = "", labels: LabelsLike = "", fields: str = ""
    ) -> Generator[tuple[str, Object], None, None]: ...

    def changes(
        self, kind: Any, *, namespace: str = "", labels: LabelsLike = "", fields: str = ""
    ) -> Generator[tuple[str, Any], None, None]:
        """Yield every existing object as ADDED, then every change as ADDED, MODIFIED or DELETED, until closed.

        It is `follow` without the events that only caches need. After a lost watch existing objects may come again,
        and deletions during the gap are not reported: reconcilers, which read the current state, need neither.
        """
        return self._iterate(self._driven.changes(kind, namespace=namespace, labels=labels, fields=fields))

    def send(self, method: str, target: str, body: object = None, *, content_type: str = JSON) -> Object:
        """Send any write, with parameters that the verbs below do not have."""
        return self._call(self.client.send(method, target, body, content_type=content_type))

    @overload
    def create(
        self, obj: Resource, *, namespace: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Resource: ...

    @overload
    def create(self, obj: Object, *, namespace: str = "", field_manager: str = "", dry_run: bool = False) -> Object: ...

    def create(self, obj: Any, *, namespace: str = "", field_manager: str = "", dry_run: bool = False) -> Any:
        """Create an object, and return it as it was stored. Raise AlreadyExists or Invalid."""
        return self._call(self._driven.create(obj, namespace=namespace, field_manager=field_manager, dry_run=dry_run))

    def create_below(
        self, kind: KindLike, name: str, subresource: str, obj: AnyObject, *, namespace: str = ""
    ) -> Object:
        """POST to a subresource of an object: pods/eviction, pods/binding, serviceaccounts/token."""
        return self._call(self.client.create_below(kind, name, subresource, obj, namespace=namespace))

    @overload
    def update(
        self, obj: Resource, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Resource: ...

    @overload
    def update(
        self, obj: Object, *, subresource: str = "", field_manager: str = "", dry_run: bool = False
    ) -> Object: ...

    def update(self, obj: Any, *, subresource: str = "", field_manager: str = "", dry_run: bool = False) -> Any:
        """Replace an object. Raise Conflict if it has changed since it was read: read it again and redo the edit."""
        return self._call(
            self._driven.update(obj, subresource=subresource, field_manager=field_manager, dry_run=dry_run)
        )

    @overload
    def update_status(self, obj: Resource, *, field_manager: str = "") -> Resource: ...

    @overload
    def update_status(self, obj: Object, *, field_manager: str = "") -> Object: ...

    def update_status(self, obj: Any, *, field_manager: str = "") -> Any:
        """Replace an object's status; other differences are ignored."""
        return self._call(self._driven.update_status(obj, field_manager=field_manager))

    @overload
    def patch(
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
    def patch(
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

    def patch(
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
        return self._call(
            self._driven.patch(kind, name, patch, namespace=namespace, form=form, subresource=subresource, **parameters)
        )

    @overload
    def apply(
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
    def apply(
        self,
        obj: Object,
        *,
        field_manager: str = "",
        force: bool = False,
        subresource: str = "",
        namespace: str = "",
        dry_run: bool = False,
    ) -> Object: ...

    def apply(
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
        return self._call(
            self._driven.apply(
                obj,
                field_manager=field_manager,
                force=force,
                subresource=subresource,
                namespace=namespace,
                dry_run=dry_run,
            )
        )

    def delete(
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
        return self._call(
            self.client.delete(
                kind,
                name,
                namespace=namespace,
                propagation=propagation,
                grace_seconds=grace_seconds,
                dry_run=dry_run,
                **preconditions,
            )
        )

    def delete_collection(
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
        return self._call(
            self.client.delete_collection(
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                propagation=propagation,
                grace_seconds=grace_seconds,
            )
        )

    def scale(self, kind: KindLike, name: str, replicas: int, *, namespace: str = "") -> Object:
        """Set the desired number of replicas, through /scale."""
        return self._call(self.client.scale(kind, name, replicas, namespace=namespace))

    def logs(self, pod: str, *, namespace: str = "", **options: Unpack[LogOptions]) -> Generator[str, None, None]:
        """Yield the lines of a container's log, without line ends; with `follow` also those written later.

        Bytes that are not UTF-8 become U+FFFD; `log_bytes` gives the original. Raise ConnectionLost if the connection
        breaks: the lines before are complete, and `since_time` resumes from there.
        """
        return self._iterate(self.client.logs(pod, namespace=namespace, **options))

    @overload
    def wait(
        self,
        kind: type[Resource],
        name: str,
        until: str | Callable[[Resource], bool] = "condition=Ready",
        *,
        namespace: str = "",
        timeout: float = 30.0,
    ) -> Resource | None: ...

    @overload
    def wait(
        self,
        kind: KindName,
        name: str,
        until: str | Callable[[Object], bool] = "condition=Ready",
        *,
        namespace: str = "",
        timeout: float = 30.0,
    ) -> Object | None: ...

    def wait(
        self,
        kind: Any,
        name: str,
        until: str | Callable[[Any], bool] = "condition=Ready",
        *,
        namespace: str = "",
        timeout: float = 30.0,
    ) -> Any:
        """Return an object as soon as it is as wanted; None once it is deleted, if that is wanted.

        `until` is a function of the object, or a text as for `kubectl wait --for`: "condition=Ready",
        "condition=Ready=False", "jsonpath={.status.phase}=Running", "create" or "delete". An object that does not
        exist is waited for. Raise WaitTimeout after `timeout` seconds.
        """
        return self._call(self._driven.wait(kind, name, until, namespace=namespace, timeout=timeout))

    def wait_for_rollout(self, kind: KindLike, name: str, *, namespace: str = "", timeout: float = 300.0) -> Object:
        """Return a Deployment, StatefulSet or DaemonSet when all of its pods are new and available.

        Raise WaitTimeout after `timeout` seconds, and RolloutFailed if a Deployment has exceeded its progress deadline.
        """
        return self._call(self.client.wait_for_rollout(kind, name, namespace=namespace, timeout=timeout))

    def restart(self, kind: KindLike, name: str, *, namespace: str = "") -> Object:
        """Replace all pods of a Deployment, StatefulSet or DaemonSet, as `kubectl rollout restart` does."""
        return self._call(self.client.restart(kind, name, namespace=namespace))
