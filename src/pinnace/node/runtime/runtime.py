"""The Protocol between the node agent and a container runtime, shaped like CRI v1.

A sandbox holds what the containers of one pod share: network, IPC and UTS namespaces, and an address. A container
belongs to one sandbox and one image. The embedded runtime implements the Protocol on this kernel; containerd can
implement it through CRI. Every method raises RuntimeFailure or one of its subclasses, and nothing else that a caller
must expect. Calls may be repeated: stopping or removing a thing that is stopped or gone succeeds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, Protocol

from pinnace.model.node_connections import CommandStreams
from pinnace.process.byte_streams import Duplex

DEFAULT_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID"),
    *("SETFCAP", "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)
"""The capabilities of a container that asks for none, as containerd has them."""

MASKED_PATHS = (
    *("/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
    "/sys/devices/virtual/powercap",
)
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""The files of the kernel that a container neither sees nor changes, unless it is privileged."""

UNCONFINED = "Unconfined"
RUNTIME_DEFAULT = "RuntimeDefault"


class ContainerState(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class PidMode(StrEnum):
    """Which processes a container sees."""

    CONTAINER = "container"
    POD = "pod"
    NODE = "node"


class Propagation(StrEnum):
    """Which mounts made later pass between the node and a container."""

    PRIVATE = "private"
    HOST_TO_CONTAINER = "host-to-container"
    BIDIRECTIONAL = "bidirectional"


@dataclass(frozen=True, slots=True)
class PortMapping:
    """A port of the node that leads to a port of the pod."""

    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class TemporaryFileSystem:
    """Memory that the containers of a pod share as a directory: an emptyDir with the medium Memory."""

    path: str
    """The directory on the node that containers mount."""
    size_bytes: int = 0
    """0 for the kernel's limit: half of the memory."""
    mode: int = 0o777
    page_bytes: int = 0
    """The size of its pages, if they are huge ones."""
    group: int | None = None
    """The group that owns it, where the node has this group; None for the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """A pod, without its containers."""

    name: str
    namespace: str
    uid: str
    attempt: int = 0
    hostname: str = ""
    log_directory: str = ""
    """The directory under which `ContainerConfig.log_path` lies."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[PortMapping] = ()
    host_network: bool = False
    host_ipc: bool = False
    host_pid: bool = False
    shares_processes: bool = False
    """Give all containers of the pod one process namespace."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    temporary_file_systems: Sequence[TemporaryFileSystem] = ()
    resources: Resources | None = None
    """The limits of the whole pod, None for none."""
    host_users: bool | None = True
    """False for user ids of its own, None for them where this machine and the paths allow it."""
    shared_paths: Sequence[str] = ()
    """Files of this machine that the containers mount, and that must keep the owners that they show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatus:
    id: str
    config: SandboxConfig
    created_at: int
    """Nanoseconds since 1970."""
    is_ready: bool
    """Its supervisor lives, so that containers can start in it."""
    addresses: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Limits of a container in the kernel's units; 0 for no limit."""

    cpu_shares: int = 0
    """The weight against other containers: 1024 for one core that was requested."""
    cpu_quota: int = 0
    """Microseconds of CPU in each period."""
    cpu_period: int = 100_000
    memory_bytes: int = 0
    pids: int = 0
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    """Bytes by the size of the pages, as control groups name it, such as 2MB. Here 0 allows none."""
    oom_score_adjust: int = 0
    cpus: str = ""
    """The CPUs on which it runs, such as 0-1,4; empty for all."""
    memory_nodes: str = ""
    """The NUMA nodes from which it has its memory; empty for all."""
    swap_bytes: int = 0
    """The most swap that it has. Unlike for other limits, 0 is none."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system on a block device of this machine."""

    kind: str
    """Its name in the kernel, such as ext4."""
    source: str
    """The path of the device."""
    options: Sequence[str] = ()

    @property
    def mount_options(self) -> list[str]:
        return [f"source={self.source}", *self.options]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A directory or file of the node inside a container."""

    container_path: str
    host_path: str
    image: str = ""
    """The id of an image whose files are mounted, instead of a path of the node."""
    file_system: FileSystem | None = None
    """The file system that is mounted at `host_path`, an empty directory, for this container alone."""
    is_device: bool = False
    """Whether it is a block device that the container opens."""
    read_only: bool = False
    is_recursive: bool = False
    """Whether the mounts below are read-only, too."""
    options: Sequence[str] = ()
    """Any of nodev, noexec and nosuid."""
    propagation: Propagation = Propagation.PRIVATE
    sub_path: str = ""
    """A path below `host_path`. It is opened without following a link that leads out of `host_path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityContext:
    user: int | None = None
    """None for the user of the image."""
    user_name: str = ""
    group: int | None = None
    supplemental_groups: Sequence[int] = ()
    has_image_groups: bool = True
    """Whether the user has the further groups that the image lists for it, too."""
    capabilities: Sequence[str] = DEFAULT_CAPABILITIES
    privileged: bool = False
    no_new_privileges: bool = False
    read_only_root: bool = False
    seccomp: str = UNCONFINED
    """UNCONFINED, RUNTIME_DEFAULT, or the path of a profile on this machine."""
    requires_seccomp: bool = False
    """Whether the container must not start without its seccomp profile, where the machine has no seccomp."""
    apparmor: str = ""
    """The name of a loaded AppArmor profile; empty for none."""
    masked_paths: Sequence[str] = ()
    read_only_paths: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """One container. The runtime fills in what the image says where a field is empty."""

    name: str
    image: str
    """The id of a present image, as `ImageService.find` returns it."""
    attempt: int = 0
    command: Sequence[str] = ()
    """Replaces the entrypoint of the image."""
    args: Sequence[str] = ()
    """Replaces the command of the image."""
    working_directory: str = ""
    environment: Sequence[tuple[str, str]] = ()
    mounts: Sequence[Mount] = ()
    log_path: str = ""
    """Below the log directory of the sandbox."""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    pid_mode: PidMode = PidMode.CONTAINER
    target: str = ""
    """The id of the container whose processes this one sees: an ephemeral container of `kubectl debug`."""
    stop_signal: str = ""
    resources: Resources = Resources()
    cdi_devices: Sequence[str] = ()
    """The names of devices that files of the Container Device Interface describe, such as example.com/gpu=0."""
    security: SecurityContext = SecurityContext()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    id: str
    sandbox: str
    config: ContainerConfig
    state: ContainerState
    created_at: int
    started_at: int = 0
    finished_at: int = 0
    """The times are nanoseconds since 1970, 0 for not yet."""
    exit_code: int = 0
    reason: str = ""
    """Completed, Error, OOMKilled, StartError or ContainerStatusUnknown, after the end."""
    message: str = ""
    log_file: str = ""


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """A container has started or ended, or a sandbox has lost its supervisor (`container` is empty then)."""

    sandbox: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class ExecResult:
    exit_code: int
    output: bytes
    """Standard output and standard error, at most the limit that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStats:
    """The use of one container. A field is None where the machine does not account for it."""

    timestamp: int
    cpu_nanoseconds: int | None = None
    memory_bytes: int | None = None
    working_set_bytes: int | None = None
    processes: int | None = None
    swap_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """The disk space of one pod in bytes, and the CPU time that its measurement took."""

    files: Mapping[str, int]
    """By the first two parts of the paths below the directory of the pod, such as volumes/work."""
    layers: Mapping[str, int]
    """All that a container has changed in its image, by the ids of the containers."""
    cpu_seconds: float


class MemoryDirectory:
    """An open directory in memory from which containers mount: what is written there never reaches a disk.

    It is closed when its last user drops it, also a thread whose caller was cancelled.
    """

    def __init__(self, path: str, fd: int) -> None:
        """`path` is its place for `Mount.host_path`. The agent itself may see other files there."""
        self.path = path
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """The abilities of the runtime on this machine, for the conditions of the Node."""

    name: str
    version: str
    is_network_ready: bool = True
    has_user_namespaces: bool = False
    """Whether pods can have user ids of their own."""
    has_supplemental_groups: bool = False
    """Whether containers have the supplemental groups that they state."""
    missing: Sequence[str] = ()
    """One sentence for each ability that is missing here, such as limits of memory without a writable cgroup."""


class Runtime(Protocol):
    """Sandboxes and containers on one machine."""

    async def status(self) -> RuntimeStatus: ...

    # Sandboxes

    async def run_sandbox(self, config: SandboxConfig) -> str:
        """Make the namespaces and the network of a pod, and return the id of the sandbox. Raise SandboxFailed."""

    async def stop_sandbox(self, sandbox: str) -> None:
        """Kill the containers of the sandbox and release its network. Its status and logs stay."""

    async def remove_sandbox(self, sandbox: str) -> None:
        """Stop the sandbox, and remove its containers and everything that it holds on this machine."""

    async def sandboxes(self, namespace: str = "", name: str = "") -> Sequence[SandboxStatus]:
        """All sandboxes, or those of the pods with this name: there may be several, of pods that were deleted."""

    async def sandbox(self, sandbox: str) -> SandboxStatus:
        """Raise NotThere if there is no such sandbox."""

    # Containers

    async def create_container(self, sandbox: str, config: ContainerConfig) -> str:
        """Prepare the root file system of a container, and return its id. Raise ConfigRefused or NotThere."""

    async def start_container(self, container: str) -> None:
        """Start the process of a created container. Raise StartFailed; the container has exited then."""

    async def stop_container(self, container: str, grace_seconds: float) -> None:
        """Send the stop signal, and SIGKILL after the grace period; return when the process has ended."""

    async def remove_container(self, container: str) -> None:
        """Kill the container if it runs, and remove its root file system and status. Its logs stay."""

    async def containers(self, sandbox: str = "") -> Sequence[ContainerStatus]:
        """The containers of one sandbox, or all."""

    async def container(self, container: str) -> ContainerStatus:
        """Raise NotThere if there is no such container."""

    async def update_resources(self, container: str, resources: Resources) -> None:
        """Change the limits of a running container."""

    async def update_sandbox(self, sandbox: str, resources: Resources) -> None:
        """Change the limits of a whole pod."""

    async def stats(self, container: str) -> ContainerStats: ...

    async def disk_usage(self, directory: str, containers: Sequence[str]) -> DiskUsage:
        """Measure the files below a directory of this machine, and the writable layers of containers.

        It looks at every file: call it rarely.
        """

    async def open_file(self, sandbox: str, directory: str, path: str) -> BinaryIO:
        """Open a regular file below a directory that the containers of a running pod mount, as they see it.

        No link leads out of the directory. Raise OSError.
        """

    async def memory(self, sandbox: str = "") -> MemoryDirectory:
        """Open the directory in memory that new pods mount from, or that of the pod in this sandbox."""

    def events(self) -> AsyncIterator[ContainerEvent]:
        """Yield what happens from now on. A reader that falls behind receives each container once."""

    # Streams

    async def exec(self, container: str, command: Sequence[str], streams: CommandStreams) -> int:
        """Run a command in a running container, and return its exit code after all its output is written.

        It has a terminal if `streams.sizes` is set. Cancelling the call kills the command.
        """

    async def exec_sync(
        self, container: str, command: Sequence[str], *, timeout: float, limit_bytes: int = 1 << 20
    ) -> ExecResult:
        """Run a command and collect its output, for probes and hooks. Raise TimeoutError after killing it."""

    async def attach(self, container: str, streams: CommandStreams) -> int:
        """Connect to the streams of the main process until it ends, and return its exit code."""

    async def connect(self, sandbox: str, port: int, *, address: str = "") -> Duplex:
        """Connect to a TCP port from within the pod: to its loopback, or to `address`. Raise OSError if refused."""
