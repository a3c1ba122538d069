"""The built-in controllers of a cluster: one table, one manager, one watch per kind, each controller as its own user.

To add a controller, add one row to `CONTROLLERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from pinnace.client.client import Client
from pinnace.client.reading import SILENCE
from pinnace.client.transport import Answer, EventStream, Stream, Transport, batch_transport, watch_transport
from pinnace.controllers.autoscaling.horizontal import HorizontalPodAutoscalers
from pinnace.controllers.batch.cron_jobs import CronJobs
from pinnace.controllers.batch.finished_jobs import FinishedJobs
from pinnace.controllers.batch.jobs import Jobs
from pinnace.controllers.garbage.collector import GarbageCollector
from pinnace.controllers.garbage.monitors import Monitors
from pinnace.controllers.garbage.namespaces import NamespaceController
from pinnace.controllers.garbage.server_leases import ServerLeases
from pinnace.controllers.garbage.storage_version_entries import StorageVersionEntries
from pinnace.controllers.nodes.device_taint_eviction import DeviceTaintEviction
from pinnace.controllers.nodes.ipam import NodeIpam
from pinnace.controllers.nodes.lifecycle import NodeLifecycle
from pinnace.controllers.nodes.pod_garbage import PodGarbage
from pinnace.controllers.nodes.resource_claims import ResourceClaims
from pinnace.controllers.nodes.resource_pools import ResourcePools
from pinnace.controllers.nodes.taint_eviction import TaintEviction
from pinnace.controllers.nodes.ttl import Ttl
from pinnace.controllers.policy.disruption import Disruption
from pinnace.controllers.policy.resource_quota import ResourceQuotas
from pinnace.controllers.security.bootstrap_tokens import BootstrapSigner, TokenCleaner
from pinnace.controllers.security.certificate_approval import CertificateApprover
from pinnace.controllers.security.certificate_cleaning import CertificateCleaning, PodCertificateCleaning
from pinnace.controllers.security.certificate_signing import Authority, CertificateSigner
from pinnace.controllers.security.legacy_tokens import LegacyTokenCleaner
from pinnace.controllers.security.root_ca import RootCaPublisher
from pinnace.controllers.security.service_account_tokens import ServiceAccountTokenController
from pinnace.controllers.security.service_accounts import ServiceAccounts
from pinnace.controllers.security.trust_bundles import TrustBundlePublisher
from pinnace.controllers.services.address_repair import AddressRepair
from pinnace.controllers.services.endpoint_slices import EndpointSlices
from pinnace.controllers.services.endpoints import EndpointsController
from pinnace.controllers.services.load_balancer import LoadBalancerController
from pinnace.controllers.services.loopback_balancer import LoopbackBalancer
from pinnace.controllers.services.mirroring import SliceMirroring
from pinnace.controllers.services.service_cidrs import ServiceCidrs
from pinnace.controllers.storage.attachments import VolumeAttachments
from pinnace.controllers.storage.binder import VolumeBinder
from pinnace.controllers.storage.ephemeral import EphemeralVolumes
from pinnace.controllers.storage.expansion import Expansion
from pinnace.controllers.storage.local_path import LocalPathProvisioner
from pinnace.controllers.storage.protection import (
    protect_claims,
    protect_classes,
    protect_pod_groups,
    protect_volumes,
)
from pinnace.controllers.storage_versions import StorageVersionMigrations
from pinnace.controllers.workloads.daemon_sets import DaemonSets
from pinnace.controllers.workloads.deployments import Deployments
from pinnace.controllers.workloads.replica_sets import REPLICATION_CONTROLLERS, ReplicaSets
from pinnace.controllers.workloads.stateful_sets import StatefulSets
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.errors import ApiError
from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.model.objects import AnyObject, Kind, Object
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.manager import Manager

NAME = "kube-controller-manager"
SYSTEM_NAMESPACE = "kube-system"
OF_SERVER = "system:apiserver"
"""The user of loops that are a part of kube-apiserver: `pinnace controllers` leaves them out unless they are named."""


class Unwarned:
    """Without warnings: these controllers look after deprecated kinds because they exist, not by mistake."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        answer = await self._inner.request(method, target, body, headers)
        if "warning" not in answer.headers:
            return answer
        kept = {name: value for name, value in answer.headers.items() if name != "warning"}
        return Answer(answer.status, kept, answer.body)

    async def write_many(
        self, method: str, target: str, objects: list[Object], headers: Mapping[str, str]
    ) -> list[ApiError | None] | None:
        """As a `BatchTransport`, if the inner transport is one."""
        batches = batch_transport(self._inner)
        return None if batches is None else await batches.write_many(method, target, objects, headers)

    async def watch(self, target: str, headers: Mapping[str, str]) -> EventStream | Answer:
        """As a `WatchTransport`, if the inner transport is one."""
        watches = watch_transport(self._inner)
        return await (
            self.stream(target, headers, silence=SILENCE) if watches is None else watches.watch(target, headers)
        )

    async def stream(self, target: str, headers: Mapping[str, str], *, silence: float) -> Stream | Answer:
        return await self._inner.stream(target, headers, silence=silence)

    async def close(self) -> None:
        await self._inner.close()


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The options of controllers that work on Services."""

    ranges: Sequence[str] = ()
    """The addresses of Services, as far as the process knows them: no pod gets one."""
    load_balancers: LoadBalancerProvider | None = None
    """Makes the load balancers; None for addresses on loopback."""


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The uses that controllers have for the keys of a cluster. Each function reads its files when it is called."""

    root_ca: Callable[[], str]
    """Return the certificates (PEM) of the CA of the API."""
    signer: Callable[[], Authority]
    """Return the signer of certificates."""
    token_issuer: Callable[[], Callable[[AnyObject, AnyObject], str]]
    """Return the function that makes the token of a service account for a Secret."""


