"""Turns a pod and its containers into what the runtime takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pinnace.model.typed_objects import (
    Capabilities,
    Container,
    Pod,
    PodSpec,
    SeccompProfile,
)
from pinnace.node.agent.containers.etc_files import host_name_of
from pinnace.node.agent.containers.variables import expand, expand_all
from pinnace.node.agent.pod_fields import all_containers
from pinnace.node.agent.volumes.volumes import PodVolumes
from pinnace.node.errors import ConfigRefused
from pinnace.node.image_service import Image
from pinnace.node.runtime.runtime import (
    DEFAULT_CAPABILITIES,
    MASKED_PATHS,
    READ_ONLY_PATHS,
    RUNTIME_DEFAULT,
    UNCONFINED,
    ContainerConfig,
    Mount,
    PidMode,
    PortMapping,
    Propagation,
    Resources,
    SandboxConfig,
    SecurityContext,
)
from pinnace.node.runtime.user_ids import id_of

_PROPAGATION = {
    "None": Propagation.PRIVATE,
    "HostToContainer": Propagation.HOST_TO_CONTAINER,
    "Bidirectional": Propagation.BIDIRECTIONAL,
}
_IDS = 1 << 16
"""How many ids a pod has of its own."""
_OF_THE_NODE = frozenset(
    (
        *("ALL", "AUDIT_CONTROL", "AUDIT_READ", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "IPC_LOCK"),
        *("LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "PERFMON", "SYSLOG", "SYS_BOOT", "SYS_MODULE", "SYS_NICE"),
        *("SYS_PACCT", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM"),
    )
)
"""Capabilities that the kernel honours among the node's users alone: a pod that adds them wants to change the node."""
_FROM_THE_NODE = ("hostPath", "persistentVolumeClaim", "ephemeral")


