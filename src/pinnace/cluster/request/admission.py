"""Builds the admission plug-ins that every write passes, in Kubernetes' order."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator

from pinnace.admission.cel_executor import CelExecutor
from pinnace.admission.chain import AdmissionChain, Mutator, Validator
from pinnace.admission.metrics import AdmissionMetrics, plugin_name
from pinnace.admission.plugins.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)
from pinnace.admission.plugins.default_classes import DefaultIngressClass, DefaultStorageClass
from pinnace.admission.plugins.default_toleration_seconds import DefaultTolerationSeconds
from pinnace.admission.plugins.device_access import DeviceAccess
from pinnace.admission.plugins.limit_ranger import LimitRanger
from pinnace.admission.plugins.namespace_lifecycle import NamespaceLifecycle
from pinnace.admission.plugins.node_restriction import NodeRestriction
from pinnace.admission.plugins.owner_references import OwnerReferencesPermissionEnforcement
from pinnace.admission.plugins.pod_security import PodSecurity
from pinnace.admission.plugins.pod_topology_labels import PodTopologyLabels
from pinnace.admission.plugins.priority import Priority
from pinnace.admission.plugins.resource_quota import ResourceQuota
from pinnace.admission.plugins.runtime_class import RuntimeClass
from pinnace.admission.plugins.service_account import ServiceAccount
from pinnace.admission.plugins.storage_protection import PersistentVolumeClaimResize, StorageObjectInUseProtection
from pinnace.admission.plugins.taint_nodes_by_condition import TaintNodesByCondition
from pinnace.admission.plugins.token_audiences import TokenAudiences
from pinnace.admission.policies.bindings import PolicyTable
from pinnace.admission.policies.mutating import MutatingPolicies, compile_mutations
from pinnace.admission.policies.validating import ValidatingPolicies, compile_validations
from pinnace.admission.rules import GROUP as ADMISSION
from pinnace.admission.webhooks.deadlock_warnings import SelfBlockingWebhooks
from pinnace.admission.webhooks.dispatch import HookTable, MutatingWebhooks, ValidatingWebhooks
from pinnace.auth.authorization.authorizers import Action, Authorizer, Decision, forbidden_error
from pinnace.auth.certificates.requests import CertificateRequester
from pinnace.auth.users import AUTHENTICATED, User, service_account_groups, service_account_name
from pinnace.cluster.cached_objects import CachedObjects
from pinnace.cluster.foundation import Foundation
from pinnace.cluster.request.security import Security
from pinnace.cluster.settings import AdmissionSettings, Settings
from pinnace.cluster.status.flow_schemas import flow_schema_status_writer
from pinnace.cluster.status.policies import policy_status_writer
from pinnace.cluster.status.quotas import quota_status_writer
from pinnace.kinds.core.quota_usage import Place
from pinnace.kinds.golang import empty_fields
from pinnace.model import quantity
from pinnace.model.objects import Kind, Object
from pinnace.model.requester import Requester
from pinnace.model.resources import Resource
from pinnace.model.webhooks import WebhookClient
from pinnace.schema.cel.library.authorizer import CelDecision as Answer
from pinnace.schema.cel.library.authorizer import Question
from pinnace.schema.golang.decode import Decoders
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.served_versions import to_served_version

_PHASE = {"status.phase": lambda obj: str((obj.get("status") or {}).get("phase") or "Active")}


class AuthorizerPermissions:
    """The authorizers, for admission plug-ins."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def forbidden_error(
        self,
        user: Requester,
        verb: str,
        *,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> str:
        action = Action(verb, "", group, resource, subresource, namespace, name)
        asking = _as_user(user)
        found = self._authorizer.decide(asking, action)
        decision = found if isinstance(found, Decision) else await found
        return "" if decision.is_allowed else str(forbidden_error(asking, action, decision.reason))


def _as_user(user: Requester) -> User:
    return User(user.name, user.groups, user.uid, user.extra)


class AuthorizerOracle:
    """The authorizers, for CEL expressions: only those that answer at once."""

    def __init__(self, authorizer: Authorizer, user: Requester) -> None:
        self._authorizer = authorizer
        self._user = user

    def decide(self, question: Question) -> Answer:
        user = _as_user(self._user)
        if question.service_account is not None:
            namespace, name = question.service_account
            groups = (*service_account_groups(namespace), AUTHENTICATED)
            user = User(service_account_name(namespace, name), groups)
        action = Action(
            question.verb,
            question.path,
            question.group,
            question.resource,
            question.subresource,
            question.namespace,
            question.name,
        )
        decision = self._authorizer.decide(user, action)
        if not isinstance(decision, Decision):
            if isinstance(decision, Coroutine):
                decision.close()
            return Answer(False, error="the authorization webhook cannot be asked from an expression")
        return Answer(decision.is_allowed, decision.reason)


