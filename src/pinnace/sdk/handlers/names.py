"""Names in declarations, of built-in kinds and of classes: a misspelt one is refused with the nearest right one."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from pinnace.client.mapping import KindLike, kind_from
from pinnace.sdk.resources.custom_resource import is_resource_class
from pinnace.sdk.resources.spelling import nearest

_BUILT_IN = {
    "": (
        "Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume "
        "PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service "
        "ServiceAccount"
    ),
    "admissionregistration.k8s.io": (
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"
    ),
    "apiextensions.k8s.io": ("CustomResourceDefinition"),
    "apiregistration.k8s.io": ("APIService"),
    "apps": ("ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
    "authentication.k8s.io": ("SelfSubjectReview TokenReview"),
    "authorization.k8s.io": (
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview"
    ),
    "autoscaling": ("HorizontalPodAutoscaler"),
    "batch": ("CronJob Job"),
    "certificates.k8s.io": ("CertificateSigningRequest ClusterTrustBundle PodCertificateRequest"),
    "coordination.k8s.io": ("Lease LeaseCandidate"),
    "discovery.k8s.io": ("EndpointSlice"),
    "flowcontrol.apiserver.k8s.io": ("FlowSchema PriorityLevelConfiguration"),
    "internal.apiserver.k8s.io": ("StorageVersion"),
    "lifecycle.k8s.io": ("EvictionRequest"),
    "networking.k8s.io": ("ClusterCIDR IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR"),
    "node.k8s.io": ("RuntimeClass"),
    "policy": ("PodDisruptionBudget"),
    "rbac.authorization.k8s.io": ("ClusterRole ClusterRoleBinding Role RoleBinding"),
    "resource.k8s.io": (
        "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourcePoolStatusRequest ResourceSlice"
    ),
    "scheduling.k8s.io": ("CompositePodGroup PodGroup PriorityClass Workload"),
    "storage.k8s.io": ("CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass"),
    "storagemigration.k8s.io": ("StorageVersionMigration"),
}
"""The kinds of each built-in group, of all its versions."""


def built_in_kinds(group: str) -> list[str]:
    """Return the names of the kinds of a built-in group; none for another group."""
    return _BUILT_IN.get(group, "").split()


def check_known(kind: KindLike, decorator: str) -> None:
    """Raise ValueError for a kind that a built-in group does not have."""
    named = kind_from(kind)
    known = built_in_kinds(named.group)
    if known and named.name not in known:
        raise ValueError(
            f"operator.{decorator}: {named.api_version} has no kind {named.name}{nearest(named.name, known)}"
        )


def check_annotation(
    handler: Callable[..., Any], decorator: str, parameter: inspect.Parameter, argument: str, kind: KindLike | None
) -> None:
    """Raise TypeError if an annotation is misspelt, or names another class than the argument has."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return
    names = {**vars(typing), **getattr(inspect.unwrap(handler), "__globals__", {})}
    if isinstance(annotation, str):
        if not annotation.isidentifier() or annotation in _builtins():
            return
        if annotation not in names:
            hint = nearest(annotation, names)
            if hint:  # Without a similar name it may be a local class, or imported for type checkers only.
                where = f"{getattr(handler, '__name__', handler)}({parameter.name}: {annotation})"
                raise TypeError(f"@operator.{decorator}: there is no {annotation} in {where}{hint}")
            return
        annotation = names[annotation]
    wanted = kind if argument == "obj" and is_resource_class(kind) else None
    if wanted is not None and is_resource_class(annotation) and annotation is not wanted:
        raise TypeError(
            f"@operator.{decorator} gives {getattr(handler, '__name__', handler)} a {getattr(wanted, '__name__', '')}, "
            f"but its parameter {parameter.name} is a {annotation.__name__}"
        )


def _builtins() -> frozenset[str]:
    return frozenset(vars(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
