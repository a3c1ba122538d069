"""An operator: decorators that declare its handlers, and the methods that run it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.typed import typed
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager
from pinnace.sdk.declarations import Declarations, is_same_family
from pinnace.sdk.extension import Extension
from pinnace.sdk.handlers.checks import (
    check_async,
    check_field,
    check_handler,
    check_kind,
    check_kinds,
    check_operations,
    check_operator_name,
    check_prune,
    check_served,
    check_source,
    check_waits_for_nothing,
    check_watches,
)
from pinnace.sdk.handlers.handlers import (
    AdmissionHandler,
    ChangeHandler,
    CleanupHandler,
    ConversionHandler,
    DaemonHandler,
    ExternalSource,
    FieldHandler,
    Index,
    ReconcileHandler,
    ServedApi,
    TimerHandler,
    ToKeys,
)
from pinnace.sdk.handlers.options import HandlerOptions, Select, read_options
from pinnace.sdk.handlers.permissions import READ, Permission
from pinnace.sdk.metrics.functions import CustomMetrics
from pinnace.sdk.metrics.instruments import MOST_SETS, SECONDS, Counter, Gauge, Histogram
from pinnace.sdk.operator.logs import configure_logs
from pinnace.sdk.operator.runner import RunOptions, RunParameters, running
from pinnace.sdk.resources.custom_resource import AnyResource, is_resource_class
from pinnace.sdk.resources.plurals import plural_like

Function = TypeVar("Function", bound=Callable[..., Any])


class Operator(Extension):
    """One extension: its handlers, and the kinds, webhooks and APIs that they need.

    Its name is the field manager of the objects it applies, the source of its events and the name of its lease.
    Handlers may be `async def` or `def`. A handler that raises is called again for that object with growing delays;
    other objects do not wait for it.
    """

    def __init__(
        self,
        name: str,
        *,
        kinds: Sequence[type[AnyResource]] = (),
        namespace: str | Sequence[str] = "",
        shards: int = 0,
    ) -> None:
        """`kinds` are installed beside those that handlers name. `namespace` limits what the operator watches.

        Several namespaces are a list. Then each of them has its own watches, and the operator needs a Role in each.
        `shards` divides the objects into so many parts, which all processes of the operator share by Leases: each
        object is handled by one process at a time.
        """
        check_operator_name(name)
        if shards:
            from pinnace.reconcile.shards import check_count  # noqa: PLC0415 - few operators have shards.

            check_count(name, shards)
        namespaces = (namespace,) if isinstance(namespace, str) else tuple(dict.fromkeys(namespace))
        self.declarations = Declarations(
            name=name,
            namespaces=tuple(namespace for namespace in namespaces if namespace),
            shards=shards,
            extra_kinds=list(kinds),
        )

    @property
    def name(self) -> str:
        return self.declarations.name

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that it watches; empty for all."""
        return self.declarations.namespaces

    @property
    def metrics(self) -> CustomMetrics:
        """Its custom metrics: `@operator.metrics.pods("queue_depth")` above a function that returns a value."""
        return self.declarations.metrics

    # Metrics of its own

    def counter(self, name: str, help: str, *, labels: Sequence[str] = (), most: int = MOST_SETS) -> Counter:
        """A number that only grows, on /metrics: `orders.inc(shop="north")`. Its name ends in _total.

        `labels` are the names of its labels, and `most` the number of label sets that it keeps: further ones are
        dropped, which is logged and counted. It may be called in threads.
        """
        counter = Counter(name, help, labels=labels, most=most)
        self.declarations.instruments.add(counter)
        return counter

    def gauge(self, name: str, help: str, *, labels: Sequence[str] = (), most: int = MOST_SETS) -> Gauge:
        """A number that goes up and down, on /metrics: `length.set(3, queue="mail")`; else as `counter`."""
        gauge = Gauge(name, help, labels=labels, most=most)
        self.declarations.instruments.add(gauge)
        return gauge

    def histogram(
        self,
        name: str,
        help: str,
        *,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = SECONDS,
        most: int = MOST_SETS,
    ) -> Histogram:
        """Values by size, on /metrics: `seconds.observe(0.2)` or `with seconds.time(): ...`; else as `counter`."""
        histogram = Histogram(name, help, labels=labels, buckets=buckets, most=most)
        self.declarations.instruments.add(histogram)
        return histogram

    def expose(self, registry: Any) -> None:
        """Serve the metrics of a registry of prometheus_client on /metrics; its default one is served anyway."""
        self.declarations.instruments.expose(registry)

    # Declaring

    def reconcile(
        self,
        kind: KindLike,
        *,
        owns: Sequence[KindLike | Select] = (),
        watches: Mapping[Any, ToKeys] | None = None,
        resync: float = 0.0,
        prune: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[Function], Function]:
        """`async def reconcile(obj, ctx)`: bring the cluster to the state that `obj` describes.

        Changes that the handler makes to the status are stored. It is called when the object changes, when an object
        that it owns of the kinds in `owns` changes, and when an object of `watches` changes, which maps a kind to a
        function that returns the keys to reconcile; a second argument of that function is the operator's `Caches`.
        `Select` limits both to some objects of a kind. There is never more than one call at a time for one object,
        and none for objects that are being deleted. `resync` calls it for all objects every so many seconds. `prune`
        deletes owned objects of the kinds in `owns` that earlier calls have applied and a successful call has not.
        """
        check_kind(kind, "reconcile")
        handler_options = read_options("reconcile", options, "owns", "watches", "resync", "prune")
        check_kinds(owns, "reconcile", "owns")
        check_watches(watches, "reconcile")

        def declare(handler: Function) -> Function:
            check_handler(handler, "reconcile", "obj", "ctx", kind=kind)
            declared = ReconcileHandler(
                kind=kind,
                handler=handler,
                options=handler_options,
                owns=tuple(_select(owned) for owned in owns),
                watches=tuple((_select(watched), to_keys) for watched, to_keys in (watches or {}).items()),
                resync=resync,
                prune=prune,
            )
            check_prune(declared, self.declarations.reconciles)
            self.declarations.reconciles.append(declared)
            return handler

        return declare

    def on_delete(self, kind: KindLike, **options: Unpack[HandlerOptions]) -> Callable[[Function], Function]:
        """`async def clean_up(obj, ctx)`: called before an object is removed; a finalizer holds the object until then.

        It is called again if it fails or if its success cannot be recorded, so it must be idempotent. `ctx.requeue`
        and `raise Retry(...)` keep the object until a later call. The finalizer is taken back from objects that no
        longer match the selector, and from all if there is no such handler any more.
        """
        check_kind(kind, "on_delete")
        handler_options = read_options("on_delete", options)
        if any(kind_from(known.kind) == kind_from(kind) for known in self.declarations.cleanups):
            raise ValueError(
                f"{self.name} has an on_delete function for {kind_from(kind).name} already; do both in one function"
            )

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_delete", "obj", "ctx", kind=kind)
            declared = CleanupHandler(kind=kind, handler=handler, options=handler_options)
            self.declarations.cleanups.append(declared)
            return handler

        return declare

    def timer(
        self, kind: KindLike, *, seconds: float, **options: Unpack[HandlerOptions]
    ) -> Callable[[Function], Function]:
        """`async def look(obj, ctx)`: called for each object when it appears, and then every so many seconds."""
        check_kind(kind, "timer")
        handler_options = read_options("timer", options, "seconds")
        if seconds <= 0:
            raise ValueError(f"a timer cannot run every {seconds} seconds: write more than 0")

        def declare(handler: Function) -> Function:
            check_handler(handler, "timer", "obj", "ctx", kind=kind)
            timer = TimerHandler(kind=kind, handler=handler, seconds=seconds, options=handler_options)
            self.declarations.timers.append(timer)
            return handler

        return declare

    def on_field(self, kind: KindLike, field: str, **options: Unpack[HandlerOptions]) -> Callable[[Function], Function]:
        """`async def resize(obj, ctx, old, new)`: called with both values after a change of one field, "spec.storage".

        It is called for new objects too, with None as the old value. The last handled value is kept in an annotation
        of the object, so that no change is lost while the operator does not run; a call that fails is repeated.
        """
        check_kind(kind, "on_field")
        handler_options = read_options("on_field", options)
        path = check_field(kind, field)

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_field", "obj", "ctx", "old", "new", kind=kind)
            declared = FieldHandler(kind=kind, handler=handler, path=path, options=handler_options)
            self.declarations.fields.append(declared)
            return handler

        return declare

    def daemon(self, kind: KindLike, **options: Unpack[HandlerOptions]) -> Callable[[Function], Function]:
        """`async def follow(obj, ctx)`: a task for each object, from its appearance to its deletion.

        It is cancelled when the object is deleted or no longer matches the selector. If it returns, it is over; if it
        fails, it is started again. It sees the object as it was at the start: read it again with `ctx.get`, and wait
        with `ctx.sleep`. A daemon runs beside the object's other handlers and does not wait for them.
        """
        check_kind(kind, "daemon")
        handler_options = read_options("daemon", options)

        def declare(handler: Function) -> Function:
            check_handler(handler, "daemon", "obj", "ctx", kind=kind)
            check_async(handler, "daemon")
            declared = DaemonHandler(kind=kind, handler=handler, options=handler_options)
            self.declarations.daemons.append(declared)
            return handler

        return declare

    def on_change(self, kind: KindLike, **options: Unpack[HandlerOptions]) -> Callable[[Function], Function]:
        """`async def notify(old, new)`: called after each change, with None for the missing side.

        A new object has no `old`, a deleted one no `new`. For observers: nothing is written to the object. Objects
        that exist at the start are not reported. Several quick changes may be reported as one; a call that fails is
        repeated.
        """
        check_kind(kind, "on_change")
        handler_options = read_options("on_change", options)

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_change", "old", "new", kind=kind)
            declared = ChangeHandler(kind=kind, handler=handler, options=handler_options)
            self.declarations.changes.append(declared)
            return handler

        return declare

    def source(self, kind: KindLike, *, path: str = "") -> Callable[[Function], Function]:
        """Reconcile objects because of events outside of the cluster.

        Above an async generator that yields the keys of objects: `async def events(): yield Key(namespace, name)`. It
        is started again after an error. With a `path`, such as "/hooks/git", above `def pushed(request)`, which gets a
        `HookRequest` and returns the keys: it is served beside /metrics. Both may take the `Shared` values as well.
        """
        check_kind(kind, "source")

        def declare(function: Function) -> Function:
            check_source(function, path)
            if path and self.declarations.shards:
                raise ValueError(
                    f"{self.name} has shards: a request to {path} reaches one process, and not always that which has "
                    "the object. Write an async generator, which every process runs"
                )
            self.declarations.sources.append(ExternalSource(kind=kind, function=function, path=path))
            return function

        return declare

    def startup(self, function: Function) -> Function:
        """`async def open_session() -> Session`: called once before all handlers; `ctx.shared[Session]` is its result.

        An async generator yields the value, and goes on when the operator has stopped. A parameter gets the `Shared`
        values of the functions before it.
        """
        check_handler(function, "startup", "shared")
        self.declarations.startups.append(function)
        return function

    def shutdown(self, function: Function) -> Function:
        """`async def close(shared)`: called once after all handlers have ended."""
        check_handler(function, "shutdown", "shared")
        self.declarations.shutdowns.append(function)
        return function

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
            check_waits_for_nothing(function, "index")

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

    def account(self, namespace: str) -> list[Object]:
        """Return its ServiceAccount in a namespace, with its generated roles and their bindings."""
        from pinnace.sdk.installation.manifests import DeploymentOptions, roles  # noqa: PLC0415 - not needed in a pod

        return roles(self.declarations, DeploymentOptions(namespace=namespace, image="", file=""))

    # Running

    async def run(self, client: Client, **options: Unpack[RunParameters]) -> None:
        """Run until cancelled. With `install` the CRDs and webhook configurations are applied to the cluster first."""
        async with self.running(client, **options):
            await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def running(self, client: Client, **options: Any) -> AsyncIterator[Manager]:
        """Run within a block, with the options of `run`. Yield the manager, whose `settle` waits until all is done."""
        async with running(self.declarations, client, RunOptions(**options)) as manager:
            yield manager

    def serve(self, *, kubeconfig: Path | None = None, context: str = "", **options: Unpack[RunParameters]) -> None:
        """Run against the current cluster until SIGINT or SIGTERM: the last line of a file that is run."""
        from pinnace.sdk.operator.process import serve  # noqa: PLC0415 - it needs the HTTP client, which takes long to import

        configure_logs()
        serve(self, kubeconfig=kubeconfig, context=context, **options)


def _select(kind: KindLike | Select) -> Select:
    return kind if isinstance(kind, Select) else Select(kind)