class Context:
    """Everything besides its own client that a controller may need."""

    def __init__(
        self,
        manager: Manager,
        *,
        clock: AlarmClock,
        gates: FeatureGates,
        keys: ClusterKeys | None = None,
        is_in_server: bool = False,
        services: ServiceOptions | None = None,
    ) -> None:
        """`keys` are those of the cluster; None where the process does not have them."""
        self.services = services or ServiceOptions()
        self.is_in_server = is_in_server
        self.manager = manager
        self.clock = clock
        self.gates = gates
        self._keys = keys
        self._monitors: Monitors | None = None

    @property
    def monitors(self) -> Monitors:
        """Informers of every kind, shared by the controllers that need all objects; none before one asks."""
        if self._monitors is None:
            self._monitors = Monitors(self.manager)
        return self._monitors

    @property
    def shared_controllers(self) -> Sequence[Controller]:
        """The controllers of the parts that the built controllers share."""
        return () if self._monitors is None else (self._monitors.controller,)

    @property
    def has_keys(self) -> bool:
        return self._keys is not None

    @property
    def keys(self) -> ClusterKeys:
        """For rows with `needs_keys`: such controllers start only where there are keys."""
        assert self._keys is not None
        return self._keys


class HasController(Protocol):
    """An object that works by one controller."""

    @property
    def controller(self) -> Controller: ...


@runtime_checkable
class HasControllers(Protocol):
    """An object that works by several controllers."""

    @property
    def controllers(self) -> Sequence[Controller]: ...


class ControllerRow(NamedTuple):
    """One controller. Names and service accounts are those of Kubernetes."""

    name: str
    account: str
    """Its service account in kube-system; OF_SERVER, or empty for the user of the manager itself."""
    build: Callable[[Context, Client], HasController | HasControllers]
    """Build the controller; `add_controllers` adds it to the manager. The client writes as the service account."""
    kind: Kind | None = None
    """The kind without which the controller has no work, if not every served minor has it."""
    needs_keys: bool = False
    gate: str = ""
    """The feature gate that the controller needs."""


def _sign_certificates(context: Context, client: Client) -> CertificateSigner:
    # The controller that decides what is signed holds a signer, never the key.
    return CertificateSigner(context.manager, client, authority=context.keys.signer())


def _issue_tokens(context: Context, client: Client) -> ServiceAccountTokenController:
    return ServiceAccountTokenController(
        context.manager, client, token_of=context.keys.token_issuer(), ca=context.keys.root_ca()
    )


def _plain(
    build: Callable[[Manager, Client], HasController | HasControllers],
) -> Callable[[Context, Client], HasController | HasControllers]:
    """Build a controller that needs nothing besides the manager and its client."""
    return lambda context, client: build(context.manager, client)


def _is_1_37(context: Context) -> bool:
    return int(context.gates.minor.partition(".")[2]) >= 37


def _has_taint_rules(context: Context) -> bool:
    """Whether there are DeviceTaintRules. They are read as v1, which is served since 1.37."""
    return context.gates.is_on("DRADeviceTaintRules") and _is_1_37(context)


def _evict_from_devices(context: Context, client: Client) -> DeviceTaintEviction:
    return DeviceTaintEviction(context.manager, client, has_rules=_has_taint_rules(context))


def _count_devices(context: Context, client: Client) -> ResourcePools:
    has_rules, has_views = _has_taint_rules(context), _is_1_37(context)
    return ResourcePools(context.manager, client, has_rules=has_rules, has_views=has_views)


