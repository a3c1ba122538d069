"""The admission plug-ins that every write passes, in Kubernetes' order, with what they need to know of the cluster."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass

from pinnace.admission.cel_executor import CelExecutor
from pinnace.admission.chain import AdmissionChain, Mutator, Requester, Validator
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
from pinnace.admission.plugins.priority import Priority
from pinnace.admission.plugins.quota_usage import Place
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
from pinnace.admission.webhooks.client import WebhookClient
from pinnace.admission.webhooks.deadlock_warnings import SelfBlockingWebhooks
from pinnace.admission.webhooks.dispatch import HookTable, MutatingWebhooks, ValidatingWebhooks
from pinnace.auth.authorization.authorizers import Action, Authorizer, Decision, refusal
from pinnace.auth.certificates.requests import CertificateRequester
from pinnace.auth.users import AUTHENTICATED, User, service_account_groups, service_account_name
from pinnace.cluster.bootstrap.default_flow_schemas import GROUP as FLOW_CONTROL
from pinnace.cluster.cached_objects import CachedObjects
from pinnace.cluster.security import Security
from pinnace.cluster.service_addresses import ServedAddresses
from pinnace.cluster.status.flow_schemas import FlowSchemaStatuses
from pinnace.cluster.status.policies import PolicyStatuses
from pinnace.cluster.status.quotas import write_quota_statuses
from pinnace.kinds.golang import empty_fields
from pinnace.model import quantity
from pinnace.model.clock import Clock
from pinnace.model.objects import Kind, Object
from pinnace.model.resources import Registry, Resource
from pinnace.schema.cel.library.authorizer import Decision as Answer
from pinnace.schema.cel.library.authorizer import Question
from pinnace.schema.golang.decode import Decoders
from pinnace.server.cache.fanout import Fanout
from pinnace.server.cache.served_versions import to_served_version
from pinnace.store.store import Store

_PHASE = {"status.phase": lambda obj: str((obj.get("status") or {}).get("phase") or "Active")}


class AuthorizerPermissions:
    """The authorizers, as admission asks them."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def refusal(
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
        return "" if decision.is_allowed else str(refusal(asking, action, decision.reason))


def _as_user(user: Requester) -> User:
    return User(user.name, user.groups, user.uid, user.extra)


class AuthorizerOracle:
    """The authorizers, as expressions ask them: those that answer at once."""

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
    """The objects of a kind, as policies are parameterized with them."""

    def __init__(self, fanout: Fanout, resource: Resource) -> None:
        self._objects = CachedObjects(fanout, resource.prefix)
        self._resource = resource

    @property
    def namespaced(self) -> bool:
        return self._resource.namespaced

    def get(self, key: str) -> Object | None:
        found = self._objects.get(key)
        return self._shown(found) if found is not None else None

    def in_namespace(self, namespace: str) -> Iterator[tuple[str, Object]]:
        return ((key, self._shown(obj)) for key, obj in self._objects.in_namespace(namespace))

    def _shown(self, obj: Object) -> Object:
        custom = self._resource.custom
        if custom is None:
            return to_served_version(obj, self._resource)
        if obj.get("apiVersion") == self._resource.kind.api_version:
            return obj
        shown = custom.shown([obj])
        if isinstance(shown, list):
            return shown[0]
        if isinstance(shown, Coroutine):
            shown.close()
        return obj  # Only a webhook could convert it; as it is stored is better than nothing.


class Bodies:
    """Reads objects that webhooks and policies have changed."""

    def __init__(self) -> None:
        self._decoders = Decoders(quantity=quantity.canonical, empty_fields=empty_fields.of_type)

    def read(self, resource: Resource, obj: Object) -> None:
        if resource.custom is not None:
            resource.custom.decode(obj)
        else:
            self._decoders.of(resource.schema)(obj)


@dataclass(frozen=True, slots=True)
class Admission:
    """The chain, and what has to be closed when nobody writes any more."""

    chain: AdmissionChain
    webhooks: WebhookClient


