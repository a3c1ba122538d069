"""Builds the admission plug-ins that every write passes, in Kubernetes' order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pinnace.admission.cel_executor import CelExecutor
from pinnace.admission.chain import AdmissionChain, Mutator, Validator
from pinnace.admission.configuration import PluginSettings, read_plugin_settings
from pinnace.admission.metrics import AdmissionMetrics, plugin_name
from pinnace.admission.permissions import ExpressionAuthorizer, Permissions
from pinnace.admission.plugin_table import AdmissionPluginError, choose
from pinnace.admission.plugins.certificates import (
    CertificateApproval,
    CertificateRequester,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
    PodCertificateSigning,
)
from pinnace.admission.plugins.default_classes import DefaultIngressClass, DefaultStorageClass
from pinnace.admission.plugins.default_toleration_seconds import DefaultTolerationSeconds, TaintNodesByCondition
from pinnace.admission.plugins.device_access import DeviceAccess
from pinnace.admission.plugins.limit_ranger import LimitRanger
from pinnace.admission.plugins.namespace_lifecycle import NamespaceLifecycle
from pinnace.admission.plugins.nodes.node_declared_features import NodeDeclaredFeatureValidator
from pinnace.admission.plugins.nodes.node_restriction import NodeRestriction
from pinnace.admission.plugins.nodes.pod_certificate_requests import PodCertificateRequests
from pinnace.admission.plugins.nodes.token_audiences import TokenAudiences
from pinnace.admission.plugins.optional.always_pull_images import AlwaysPullImages
from pinnace.admission.plugins.optional.denials import (
    AlwaysDeny,
    DenyServiceExternalIPs,
    LimitPodHardAntiAffinityTopology,
)
from pinnace.admission.plugins.optional.event_rate_limit import EventRateLimit
from pinnace.admission.plugins.optional.image_policy import ImagePolicyWebhook
from pinnace.admission.plugins.optional.namespaces import NamespaceAutoProvision, NamespaceExists
from pinnace.admission.plugins.optional.pod_node_selector import PodNodeSelector
from pinnace.admission.plugins.optional.pod_tolerations import ExtendedResourceToleration, PodTolerationRestriction
from pinnace.admission.plugins.owner_references import OwnerReferencesPermissionEnforcement
from pinnace.admission.plugins.pod_resize import PodResizeValidator
from pinnace.admission.plugins.pod_security import PodSecurity
from pinnace.admission.plugins.pod_topology_labels import PodTopologyLabels
from pinnace.admission.plugins.priority import Priority
from pinnace.admission.plugins.resource_quota import ResourceQuota
from pinnace.admission.plugins.runtime_class import RuntimeClass
from pinnace.admission.plugins.service_account import ServiceAccount
from pinnace.admission.plugins.storage_protection import (
    PersistentVolumeClaimResize,
    PodGroupProtection,
    StorageObjectInUseProtection,
)
from pinnace.admission.policies.bindings import Parameters, PolicyTable
from pinnace.admission.policies.mutating import MutatingPolicies, compile_mutations
from pinnace.admission.policies.validating import ValidatingPolicies, compile_validations
from pinnace.admission.rules import GROUP as ADMISSION
from pinnace.admission.webhooks.deadlock_warnings import SelfBlockingWebhooks
from pinnace.admission.webhooks.dispatch import HookTable, MutatingWebhooks, ValidatingWebhooks
from pinnace.cluster.security import Security
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.kinds.admissionregistration.reserved_names import STATIC_MANIFESTS
from pinnace.kinds.core.quota_usage import Place
from pinnace.kinds.golang import empty_fields
from pinnace.model import quantity
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Resource
from pinnace.model.users import User
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.webhooks import WebhookClient
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.golang.decode import Decoders
from pinnace.server.foundation import CachedObjects, Foundation
from pinnace.server.status.flow_schemas import flow_schema_status_writer, quota_status_writer
from pinnace.server.status.policies import policy_status_writer
from pinnace.serving.long_work import run_beside

if TYPE_CHECKING:
    from pinnace.admission.static_manifests import StaticManifests

_PHASE = {"status.phase": lambda obj: str((obj.get("status") or {}).get("phase") or "Active")}


def _body_decoder() -> Callable[[Resource, Object], None]:
    """Return a function that decodes the objects that webhooks and policies have changed."""
    decoders = Decoders(quantity=quantity.canonical, empty_fields=empty_fields.of_type)

    def decode(resource: Resource, obj: Object) -> None:
        if resource.custom is not None:
            resource.custom.decode(obj)
        else:
            decoders.of(resource.schema)(obj)

    return decode


class _Shared:
    """The parts that several plug-ins share."""

    def __init__(
        self, foundation: Foundation, security: Security, webhooks: WebhookClient, plugins: PluginSettings
    ) -> None:
        """Raise ConfigurationError for manifests that cannot be used."""
        self.foundation = foundation
        self.manifests: Mapping[str, StaticManifests] = {}
        self.authorizer = security.authorizer
        self.objects = foundation.objects
        self.namespaces = foundation.objects("", "namespaces")
        self.decode = _body_decoder()
        self.executor = CelExecutor(run_beside)
        self.metrics = AdmissionMetrics()
        self.webhooks = webhooks
        self.permissions = Permissions(security.authorizer)
        if plugins.static_manifests:
            self.manifests = _load_manifests(foundation, plugins)
            self.metrics.manifests.extend(self.manifests.values())

    def configurations(self, plugin: str, plural: str) -> WatchedObjects:
        """Return the configurations of a plug-in: those of the API, and those of files."""
        objects = self.objects(ADMISSION, plural)
        manifests = self.manifests.get(plugin)
        return objects if manifests is None else manifests.beside(objects, plural)

    def oracle(self, user: User) -> ExpressionAuthorizer:
        return ExpressionAuthorizer(self.authorizer, user)

    def equivalents(self, resource: Resource) -> Iterator[Resource]:
        """Yield all served versions of a stored resource."""
        return (other for other in self.foundation.registry if other.prefix == resource.prefix)

    def kinds_revision(self) -> int:
        return self.foundation.registry.revision

    def parameters(self, api_version: str, kind: str) -> Parameters | None:
        resource = self.foundation.registry.of_kind(Kind.parse(api_version, kind))
        if resource is None:
            return None
        return Parameters(CachedObjects(self.foundation.fanout, resource.prefix), resource)

    def counted_objects(self, place: Place) -> CachedObjects | None:
        """Return the objects of a namespaced resource that a quota counts; None if it is not served."""
        registry = self.foundation.registry
        resource = next(
            (
                candidate
                for candidate in registry
                if (candidate.group, candidate.plural) == place and candidate.namespaced
            ),
            None,
        )
        return CachedObjects(self.foundation.fanout, resource.prefix) if resource is not None else None

    def phase_of(self, namespace: str) -> str | None:
        entry = self.foundation.fanout.cache("/registry/core/namespaces/").entries.get(namespace)
        return entry.fields(_PHASE)["status.phase"] if entry is not None else None


def _load_manifests(foundation: Foundation, plugins: PluginSettings) -> Mapping[str, StaticManifests]:
    """Read the manifests of plug-ins, and follow them. Raise ConfigurationError."""
    from pinnace.admission.static_manifests import StaticManifests, check_directory  # noqa: PLC0415 - rarely used

    if not foundation.gates.is_on(STATIC_MANIFESTS):
        why = f"staticManifestsDir requires the {STATIC_MANIFESTS} feature gate to be enabled"
        raise ConfigurationError(f"staticManifestsDir: Forbidden: {why}")
    manifests_by_plugin = {}
    for plugin, directory in plugins.static_manifests.items():
        path = check_directory(directory)
        manifests = manifests_by_plugin[plugin] = StaticManifests(
            plugin, path, foundation.registry.of_kind, foundation.clock
        )
        foundation.supervisor.add(f"static-manifests/{plugin}", manifests.run)
    return manifests_by_plugin


SERVICE_ACCOUNT = "ServiceAccount"
_NO_PLUGINS = frozenset(
    ("CertificateRequester", "NoEscalation", "DeviceAccess", "SelfBlockingWebhooks", "PodCertificateSigning")
)
"""Checks that in Kubernetes belong to the kinds themselves, so that they cannot be disabled."""


def needs_service_accounts(settings: Settings) -> bool:
    """Whether pods need an existing service account: where controllers create them, or the plug-in is enabled."""
    names = settings.admission
    return SERVICE_ACCOUNT in names.enabled or (settings.controllers and SERVICE_ACCOUNT not in names.disabled)


class _Optional:
    """The plug-ins that are off by default."""

    def __init__(
        self,
        shared: _Shared,
        settings: PluginSettings,
        running: frozenset[str],
        create_namespace: Callable[[str], Awaitable[None]],
    ) -> None:
        """Raise AdmissionPluginError for a plug-in without the configuration that it needs."""
        clock, namespaces = shared.foundation.clock, shared.namespaces
        policy = settings.image_policy
        if "EventRateLimit" in running and not settings.event_limits:
            raise AdmissionPluginError(_INIT.format("EventRateLimit", "limits: Invalid value: []: must not be empty"))
        if "ImagePolicyWebhook" in running and policy is None:
            raise AdmissionPluginError(_INIT.format("ImagePolicyWebhook", "no config specified"))
        builders: dict[str, Callable[[], Any]] = {
            "NamespaceAutoProvision": lambda: NamespaceAutoProvision(shared.phase_of, create_namespace),
            "NamespaceExists": lambda: NamespaceExists(shared.phase_of),
            "LimitPodHardAntiAffinityTopology": LimitPodHardAntiAffinityTopology,
            "AlwaysPullImages": AlwaysPullImages,
            "ImagePolicyWebhook": lambda: ImagePolicyWebhook(policy, clock) if policy is not None else None,
            "PodNodeSelector": lambda: PodNodeSelector(namespaces, settings.node_selectors),
            "PodTolerationRestriction": lambda: PodTolerationRestriction(namespaces, settings.tolerations),
            "EventRateLimit": lambda: EventRateLimit(settings.event_limits, clock),
            "ExtendedResourceToleration": ExtendedResourceToleration,
            "DenyServiceExternalIPs": DenyServiceExternalIPs,
            "AlwaysDeny": AlwaysDeny,
        }
        self._built = {name: build() for name, build in builders.items() if name in running}

    def __call__(self, *names: str) -> list[Any]:
        """Return those of the plug-ins that run."""
        return [self._built[name] for name in names if name in self._built]


_INIT = 'couldn\'t init admission plugin "{}": {}'


def build_admission(
    foundation: Foundation,
    security: Security,
    webhooks: WebhookClient,
    settings: AdmissionSettings,
    *,
    needs_service_accounts: bool,
    create_namespace: Callable[[str], Awaitable[None]],
    chain: type[AdmissionChain] = AdmissionChain,
) -> AdmissionChain:
    """Build the chain of all enabled plug-ins, in Kubernetes' order.

    `needs_service_accounts`: refuse pods whose service account does not exist. `chain` is the class to build. Raise
    AdmissionPluginError for plug-ins that do not exist here.
    """
    running = choose(settings.enabled, settings.disabled, foundation.definitions.minor)
    plugins = read_plugin_settings(settings.configuration) if settings.configuration is not None else PluginSettings()
    shared = _Shared(foundation, security, webhooks, plugins)
    optional = _Optional(shared, plugins, running, create_namespace)
    objects = foundation.objects
    both = _TwoSteps(
        limits=LimitRanger(objects("", "limitranges")),
        accounts=[ServiceAccount(objects("", "serviceaccounts"))] if needs_service_accounts else [],
        priority=Priority(objects("scheduling.k8s.io", "priorityclasses")),
        runtime_class=RuntimeClass(objects("node.k8s.io", "runtimeclasses")),
        optional=optional,
    )
    quotas = ResourceQuota(
        objects("", "resourcequotas"), shared.counted_objects, foundation.clock, plugins.limited_resources
    )
    _add_status_writers(foundation, quotas)
    mutators = [*_mutators(shared, both), security.no_escalation, *optional("AlwaysDeny")]
    validators = [*_validators(shared, both, plugins), quotas]
    return chain(
        [plugin for plugin in mutators if _runs(plugin, running)],
        [plugin for plugin in validators if _runs(plugin, running)],
        shared.metrics,
    )


@dataclass(frozen=True, slots=True)
class _TwoSteps:
    """The plug-ins that change objects and check them afterwards, and those that are off by default."""

    limits: LimitRanger
    accounts: list[ServiceAccount]
    priority: Priority
    runtime_class: RuntimeClass
    optional: _Optional


def _mutators(shared: _Shared, both: _TwoSteps) -> list[Mutator]:
    objects, gates, optional = shared.objects, shared.foundation.gates, both.optional
    return [
        *optional("NamespaceAutoProvision"),
        NamespaceLifecycle(shared.phase_of),
        CertificateRequester(),
        both.limits,
        *both.accounts,
        _node_restriction(shared),
        TaintNodesByCondition(),
        *optional("AlwaysPullImages", "PodNodeSelector"),
        both.priority,
        DefaultTolerationSeconds(),
        *optional("PodTolerationRestriction", "ExtendedResourceToleration"),
        DefaultStorageClass(objects("storage.k8s.io", "storageclasses")),
        StorageObjectInUseProtection(),
        *([PodGroupProtection()] if gates.is_on("GenericWorkload") else []),
        both.runtime_class,
        DefaultIngressClass(objects("networking.k8s.io", "ingressclasses")),
        *([PodTopologyLabels(objects("", "nodes"))] if gates.is_on("PodTopologyLabelsAdmission") else []),
        _mutating_policies(shared),
        _mutating_webhooks(shared),
    ]


def _validators(shared: _Shared, both: _TwoSteps, plugins: PluginSettings) -> list[Validator]:
    foundation, objects, optional = shared.foundation, shared.objects, both.optional
    return [
        *optional("NamespaceExists", "LimitPodHardAntiAffinityTopology"),
        both.limits,
        *both.accounts,
        *optional("AlwaysPullImages", "ImagePolicyWebhook"),
        PodSecurity(shared.namespaces, objects("", "pods"), plugins.pod_security, plugins.exemptions),
        *optional("PodNodeSelector"),
        both.priority,
        *optional("PodTolerationRestriction", "EventRateLimit"),
        OwnerReferencesPermissionEnforcement(shared.permissions, foundation.registry),
        PersistentVolumeClaimResize(objects("storage.k8s.io", "storageclasses")),
        both.runtime_class,
        *_certificate_validators(shared),
        *optional("DenyServiceExternalIPs"),
        DeviceAccess(shared.namespaces, shared.permissions if _has_status_parts(foundation) else None),
        *_node_features(foundation),
        PodResizeValidator(objects("", "nodes")),
        SelfBlockingWebhooks(shared.namespaces, lambda group, plural: foundation.registry.find(group, "v1", plural)),
        _validating_policies(shared),
        _validating_webhooks(shared),
    ]


def _runs(plugin: object, running: frozenset[str]) -> bool:
    name = plugin_name(plugin)
    return name in running or name in _NO_PLUGINS


def _certificate_validators(shared: _Shared) -> list[Validator]:
    return [
        CertificateApproval(shared.permissions),
        CertificateSigning(shared.permissions),
        PodCertificateSigning(shared.permissions),
        ClusterTrustBundleAttest(shared.permissions),
        CertificateSubjectRestriction(),
    ]


def _node_features(foundation: Foundation) -> list[Validator]:
    is_on = foundation.gates.is_on("NodeDeclaredFeatures")
    return [NodeDeclaredFeatureValidator(foundation.objects("", "nodes"))] if is_on else []


def _has_status_parts(foundation: Foundation) -> bool:
    """Whether each part of the status of a ResourceClaim has a permission of its own."""
    return foundation.gates.is_on("DRAResourceClaimGranularStatusAuthorization")


def _node_restriction(shared: _Shared) -> NodeRestriction:
    audiences = TokenAudiences(
        claims=shared.objects("", "persistentvolumeclaims"),
        volumes=shared.objects("", "persistentvolumes"),
        drivers=shared.objects("storage.k8s.io", "csidrivers"),
        permissions=shared.permissions,
    )
    limited = audiences if shared.foundation.gates.is_on("ServiceAccountNodeAudienceRestriction") else None
    nodes, pods = shared.objects("", "nodes"), shared.objects("", "pods")
    certificates = None
    if shared.foundation.gates.is_on("PodCertificateRequest"):
        accounts = shared.objects("", "serviceaccounts")
        certificates = PodCertificateRequests(nodes=nodes, pods=pods, accounts=accounts, permissions=shared.permissions)
    return NodeRestriction(nodes, pods, limited, certificates)


def _mutating_policies(shared: _Shared) -> MutatingPolicies:
    table = PolicyTable(
        shared.configurations("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        shared.configurations("MutatingAdmissionPolicy", "mutatingadmissionpolicybindings"),
        compile_mutations,
        shared.equivalents,
        shared.kinds_revision,
    )
    return MutatingPolicies(table, shared.namespaces, shared.oracle, shared.parameters, shared.decode, shared.executor)


def _validating_policies(shared: _Shared) -> ValidatingPolicies:
    table = PolicyTable(
        shared.configurations("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        shared.configurations("ValidatingAdmissionPolicy", "validatingadmissionpolicybindings"),
        compile_validations,
        shared.equivalents,
        shared.kinds_revision,
    )
    return ValidatingPolicies(
        table, shared.namespaces, shared.oracle, shared.parameters, shared.executor, shared.metrics
    )


def _mutating_webhooks(shared: _Shared) -> MutatingWebhooks:
    hooks = _hook_table(shared, "MutatingAdmissionWebhook", "mutatingwebhookconfigurations")
    return MutatingWebhooks(
        hooks,
        shared.webhooks,
        shared.namespaces,
        shared.oracle,
        shared.executor,
        shared.metrics,
        shared.decode,
    )


def _validating_webhooks(shared: _Shared) -> ValidatingWebhooks:
    hooks = _hook_table(shared, "ValidatingAdmissionWebhook", "validatingwebhookconfigurations")
    return ValidatingWebhooks(hooks, shared.webhooks, shared.namespaces, shared.oracle, shared.executor, shared.metrics)


def _hook_table(shared: _Shared, plugin: str, plural: str) -> HookTable:
    return HookTable(shared.configurations(plugin, plural), shared.equivalents, shared.kinds_revision)


def _add_status_writers(foundation: Foundation, quotas: ResourceQuota) -> None:
    supervisor = foundation.supervisor
    supervisor.add("resourcequota-status", quota_status_writer(foundation, quotas).run)
    supervisor.add("poststarthook/priority-and-fairness-config-consumer", flow_schema_status_writer(foundation).run)
    policies = policy_status_writer(foundation)
    if policies is not None:
        supervisor.add("validatingadmissionpolicy-status", policies.run)
