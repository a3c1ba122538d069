"""An operator: functions that bring objects to how they should be, and what they need. Declared here, run elsewhere."""

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
from pinnace.model.objects import Kind, Object
from pinnace.reconcile.manager import Manager
from pinnace.sdk.operator.api_declarations import declared_api
from pinnace.sdk.operator.checks import (
    check_conversions,
    check_handler,
    check_kind,
    check_kinds,
    check_operations,
    check_operator_name,
    check_watches,
)
from pinnace.sdk.operator.declarations import Conversion, Declared, Gate, Index, Loop, Report, Timer, ToKeys
from pinnace.sdk.operator.permissions import MAKE, OWN, READ, Permission, merged
from pinnace.sdk.operator.runner import running
from pinnace.sdk.resources.custom_resource import (
    AnyResource,
    definition_of,
    external_definition_of,
    is_resource_class,
    plural_of,
)

Function = TypeVar("Function", bound=Callable[..., Any])

_PLURALS = {"Endpoints": "endpoints"}


class Operator:
    """What one extension does.

    Its name is the field manager of what it applies, the source of its events and the name of its lease. Handlers may
    be `async def` or `def`; one that raises is called again for that object, later each time, and holds up no other.
    """

    def __init__(self, name: str, *, kinds: Sequence[type[AnyResource]] = (), namespace: str = "") -> None:
        """`kinds` are custom resources to install beside those that handlers name. `namespace` is where to look."""
        check_operator_name(name)
        self.name = name
        self.namespace = namespace
        self._kinds = list(kinds)
        self.declared = Declared()

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
        """`async def reconcile(obj, ctx)`: bring about what `obj` asks for. What it sets in the status is stored.

        Called when the object changes, or one that it owns of the kinds in `owns`, or one of `watches`, which maps a
        kind to a function that says whom a change concerns. Never called twice at once for one object, and not for
        those that are being deleted. `resync` calls it for all objects every so many seconds.
        """
        check_kind(kind, "reconcile")
        check_kinds(owns, "reconcile", "owns")
        check_watches(watches, "reconcile")

        def declare(handler: Function) -> Function:
            check_handler(handler, "reconcile", "obj", "ctx")
            loop = Loop(
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
            self.declared.loops.append(loop)
            return handler

        return declare

    def on_delete(self, kind: KindLike) -> Callable[[Function], Function]:
        """`async def clean_up(obj, ctx)`: called before an object goes, which waits for it (a finalizer is kept on it).

        It may be called again if it fails, or its success cannot be recorded: it must not mind what is gone already.
        """
        check_kind(kind, "on_delete")
        if any(kind_from(known) == kind_from(kind) for known, _ in self.declared.cleanups):
            raise ValueError(
                f"{self.name} has a function for the end of {kind_from(kind).name} already; do both in one"
            )

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_delete", "obj", "ctx")
            self.declared.cleanups.append((kind, handler))
            return handler

        return declare

    def timer(self, kind: KindLike, *, seconds: float, labels: str = "") -> Callable[[Function], Function]:
        """`async def look(obj, ctx)`: called for each object when it appears, and then every so many seconds."""
        check_kind(kind, "timer")
        if seconds <= 0:
            raise ValueError(f"a timer cannot ring every {seconds} seconds")

        def declare(handler: Function) -> Function:
            check_handler(handler, "timer", "obj", "ctx")
            self.declared.timers.append(Timer(kind=kind, handler=handler, seconds=seconds, labels=labels))
            return handler

        return declare

    def on_change(self, kind: KindLike, *, labels: str = "") -> Callable[[Function], Function]:
        """`async def tell(old, new)`: told of what comes (old is None), changes, and goes (new is None).

        For those who only look on: nothing is written to the object, and nothing waits for it. What was there at the
        start is not told. Changes in quick succession may be told as one; one that was told in vain is told again.
        """
        check_kind(kind, "on_change")

        def declare(handler: Function) -> Function:
            check_handler(handler, "on_change", "old", "new")
            self.declared.reports.append(Report(kind=kind, handler=handler, labels=labels))
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
        """`async def check(obj) -> str | None`: what it returns is why the write is refused.

        A second parameter is given the `Admission`: who writes, what was there before.
        """
        return self._gate(kind, operations, plural, changes=False, ignore_failure=ignore_failure)

    def mutate(
        self,
        kind: KindLike,
        *,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
        plural: str = "",
        ignore_failure: bool = False,
    ) -> Callable[[Function], Function]:
        """`async def fill_in(obj) -> None`: changes the object before it is stored, or returns another in its place."""
        return self._gate(kind, operations, plural, changes=True, ignore_failure=ignore_failure)

    def _gate(
        self, kind: KindLike, operations: Sequence[str], plural: str, *, changes: bool, ignore_failure: bool
    ) -> Callable[[Function], Function]:
        decorator = "mutate" if changes else "validate"
        check_kind(kind, decorator)
        check_operations(operations, decorator)

        def declare(handler: Function) -> Function:
            check_handler(handler, decorator, "obj", "admission")
            gate = Gate(
                kind=kind,
                handler=handler,
                operations=tuple(operations),
                changes=changes,
                plural=plural or plural_like(kind),
                ignore_failure=ignore_failure,
            )
            gates = self.declared.own_gates if kind in self.served_kinds else self.declared.gates
            gates.append(gate)
            return handler

        return declare

    def convert(self, old: type[AnyResource], new: type[AnyResource]) -> Callable[[Function], Function]:
        """`def upgrade(old: WebsiteV1) -> WebsiteV2`: makes an object of one version of a kind into another's.

        Name, labels and the like are kept. Declare both directions; steps are joined where there is no direct one.
        """
        for kind in (old, new):
            if not is_resource_class(kind):
                raise TypeError(f"operator.convert: {kind!r} is no version of a kind: give CustomResource classes")
        if old is new or _family(old) != _family(new):
            raise ValueError(f"{old.__name__} and {new.__name__} are not two versions of one kind")

        def declare(handler: Function) -> Function:
            check_handler(handler, "convert", "old")
            self.declared.conversions.append(Conversion(old=old, new=new, handler=handler))
            return handler

        return declare

    def serves(
        self, kind: type[AnyResource], backend: Any = None, *, refresh: float = 0.0
    ) -> Callable[[type[Any]], type[Any]]:
        """Serve the API of a kind from here, instead of having the cluster store it: `@operator.serves(Website)` above
        a class with `get` and `list`, and whatever else of `Backend` it can do; or give one as `backend`.

        `refresh` is for backends that others change and that cannot say so: they are looked at again every so many
        seconds, while somebody watches.
        """
        if kind in self.served_kinds:
            raise ValueError(f"{self.name} serves {kind.__name__} already")

        def declare(backend: type[Any]) -> type[Any]:
            declared = self.declared
            declared.apis.append(declared_api(kind, backend, refresh))
            declared.own_gates += [gate for gate in declared.gates if gate.kind is kind]
            declared.gates[:] = [gate for gate in declared.gates if gate.kind is not kind]
            return backend

        if backend is not None:
            declare(backend)
        return declare

    def index(self, kind: KindLike, *, name: str = "") -> Callable[[Function], Function]:
        """`def by_image(obj) -> Iterable[str]`: keep a kind findable by these values, with `ctx.indexed`."""
        check_kind(kind, "index")

        def declare(function: Function) -> Function:
            check_handler(function, "index", "obj")

            def indexed(obj: Object) -> Iterable[str]:
                values: Iterable[str] = function(typed(kind, obj))
                return values

            self.declared.indexes.append(Index(kind=kind, name=name or function.__name__, function=indexed))
            return function

        return declare

    def needs(self, kind: KindLike, *verbs: str, subresource: str = "") -> None:
        """Declare what handlers do beyond their own kinds and those they own, for `pinnace manifests` to allow it."""
        if is_resource_class(kind) and cast(type[AnyResource], kind).declared.external:
            self._kinds.append(cast(type[AnyResource], kind))
        resource = plural_like(kind) + (f"/{subresource}" if subresource else "")
        self.declared.permissions.append(Permission(kind_from(kind).group, resource, verbs or READ))

    # What follows from it

    @property
    def kinds(self) -> list[type[AnyResource]]:
        """Every custom resource that the operator has a class for, in the order in which they were named."""
        declared = self.declared
        named: list[Any] = [*self._kinds, *self.served_kinds]
        named += [
            kind for loop in declared.loops for kind in (loop.kind, *loop.owns, *(one for one, _ in loop.watches))
        ]
        named += [timer.kind for timer in declared.timers] + [kind for kind, _ in declared.cleanups]
        named += [report.kind for report in declared.reports]
        named += [gate.kind for gate in declared.gates] + [index.kind for index in declared.indexes]
        named += [kind for one in declared.conversions for kind in (one.old, one.new)]
        return list(dict.fromkeys(kind for kind in named if is_resource_class(kind)))

    def crds(self, *, conversion: Object | None = None) -> list[Object]:
        """The CustomResourceDefinitions of its own kinds. `conversion` says how to reach who converts, if one does."""
        families = self._families(external=False)
        converted = {_family(one.old) for one in self.declared.conversions}
        for family in converted & families.keys():
            check_conversions(self.declared.conversions, families[family])
        return [
            definition_of(*versions, conversion=conversion if family in converted else None)
            for family, versions in families.items()
        ]

    def external_crds(self) -> list[Object]:
        """Those of the kinds that belong to others, as far as the classes tell: for clusters where no others are."""
        return [external_definition_of(*versions) for versions in self._families(external=True).values()]

    def _families(self, *, external: bool) -> dict[tuple[str, str], list[type[AnyResource]]]:
        """The versions of each kind that the cluster stores."""
        found: dict[tuple[str, str], list[type[AnyResource]]] = {}
        for kind in self.kinds:
            if kind not in self.served_kinds and kind.declared.external == external:
                found.setdefault(_family(kind), []).append(kind)
        return found

    @property
    def served_kinds(self) -> list[type[AnyResource]]:
        """Those whose API is served from here."""
        return [api.kind for api in self.declared.apis]

    @property
    def is_called(self) -> bool:
        """The server has to reach it: it serves webhooks or APIs."""
        return self.has_webhooks or bool(self.declared.apis)

    @property
    def has_webhooks(self) -> bool:
        return bool(self.declared.gates or self.declared.conversions)

    def permissions(self) -> list[Permission]:
        """The least that it needs, as far as it is declared: for its roles."""
        found = list(self.declared.permissions)
        with_status = {kind_from(kind) for kind in self.kinds if kind.declared.status is not None}
        cleaned = {kind_from(kind) for kind, _ in self.declared.cleanups}
        own: list[KindLike] = [loop.kind for loop in self.declared.loops]
        own += [timer.kind for timer in self.declared.timers] + [kind for kind, _ in self.declared.cleanups]
        for kind in own:
            group, plural = kind_from(kind).group, plural_like(kind)
            found.append(Permission(group, plural, READ))
            if kind_from(kind) in with_status:
                found.append(Permission(group, f"{plural}/status", ("get", "patch")))
            if kind_from(kind) in cleaned:
                found.append(Permission(group, plural, ("patch",)))
            if any(loop.kind == kind and loop.owns for loop in self.declared.loops):
                found.append(Permission(group, f"{plural}/finalizers", OWN))
        for loop in self.declared.loops:
            found += [Permission(kind_from(kind).group, plural_like(kind), MAKE) for kind in loop.owns]
            found += [Permission(kind_from(kind).group, plural_like(kind), READ) for kind, _ in loop.watches]
        looked_at = [one.kind for one in self.declared.indexes] + [one.kind for one in self.declared.reports]
        found += [Permission(kind_from(kind).group, plural_like(kind), READ) for kind in looked_at]
        found.append(Permission("", "events", ("create", "patch")))
        return merged(found)

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
        """Work until cancelled. With `install` the CRDs and webhook configurations are put into the cluster first.

        The server must reach `webhook_host`; within a cluster that is the Service named by `webhook_service`, as
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
        """Work within a block. Takes what `run` takes; gives the manager, whose `settle` waits until all is done."""
        async with running(self, client, **options) as manager:
            yield manager

    def serve(self, *, kubeconfig: Path | None = None, context: str = "", **options: Any) -> None:
        """Work against the current cluster until the process is told to stop: the last line of a file that is run."""
        from pinnace.sdk.operator.process import serve  # noqa: PLC0415 - it needs the HTTP client, which takes long to import

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        serve(self, kubeconfig=kubeconfig, context=context, **options)


def plural_like(kind: KindLike) -> str:
    """The plural of a kind: what its class says, or what Kubernetes' own naming makes of it."""
    if is_resource_class(kind):
        plural: str = cast(type[AnyResource], kind).declared.plural
        return plural
    name = kind_from(kind).name
    return _PLURALS.get(name) or plural_of(name.lower())


def _family(kind: type[AnyResource]) -> tuple[str, str]:
    named: Kind = kind.declared.kind
    return (named.group, named.name)
