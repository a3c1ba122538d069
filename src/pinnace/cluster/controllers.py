"""The built-in controllers: in the server's process, or as a process of their own against any cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from pinnace.auth.authentication.jwt import load_signing_key
from pinnace.auth.authentication.service_accounts import legacy_token
from pinnace.auth.certificates.authority import CertificateFiles, load_pair
from pinnace.auth.certificates.signing import RequestSigner
from pinnace.client.client import Client
from pinnace.client.credentials import Identity
from pinnace.client.exchange import Retries
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access
from pinnace.client.mapping import NoSuchKind
from pinnace.client.transport import Transport
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.in_process import InProcessTransport
from pinnace.controllers.built_in import (
    CONTROLLERS,
    NAME,
    OF_SERVER,
    SYSTEM_NAMESPACE,
    ClusterKeys,
    Context,
    ServiceOptions,
    Unwarned,
    add_controllers,
)
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model import errors
from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.model.objects import AnyObject, Kind, Object
from pinnace.model.users import MASTERS, User, service_account_groups, service_account_name
from pinnace.node.agent.status.served_minor import served_minor
from pinnace.process.clock import AlarmClock, Clock, SystemClock
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager

_ACCOUNT = "v1/ServiceAccount"
_TOKEN_SECONDS = 3600
_RENEW_EARLY = timedelta(minutes=10)
_log = logging.getLogger(__name__)


class UnknownController(ValueError):
    """A name that is not in the table."""


def check_names(names: Collection[str]) -> None:
    """Raise UnknownController if a name is not that of a controller."""
    known = [row.name for row in CONTROLLERS]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UnknownController(f"no controller is named {', '.join(unknown)}; choose from: {', '.join(known)}")


def manager_configuration(names: Collection[str], *, address: str, port: int, leads: bool) -> dict[str, Object]:
    """Return the documents of /configz, with kube-controller-manager's names. `names` are all if empty."""
    generic = {
        "Port": port,
        "Address": address,
        "LeaderElection": {
            "leaderElect": leads,
            "resourceLock": "leases",
            "resourceName": NAME,
            "resourceNamespace": SYSTEM_NAMESPACE,
        },
        "Controllers": list(names) or ["*"],
        "Debugging": {"EnableProfiling": True},
    }
    group = "kubecontrollermanager.config.k8s.io"
    return {
        group: {"kind": "KubeControllerManagerConfiguration", "apiVersion": f"{group}/v1alpha1", "Generic": generic}
    }


class AccountToken:
    """The credentials of a service account: tokens that are requested through `client` and renewed in time."""

    def __init__(self, client: Client, account: str) -> None:
        self._client = client
        self._account = account
        self._known = Identity()
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    async def identity(self, *, afresh: bool = False) -> Identity:
        async with self._lock:
            is_good = self._expires is not None and self._client.clock.now() < self._expires - _RENEW_EARLY
            if afresh or not is_good:
                await self._request()
            return self._known

    async def _request(self) -> None:
        metadata = {"name": self._account, "namespace": SYSTEM_NAMESPACE}
        if await self._client.get_or_none(_ACCOUNT, self._account, namespace=SYSTEM_NAMESPACE) is None:
            with suppress(errors.AlreadyExists):  # Another process may be faster.
                await self._client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        answer = await self._client.create_below(_ACCOUNT, self._account, "token", wanted, namespace=SYSTEM_NAMESPACE)
        self._known = Identity(authorization=f"Bearer {answer['status']['token']}")
        self._expires = datetime.fromisoformat(answer["status"]["expirationTimestamp"])


