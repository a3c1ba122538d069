"""The gates that every write passes, in Kubernetes' order, with what they need to know of the cluster."""

from __future__ import annotations

from pinnace.admission.certificates import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)
from pinnace.admission.chain import AdmissionChain, Mutator, Requester, Validator
from pinnace.admission.default_classes import DefaultIngressClass, DefaultStorageClass
from pinnace.admission.limit_ranges import LimitRanger
from pinnace.admission.namespaces import NamespaceLifecycle
from pinnace.admission.node_restriction import NodeRestriction
from pinnace.admission.node_taints import TaintNodesByCondition
from pinnace.admission.owner_references import OwnerReferencesPermissionEnforcement
from pinnace.admission.pod_priorities import Priority
from pinnace.admission.pod_security import PodSecurity
from pinnace.admission.pod_tolerations import DefaultTolerationSeconds
from pinnace.admission.quota_usage import Place
from pinnace.admission.quotas import ResourceQuota
from pinnace.admission.runtime_classes import RuntimeClass
from pinnace.admission.service_accounts import ServiceAccount
from pinnace.admission.storage_protection import PersistentVolumeClaimResize, StorageObjectInUseProtection
from pinnace.auth.authorizers import Action, Authorizer, Decision
from pinnace.auth.certificate_requests import CertificateRequester
from pinnace.auth.users import User
from pinnace.cluster.quota_statuses import QuotaStatuses
from pinnace.cluster.security import Security
from pinnace.cluster.shelf_objects import ShelfObjects
from pinnace.model.clock import Clock
from pinnace.model.resources import Registry
from pinnace.server.fanout import Fanout
from pinnace.store.store import Store

_PHASE = {"status.phase": lambda obj: str((obj.get("status") or {}).get("phase") or "Active")}


class AuthorizerPermissions:
    """The authorizers, as admission asks them."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def allows(
        self,
        user: Requester,
        verb: str,
        *,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> bool:
        asking = User(user.name, user.groups, user.uid, user.extra)
        decision = self._authorizer.decide(asking, Action(verb, "", group, resource, subresource, namespace, name))
        return (decision if isinstance(decision, Decision) else await decision).is_allowed


def build_admission(
    registry: Registry, fanout: Fanout, store: Store, clock: Clock, security: Security, *, needs_service_accounts: bool
) -> AdmissionChain:
    """`needs_service_accounts`: pods are held to accounts that somebody has to make in every namespace."""
    namespaces = fanout.shelf("/registry/core/namespaces/")

    def phase_of(namespace: str) -> str | None:
        entry = namespaces.entries.get(namespace)
        return entry.fields(_PHASE)["status.phase"] if entry is not None else None

    def objects(group: str, plural: str) -> ShelfObjects:
        return ShelfObjects(fanout, f"/registry/{group or 'core'}/{plural}/")

    def counted(place: Place) -> ShelfObjects | None:
        found = next((one for one in registry if (one.group, one.plural) == place and one.namespaced), None)
        return ShelfObjects(fanout, found.prefix) if found is not None else None

    permissions = AuthorizerPermissions(security.authorizer)
    limits = LimitRanger(objects("", "limitranges"))
    accounts = [ServiceAccount(objects("", "serviceaccounts"))] if needs_service_accounts else []
    priority = Priority(objects("scheduling.k8s.io", "priorityclasses"))
    storage_classes = objects("storage.k8s.io", "storageclasses")
    runtime_class = RuntimeClass(objects("node.k8s.io", "runtimeclasses"))
    quotas = ResourceQuota(objects("", "resourcequotas"), counted, clock)
    quota_kind = registry.find("", "v1", "resourcequotas")
    assert quota_kind is not None, "every minor has quotas"
    QuotaStatuses(quotas, fanout, store, quota_kind)
    mutators: list[Mutator] = [
        NamespaceLifecycle(phase_of),
        CertificateRequester(),
        limits,
        *accounts,
        NodeRestriction(objects("", "nodes")),
        TaintNodesByCondition(),
        priority,
        DefaultTolerationSeconds(),
        DefaultStorageClass(storage_classes),
        StorageObjectInUseProtection(),
        runtime_class,
        DefaultIngressClass(objects("networking.k8s.io", "ingressclasses")),
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
        quotas,
    ]
    return AdmissionChain(mutators, validators)