class PolicyParameters:
    """The parameter objects of policies, of one kind."""

    def __init__(self, fanout: Fanout, resource: Resource) -> None:
        self._objects = CachedObjects(fanout, resource.prefix)
        self._resource = resource

    @property
    def namespaced(self) -> bool:
        return self._resource.namespaced

    def get(self, key: str) -> Object | None:
        found = self._objects.get(key)
        return self._in_version(found) if found is not None else None

    def in_namespace(self, namespace: str) -> Iterator[tuple[str, Object]]:
        return ((key, self._in_version(obj)) for key, obj in self._objects.in_namespace(namespace))

    def _in_version(self, obj: Object) -> Object:
        custom = self._resource.custom
        if custom is None:
            return to_served_version(obj, self._resource)
        if obj.get("apiVersion") == self._resource.kind.api_version:
            return obj
        converted = custom.to_served([obj])
        if isinstance(converted, list):
            return converted[0]
        if isinstance(converted, Coroutine):
            converted.close()
        return obj  # Only a webhook could convert it; the stored version is better than none.


class Bodies:
    """Decodes objects that webhooks and policies have changed."""

    def __init__(self) -> None:
        self._decoders = Decoders(quantity=quantity.canonical, empty_fields=empty_fields.of_type)

    def read(self, resource: Resource, obj: Object) -> None:
        if resource.custom is not None:
            resource.custom.decode(obj)
        else:
            self._decoders.of(resource.schema)(obj)


class _Shared:
    """The parts that several plug-ins share."""

    def __init__(self, foundation: Foundation, security: Security, webhooks: WebhookClient) -> None:
        self.foundation = foundation
        self.authorizer = security.authorizer
        self.objects = foundation.objects
        self.namespaces = foundation.objects("", "namespaces")
        self.bodies = Bodies()
        self.executor = CelExecutor()
        self.metrics = AdmissionMetrics()
        self.webhooks = webhooks
        self.permissions = AuthorizerPermissions(security.authorizer)

    def oracle(self, user: Requester) -> AuthorizerOracle:
        return AuthorizerOracle(self.authorizer, user)

    def equivalents(self, resource: Resource) -> Iterator[Resource]:
        """Yield all served versions of a stored resource."""
        return (one for one in self.foundation.registry if one.prefix == resource.prefix)

    def kinds_revision(self) -> int:
        return self.foundation.registry.revision

    def parameters(self, api_version: str, kind: str) -> PolicyParameters | None:
        resource = self.foundation.registry.of_kind(Kind.parse(api_version, kind))
        return PolicyParameters(self.foundation.fanout, resource) if resource is not None else None

    def counted_objects(self, place: Place) -> CachedObjects | None:
        """Return the objects of a namespaced resource that a quota counts; None if it is not served."""
        registry = self.foundation.registry
        found = next((one for one in registry if (one.group, one.plural) == place and one.namespaced), None)
        return CachedObjects(self.foundation.fanout, found.prefix) if found is not None else None

    def phase_of(self, namespace: str) -> str | None:
        entry = self.foundation.fanout.cache("/registry/core/namespaces/").entries.get(namespace)
        return entry.fields(_PHASE)["status.phase"] if entry is not None else None


class AdmissionPluginError(ValueError):
    """A plug-in cannot be enabled or disabled."""


SERVICE_ACCOUNT = "ServiceAccount"
_NO_PLUGINS = frozenset(("CertificateRequester", "NoEscalation", "DeviceAccess", "SelfBlockingWebhooks"))
"""Checks that in Kubernetes belong to the kinds themselves, so that they cannot be disabled."""


def _without_disabled(
    mutators: list[Mutator], validators: list[Validator], settings: AdmissionSettings, metrics: AdmissionMetrics
) -> AdmissionChain:
    """Return the chain without disabled plug-ins. Raise AdmissionPluginError for a plug-in that does not exist here."""
    every = {*map(plugin_name, mutators), *map(plugin_name, validators), SERVICE_ACCOUNT} - _NO_PLUGINS
    for name in settings.enabled - every - _WITHOUT_EFFECT:
        raise AdmissionPluginError(f"admission plug-in {name!r} is not supported; expected {', '.join(sorted(every))}")
    off = settings.disabled - settings.enabled
    return AdmissionChain(
        [one for one in mutators if plugin_name(one) not in off],
        [one for one in validators if plugin_name(one) not in off],
        metrics,
    )


_WITHOUT_EFFECT = frozenset(("AlwaysAdmit", "NamespaceExists"))
"""Plug-ins that change nothing: the first does nothing, and NamespaceLifecycle does the work of the second."""


def needs_service_accounts(settings: Settings) -> bool:
    """Whether pods need an existing service account: where controllers create them, or the plug-in is enabled."""
    names = settings.admission
    return SERVICE_ACCOUNT in names.enabled or (settings.controllers and SERVICE_ACCOUNT not in names.disabled)


