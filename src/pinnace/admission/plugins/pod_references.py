"""Finds the objects of the API that a pod refers to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Container, EphemeralContainer, Pod, PodSpec, VolumeProjection

MIRROR = "kubernetes.io/config.mirror"
_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTIONS = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
_SECRETS_OF_VOLUMES = (
    ("azureFile", "secretName"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
)


_KeyRef = Literal["configMapKeyRef", "secretKeyRef"]
_WholeRef = Literal["configMapRef", "secretRef"]


def is_mirror(pod: Pod) -> bool:
    """Return whether this is a mirror pod: a node runs it from a file, and only reports it."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


def containers_of(spec: PodSpec) -> Iterator[Container | EphemeralContainer]:
    """Yield the containers of all three lists, in the order of Kubernetes."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def projections_of(spec: PodSpec) -> Iterator[VolumeProjection]:
    for volume in spec.get("volumes") or ():
        yield from (volume.get("projected") or {}).get("sources") or ()


def secrets_of(spec: PodSpec) -> Iterator[str]:
    """Yield the names of all secrets that a pod refers to."""
    for secret in spec.get("imagePullSecrets") or ():
        yield secret.get("name", "")
    yield from _of_containers(spec, "secretKeyRef", "secretRef")
    for volume in spec.get("volumes") or ():
        if "secret" in volume:
            yield volume["secret"].get("secretName", "")
        for source, field in _SECRETS_OF_VOLUMES:
            named = (cast("Object", volume).get(source) or {}).get(field)
            if named:
                yield named if isinstance(named, str) else named.get("name", "")
    for projection in projections_of(spec):
        if "secret" in projection:
            yield projection["secret"].get("name", "")


def config_maps_of(spec: PodSpec) -> Iterator[str]:
    yield from _of_containers(spec, "configMapKeyRef", "configMapRef")
    for volume in spec.get("volumes") or ():
        if "configMap" in volume:
            yield volume["configMap"].get("name", "")
    for projection in projections_of(spec):
        if "configMap" in projection:
            yield projection["configMap"].get("name", "")


def reference_of(spec: PodSpec) -> str:
    """Return the first kind of object that the pod needs from the API; empty if it needs none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(True for _ in secrets_of(spec)):
        return "secrets"
    if any(True for _ in config_maps_of(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        for source, named in _VOLUMES.items():
            if source in volume:
                return named
    for projection in projections_of(spec):
        for source, named in _PROJECTIONS.items():
            if source in projection:
                return named
    return ""


def _of_containers(spec: PodSpec, key_ref: _KeyRef, whole_ref: _WholeRef) -> Iterator[str]:
    for container in containers_of(spec):
        for variable in container.get("env") or ():
            if named := (variable.get("valueFrom") or {}).get(key_ref):
                yield named.get("name", "")
        for source in container.get("envFrom") or ():
            if whole := source.get(whole_ref):
                yield whole.get("name", "")
