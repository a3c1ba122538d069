"""Everything that one operator declares, and the CRDs and permissions that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.model.objects import Kind, Object
from pinnace.sdk.api.computed import ComputedApiDeclaration
from pinnace.sdk.handlers.checks import check_conversions
from pinnace.sdk.handlers.handlers import (
    AdmissionHandler,
    ChangeHandler,
    CleanupHandler,
    ConversionHandler,
    DaemonHandler,
    ExternalSource,
    FieldHandler,
    Index,
    ObjectHandler,
    ReconcileHandler,
    ServedApi,
    TimerHandler,
)
from pinnace.sdk.handlers.permissions import MAKE, OWN, READ, Permission, merge
from pinnace.sdk.metrics.functions import CustomMetrics
from pinnace.sdk.metrics.instruments import Instruments
from pinnace.sdk.resources.custom_resource import (
    AnyResource,
    definition_of,
    external_definition_of,
    is_resource_class,
)
from pinnace.sdk.resources.plurals import plural_like

Family = tuple[str, str]
"""Group and kind: what all versions of a kind have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """The declarations of one operator. The lists grow while its decorators run."""

    name: str
    namespaces: tuple[str, ...] = ()
    """The namespaces to watch; empty for all."""
    shards: int = 0
    """The number of shards among which several processes divide the objects; 0 if one process handles all."""
    extra_kinds: list[type[AnyResource]] = field(default_factory=list)
    """Custom resources to install beside those that handlers name."""
    reconciles: list[ReconcileHandler] = field(default_factory=list)
    cleanups: list[CleanupHandler] = field(default_factory=list)
    timers: list[TimerHandler] = field(default_factory=list)
    changes: list[ChangeHandler] = field(default_factory=list)
    fields: list[FieldHandler] = field(default_factory=list)
    daemons: list[DaemonHandler] = field(default_factory=list)
    sources: list[ExternalSource] = field(default_factory=list)
    startups: list[Callable[..., Any]] = field(default_factory=list)
    shutdowns: list[Callable[..., Any]] = field(default_factory=list)
    admission: list[AdmissionHandler] = field(default_factory=list)
    """Those that the API server calls as webhooks."""
    local_admission: list[AdmissionHandler] = field(default_factory=list)
    """Those of the kinds that the operator serves itself, which need no webhook."""
    conversions: list[ConversionHandler] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)
    apis: list[ServedApi] = field(default_factory=list)
    metrics: CustomMetrics = field(default_factory=CustomMetrics)
    instruments: Instruments = field(default_factory=Instruments)
    """The counters, gauges and histograms of the author."""
    computed: ComputedApiDeclaration | None = None
    """An API without objects that is served as a whole."""
    extra_permissions: list[Permission] = field(default_factory=list)

    @property
    def kinds(self) -> list[type[AnyResource]]:
        """Every custom resource that the operator has a class for, in the order of their declarations."""
        kinds: list[Any] = [*self.extra_kinds, *self.served_kinds]
        for handler in self.reconciles:
            kinds += [
                handler.kind,
                *(owned.kind for owned in handler.owns),
                *(owned.kind for owned, _ in handler.watches),
            ]
        kinds += [handler.kind for handler in self._object_handlers]
        kinds += [handler.kind for handler in self.changes] + [handler.kind for handler in self.admission]
        kinds += [index.kind for index in self.indexes] + [function.kind for function in self.metrics.functions]
        kinds += [kind for conversion in self.conversions for kind in (conversion.old, conversion.new)]
        return list(dict.fromkeys(kind for kind in kinds if is_resource_class(kind)))

    @property
    def _object_handlers(self) -> list[ObjectHandler]:
        """The handlers that may write to their objects."""
        return [*self.reconciles, *self.timers, *self.cleanups, *self.fields, *self.daemons]

    @property
    def served_kinds(self) -> list[type[AnyResource]]:
        """The kinds whose API the operator serves itself."""
        return [api.kind for api in self.apis]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: no handler, no kind and no API."""
        others = (self.sources, self.startups, self.shutdowns, self.metrics.functions)
        return not (self._object_handlers or self.changes or self.kinds or self.has_endpoints or any(others))

    @property
    def has_webhooks(self) -> bool:
        return bool(self.admission or self.conversions)

    @property
    def has_endpoints(self) -> bool:
        """Whether the API server must reach the operator, for webhooks or for APIs."""
        return self.has_webhooks or self.serves_apis

    @property
    def serves_apis(self) -> bool:
        """Whether it is an aggregated API server: of kinds, of metrics, or of an API without objects."""
        return bool(self.apis or self.metrics.functions or self.computed is not None)

    def serve(self, api: ServedApi) -> None:
        """Serve the API of a kind. Its admission handlers are called without a webhook from now on."""
        self.apis.append(api)
        self.local_admission.extend(handler for handler in self.admission if handler.kind is api.kind)
        self.admission[:] = [handler for handler in self.admission if handler.kind is not api.kind]

    def crds(self, *, conversion: Object | None = None) -> list[Object]:
        """Return the CRDs of its own kinds. `conversion` is the spec.conversion of those that it converts."""
        families = self._families(external=False)
        converted = {_family(conversion.old) for conversion in self.conversions}
        for family in converted & families.keys():
            check_conversions(self.conversions, families[family])
        return [
            definition_of(*versions, conversion=conversion if family in converted else None)
            for family, versions in families.items()
        ]

    def external_crds(self) -> list[Object]:
        """Return definitions of the kinds that others own, as far as the classes describe them."""
        return [external_definition_of(*versions) for versions in self._families(external=True).values()]

    def _families(self, *, external: bool) -> dict[Family, list[type[AnyResource]]]:
        """Return the versions of each kind that the cluster stores."""
        families: dict[Family, list[type[AnyResource]]] = {}
        for kind in self.kinds:
            if kind not in self.served_kinds and kind.declared.external == external:
                families.setdefault(_family(kind), []).append(kind)
        return families

    def permissions(self) -> list[Permission]:
        """Return the least permissions that its declarations need, for its roles."""
        permissions = list(self.extra_permissions)
        with_status = {kind_from(kind) for kind in self.kinds if kind.declared.status is not None}
        # The finalizer and the annotations of on_field are written to the object itself.
        patched = {kind_from(handler.kind) for handler in (*self.cleanups, *self.fields)}
        for handler in self._object_handlers:
            kind = handler.kind
            group, plural = kind_from(kind).group, plural_like(kind)
            permissions.append(Permission(group, plural, READ))
            if kind_from(kind) in with_status:
                permissions.append(Permission(group, f"{plural}/status", ("get", "patch")))
            if kind_from(kind) in patched:
                permissions.append(Permission(group, plural, ("patch",)))
            if isinstance(handler, ReconcileHandler) and handler.owns:
                permissions.append(Permission(group, f"{plural}/finalizers", OWN))
        for reconcile in self.reconciles:
            permissions += [_permission(owned.kind, MAKE) for owned in reconcile.owns]
            permissions += [_permission(watched.kind, READ) for watched, _ in reconcile.watches]
        permissions += [_permission(index.kind, READ) for index in self.indexes]
        permissions += [_permission(change.kind, READ) for change in self.changes]
        permissions += [
            _permission(function.kind, READ) for function in self.metrics.functions if function.kind is not None
        ]
        permissions.append(Permission("", "events", ("create", "patch")))
        return merge(permissions)


def is_same_family(first: type[AnyResource], other: type[AnyResource]) -> bool:
    """Return whether two classes are versions of one kind."""
    return _family(first) == _family(other)


def _family(kind: type[AnyResource]) -> Family:
    named: Kind = kind.declared.kind
    return (named.group, named.name)


def _permission(kind: KindLike, verbs: tuple[str, ...]) -> Permission:
    return Permission(kind_from(kind).group, plural_like(kind), verbs)