@asynccontextmanager
async def controllers_at(
    access: Access,
    *,
    only: Collection[str] = (),
    leads: bool = True,
    uses_accounts: bool = False,
    files: CertificateFiles | None = None,
    load_balancers: LoadBalancerProvider | None = None,
    feature_gates: str = "",
) -> AsyncIterator[Manager]:
    """Yield a manager with the controllers of the table, ready to run against a server; connections close at the end.

    With `leads` they work only while this process holds the lease kube-system/kube-controller-manager. With
    `uses_accounts` each writes as its own service account, and else as the user of `access`. Controllers that need
    `files` are left out without them. `feature_gates` differ from the defaults of the server's minor version. Raise
    UnknownController or InvalidFeatureGates.
    """
    check_names(only)
    transports: list[HttpTransport] = []

    def connect(way: Access) -> Client:
        transport = HttpTransport(way)
        transports.append(transport)
        return Client(Unwarned(transport), field_manager=NAME, retries=Retries())

    client = connect(access)
    leader = LeaderElection(client, NAME, namespace=SYSTEM_NAMESPACE) if leads else None
    manager = Manager(client, name=NAME, leader=leader)
    clients: dict[str, Client] = {}

    def client_as(account: str) -> Client:
        if not uses_accounts or account == OF_SERVER:
            return manager.client
        known = clients.get(account)
        if known is None:
            own = connect(replace(access, credentials=AccountToken(client, account), headers=()))
            known = clients[account] = manager.meter(own).telling(manager.informers.note_write)
        return known

    try:
        served = await _served_kinds(client)
        services = ServiceOptions(load_balancers=load_balancers)
        context = Context(
            manager,
            clock=SystemClock(),
            gates=FeatureGates.parse(f"1.{await served_minor(client)}", feature_gates),
            keys=keys_of(files, manager.client.clock) if files is not None else None,
            services=services,
        )
        add_controllers(context, client_as, serves=served.__contains__, only=only)
        for row in CONTROLLERS:
            if row.needs_keys and files is None and (not only or row.name in only):
                _log.info("%s is left out: it needs the certificates of the cluster (--certificates)", row.name)
        yield manager
    finally:
        for transport in transports:
            await transport.close()


async def _served_kinds(client: Client) -> set[Kind]:
    """Return the served kinds among those that rows depend on."""
    served = set()
    for kind in {row.kind for row in CONTROLLERS if row.kind is not None}:
        try:
            await client.kinds.find(kind)
        except NoSuchKind:
            continue
        served.add(kind)
    return served


def controllers_of(
    plane: ControlPlane,
    files: CertificateFiles | None,
    *,
    clock: AlarmClock | None = None,
    transport_of: Callable[[User], Transport] | None = None,
    only: Collection[str] = (),
    leads: bool = False,
    services: ServiceOptions | None = None,
) -> Manager:
    """Return a manager with the built-in controllers, ready to run.

    Without certificate files nothing is published about them or signed. `transport_of` returns the transport of a
    user; by default requests stay in the server's process. With `leads` they work only while this server holds the
    lease kube-system/kube-controller-manager.
    """
    reach = transport_of or (lambda user: InProcessTransport(plane.local(user)))

    # In process only aggregated servers are ever unavailable. A controller that needs one tries again by its own
    # queue: a retry here would delay all its other objects.
    own = Client(
        Unwarned(reach(User(f"system:{NAME}", ()))), clock=clock, field_manager=NAME, retries=Retries(attempts=1)
    )
    leader = LeaderElection(own, NAME, namespace=SYSTEM_NAMESPACE) if leads else None
    manager = Manager(own, name=NAME, leader=leader, supervise=plane.supervisor.keep)
    manager.last_change = plane.last_change
    plane.metrics.include(manager.metrics.text)

    def client_of(user: User) -> Client:
        return own.over(Unwarned(reach(user)))  # All share what discovery has answered.

    def client_as(account: str) -> Client:
        if account == OF_SERVER:
            return client_of(User(OF_SERVER, (MASTERS,))).telling(manager.informers.note_write)
        # Webhooks and audit see the name that this controller has in every cluster.
        user = User(service_account_name(SYSTEM_NAMESPACE, account), service_account_groups(SYSTEM_NAMESPACE))
        return client_of(user).telling(manager.informers.note_write)

    clock = clock or SystemClock()
    keys = keys_of(files, clock) if files is not None else None
    context = Context(
        manager, clock=clock, gates=plane.foundation.gates, keys=keys, is_in_server=True, services=services
    )
    add_controllers(context, client_as, serves=lambda kind: plane.registry.of_kind(kind) is not None, only=only)
    return manager


def keys_of(files: CertificateFiles, clock: Clock) -> ClusterKeys:
    """Return what controllers do with the keys in these files."""

    def token_issuer() -> Callable[[AnyObject, AnyObject], str]:
        key = load_signing_key(files.token_key)
        return lambda account, secret: legacy_token(account, secret, key)

    return ClusterKeys(
        root_ca=files.root_ca.read_text,
        signer=lambda: RequestSigner(load_pair(files.ca), clock),
        token_issuer=token_issuer,
    )
