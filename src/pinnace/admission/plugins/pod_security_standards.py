"""The pod security standards: what a pod may not do at the levels baseline and restricted, check by check.

A check is given the pod's annotations, its spec and the minor of the standard, and answers with the reason and the
detail of what it found, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from pinnace.admission.plugins.pod_references import containers_of
from pinnace.model.objects import NOTHING
from pinnace.model.typed_objects import (
    Capabilities,
    Container,
    EphemeralContainer,
    LifecycleHandler,
    PodSpec,
    Probe,
    SecurityContext,
    SELinuxOptions,
)

Found = tuple[str, str] | None
Annotations = Mapping[str, str]
AnyContainer = Container | EphemeralContainer
Part = PodSpec | Container | EphemeralContainer
CheckPod = Callable[[Annotations, PodSpec, int], Found]

NEWEST = 35
"""The last minor that has changed a check."""

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_PROFILES = frozenset(("RuntimeDefault", "Localhost"))
_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SYSCTLS = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
}
"""The safe sysctls, each with the first minor version that allows it."""

_SELINUX_TYPES = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_OTHER_VOLUMES = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
]


class Check(NamedTuple):
    name: str
    is_restricted: bool
    since: int
    look: CheckPod
    instead_of: str = ""


@lru_cache(maxsize=128)
def checks_of(level: str, minor: int) -> tuple[CheckPod, ...]:
    """Return the checks of a level in a minor, in the order of their messages."""
    minor = min(minor, NEWEST)
    known = [check for check in _CHECKS if check.since <= minor]
    if level == "baseline":
        return tuple(check.look for check in known if not check.is_restricted)
    replaced = {check.instead_of for check in known}
    return tuple(check.look for check in known if check.is_restricted or check.name not in replaced)


def _context(part: Part) -> SecurityContext:
    """Return the security context of a container, or that of the pod, whose other fields containers do not have."""
    return cast("SecurityContext", part.get("securityContext") or {})


def _names(spec: PodSpec, is_bad: Callable[[AnyContainer], bool]) -> list[str]:
    return [container.get("name", "") for container in containers_of(spec) if is_bad(container)]


def _offenders(spec: PodSpec, violations: Callable[[AnyContainer], set[str]]) -> tuple[list[str], list[str]]:
    """Return the containers with findings, and all their findings."""
    names = _names(spec, lambda container: bool(violations(container)))
    return names, sorted(set().union(*(violations(container) for container in containers_of(spec))))


def _plural(word: str, count: int, more: str = "") -> str:
    return word if count == 1 else more or f"{word}s"


def _quote(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _containers(names: list[str]) -> str:
    return f"{_plural('container', len(names))} {_quote(names)}"


def _setters(is_pod: bool, names: list[str]) -> str:
    """Describe the places that violate a check: the pod, some containers, or both."""
    return " and ".join([*(["pod"] if is_pod else []), *([_containers(names)] if names else [])])


def _is_windows(spec: PodSpec) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"


def _is_relaxed(spec: PodSpec, minor: int) -> bool:
    """Whether the pod has a user namespace of its own, in which root has no power outside."""
    return minor >= 35 and spec.get("hostUsers") is False


def _app_armor(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    def is_bad(part: Part) -> bool:
        profile = _context(part).get("appArmorProfile")
        return profile is not None and profile.get("type") not in _PROFILES

    names = _names(spec, is_bad)
    setters = [_setters(is_bad(spec), names)] if names or is_bad(spec) else []
    values = sorted({_context(part)["appArmorProfile"].get("type", "") for part in _all(spec) if is_bad(part)})
    noted = sorted(
        f'{key}="{value}"'
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR) and value and value != "runtime/default" and not value.startswith("localhost/")
    )
    if noted:
        setters.append(_plural("annotation", len(noted)))
        values += noted
    if not setters:
        return None
    reason = _plural("forbidden AppArmor profile", len(values))
    return reason, f"{' and '.join(setters)} must not set AppArmor profile type to {_quote(values)}"


def _all(spec: PodSpec) -> Iterator[Part]:
    yield spec
    yield from containers_of(spec)


def _capabilities_baseline(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    def added(part: Part) -> set[str]:
        return {
            name for name in (_context(part).get("capabilities") or {}).get("add") or () if name not in _CAPABILITIES
        }

    names, bad = _offenders(spec, added)
    if not names:
        return None
    detail = f"{_containers(names)} must not include {_quote(bad)} in securityContext.capabilities.add"
    return "non-default capabilities", detail


def _capabilities_restricted(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    if minor >= 25 and _is_windows(spec):
        return None

    def capabilities(part: Part) -> Capabilities:
        return _context(part).get("capabilities") or {}

    def added(part: Part) -> set[str]:
        return {name for name in capabilities(part).get("add") or () if name != "NET_BIND_SERVICE"}

    details = []
    if keeping := _names(spec, lambda container: "ALL" not in (capabilities(container).get("drop") or ())):
        details.append(f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    adding, bad = _offenders(spec, added)
    if adding:
        details.append(f"{_containers(adding)} must not include {_quote(bad)} in securityContext.capabilities.add")
    return ("unrestricted capabilities", "; ".join(details)) if details else None


def _host_namespaces(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    shared = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return ("host namespaces", ", ".join(shared)) if shared else None


def _host_paths(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    names = [volume.get("name", "") for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return ("hostPath volumes", f"{_plural('volume', len(names))} {_quote(names)}") if names else None


def _host_ports(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    def ports(part: AnyContainer) -> set[str]:
        return {str(port["hostPort"]) for port in part.get("ports") or () if port.get("hostPort")}

    names, taken = _offenders(spec, ports)
    if not names:
        return None
    verb, noun = _plural("uses", len(names), "use"), _plural("hostPort", len(taken))
    return "hostPort", f"{_containers(names)} {verb} {noun} {', '.join(taken)}"


def _host_probes(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    def hosts(part: AnyContainer) -> set[str]:
        life = part.get("lifecycle") or {}
        handlers_or_probes: list[Probe | LifecycleHandler | None]
        handlers_or_probes = [part.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers_or_probes += [life.get("postStart"), life.get("preStop")]
        handlers = [
            (each or NOTHING).get(how) or NOTHING for each in handlers_or_probes for how in ("httpGet", "tcpSocket")
        ]
        return {handler["host"] for handler in handlers if handler.get("host")}

    names, violating = _offenders(spec, hosts)
    if not names:
        return None
    names = sorted(set(names))
    verb, noun = _plural("uses", len(names), "use"), _plural("probe or lifecycle host", len(violating))
    return "probe or lifecycle host", f"{_containers(names)} {verb} {noun} {_quote(violating)}"


def _privileged(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    names = _names(spec, lambda container: bool(_context(container).get("privileged")))
    return ("privileged", f"{_containers(names)} must not set securityContext.privileged=true") if names else None


def _proc_mount(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    return None if _is_relaxed(spec, minor) else _strict_proc_mount(annotations, spec, minor)


def _strict_proc_mount(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    def is_bad(part: Part) -> bool:
        return _context(part).get("procMount") not in (None, "Default")

    names = _names(spec, is_bad)
    if not names:
        return None
    types = sorted({_context(container)["procMount"] for container in containers_of(spec) if is_bad(container)})
    return "procMount", f"{_containers(names)} must not set securityContext.procMount to {_quote(types)}"


def _selinux(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    allowed = _SELINUX_TYPES | ({"container_engine_t"} if minor >= 31 else set())

    def options(part: Part) -> SELinuxOptions:
        return _context(part).get("seLinuxOptions") or {}

    def is_bad(part: Part) -> bool:
        selinux = options(part)
        return selinux.get("type", "") not in allowed or bool(selinux.get("user")) or bool(selinux.get("role"))

    names = _names(spec, is_bad)
    if not names and not is_bad(spec):
        return None
    types = sorted({options(part).get("type", "") for part in _all(spec)} - allowed)
    bad = [f"{_plural('type', len(types))} {_quote(types)}"] if types else []
    bad += [
        f"{what} may not be set" for what in ("user", "role") if any(options(part).get(what) for part in _all(spec))
    ]
    setters = _setters(is_bad(spec), names)
    return "seLinuxOptions", f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(bad)}"


def _seccomp_baseline(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    if minor < 19:
        return _seccomp_annotations(annotations, spec)
    bad = _bad_seccomp(spec)
    return ("seccompProfile", bad) if bad else None


def _seccomp_annotations(annotations: Annotations, spec: PodSpec) -> Found:
    keys = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{container.get('name', '')}" for container in containers_of(spec))]
    bad = sorted(
        f'{key}="{annotations[key]}"'
        for key in set(keys) & annotations.keys()
        if annotations[key] not in ("runtime/default", "docker/default")
        and not annotations[key].startswith("localhost/")
    )
    return ("seccompProfile", f"forbidden {_plural('annotation', len(bad))} {', '.join(bad)}") if bad else None


def _seccomp(part: Part) -> Any:
    return _context(part).get("seccompProfile")


def _bad_seccomp(spec: PodSpec) -> str:
    def is_bad(part: Part) -> bool:
        return _seccomp(part) is not None and _seccomp(part).get("type") not in _PROFILES

    names = _names(spec, is_bad)
    if not names and not is_bad(spec):
        return ""
    values = sorted({_seccomp(part).get("type", "") for part in _all(spec) if is_bad(part)})
    return f"{_setters(is_bad(spec), names)} must not set securityContext.seccompProfile.type to {_quote(values)}"


def _seccomp_restricted(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    if minor >= 25 and _is_windows(spec):
        return None
    if bad := _bad_seccomp(spec):
        return "seccompProfile", bad
    if _seccomp(spec) is not None:
        return None
    names = _names(spec, lambda part: _seccomp(part) is None)
    if not names:
        return None
    wanted = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return "seccompProfile", f"pod or {_containers(names)} {wanted}"


def _sysctls(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    names = (sysctl.get("name", "") for sysctl in (spec.get("securityContext") or {}).get("sysctls") or ())
    bad = [name for name in names if _SYSCTLS.get(name, minor + 1) > minor]
    return ("forbidden sysctls", ", ".join(bad)) if bad else None


def _windows_host_process(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    def is_bad(part: Part) -> bool:
        return bool((_context(part).get("windowsOptions") or {}).get("hostProcess"))

    names = _names(spec, is_bad)
    if not names and not is_bad(spec):
        return None
    return (
        "hostProcess",
        f"{_setters(is_bad(spec), names)} must not set securityContext.windowsOptions.hostProcess=true",
    )


def _privilege_escalation(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    if minor >= 25 and _is_windows(spec):
        return None
    names = _names(spec, lambda container: _context(container).get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return "allowPrivilegeEscalation != false", detail


def _volumes(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    bad = [volume for volume in spec.get("volumes") or () if not _VOLUMES & volume.keys()]
    if not bad:
        return None
    types = sorted({next((kind for kind in _OTHER_VOLUMES if kind in volume), "unknown") for volume in bad})
    volumes = f"{_plural('volume', len(bad))} {_quote(volume.get('name', '') for volume in bad)}"
    verb, noun = _plural("uses", len(bad), "use"), _plural("restricted volume type", len(types))
    return "restricted volume types", f"{volumes} {verb} {noun} {_quote(types)}"


def _non_root(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    if _is_relaxed(spec, minor):
        return None
    wanted = _context(spec).get("runAsNonRoot")
    denying = _names(spec, lambda part: _context(part).get("runAsNonRoot") is False)
    if denying or wanted is False:
        setters = _setters(wanted is False, denying)
        return "runAsNonRoot != true", f"{setters} must not set securityContext.runAsNonRoot=false"
    silent = _names(spec, lambda part: _context(part).get("runAsNonRoot") is None) if not wanted else []
    if not silent:
        return None
    return "runAsNonRoot != true", f"pod or {_containers(silent)} must set securityContext.runAsNonRoot=true"


def _root_user(annotations: Annotations, spec: PodSpec, minor: int) -> Found:
    if _is_relaxed(spec, minor):
        return None
    is_pod = _context(spec).get("runAsUser") == 0
    names = _names(spec, lambda part: _context(part).get("runAsUser") == 0)
    return ("runAsUser=0", f"{_setters(is_pod, names)} must not set runAsUser=0") if names or is_pod else None


_CHECKS = (
    Check("appArmorProfile", False, 0, _app_armor),
    Check("capabilities_baseline", False, 0, _capabilities_baseline),
    Check("hostNamespaces", False, 0, _host_namespaces),
    Check("hostPathVolumes", False, 0, _host_paths),
    Check("hostPorts", False, 0, _host_ports),
    Check("hostProbesAndHostLifecycle", False, 34, _host_probes),
    Check("privileged", False, 0, _privileged),
    Check("procMount", False, 0, _proc_mount),
    Check("seLinuxOptions", False, 0, _selinux),
    Check("seccompProfile_baseline", False, 0, _seccomp_baseline),
    Check("sysctls", False, 0, _sysctls),
    Check("windowsHostProcess", False, 0, _windows_host_process),
    Check("allowPrivilegeEscalation", True, 8, _privilege_escalation),
    Check("capabilities_restricted", True, 22, _capabilities_restricted, "capabilities_baseline"),
    Check("procMount_restricted", True, 35, _strict_proc_mount, "procMount"),
    Check("restrictedVolumes", True, 0, _volumes, "hostPathVolumes"),
    Check("runAsNonRoot", True, 0, _non_root),
    Check("runAsUser", True, 23, _root_user),
    Check("seccompProfile_restricted", True, 19, _seccomp_restricted, "seccompProfile_baseline"),
)
