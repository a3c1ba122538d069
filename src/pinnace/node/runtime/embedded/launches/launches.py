"""The launch of a container: everything that its process must know between fork and exec, in memory alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pinnace.network.pods.addresses import PodAddresses
from pinnace.network.pods.egress import EVERYWHERE
from pinnace.node.errors import ConfigRefused, CreateFailed, NotThere
from pinnace.node.image_service import ImageConfig, ImageRoot
from pinnace.node.machine import linux
from pinnace.node.machine.messages import Message
from pinnace.node.runtime.embedded.launches.root_plans import ImageMount, RootPlan
from pinnace.node.runtime.embedded.launches.seccomp import ProfileRefused, default_program, has_seccomp, program_of_file
from pinnace.node.runtime.embedded.start.pod_users import RANGE
from pinnace.node.runtime.embedded.state import SandboxRecord
from pinnace.node.runtime.runtime import (
    RUNTIME_DEFAULT,
    UNCONFINED,
    ContainerConfig,
    Mount,
    SecurityContext,
    TemporaryFileSystem,
)
from pinnace.node.runtime.user_ids import LARGEST_ID, id_of

_DIGITS = 4
_LONGEST_NAME = 64
"""The longest host name that Linux takes."""
_SHOWN = 80
"""The characters of a wrong text in a message."""


@dataclass(frozen=True, slots=True)
class RootPlans:
    """The root file system of a container, and the image volumes that it mounts, by the place of their mounts."""

    root: RootPlan
    images: Mapping[int, ImageMount] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGroups:
    """The control groups of a container: the files that take its processes, and the directory of each controller."""

    process_files: Sequence[str] = ()
    directories: Mapping[str, str] = field(default_factory=dict)


def launch_of(
    config: ContainerConfig, image: ImageRoot, plans: RootPlans, *, groups: ContainerGroups, shm: str, hostname: str
) -> Message:
    """Combine a container with its image. Raise ConfigRefused if there is no command, or a text that is none."""
    _check_texts(config, image.config)
    security, plan = config.security, plans.root
    mask = linux.capability_mask(["ALL"] if security.privileged else list(security.capabilities))
    return {
        "argv": command_of(config, image.config),
        "environment": [
            f"HOSTNAME={hostname}",
            *(["TERM=xterm"] if config.tty else []),
            *image.config.environment,
            *(f"{name}={value}" for name, value in config.environment),
        ],
        "working_directory": config.working_directory or image.config.working_directory or "/",
        "user": _user(security, image.config),
        "root": plan.root,
        "lower_directory": plan.directory,
        "overlays": [asdict(overlay) for overlay in plan.overlays],
        "root_binds": [asdict(bind) for bind in plan.binds],
        "mounts": [
            _mount_of(mount, plans.images.get(number, ImageMount(mount.host_path)))
            for number, mount in enumerate(config.mounts)
        ],
        "privileged": security.privileged,
        "capabilities": mask,
        "no_new_privileges": security.no_new_privileges,
        "read_only_root": security.read_only_root,
        "seccomp": _seccomp(security, mask),
        "apparmor": "" if security.privileged else security.apparmor,
        "masked_paths": list(security.masked_paths),
        "read_only_paths": list(security.read_only_paths),
        "cgroup_files": list(groups.process_files),
        "cgroup_directories": dict(groups.directories),
        "oom_score_adjust": config.resources.oom_score_adjust,
        "most_processes": 0 if {"pids", ""} & groups.directories.keys() else config.resources.pids,
        "shm": shm,
        "tty": config.tty,
    }


def run_request_of(
    record: SandboxRecord,
    directory: str,
    shm: str,
    *,
    addresses: PodAddresses,
    routes: Sequence[str],
    has_egress: bool,
) -> Message:
    """Return the request for the supervisor of a new pod."""
    config = record.config
    shared = [TemporaryFileSystem(shm, 64 << 20, mode=0o1777), *config.temporary_file_systems]
    return {
        "op": "run",
        "directory": directory,
        "hostname": (config.hostname or config.name)[:_LONGEST_NAME],
        "addresses": addresses.all_of(record.address),
        "gateways": addresses.without_length(addresses.node),
        "routes": [*routes, *([str(EVERYWHERE)] if has_egress else [])],
        "has_egress": has_egress,
        "veth": f"veth{record.id[:11]}",
        "users": record.users,
        "host_network": config.host_network,
        "host_ipc": config.host_ipc,
        "shares_processes": config.shares_processes,
        "sysctls": dict(config.sysctls),
        "temporary_file_systems": [asdict(mount) for mount in shared],
    }


def _check_texts(config: ContainerConfig, image: ImageConfig) -> None:
    """Raise CreateFailed for a text that the kernel would take for a shorter one: it ends at a NUL byte."""
    environment = [*image.environment, *(f"{name}={value}" for name, value in config.environment)]
    texts = {
        "the command": [*config.command, *config.args, *image.entrypoint, *image.command],
        "the environment": environment,
        "the working directory": [config.working_directory, image.working_directory],
        "a volume": [text for mount in config.mounts for text in (mount.container_path, mount.sub_path)],
    }
    for part, values in texts.items():
        check_text(part, values)
    if any(variable.startswith("=") for variable in environment):
        raise CreateFailed("failed to generate spec: the environment has a variable without a name")


def check_text(part: str, values: Sequence[str]) -> None:
    """Raise CreateFailed if a text has a NUL byte."""
    wrong = next((value for value in values if "\0" in value), None)
    if wrong is not None:
        raise CreateFailed(f"failed to generate spec: {part} has a NUL byte: {wrong[:_SHOWN]!r}")


class PendingLaunches:
    """The launches of created containers until they start. No disk has them: they hold values of Secrets."""

    def __init__(self) -> None:
        self._waiting: dict[str, bytes] = {}

    def add(self, container: str, launch: Message) -> None:
        self._waiting[container] = json.dumps(launch).encode()

    def drop(self, container: str) -> None:
        self._waiting.pop(container, None)

    @contextlib.contextmanager
    def take(self, container: str) -> Iterator[int]:
        """Yield an open file in memory with the launch of a container. Raise NotThere the second time."""
        launch = self._waiting.pop(container, None)
        if launch is None:
            raise NotThere(f"container {container} was started already, or an earlier agent has created it")
        file = os.memfd_create("launch", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as writer:
                writer.write(launch)
            yield file
        finally:
            os.close(file)


def _seccomp(security: SecurityContext, capabilities: int) -> str:
    """The filter of a container, in hexadecimal digits. Raise CreateFailed."""
    if security.privileged or security.seccomp == UNCONFINED:
        return ""
    if security.requires_seccomp and not has_seccomp():
        raise CreateFailed("seccomp is not enabled in this runtime: install libseccomp2")
    if security.seccomp == RUNTIME_DEFAULT:
        return default_program(capabilities).hex()
    try:
        return program_of_file(security.seccomp).hex()
    except ProfileRefused as error:
        raise CreateFailed(f"failed to generate spec: {error}") from error


def _mount_of(mount: Mount, files: ImageMount) -> Message:
    return {
        "source": files.source,
        "lower": files.lower,
        "lower_directory": files.directory,
        "target": mount.container_path,
        "sub_path": mount.sub_path,
        "read_only": mount.read_only,
        "is_recursive": mount.is_recursive,
        "is_file_system": mount.file_system is not None,
        "is_device": mount.is_device,
        "options": list(mount.options),
        "propagation": str(mount.propagation),
    }


def command_of(config: ContainerConfig, image: ImageConfig) -> list[str]:
    """The command line: a container's command also replaces the arguments of the image."""
    from_image = [*image.entrypoint, *(config.args or image.command)]
    argv = [*config.command, *config.args] if config.command else from_image
    if not argv or not argv[0]:
        raise ConfigRefused("no command specified")
    return argv


