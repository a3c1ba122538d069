"""Turns a pod and its containers into what the runtime takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.model.objects import Object
from pinnace.node.agent.variables import expand, expand_all
from pinnace.node.agent.volumes import PodVolumes
from pinnace.node.runtime.embedded.launches import MASKED_PATHS, READ_ONLY_PATHS
from pinnace.node.runtime.errors import ConfigRefused
from pinnace.node.runtime.runtime import (
    DEFAULT_CAPABILITIES,
    ContainerConfig,
    Image,
    Mount,
    PidMode,
    PortMapping,
    Propagation,
    Resources,
    SandboxConfig,
    SecurityContext,
)

_PROPAGATION = {
    "None": Propagation.PRIVATE,
    "HostToContainer": Propagation.HOST_TO_CONTAINER,
    "Bidirectional": Propagation.BIDIRECTIONAL,
}


def sandbox_of(
    pod: Object, volumes: PodVolumes, *, attempt: int, log_directory: str, resources: Resources
) -> SandboxConfig:
    metadata, spec = pod["metadata"], pod["spec"]
    security = spec.get("securityContext") or {}
    return SandboxConfig(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        attempt=attempt,
        hostname=(spec.get("hostname") or metadata["name"])[:63].rstrip("-."),
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
        sysctls={one["name"]: one["value"] for one in security.get("sysctls") or ()},
        temporary_file_systems=volumes.memory,
        resources=resources,
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


def container_of(pod: Object, container: Object, image: Image, inputs: ContainerInputs) -> ContainerConfig:
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
        security=_security(pod, container, image),
    )


def mounts_of(
    container: Object, volumes: PodVolumes, values: Mapping[str, str], images: Mapping[str, str]
) -> list[Mount]:
    """Return the mounts of a container. `images` are the ids of the images of its image volumes."""
    mounts = []
    for mount in container.get("volumeMounts") or ():
        path = volumes.paths.get(mount["name"], "")
        image = images.get(mount["name"], "")
        if not path and not image:
            raise ConfigRefused(f'volume "{mount["name"]}" is not set up')
        sub_path = mount.get("subPath", "") or _expand_sub_path(mount.get("subPathExpr", ""), values)
        mounts.append(
            Mount(
                container_path=mount["mountPath"],
                host_path=path,
                image=image,
                read_only=mount.get("readOnly", False) or bool(image),
                propagation=_PROPAGATION[mount.get("mountPropagation", "None")],
                sub_path=sub_path,
            )
        )
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


def _pid_mode(spec: Object) -> PidMode:
    if spec.get("hostPID"):
        return PidMode.NODE
    return PidMode.POD if spec.get("shareProcessNamespace") else PidMode.CONTAINER


def _security(pod: Object, container: Object, image: Image) -> SecurityContext:
    above = pod["spec"].get("securityContext") or {}
    own = container.get("securityContext") or {}

    def stated(name: str) -> Any:
        return own.get(name, above.get(name))

    user, group = stated("runAsUser"), stated("runAsGroup")
    if stated("runAsNonRoot"):
        _check_not_root(user, image)
    groups = [*(above.get("supplementalGroups") or ()), *([above["fsGroup"]] if "fsGroup" in above else [])]
    privileged = own.get("privileged", False)
    seccomp = (stated("seccompProfile") or {}).get("type") == "RuntimeDefault"
    hides = own.get("procMount", "Default") == "Default" and not privileged
    return SecurityContext(
        user=user,
        group=group,
        supplemental_groups=groups,
        capabilities=_capabilities(own.get("capabilities") or {}),
        privileged=privileged,
        no_new_privileges=own.get("allowPrivilegeEscalation", True) is False,
        read_only_root=own.get("readOnlyRootFilesystem", False),
        seccomp_default=seccomp,
        masked_paths=MASKED_PATHS if hides else (),
        read_only_paths=READ_ONLY_PATHS if hides else (),
    )


def _check_not_root(user: int | None, image: Image) -> None:
    if user == 0:
        raise ConfigRefused("container's runAsUser breaks non-root policy")
    name = image.config.user.partition(":")[0]
    if user is None and name in ("", "0", "root"):
        raise ConfigRefused("container has runAsNonRoot and image will run as root")
    if user is None and not name.isdecimal():
        raise ConfigRefused(
            f"container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        )


def _capabilities(stated: Mapping[str, Any]) -> list[str]:
    added = [str(name).removeprefix("CAP_") for name in stated.get("add") or ()]
    dropped = {str(name).removeprefix("CAP_") for name in stated.get("drop") or ()}
    base = [] if "ALL" in dropped else [name for name in DEFAULT_CAPABILITIES if name not in dropped]
    return [*base, *added]