def build_admission(
    registry: Registry,
    fanout: Fanout,
    store: Store,
    clock: Clock,
    security: Security,
    *,
    needs_service_accounts: bool,
    limits_audiences: bool,
    guards_claims: bool,
) -> Admission:
    """`needs_service_accounts`: pods are held to accounts that somebody has to make in every namespace.

    `limits_audiences`: nodes get tokens only for those whom their pods' volumes name. `guards_claims`: each part of the
    status of a claim for devices is for those who may write that part.
    """
    namespaces = fanout.cache("/registry/core/namespaces/")

    def phase_of(namespace: str) -> str | None:
        entry = namespaces.entries.get(namespace)
        return entry.fields(_PHASE)["status.phase"] if entry is not None else None

    def objects(group: str, plural: str) -> CachedObjects:
        return CachedObjects(fanout, f"/registry/{group or 'core'}/{plural}/")

    def counted(place: Place) -> CachedObjects | None:
        found = next((one for one in registry if (one.group, one.plural) == place and one.namespaced), None)
        return CachedObjects(fanout, found.prefix) if found is not None else None

    def equivalents(resource: Resource) -> Iterator[Resource]:
        return (one for one in registry if one.prefix == resource.prefix)

    def hooks(plural: str) -> HookTable:
        return HookTable(objects(ADMISSION, plural), equivalents, lambda: registry.revision)

    def oracle(user: Requester) -> AuthorizerOracle:
        return AuthorizerOracle(security.authorizer, user)

    bodies = Bodies()
    executor = CelExecutor()
    client = WebhookClient(ServedAddresses(fanout))
    mutating = MutatingWebhooks(
        hooks("mutatingwebhookconfigurations"), client, objects("", "namespaces"), oracle, executor, bodies.read
    )
    validating = ValidatingWebhooks(
        hooks("validatingwebhookconfigurations"), client, objects("", "namespaces"), oracle, executor
    )

    def parameters(api_version: str, kind: str) -> PolicyParameters | None:
        resource = registry.of_kind(Kind.parse(api_version, kind))
        return PolicyParameters(fanout, resource) if resource is not None else None

    validating_policies = ValidatingPolicies(
        PolicyTable(
            objects(ADMISSION, "validatingadmissionpolicies"),
            objects(ADMISSION, "validatingadmissionpolicybindings"),
            compile_validations,
            equivalents,
            lambda: registry.revision,
        ),
        objects("", "namespaces"),
        oracle,
        parameters,
        executor,
    )
    mutating_policies = MutatingPolicies(
        PolicyTable(
            objects(ADMISSION, "mutatingadmissionpolicies"),
            objects(ADMISSION, "mutatingadmissionpolicybindings"),
            compile_mutations,
            equivalents,
            lambda: registry.revision,
        ),
        objects("", "namespaces"),
        oracle,
        parameters,
        bodies.read,
        executor,
    )
    permissions = AuthorizerPermissions(security.authorizer)
    audiences = TokenAudiences(
        claims=objects("", "persistentvolumeclaims"),
        volumes=objects("", "persistentvolumes"),
        drivers=objects("storage.k8s.io", "csidrivers"),
        permissions=permissions,
    )
    limits = LimitRanger(objects("", "limitranges"))
    accounts = [ServiceAccount(objects("", "serviceaccounts"))] if needs_service_accounts else []
    priority = Priority(objects("scheduling.k8s.io", "priorityclasses"))
    storage_classes = objects("storage.k8s.io", "storageclasses")
    runtime_class = RuntimeClass(objects("node.k8s.io", "runtimeclasses"))
    quotas = ResourceQuota(objects("", "resourcequotas"), counted, clock)
    quota_kind = registry.find("", "v1", "resourcequotas")
    assert quota_kind is not None, "every minor has quotas"
    write_quota_statuses(quotas, fanout, store, quota_kind)
    policy_kind = registry.find(ADMISSION, "v1", "validatingadmissionpolicies")
    if policy_kind is not None:  # Before 1.30 there was none of this version.
        PolicyStatuses(fanout, store, registry, policy_kind)
    FlowSchemaStatuses(
        fanout,
        store,
        clock,
        schema_kind=_stored_kind(registry, FLOW_CONTROL, "flowschemas"),
        level_kind=_stored_kind(registry, FLOW_CONTROL, "prioritylevelconfigurations"),
    )
    mutators: list[Mutator] = [
        NamespaceLifecycle(phase_of),
        CertificateRequester(),
        limits,
        *accounts,
        NodeRestriction(objects("", "nodes"), objects("", "pods"), audiences if limits_audiences else None),
        TaintNodesByCondition(),
        priority,
        DefaultTolerationSeconds(),
        DefaultStorageClass(storage_classes),
        StorageObjectInUseProtection(),
        runtime_class,
        DefaultIngressClass(objects("networking.k8s.io", "ingressclasses")),
        mutating_policies,
        mutating,
    ]
    validators: list[Validator] = [
        security.no_escalation,
        limits,
        *accounts,
        PodSecurity(objects("", "namespaces"), objects("", "pods")),
        priority,
        OwnerReferencesPermissionEnforcement(permissions, registry),
        PersistentVolumeClaimResize(storage_classes),
        runtime_class,
        CertificateApproval(permissions),
        CertificateSigning(permissions),
        ClusterTrustBundleAttest(permissions),
        CertificateSubjectRestriction(),
        DeviceAccess(objects("", "namespaces"), permissions if guards_claims else None),
        SelfBlockingWebhooks(objects("", "namespaces"), lambda group, plural: registry.find(group, "v1", plural)),
        validating_policies,
        validating,
        quotas,
    ]
    return Admission(AdmissionChain(mutators, validators), client)


def _stored_kind(registry: Registry, group: str, plural: str) -> Resource:
    """The version in which these objects lie in the store, whichever that is in the minor that is served."""
    return next(one for one in registry if (one.group, one.plural) == (group, plural) and one.kind == one.stored)
