"""The launch file of a container: everything that its process must know between fork and exec."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pinnace.node.images.roots import ImageRoot
from pinnace.node.runtime.embedded import linux
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.embedded.root_file_systems import ImageMount, RootPlan
from pinnace.node.runtime.errors import ConfigRefused
from pinnace.node.runtime.runtime import ContainerConfig, ImageConfig, Mount, SecurityContext

MASKED_PATHS = (
    *("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"),
)
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


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
    """Combine a container with its image. Raise ConfigRefused if there is no command."""
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
        "root_binds": [list(bind) for bind in plan.binds],
        "mounts": [
            _mount_of(mount, plans.images.get(number, ImageMount(mount.host_path)))
            for number, mount in enumerate(config.mounts)
        ],
        "privileged": security.privileged,
        "capabilities": mask,
        "no_new_privileges": security.no_new_privileges,
        "read_only_root": security.read_only_root,
        "seccomp": security.seccomp_default and not security.privileged,
        "masked_paths": list(security.masked_paths),
        "read_only_paths": list(security.read_only_paths),
        "cgroup_files": list(groups.process_files),
        "cgroup_directories": dict(groups.directories),
        "oom_score_adjust": config.resources.oom_score_adjust,
        "shm": shm,
        "tty": config.tty,
    }


def _mount_of(mount: Mount, files: ImageMount) -> Message:
    return {
        "source": files.source,
        "lower": files.lower,
        "lower_directory": files.directory,
        "target": mount.container_path,
        "sub_path": mount.sub_path,
        "read_only": mount.read_only,
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
    if name.isdecimal():
        return int(name)
    found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", signal.SIGTERM)
    return int(found)


def _user(security: SecurityContext, image: ImageConfig) -> Message:
    name = security.user_name or ("" if security.user is not None else image.user)
    return {
        "uid": security.user,
        "name": name,
        "gid": security.group,
        "groups": list(security.supplemental_groups),
    }