def stop_signal_of(config: ContainerConfig, image: ImageConfig) -> int:
    """The signal that asks a container to end; SIGTERM if its name is unknown."""
    name = (config.stop_signal or image.stop_signal or "SIGTERM").upper()
    number = int(name) if name.isdecimal() and len(name) < _DIGITS else 0
    full = name if name.startswith("SIG") else f"SIG{name}"
    known = signal.Signals.__members__.get(full, signal.SIGTERM)
    return number if 0 < number < signal.NSIG else int(known)


def check_user(security: SecurityContext, image: ImageConfig) -> None:
    """Raise CreateFailed if a pod with ids of its own lacks the user or group that an image names by number."""
    names = () if security.user is not None or security.user_name else image.user.split(":")
    for name in names:
        number = id_of(name)
        if number is not None and RANGE <= number <= LARGEST_ID:  # Beyond, no user of a machine has it, either.
            raise CreateFailed(
                f"the image's user {image.user} is not among the {RANGE} ids of the pod: "
                f"set hostUsers to true, or runAsUser and runAsGroup to numbers below {RANGE}"
            )


def _user(security: SecurityContext, image: ImageConfig) -> Message:
    name = security.user_name or ("" if security.user is not None else image.user)
    return {
        "uid": security.user,
        "name": name,
        "gid": security.group,
        "groups": list(security.supplemental_groups),
        "has_image_groups": security.has_image_groups,
    }
