"""The checks of /healthz, /livez and /readyz: the store, the caches, the start, and every background part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from pinnace.process.supervisor import Supervisor
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.discovery.pages import Check
from pinnace.store.store import Store, StoreError

LIVE_SECONDS = 60.0
"""A part that is down for this long fails /livez, too: a new process may help."""

START = "poststarthook/start-cluster"
_NAMES = """
ping
log
loopback-serving-certificate
etcd
etcd-readiness
informer-sync
poststarthook/start-apiserver-admission-initializer
poststarthook/generic-apiserver-start-informers
poststarthook/priority-and-fairness-config-consumer
poststarthook/priority-and-fairness-filter
poststarthook/storage-object-count-tracker-hook
poststarthook/start-apiextensions-informers
poststarthook/start-apiextensions-controllers
poststarthook/crd-informer-synced
poststarthook/start-system-namespaces-controller
poststarthook/peer-endpoint-reconciler-controller
poststarthook/start-cluster-authentication-info-controller
poststarthook/start-kube-apiserver-identity-lease-controller
poststarthook/start-kube-apiserver-identity-lease-garbage-collector
poststarthook/storage-readiness
poststarthook/start-legacy-token-tracking-controller
poststarthook/start-service-ip-repair-controllers
poststarthook/rbac/bootstrap-roles
poststarthook/scheduling/bootstrap-system-priority-classes
poststarthook/priority-and-fairness-config-producer
poststarthook/bootstrap-controller
poststarthook/start-kubernetes-service-cidr-controller
poststarthook/aggregator-reload-proxy-client-cert
poststarthook/start-kube-aggregator-informers
poststarthook/apiservice-status-local-available-controller
poststarthook/apiservice-status-remote-available-controller
poststarthook/apiservice-registration-controller
poststarthook/apiservice-discovery-controller
poststarthook/kube-apiserver-autoregistration
autoregister-completion
poststarthook/apiservice-openapi-controller
poststarthook/apiservice-openapiv3-controller
"""
KUBERNETES = tuple(_NAMES.split())
"""The checks of Kubernetes in its order: clients look for them. Background parts have some of these names."""
_READYZ_ONLY = frozenset(("etcd-readiness", "informer-sync"))
_READYZ_NEVER = frozenset(("loopback-serving-certificate",))
_OF_CACHES = frozenset(
    (
        "informer-sync",
        "poststarthook/generic-apiserver-start-informers",
        "poststarthook/start-apiextensions-informers",
        "poststarthook/crd-informer-synced",
        "poststarthook/start-service-ip-repair-controllers",
        "poststarthook/start-kube-aggregator-informers",
    )
)
"""The watch caches do the work of these checks. The work of the others is done before the server is ready."""


class Health:
    """Asks the parts themselves whenever a page is read."""

    def __init__(self, store: Store, fanout: Fanout, supervisor: Supervisor) -> None:
        self.is_ready = False
        """Whether the start is over: the bootstrap objects exist and the kubeconfig is written."""
        self.set_aside: Callable[[], list[str]] = list
        """Names the objects and controllers that are set aside. They are reported, and fail no check."""
        self.is_stopping = False
        """Whether the server stops soon: it still serves, but no new client should choose it."""
        self.kms_providers: Check | None = None
        """Checks the KMS plug-ins, if there may be some."""
        self._store = store
        self._fanout = fanout
        self._supervisor = supervisor

    def checks(self, page: str) -> dict[str, Check]:
        """Return the checks of a page. /livez and /healthz fail only for errors that a restart may fix."""
        is_readyz = page == "readyz"
        start = self._check_start if is_readyz else _pass
        left_out = _READYZ_NEVER if is_readyz else _READYZ_ONLY
        checks: dict[str, Check] = dict.fromkeys((name for name in KUBERNETES if name not in left_out), start)
        checks |= {"ping": _pass, "log": _pass, "etcd": self._check_read, START: start}
        checks |= {name: self._check_caches for name in _OF_CACHES if name in checks}
        checks |= dict.fromkeys(self._supervisor.names, _pass)
        checks |= {f"set-aside/{name}": _pass for name in self.set_aside()}
        if self.kms_providers is not None:
            checks["kms-providers"] = self.kms_providers
        if is_readyz:
            checks |= {"etcd-readiness": self._check_write, "shutdown": self._check_shutdown}
        for name, seconds in self._supervisor.down_seconds().items():
            if is_readyz or seconds >= LIVE_SECONDS:
                checks[name] = partial(_down, name, seconds)
        return checks

    async def _check_read(self) -> str:
        return await _failure_of(self._store.check_read)

    async def _check_write(self) -> str:
        return await _failure_of(self._store.check_write)

    def _check_caches(self) -> str:
        if not self._fanout.is_loaded:
            return "the watch caches are not loaded"
        behind = self._store.revision - self._fanout.revision
        return f"the watch caches are {behind} revisions behind the store" if behind else ""

    def _check_shutdown(self) -> str:
        return "process is shutting down" if self.is_stopping else ""

    def _check_start(self) -> str:
        return "" if self.is_ready else "the cluster is starting"


def _pass() -> str:
    return ""


def _down(name: str, seconds: float) -> str:
    return f"{name} is down for {seconds:.0f} s"


async def _failure_of(check: Callable[[], Awaitable[None]]) -> str:
    try:
        await check()
    except StoreError as error:
        return str(error)
    return ""