def _balance_loads(context: Context, client: Client) -> LoadBalancerController:
    provider: LoadBalancerProvider = context.services.load_balancers or LoopbackBalancer()
    return LoadBalancerController(context.manager, client, provider=provider)


CONTROLLERS: tuple[ControllerRow, ...] = (
    # garbage
    ControllerRow(
        "garbage-collector-controller",
        "generic-garbage-collector",
        lambda context, client: GarbageCollector(context.manager, client, context.monitors),
    ),
    ControllerRow(
        "namespace-controller",
        "namespace-controller",
        lambda context, client: NamespaceController(context.manager, client, context.monitors),
    ),
    ControllerRow("apiserver-lease-garbage-collector", OF_SERVER, _plain(ServerLeases)),
    # security
    ControllerRow("token-cleaner-controller", "token-cleaner", _plain(TokenCleaner)),
    ControllerRow("bootstrap-signer-controller", "bootstrap-signer", _plain(BootstrapSigner)),
    ControllerRow(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        _plain(LegacyTokenCleaner),
    ),
    ControllerRow("serviceaccount-controller", "service-account-controller", _plain(ServiceAccounts)),
    ControllerRow(
        "certificatesigningrequest-approving-controller", "certificate-controller", _plain(CertificateApprover)
    ),
    ControllerRow(
        "certificatesigningrequest-cleaner-controller", "certificate-controller", _plain(CertificateCleaning)
    ),
    ControllerRow(
        "certificatesigningrequest-signing-controller", "certificate-controller", _sign_certificates, needs_keys=True
    ),
    ControllerRow(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        lambda context, client: RootCaPublisher(context.manager, client, ca=context.keys.root_ca()),
        needs_keys=True,
    ),
    ControllerRow(
        "podcertificaterequest-cleaner-controller",
        "podcertificaterequestcleaner",
        _plain(PodCertificateCleaning),
        kind=Kind("certificates.k8s.io", "v1", "PodCertificateRequest"),  # Served since 1.37.
    ),
    ControllerRow(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "kube-apiserver-serving-clustertrustbundle-publisher",
        lambda context, client: TrustBundlePublisher(context.manager, client, ca=context.keys.root_ca()),
        kind=Kind("certificates.k8s.io", "v1", "ClusterTrustBundle"),  # Served since 1.37.
        needs_keys=True,
    ),
    ControllerRow("serviceaccount-token-controller", "", _issue_tokens, needs_keys=True),
    # workloads
    ControllerRow("replicaset-controller", "replicaset-controller", _plain(ReplicaSets)),
    ControllerRow(
        "replicationcontroller-controller",
        "replication-controller",
        _plain(partial(ReplicaSets, flavor=REPLICATION_CONTROLLERS)),
    ),
    ControllerRow("deployment-controller", "deployment-controller", _plain(Deployments)),
    ControllerRow("statefulset-controller", "statefulset-controller", _plain(StatefulSets)),
    ControllerRow("daemonset-controller", "daemon-set-controller", _plain(DaemonSets)),
    # batch
    ControllerRow("job-controller", "job-controller", _plain(Jobs)),
    ControllerRow("cronjob-controller", "cronjob-controller", _plain(CronJobs)),
    ControllerRow("ttl-after-finished-controller", "ttl-after-finished-controller", _plain(FinishedJobs)),
    # services
    ControllerRow("endpoints-controller", "endpoint-controller", _plain(EndpointsController)),
    ControllerRow("endpointslice-controller", "endpointslice-controller", _plain(EndpointSlices)),
    ControllerRow("endpointslice-mirroring-controller", "endpointslicemirroring-controller", _plain(SliceMirroring)),
    ControllerRow("service-lb-controller", "service-controller", _balance_loads),
    ControllerRow(
        "service-cidr-controller",
        "service-cidrs-controller",
        _plain(ServiceCidrs),
        kind=Kind("networking.k8s.io", "v1", "ServiceCIDR"),  # Served since 1.33.
    ),
    ControllerRow(
        "service-address-repair-controller",
        OF_SERVER,
        _plain(AddressRepair),
        kind=Kind("networking.k8s.io", "v1", "ServiceCIDR"),
    ),
    # storage
    ControllerRow("persistentvolume-binder-controller", "persistent-volume-binder", _plain(VolumeBinder)),
    ControllerRow("local-path-provisioner", "persistent-volume-binder", _plain(LocalPathProvisioner)),
    ControllerRow("persistentvolume-expander-controller", "expand-controller", _plain(Expansion)),
    ControllerRow("persistentvolume-attach-detach-controller", "attachdetach-controller", _plain(VolumeAttachments)),
    ControllerRow("ephemeral-volume-controller", "ephemeral-volume-controller", _plain(EphemeralVolumes)),
    ControllerRow("persistentvolumeclaim-protection-controller", "pvc-protection-controller", _plain(protect_claims)),
    ControllerRow("persistentvolume-protection-controller", "pv-protection-controller", _plain(protect_volumes)),
    ControllerRow(
        "volumeattributesclass-protection-controller",
        "volumeattributesclass-protection-controller",
        _plain(protect_classes),
        kind=Kind("storage.k8s.io", "v1", "VolumeAttributesClass"),  # Served since 1.34.
    ),
    ControllerRow(
        "podgroup-protection-controller",
        "podgroup-protection-controller",
        _plain(protect_pod_groups),
        kind=Kind("scheduling.k8s.io", "v1beta1", "PodGroup"),  # Exists since 1.37, and is served on request.
        gate="GenericWorkload",
    ),
    ControllerRow(
        "storageversion-garbage-collector-controller",
        "storage-version-garbage-collector",
        _plain(StorageVersionEntries),
        kind=Kind("internal.apiserver.k8s.io", "v1alpha1", "StorageVersion"),  # Served on request.
        gate="StorageVersionAPI",
    ),
    ControllerRow(
        "storage-version-migrator-controller",
        "storage-version-migrator-controller",
        _plain(StorageVersionMigrations),
        kind=Kind("storagemigration.k8s.io", "v1", "StorageVersionMigration"),  # Served since 1.37.
    ),
    # nodes
    ControllerRow("node-lifecycle-controller", "node-controller", _plain(NodeLifecycle)),
    ControllerRow(
        "node-ipam-controller",
        "node-controller",
        lambda context, client: NodeIpam(context.manager, client, reserved=context.services.ranges),
    ),
    ControllerRow(
        "resourceclaim-controller",
        "resource-claim-controller",
        _plain(ResourceClaims),
        kind=Kind("resource.k8s.io", "v1", "ResourceClaim"),  # Served since 1.34.
    ),
    ControllerRow("ttl-controller", "ttl-controller", _plain(Ttl)),
    ControllerRow("taint-eviction-controller", "node-controller", _plain(TaintEviction)),
    ControllerRow(
        "device-taint-eviction-controller",
        "device-taint-eviction-controller",
        _evict_from_devices,
        kind=Kind("resource.k8s.io", "v1", "ResourceClaim"),  # Served since 1.34.
    ),
    ControllerRow(
        "resourcepoolstatusrequest-controller",
        "resourcepoolstatusrequest-controller",
        _count_devices,
        kind=Kind("resource.k8s.io", "v1alpha3", "ResourcePoolStatusRequest"),  # Exists since 1.36, served on request.
        gate="DRAResourcePoolStatus",
    ),
    ControllerRow("pod-garbage-collector-controller", "pod-garbage-collector", _plain(PodGarbage)),
    # autoscaling
    ControllerRow(
        "horizontal-pod-autoscaler-controller",
        "horizontal-pod-autoscaler",
        lambda context, client: HorizontalPodAutoscalers(
            context.manager, client, scales_to_zero=context.gates.is_on("HPAScaleToZero")
        ),
        kind=Kind("autoscaling", "v2", "HorizontalPodAutoscaler"),  # Served since 1.23.
    ),
    # policy
    ControllerRow("disruption-controller", "disruption-controller", _plain(Disruption)),
    ControllerRow(
        "resourcequota-controller",
        "resourcequota-controller",
        lambda context, client: ResourceQuotas(context.manager, client, context.monitors),
    ),
)


def add_controllers(
    context: Context,
    client_as: Callable[[str], Client],
    *,
    serves: Callable[[Kind], bool],
    only: Collection[str] = (),
) -> None:
    """Build the controllers of the table and add them to the manager: those named in `only`, or all.

    `client_as` returns the client of a service account. Rows whose kind is not served, whose keys are missing, or whose
    feature gate is off, are left out.
    """
    built: list[HasController | HasControllers] = []
    for row in CONTROLLERS:
        if (only or (row.account == OF_SERVER and not context.is_in_server)) and row.name not in only:
            continue
        if (row.kind is not None and not serves(row.kind)) or (row.needs_keys and not context.has_keys):
            continue
        if row.gate and not context.gates.is_on(row.gate):
            continue
        built.append(row.build(context, client_as(row.account) if row.account else context.manager.client))
    own = [controller for item in built for controller in _controllers_of(item)]
    for controller in (*context.shared_controllers, *own):
        context.manager.add(controller)


def _controllers_of(built: HasController | HasControllers) -> Sequence[Controller]:
    return built.controllers if isinstance(built, HasControllers) else (built.controller,)
