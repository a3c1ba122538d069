"""The features that nodes declare in their status, and those that pods and changes of pods need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.typed_objects import Container, PodSpec

RESTART_ALL = "RestartAllContainersOnContainerExits"
POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
INIT_CONTAINER_RESIZE = "InPlacePodVerticalScalingInitContainers"
VOLUME_RESIZE = "InPlacePodVerticalScalingMemoryBackedVolumes"
HOST_NETWORK_USERS = "UserNamespacesHostNetworkSupport"
MOUNT_OPTIONS = "VolumeBindMountOptions"
_WEB_SOCKETS = "ExtendWebSocketsToKubelet"
_OF_NODES = (RESTART_ALL, POD_LEVEL_RESIZE, INIT_CONTAINER_RESIZE, MOUNT_OPTIONS, _WEB_SOCKETS)
"""The features that pinnace's own nodes have, where the gate of the same name is on."""


def features_of_node(gates: FeatureGates) -> list[str] | None:
    """Return the features that a node of pinnace declares; None where Kubernetes has no such declarations."""
    if not gates.is_on("NodeDeclaredFeatures"):
        return None
    return sorted(name for name in _OF_NODES if gates.is_on(name))


def needed_to_run(spec: PodSpec) -> list[str]:
    """Return the features without which a node cannot run a pod, in the order of Kubernetes' messages."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    rules = [rule for container in containers for rule in container.get("restartPolicyRules") or ()]
    features = [RESTART_ALL] if any(rule.get("action") == "RestartAllContainers" for rule in rules) else []
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        features.append(HOST_NETWORK_USERS)
    everything = (*containers, *(spec.get("ephemeralContainers") or ()))
    if any(mount.get("bindMountOptions") for container in everything for mount in container.get("volumeMounts") or ()):
        features.append(MOUNT_OPTIONS)
    return features


def needed_to_change(old: PodSpec, new: PodSpec) -> list[str]:
    """Return the features without which a node cannot follow a change of its pod."""
    features = [POD_LEVEL_RESIZE] if old.get("resources") != new.get("resources") else []
    if any(before.get("resources") != after.get("resources") for before, after in _init_containers(old, new)):
        features.append(INIT_CONTAINER_RESIZE)
    if _memory_sizes(old) != _memory_sizes(new):
        features.append(VOLUME_RESIZE)
    return features


def _init_containers(old: PodSpec, new: PodSpec) -> Iterator[tuple[Container, Container]]:
    """Yield the init containers that are no sidecars, before and after a change."""
    for before, after in zip(old.get("initContainers") or (), new.get("initContainers") or (), strict=False):
        if before.get("restartPolicy") != "Always":
            yield before, after


def _memory_sizes(spec: PodSpec) -> Sequence[tuple[str, str]]:
    """Return the names and sizes of the volumes in memory that have a limit."""
    return [
        (volume["name"], str(empty["sizeLimit"]))
        for volume in spec.get("volumes") or ()
        if (empty := volume.get("emptyDir")) and empty.get("medium") == "Memory" and empty.get("sizeLimit") is not None
    ]
