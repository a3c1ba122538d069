"""The settings of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from pinnace.auth.certificates.authority import KeyFiles
from pinnace.auth.settings import AuthSettings
from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.server.audit.settings import AuditSettings
from pinnace.serving.deadlines import LIMIT_SECONDS
from pinnace.serving.read.reader import WATCH_SECONDS
from pinnace.store.etcd.settings import EtcdSettings

if TYPE_CHECKING:
    from pinnace.scheduler.configuration import SchedulerConfiguration


def parse_service_ranges(text: str) -> tuple[str, ...]:
    """Return the ranges of --service-cluster-ip-range. Raise ValueError if they are wrong."""
    ranges = [ip_network(part.strip()) for part in text.split(",")]
    if len(ranges) > 2:
        raise ValueError(f"expected at most two ranges, found {len(ranges)}")
    if len(ranges) == 2 and ranges[0].version == ranges[1].version:
        raise ValueError(f"expected one IPv4 and one IPv6 range, found IPv{ranges[0].version} twice")
    return tuple(map(str, ranges))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """Admission plug-ins by Kubernetes' names, which differ from the default."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    configuration: Path | None = None
    """An AdmissionConfiguration: the settings of plug-ins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Without a `data_dir` the cluster lives in memory and leaves nothing behind."""

    data_dir: Path | None = None
    etcd: EtcdSettings | None = None
    """The etcd that stores the objects instead of the data directory. Several servers may share it."""
    host: str = "127.0.0.1"
    port: int = 0
    shares_port: bool = False
    """Whether other servers on one etcd may listen on the same port of this machine."""
    kubernetes_version: str = ""
    """A minor such as 1.31; the newest if empty."""
    feature_gates: str = ""
    """Values of feature gates that differ from the defaults of the minor: "A=true,B=false"."""
    runtime_config: str = ""
    """APIs to serve or not that differ from the defaults of the minor: "api/beta=true,apps/v1=false"."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The flags of the command line with their values, for /flagz."""
    name: str = kubeconfig.DEFAULT_NAME
    old_versions: bool = True
    tracing: bool = False
    """Whether requests, admission, webhooks and writes are spans of OpenTelemetry, which the process has loaded."""
    controllers: bool = True
    """Whether the built-in controllers run."""
    scheduler: bool = True
    """Whether the default scheduler runs."""
    scheduler_configuration: SchedulerConfiguration | None = None
    """The profiles of that scheduler; None for kube-scheduler's default."""
    nodes: int = 0
    """The number of simulated nodes."""
    stages: Path | None = None
    """A file of KWOK Stages for the simulated nodes and their pods."""
    usage: Path | None = None
    """A file with the recorded usage of the pods on simulated nodes."""
    node: str = ""
    """The name of a node that runs pods on this machine, in a process of its own; empty for none."""
    has_egress: bool = False
    """Whether the pods of these nodes reach networks outside of this machine."""
    has_host_image: bool | None = None
    """Whether images may be this machine; None leaves it to PINNACE_HOST_IMAGE and the user."""
    agents: int = 1
    """How many such nodes there are: the second is named NAME-2, and so on."""
    auth: AuthSettings = field(default_factory=AuthSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    key_files: KeyFiles = field(default_factory=KeyFiles)
    service_ranges: tuple[str, ...] = (SERVICE_RANGE,)
    """The addresses of Services, a range for each IP family; the very first one is the Service of the API itself."""
    load_balancers: LoadBalancerProvider | None = None
    """Makes the load balancers of Services; None for addresses on loopback."""
    advertise_address: str = ""
    """The address of the API in its own Endpoints; `host` if empty."""
    request_timeout: float = LIMIT_SECONDS
    """The longest time in seconds that a request may take, unless it is a watch or a stream."""
    min_request_timeout: float = WATCH_SECONDS
    """The shortest time in seconds of a watch whose client does not set a timeout."""
    shutdown_delay: float = 0.0
    """The seconds for which a server that is to stop still serves, while clients move to another one."""
    encryption_key_file: Path | None = None
    """Keys that encrypt secrets in the store, the newest first; without it secrets are stored in plain text."""
    encryption_configuration: Path | None = None
    """An EncryptionConfiguration, instead of such keys."""
    reloads_encryption: bool = False
    """Whether the EncryptionConfiguration takes effect again when it is saved."""
    accept_data_loss: bool = False
    """Whether to start though acknowledged writes are missing from the store."""

    @property
    def service_range(self) -> str:
        """The Service addresses of the default IP family."""
        return self.service_ranges[0]