def build_admission(
    foundation: Foundation,
    security: Security,
    webhooks: WebhookClient,
    settings: AdmissionSettings,
    *,
    needs_service_accounts: bool,
) -> AdmissionChain:
    """Build the chain of all enabled plug-ins, in Kubernetes' order.

    `needs_service_accounts`: refuse pods whose service account does not exist.
    """
    shared = _Shared(foundation, security, webhooks)
    objects = foundation.objects
    limits = LimitRanger(objects("", "limitranges"))
    accounts = [ServiceAccount(objects("", "serviceaccounts"))] if needs_service_accounts else []
    priority = Priority(objects("scheduling.k8s.io", "priorityclasses"))
    storage_classes = objects("storage.k8s.io", "storageclasses")
    runtime_class = RuntimeClass(objects("node.k8s.io", "runtimeclasses"))
    quotas = ResourceQuota(objects("", "resourcequotas"), shared.counted_objects, foundation.clock)
    _add_status_writers(foundation, quotas)
    mutators: list[Mutator] = [
        NamespaceLifecycle(shared.phase_of),
        CertificateRequester(),
        limits,
        *accounts,
        _node_restriction(shared),
        TaintNodesByCondition(),
        priority,
        DefaultTolerationSeconds(),
        DefaultStorageClass(storage_classes),
        StorageObjectInUseProtection(),
        runtime_class,
        DefaultIngressClass(objects("networking.k8s.io", "ingressclasses")),
        *([PodTopologyLabels(objects("", "nodes"))] if foundation.is_since(35) else []),
        _mutating_policies(shared),
        _mutating_webhooks(shared),
        security.no_escalation,
    ]
    validators: list[Validator] = [
        limits,
        *accounts,
        PodSecurity(shared.namespaces, objects("", "pods")),
        priority,
        OwnerReferencesPermissionEnforcement(shared.permissions, foundation.registry),
        PersistentVolumeClaimResize(storage_classes),
        runtime_class,
        CertificateApproval(shared.permissions),
        CertificateSigning(shared.permissions),
        ClusterTrustBundleAttest(shared.permissions),
        CertificateSubjectRestriction(),
        # Since 1.36 each part of a claim's status has its own permission.
        DeviceAccess(shared.namespaces, shared.permissions if foundation.is_since(36) else None),
        SelfBlockingWebhooks(shared.namespaces, lambda group, plural: foundation.registry.find(group, "v1", plural)),
        _validating_policies(shared),
        _validating_webhooks(shared),
        quotas,
    ]
    return _without_disabled(mutators, validators, settings, shared.metrics)


def _node_restriction(shared: _Shared) -> NodeRestriction:
    audiences = TokenAudiences(
        claims=shared.objects("", "persistentvolumeclaims"),
        volumes=shared.objects("", "persistentvolumes"),
        drivers=shared.objects("storage.k8s.io", "csidrivers"),
        permissions=shared.permissions,
    )
    # Since 1.33 a node gets tokens only for the audiences that its pods' volumes name.
    limited = audiences if shared.foundation.is_since(33) else None
    return NodeRestriction(shared.objects("", "nodes"), shared.objects("", "pods"), limited)


def _mutating_policies(shared: _Shared) -> MutatingPolicies:
    table = PolicyTable(
        shared.objects(ADMISSION, "mutatingadmissionpolicies"),
        shared.objects(ADMISSION, "mutatingadmissionpolicybindings"),
        compile_mutations,
        shared.equivalents,
        shared.kinds_revision,
    )
    return MutatingPolicies(
        table, shared.namespaces, shared.oracle, shared.parameters, shared.bodies.read, shared.executor
    )


def _validating_policies(shared: _Shared) -> ValidatingPolicies:
    table = PolicyTable(
        shared.objects(ADMISSION, "validatingadmissionpolicies"),
        shared.objects(ADMISSION, "validatingadmissionpolicybindings"),
        compile_validations,
        shared.equivalents,
        shared.kinds_revision,
    )
    return ValidatingPolicies(
        table, shared.namespaces, shared.oracle, shared.parameters, shared.executor, shared.metrics
    )


def _mutating_webhooks(shared: _Shared) -> MutatingWebhooks:
    hooks = _hook_table(shared, "mutatingwebhookconfigurations")
    return MutatingWebhooks(
        hooks,
        shared.webhooks,
        shared.namespaces,
        shared.oracle,
        shared.executor,
        shared.metrics,
        shared.bodies.read,
    )


def _validating_webhooks(shared: _Shared) -> ValidatingWebhooks:
    hooks = _hook_table(shared, "validatingwebhookconfigurations")
    return ValidatingWebhooks(hooks, shared.webhooks, shared.namespaces, shared.oracle, shared.executor, shared.metrics)


def _hook_table(shared: _Shared, plural: str) -> HookTable:
    return HookTable(shared.objects(ADMISSION, plural), shared.equivalents, shared.kinds_revision)


def _add_status_writers(foundation: Foundation, quotas: ResourceQuota) -> None:
    supervisor = foundation.supervisor
    supervisor.add("resourcequota-status", quota_status_writer(foundation, quotas).run)
    supervisor.add("poststarthook/priority-and-fairness-config-consumer", flow_schema_status_writer(foundation).run)
    policies = policy_status_writer(foundation)
    if policies is not None:
        supervisor.add("validatingadmissionpolicy-status", policies.run)