def sandbox_of(
    pod: Pod,
    volumes: PodVolumes,
    *,
    node: str,
    attempt: int,
    log_directory: str,
    resources: Resources,
    has_devices: bool = False,
) -> SandboxConfig:
    """Describe the sandbox of a pod on the node of this name. Raise ConfigRefused.

    A pod with devices of the node has the node's users, which own the devices, unless it states otherwise.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    security = spec.get("securityContext") or {}
    return SandboxConfig(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        attempt=attempt,
        hostname=host_name_of(pod, node),
        log_directory=log_directory,
        ports=[
            PortMapping(port["containerPort"], port["hostPort"], port.get("protocol", "TCP"), port.get("hostIP", ""))
            for container in spec["containers"]
            for port in container.get("ports") or ()
            if port.get("hostPort")
        ],
        host_network=spec.get("hostNetwork", False),
        host_ipc=spec.get("hostIPC", False),
        host_pid=spec.get("hostPID", False),
        shares_processes=spec.get("shareProcessNamespace", False),
        sysctls={sysctl["name"]: sysctl["value"] for sysctl in security.get("sysctls") or ()},
        temporary_file_systems=volumes.memory,
        resources=resources,
        host_users=host_users_of(pod, has_devices=has_devices),
        shared_paths=shared_paths(pod, volumes.paths),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInputs:
    """Everything that one start of a container adds to its spec."""

    attempt: int
    environment: Sequence[tuple[str, str]]
    mounts: Sequence[Mount]
    target: str = ""
    """The id of the container whose processes it sees."""
    resources: Resources
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()
    seccomp_profiles: str = ""
    """The directory of the seccomp profiles of this machine."""


def container_of(pod: Pod, container: Container, image: Image, inputs: ContainerInputs) -> ContainerConfig:
    """Raise ConfigRefused if the container must not run as root, but would."""
    attempt, environment = inputs.attempt, inputs.environment
    values = dict(environment)
    return ContainerConfig(
        name=container["name"],
        image=image.id,
        attempt=attempt,
        command=expand_all(container.get("command") or (), values),
        args=expand_all(container.get("args") or (), values),
        working_directory=container.get("workingDir", ""),
        environment=environment,
        mounts=inputs.mounts,
        log_path=f"{container['name']}/{attempt}.log",
        stdin=container.get("stdin", False),
        stdin_once=container.get("stdinOnce", False),
        tty=container.get("tty", False),
        pid_mode=_pid_mode(pod["spec"]),
        target=inputs.target,
        stop_signal=(container.get("lifecycle") or {}).get("stopSignal", ""),
        resources=inputs.resources,
        annotations=inputs.annotations,
        cdi_devices=inputs.cdi_devices,
        security=_security(pod, container, image, inputs.seccomp_profiles),
    )


def mounts_of(
    container: Container, volumes: PodVolumes, values: Mapping[str, str], images: Mapping[str, str]
) -> list[Mount]:
    """Return the mounts of a container. `images` are the ids of the images of its image volumes."""
    mounts = []
    for mount in container.get("volumeMounts") or ():
        path = volumes.paths.get(mount["name"], "")
        image = images.get(mount["name"], "")
        if not path and not image:
            raise ConfigRefused(f'volume "{mount["name"]}" is not set up')
        is_data = mount["name"] in volumes.read_only
        sub_path = mount.get("subPath", "") or _expand_sub_path(mount.get("subPathExpr", ""), values)
        mounts.append(
            Mount(
                container_path=mount["mountPath"],
                host_path=path,
                image=image,
                file_system=volumes.file_systems.get(mount["name"]),
                read_only=mount.get("readOnly", False) or bool(image) or is_data,
                is_recursive=mount.get("recursiveReadOnly", "Disabled") != "Disabled",
                options=mount.get("bindMountOptions") or (),
                propagation=Propagation.PRIVATE if is_data else _PROPAGATION[mount.get("mountPropagation", "None")],
                sub_path=sub_path,
            )
        )
    for device in container.get("volumeDevices") or ():
        if device["name"] not in volumes.devices:
            raise ConfigRefused(f'volume device "{device["name"]}" is not set up')
        path = volumes.devices[device["name"]]
        mounts.append(Mount(container_path=device["devicePath"], host_path=path, is_device=True))
    return mounts


def _expand_sub_path(text: str, values: Mapping[str, str]) -> str:
    """Expand the variables of a subPathExpr. Raise ConfigRefused, as kubelet does, if the result is no plain path."""
    path = expand(text, values)
    if "$(" in path:
        raise ConfigRefused(f'missing value for "{path.partition("$(")[2].partition(")")[0]}"')
    if path.startswith("/"):
        raise ConfigRefused(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise ConfigRefused(f'error SubPath `{path}` must not contain ".."')
    return path


def _pid_mode(spec: PodSpec) -> PidMode:
    if spec.get("hostPID"):
        return PidMode.NODE
    return PidMode.POD if spec.get("shareProcessNamespace") else PidMode.CONTAINER


def _security(pod: Pod, container: Container, image: Image, profiles: str) -> SecurityContext:
    above = pod["spec"].get("securityContext") or {}
    own = container.get("securityContext") or {}

    user, group = own.get("runAsUser", above.get("runAsUser")), own.get("runAsGroup", above.get("runAsGroup"))
    if own.get("runAsNonRoot", above.get("runAsNonRoot")):
        _check_not_root(user, image)
    groups = [*(above.get("supplementalGroups") or ()), *([above["fsGroup"]] if "fsGroup" in above else [])]
    privileged = own.get("privileged", False)
    seccomp = own.get("seccompProfile", above.get("seccompProfile"))
    apparmor = own.get("appArmorProfile", above.get("appArmorProfile"))
    hides = own.get("procMount", "Default") == "Default" and not privileged
    return SecurityContext(
        user=user,
        group=group,
        supplemental_groups=groups,
        has_image_groups=above.get("supplementalGroupsPolicy", "Merge") != "Strict",
        capabilities=_capabilities(own.get("capabilities") or {}),
        privileged=privileged,
        no_new_privileges=own.get("allowPrivilegeEscalation", True) is False,
        read_only_root=own.get("readOnlyRootFilesystem", False),
        seccomp=_seccomp_profile(seccomp, profiles),
        requires_seccomp=seccomp is not None and "type" in seccomp,
        apparmor=(apparmor or {}).get("localhostProfile", ""),
        masked_paths=MASKED_PATHS if hides else (),
        read_only_paths=READ_ONLY_PATHS if hides else (),
    )


def _seccomp_profile(stated: SeccompProfile | None, profiles: str) -> str:
    """The default profile applies where nothing is stated, as kubelet's `seccompDefault`."""
    kind = (stated or {}).get("type", RUNTIME_DEFAULT)
    if kind != "Localhost":
        return RUNTIME_DEFAULT if kind == RUNTIME_DEFAULT else UNCONFINED
    name = (stated or {}).get("localhostProfile", "")
    path = os.path.normpath(os.path.join(profiles, name))
    if not path.startswith(f"{profiles}/"):
        raise ConfigRefused(f'the seccomp profile "{name}" is outside of {profiles}')
    return path


