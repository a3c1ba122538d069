"""The checks of /healthz, /livez and /readyz: the store, the caches, the start, and every background part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from pinnace.cluster.supervisor import Supervisor
from pinnace.server.cache.fanout import Fanout
from pinnace.server.discovery.pages import Check
from pinnace.store.store import Store, StoreError

LIVE_SECONDS = 60.0
"""A part that is down for this long fails /livez, too: a new process may help."""

_HOOK = "poststarthook/"
START = f"{_HOOK}start-cluster"
# Clients look for these names of Kubernetes. The work behind each is done by the caches, or before the server is ready.
_HOOKS_OF_CACHES = (
    f"{_HOOK}generic-apiserver-start-informers",
    f"{_HOOK}start-apiextensions-informers",
    f"{_HOOK}crd-informer-synced",
    f"{_HOOK}start-service-ip-repair-controllers",
    f"{_HOOK}start-kube-aggregator-informers",
)
_HOOKS_OF_START = (
    f"{_HOOK}start-apiserver-admission-initializer",
    f"{_HOOK}bootstrap-controller",
    f"{_HOOK}start-system-namespaces-controller",
    f"{_HOOK}rbac/bootstrap-roles",
    f"{_HOOK}scheduling/bootstrap-system-priority-classes",
    f"{_HOOK}start-cluster-authentication-info-controller",
    f"{_HOOK}apiservice-registration-controller",
    f"{_HOOK}apiservice-status-local-available-controller",
    f"{_HOOK}apiservice-openapi-controller",
    "autoregister-completion",
    START,
)


class Health:
    """Asks the parts themselves whenever a page is read."""

    def __init__(self, store: Store, fanout: Fanout, supervisor: Supervisor) -> None:
        self.is_ready = False
        """Whether the start is over: the bootstrap objects exist and the kubeconfig is written."""
        self._store = store
        self._fanout = fanout
        self._supervisor = supervisor

    def checks(self, page: str) -> dict[str, Check]:
        """The checks of a page. /livez and /healthz fail only for what a new process may mend."""
        is_readyz = page == "readyz"
        checks: dict[str, Check] = {"ping": _pass, "log": _pass, "etcd": self._check_read}
        if is_readyz:
            checks |= {"etcd-readiness": self._check_write, "informer-sync": self._check_caches}
        checks |= dict.fromkeys(_HOOKS_OF_CACHES, self._check_caches)
        checks |= dict.fromkeys(_HOOKS_OF_START, self._check_start if is_readyz else _pass)
        checks |= dict.fromkeys(self._supervisor.names, _pass)
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
