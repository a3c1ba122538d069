"""An operator: decorators that declare its handlers, and the methods that run it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.typed import typed
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager
from pinnace.sdk.extension import Extension
from pinnace.sdk.handlers.checks import (
    check_handler,
    check_kind,
    check_kinds,
    check_operations,
    check_operator_name,
    check_served,
    check_watches,
)
from pinnace.sdk.handlers.handlers import (
    AdmissionHandler,
    ChangeHandler,
    CleanupHandler,
    ConversionHandler,
    Index,
    ReconcileHandler,
    ServedApi,
    TimerHandler,
    ToKeys,
)
from pinnace.sdk.handlers.permissions import READ, Permission
from pinnace.sdk.operator.declarations import Declarations, is_same_family, plural_like
from pinnace.sdk.operator.runner import RunOptions, running
from pinnace.sdk.resources.custom_resource import AnyResource, is_resource_class

Function = TypeVar("Function", bound=Callable[..., Any])


class Operator(Extension):
    """One extension: its handlers, and the kinds, webhooks and APIs that they need.

    Its name is the field manager of the objects it applies, the source of its events and the name of its lease.
    Handlers may be `async def` or `def`. A handler that raises is called again for that object with growing delays;
    other objects do not wait for it.
    """

    def __init__(self, name: str, *, kinds: Sequence[type[AnyResource]] = (), namespace: str = "") -> None:
        """`kinds` are installed beside those that handlers name. `namespace` limits what the operator watches."""
        check_operator_name(name)
        self.declarations = Declarations(name=name, namespace=namespace, extra_kinds=list(kinds))

    @property
    def name(self) -> str:
        return self.declarations.name

    @property
    def namespace(self) -> str:
        return self.declarations.namespace

    # Declaring

    def reconcile(
        self,
        kind: KindLike,
        *,
        owns: Sequence[KindLike] = (),
        watches: Mapping[Any, ToKeys] | None = None,
        labels: str = "",
        fields: str = "",
        workers: int = 4,
        resync: float = 0.0,
    ) -> Callable[[Function], Function]:
        """`async def reconcile(obj, ctx)`: bring the cluster to the state that `obj` describes.

        Changes that the handler makes to the status are stored. It is called when the object changes, when an object
        that it owns of the kinds in `owns` changes, and when an object of `watches` changes, which maps a kind to a
        function that returns the keys to reconcile. There is never more than one call at a time for one object, and
        none for objects that are being deleted. `resync` calls it for all objects every so many seconds.
        """
        check_kind(kind, "reconcile")
        check_kinds(owns, "reconcile", "owns")
        check_watches(watches, "reconcile")

        def declare(handler: Function) -> Function:
            check_handler(handler, "reconcile", "obj", "ctx")
            declared = ReconcileHandler(
                kind=kind,
                handler=handler,
                owns=tuple(owns),
                watches=tuple((watches or {}).items()),
                namespace=self.namespace,
                labels=labels,
                fields=fields,
                workers=workers,
                resync=resync,
            )
            self.declarations.reconciles.append(declared)
            return handler

        return declare

    def on_delete(self, kind: KindLike) -> Callable[[Function], Function]:
        """`async def clean_up(obj, ctx)`: called before an object is removed; a finalizer holds the object until then.

        It is called again if it fails or if its success cannot be recorded, so it must accept that its work is done.
        """
        check_kind(kind, "on_delete")
        if any(kind_from(known.kind) == kind_from(kind) for known in self.declarations.cleanups):
            raise ValueError(
                f"{self.name} has an on_delete function for {kind_from(kind).name} already; do both in one function"
            )

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_delete", "obj", "ctx")
            self.declarations.cleanups.append(CleanupHandler(kind=kind, handler=handler))
            return handler

        return declare

    def timer(self, kind: KindLike, *, seconds: float, labels: str = "") -> Callable[[Function], Function]:
        """`async def look(obj, ctx)`: called for each object when it appears, and then every so many seconds."""
        check_kind(kind, "timer")
        if seconds <= 0:
            raise ValueError(f"a timer cannot run every {seconds} seconds: write more than 0")

        def declare(handler: Function) -> Function:
            check_handler(handler, "timer", "obj", "ctx")
            timer = TimerHandler(kind=kind, handler=handler, seconds=seconds, labels=labels)
            self.declarations.timers.append(timer)
            return handler

        return declare

    def on_change(self, kind: KindLike, *, labels: str = "") -> Callable[[Function], Function]:
        """`async def notify(old, new)`: called after each change, with None for the missing side.

        A new object has no `old`, a deleted one no `new`. For observers: nothing is written to the object and nothing
        waits for the call. Objects that exist at the start are not reported. Several quick changes may be reported as
        one; a call that fails is repeated.
        """
        check_kind(kind, "on_change")

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_change", "old", "new")
            self.declarations.changes.append(ChangeHandler(kind=kind, handler=handler, labels=labels))
            return handler

        return declare

    def validate(
        self,
        kind: KindLike,
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        plural: str = "",
        ignore_failure: bool = False,
    ) -> Callable[[Function], Function]:
        """`async def check(obj) -> str | None`: return a message to deny the write.

        A second parameter receives the `Admission`: the user, the operation and the old object.
        """
        return self._admission(kind, operations, plural, mutates=False, ignore_failure=ignore_failure)

    def mutate(
        self,
        kind: KindLike,
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        plural: str = "",
        ignore_failure: bool = False,
    ) -> Callable[[Function], Function]:
        """`async def fill_in(obj) -> None`: change the object before it is stored, or return another in its place."""
        return self._admission(kind, operations, plural, mutates=True, ignore_failure=ignore_failure)

    def _admission(
        self, kind: KindLike, operations: Sequence[str], plural: str, *, mutates: bool, ignore_failure: bool
    ) -> Callable[[Function], Function]:
        decorator = "mutate" if mutates else "validate"
        check_kind(kind, decorator)
        check_operations(operations, decorator)

        def declare(handler: Function) -> Function:
            check_handler(handler, decorator, "obj", "admission")
            declared = AdmissionHandler(
                kind=kind,
                handler=handler,
                operations=tuple(operations),
                mutates=mutates,
                plural=plural or plural_like(kind),
                ignore_failure=ignore_failure,
            )
            is_local = kind in self.declarations.served_kinds
            (self.declarations.local_admission if is_local else self.declarations.admission).append(declared)
            return handler

        return declare

    def convert(self, old: type[AnyResource], new: type[AnyResource]) -> Callable[[Function], Function]:
        """`def upgrade(old: WebsiteV1) -> WebsiteV2`: convert an object from one version of a kind to another.

        Name, labels and other metadata are kept. Declare both directions; steps are joined where no direct one exists.
        """
        for kind in (old, new):
            if not is_resource_class(kind):
                raise TypeError(f"operator.convert: {kind!r} is no version of a kind: give CustomResource classes")
        if old is new or not is_same_family(old, new):
            raise ValueError(f"{old.__name__} and {new.__name__} are not two versions of one kind")

        def declare(handler: Function) -> Function:
            check_handler(handler, "convert", "old")
            self.declarations.conversions.append(ConversionHandler(old=old, new=new, handler=handler))
            return handler

        return declare

    def serves(
        self, kind: type[AnyResource], backend: Any = None, *, refresh: float = 0.0
    ) -> Callable[[type[Any]], type[Any]]:
        """Serve the API of a kind from this process instead of storing its objects in the cluster.

        Write `@operator.serves(Website)` above a class with `get` and `list` and the other methods of `Backend` that
        it supports, or pass one as `backend`. `refresh` is for backends that change without notice: they are read
        again every so many seconds while a watch is open.
        """
        if kind in self.declarations.served_kinds:
            raise ValueError(f"{self.name} serves {kind.__name__} already")

        def declare(backend: type[Any]) -> type[Any]:
            check_served(kind, backend, refresh)
            self.declarations.serve(ServedApi(kind=kind, backend=backend, refresh=refresh))
            return backend

        if backend is not None:
            declare(backend)
        return declare

    def index(self, kind: KindLike, *, name: str = "") -> Callable[[Function], Function]:
        """`def by_image(obj) -> Iterable[str]`: index objects of a kind by these values, for `ctx.indexed`."""
        check_kind(kind, "index")

        def declare(function: Function) -> Function:
            check_handler(function, "index", "obj")

            def index_values(obj: Object) -> Iterable[str]:
                values: Iterable[str] = function(typed(kind, obj))
                return values

            index = Index(kind=kind, name=name or function.__name__, function=index_values)
            self.declarations.indexes.append(index)
            return function

        return declare

    def needs(self, kind: KindLike, *verbs: str, subresource: str = "") -> None:
        """Declare a permission beyond those of its own and owned kinds; `pinnace manifests` adds it to the role."""
        if is_resource_class(kind) and cast(type[AnyResource], kind).declared.external:
            self.declarations.extra_kinds.append(cast(type[AnyResource], kind))
        resource = plural_like(kind) + (f"/{subresource}" if subresource else "")
        permission = Permission(kind_from(kind).group, resource, verbs or READ)
        self.declarations.extra_permissions.append(permission)

    # Results of the declarations

    @property
    def kinds(self) -> list[type[AnyResource]]:
        """Every custom resource that the operator has a class for, in the order of their declarations."""
        return self.declarations.kinds

    def crds(self, *, conversion: Object | None = None) -> list[Object]:
        """Return the CRDs of its own kinds. `conversion` is the spec.conversion of those that it converts."""
        return self.declarations.crds(conversion=conversion)

    def external_crds(self) -> list[Object]:
        """Return definitions of the kinds that others own, for clusters where the owner is not installed."""
        return self.declarations.external_crds()

    def permissions(self) -> list[Permission]:
        """Return the least permissions that its declarations need, for its roles."""
        return self.declarations.permissions()

    # Running

    async def run(
        self,
        client: Client,
        *,
        install: bool = True,
        leader_election: bool = False,
        webhook_host: str = "127.0.0.1",
        webhook_port: int = 0,
        webhook_service: str = "",
        metrics_port: int | None = None,
    ) -> None:
        """Run until cancelled. With `install` the CRDs and webhook configurations are applied to the cluster first.

        The API server must reach `webhook_host`; within a cluster it uses the Service named by `webhook_service`, as
        namespace/name. `metrics_port` serves /metrics, /healthz and /readyz.
        """
        async with self.running(
            client,
            install=install,
            leader_election=leader_election,
            webhook_host=webhook_host,
            webhook_port=webhook_port,
            webhook_service=webhook_service,
            metrics_port=metrics_port,
        ):
            await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def running(self, client: Client, **options: Any) -> AsyncIterator[Manager]:
        """Run within a block, with the options of `run`. Yield the manager, whose `settle` waits until all is done."""
        async with running(self.declarations, client, RunOptions(**options)) as manager:
            yield manager

    def serve(self, *, kubeconfig: Path | None = None, context: str = "", **options: Any) -> None:
        """Run against the current cluster until SIGINT or SIGTERM: the last line of a file that is run."""
        from pinnace.sdk.operator.process import serve  # noqa: PLC0415 - it needs the HTTP client, which takes long to import

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        serve(self, kubeconfig=kubeconfig, context=context, **options)