def _check_not_root(user: int | None, image: Image) -> None:
    if user == 0:
        raise ConfigRefused("container's runAsUser breaks non-root policy")
    name = image.config.user.partition(":")[0]
    if user is not None:
        return
    if name in ("", "root") or id_of(name) == 0:
        raise ConfigRefused("container has runAsNonRoot and image will run as root")
    if id_of(name) is None:
        raise ConfigRefused(
            f"container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        )


def _capabilities(stated: Capabilities) -> list[str]:
    added = [str(name).removeprefix("CAP_") for name in stated.get("add") or ()]
    dropped = {str(name).removeprefix("CAP_") for name in stated.get("drop") or ()}
    base = [] if "ALL" in dropped else [name for name in DEFAULT_CAPABILITIES if name not in dropped]
    return [*base, *added]


def host_users_of(pod: Pod, *, has_devices: bool = False) -> bool | None:
    """The pod's statement; without one True if it needs the node's users, and None if it may have its own.

    On the wire nothing changes: unset stays unset. On the node a pod has ids of its own, unless it asks for something
    that only the node's users can do.
    """
    spec = pod["spec"]
    stated: bool | None = spec.get("hostUsers")
    return True if stated is None and (has_devices or _needs_node(pod)) else stated


def shared_paths(pod: Pod, paths: Mapping[str, str]) -> list[str]:
    """The files of the node among the volumes of a pod, which must show their owners as they are."""
    volumes = pod["spec"].get("volumes") or ()
    names = [volume["name"] for volume in volumes if any(kind in volume for kind in _FROM_THE_NODE)]
    return [paths[name] for name in names if name in paths]


def _needs_node(pod: Pod) -> bool:
    spec = pod["spec"]
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        return True
    return any(_needs_node_users(container) for container in all_containers(pod)) or any(
        number >= _IDS for number in _ids(pod)
    )


def _needs_node_users(container: Container) -> bool:
    context = container.get("securityContext") or {}
    added = {str(name).removeprefix("CAP_") for name in (context.get("capabilities") or {}).get("add") or ()}
    return bool(
        context.get("privileged")
        or container.get("volumeDevices")
        or added & _OF_THE_NODE
        or any(mount.get("mountPropagation") == "Bidirectional" for mount in container.get("volumeMounts") or ())
    )


def _ids(pod: Pod) -> Iterator[int]:
    above = pod["spec"].get("securityContext") or {}
    yield from above.get("supplementalGroups") or ()
    yield above.get("fsGroup") or 0
    for context in (above, *(container.get("securityContext") or {} for container in all_containers(pod))):
        yield context.get("runAsUser") or 0
        yield context.get("runAsGroup") or 0
