"""Which objects of the API a pod cannot run without."""

from __future__ import annotations

from collections.abc import Iterator

from pinnace.model.objects import Object

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


def is_mirror(pod: Object) -> bool:
    """Whether it stands for a pod that a node runs from a file."""
    return MIRROR in (pod["metadata"].get("annotations") or {})


def containers_of(spec: Object) -> Iterator[Object]:
    """Of all three sorts, in the order in which Kubernetes looks at them."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def projections_of(spec: Object) -> Iterator[Object]:
    for volume in spec.get("volumes") or ():
        yield from (volume.get("projected") or {}).get("sources") or ()


def secrets_of(spec: Object) -> Iterator[str]:
    """Yield the names of all secrets that a pod refers to."""
    for secret in spec.get("imagePullSecrets") or ():
        yield secret.get("name", "")
    yield from _of_containers(spec, "secretKeyRef", "secretRef")
    for volume in spec.get("volumes") or ():
        if "secret" in volume:
            yield volume["secret"].get("secretName", "")
        for source, field in _SECRETS_OF_VOLUMES:
            named = (volume.get(source) or {}).get(field)
            if named:
                yield named if isinstance(named, str) else named.get("name", "")
    for projection in projections_of(spec):
        if "secret" in projection:
            yield projection["secret"].get("name", "")


def config_maps_of(spec: Object) -> Iterator[str]:
    yield from _of_containers(spec, "configMapKeyRef", "configMapRef")
    for volume in spec.get("volumes") or ():
        if "configMap" in volume:
            yield volume["configMap"].get("name", "")
    for projection in projections_of(spec):
        if "configMap" in projection:
            yield projection["configMap"].get("name", "")


def reference_of(spec: Object) -> str:
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


def _of_containers(spec: Object, key_ref: str, whole_ref: str) -> Iterator[str]:
    for container in containers_of(spec):
        for variable in container.get("env") or ():
            if named := (variable.get("valueFrom") or {}).get(key_ref):
                yield named.get("name", "")
        for source in container.get("envFrom") or ():
            if named := source.get(whole_ref):
                yield named.get("name", "")
