"""Validation of security contexts of pods and containers, on Linux and Windows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.validation.fields import validate_choice, validate_dns_subdomain, validate_id, validate_relative_path
from pinnace.model.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from pinnace.model.objects import AnyObject
from pinnace.model.typed_objects import (
    AppArmorProfile,
    Container,
    EphemeralContainer,
    PodSpec,
    SeccompProfile,
    SecurityContext,
    WindowsSecurityContextOptions,
)

SYSCTL_PATTERN = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_sysctl_name = re.compile(SYSCTL_PATTERN[1:-1]).fullmatch
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_HOST_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "fs.mqueue.")

_netbios = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}').fullmatch
_domain_label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_dns_domain = re.compile(rf"{_domain_label}(?:\.{_domain_label})*").fullmatch
_forbidden_in_user = re.compile(r'["/\\:;|=,+*?<>@\[\]]').search
_dots_and_spaces = re.compile("[. ]+").fullmatch
_control_character = re.compile(r"[\x00-\x1f\x7f]").search

_SECCOMP = GoStruct("Type='' LocalhostProfile")
_SECURITY_CONTEXT = GoStruct(
    "Capabilities Privileged SELinuxOptions:seLinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot "
    "ReadOnlyRootFilesystem AllowPrivilegeEscalation ProcMount SeccompProfile AppArmorProfile",
    Capabilities=GoStruct("Add Drop"),
    SELinuxOptions=GoStruct("User='' Role='' Type='' Level=''"),
    WindowsOptions=GoStruct("GMSACredentialSpecName:gmsaCredentialSpecName GMSACredentialSpec:gmsaCredentialSpec "
                            "RunAsUserName HostProcess"),
    SeccompProfile=_SECCOMP,
    AppArmorProfile=GoStruct("Type='' LocalhostProfile"),
)  # fmt: skip


def validate_container_security(
    context: SecurityContext, path: str, errs: list[FieldError], *, has_host_users: bool
) -> None:
    errs += validate_id(context, "runAsUser", path)
    errs += validate_id(context, "runAsGroup", path)
    proc_mount = context.get("procMount")
    if proc_mount is not None:
        if proc_mount not in ("Default", "Unmasked"):
            errs.append(not_supported(f"{path}.procMount", proc_mount, ["Default", "Unmasked"]))
        if has_host_users and proc_mount == "Unmasked":
            errs.append(invalid(f"{path}.procMount", proc_mount, "`hostUsers` must be false to use `Unmasked`"))
    if "seccompProfile" in context:
        _validate_seccomp(context["seccompProfile"], f"{path}.seccompProfile", errs)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errs.append(invalid(path, _SECURITY_CONTEXT.view(context), detail))
        if "CAP_SYS_ADMIN" in (context.get("capabilities", {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errs.append(invalid(path, _SECURITY_CONTEXT.view(context), detail))
    if "windowsOptions" in context:
        _validate_windows_option(context["windowsOptions"], f"{path}.windowsOptions", errs)
    if "appArmorProfile" in context:
        validate_app_armor(context["appArmorProfile"], f"{path}.appArmorProfile", errs)


def validate_pod_security(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    """`path` is that of the spec: the host namespaces are in the context in Go, but beside it on the wire."""
    context = spec.get("securityContext") or {}
    where = f"{path}.securityContext"
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        errs += validate_id(context, field, where)
    for index, group in enumerate(context.get("supplementalGroups", ())):
        if not 0 <= group < 2**31:
            detail = "must be between 0 and 2147483647, inclusive"
            errs.append(invalid(f"{where}.supplementalGroups[{index}]", group, detail))
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errs.append(invalid(f"{where}.shareProcessNamespace", True, detail))
    if context.get("sysctls"):
        _validate_sysctl(spec, f"{where}.sysctls", errs)
    fs_group_change = context.get("fsGroupChangePolicy")
    errs += validate_choice(fs_group_change, ("Always", "OnRootMismatch"), f"{where}.fsGroupChangePolicy")
    if "seccompProfile" in context:
        _validate_seccomp(context["seccompProfile"], f"{where}.seccompProfile", errs)
    if "windowsOptions" in context:
        _validate_windows_option(context["windowsOptions"], f"{where}.windowsOptions", errs)
    if "appArmorProfile" in context:
        validate_app_armor(context["appArmorProfile"], f"{where}.appArmorProfile", errs)
    groups_policy, label_change = context.get("supplementalGroupsPolicy"), context.get("seLinuxChangePolicy")
    errs += validate_choice(groups_policy, ("Merge", "Strict"), f"{where}.supplementalGroupsPolicy")
    errs += validate_choice(label_change, ("MountOption", "Recursive"), f"{where}.seLinuxChangePolicy")


def _validate_sysctl(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(spec["securityContext"]["sysctls"]):
        name, where = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            errs.append(required(where))
        elif len(name) > 253 or not _sysctl_name(name):
            detail = f"must have at most 253 characters and match regex {SYSCTL_PATTERN}"
            errs.append(invalid(where, name, detail))
        elif name in seen:
            errs.append(duplicate(where, name))
        seen.add(name)
        dotted = name.replace("/", ".") if "." not in name.partition("/")[0] else name
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errs.append(invalid(where, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and (dotted == "kernel.sem" or dotted.startswith(_HOST_IPC_SYSCTLS)):
            errs.append(invalid(where, name, "may not be specified when 'hostIPC' is true"))


def _validate_seccomp(profile: SeccompProfile, path: str, errs: list[FieldError]) -> None:
    kind = profile.get("type", "")
    if not kind:
        errs.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILES:
        errs.append(not_supported(f"{path}.type", kind, _PROFILES))
    file = profile.get("localhostProfile")
    if kind == "Localhost":
        if file is None:
            errs.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            errs += validate_relative_path(file, f"{path}.localhostProfile")
    elif file is not None:
        detail = "can only be set when seccomp type is Localhost"
        errs.append(invalid(f"{path}.localhostProfile", _SECCOMP.view(profile), detail))


def validate_app_armor(profile: AppArmorProfile, path: str, errs: list[FieldError]) -> None:
    kind, name = profile.get("type", ""), profile.get("localhostProfile")
    if kind == "Localhost":
        if not name:
            errs.append(required(f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"))
        elif name != name.strip():
            errs.append(invalid(f"{path}.localhostProfile", name, "must not be padded with whitespace"))
        if name and len(name) > 4095:
            errs.append(too_long(f"{path}.localhostProfile", 4095))
    elif kind in _PROFILES:
        if name is not None:
            detail = "can only be set when AppArmor type is Localhost"
            errs.append(invalid(f"{path}.localhostProfile", name, detail))
    elif not kind:
        errs.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        errs.append(not_supported(f"{path}.type", kind, _PROFILES))


def _validate_windows_option(options: WindowsSecurityContextOptions, path: str, errs: list[FieldError]) -> None:
    if "gmsaCredentialSpecName" in options:
        errs += validate_dns_subdomain(options["gmsaCredentialSpecName"], f"{path}.gmsaCredentialSpecName")
    credentials = options.get("gmsaCredentialSpec")
    if credentials is not None:
        if not credentials:
            detail = "gmsaCredentialSpec cannot be an empty string"
            errs.append(invalid(f"{path}.gmsaCredentialSpec", credentials, detail))
        elif len(credentials) > 64 * 1024:
            detail = "gmsaCredentialSpec size must be under 64 KiB"
            errs.append(invalid(f"{path}.gmsaCredentialSpec", credentials, detail))
    name = options.get("runAsUserName")
    if name is not None:
        errs.extend(invalid(f"{path}.runAsUserName", name, detail) for detail in _validate_windows_user(name))


def _validate_windows_user(name: str) -> Iterator[str]:
    parts = name.split("\\")
    if not name:
        yield "runAsUserName cannot be an empty string"
    elif _control_character(name):
        yield "runAsUserName cannot contain control characters"
    elif len(parts) > 2:
        yield "runAsUserName cannot contain more than one backslash"
    else:
        user, domain = parts[-1], parts[0] if len(parts) == 2 else None
        if domain is not None and len(domain) >= 256:
            yield "runAsUserName's Domain length must be under 256 characters"
        if domain is not None and not _netbios(domain) and not _dns_domain(domain):
            yield "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "runAsUserName's User cannot be empty"
        elif len(user) > 104:
            yield "runAsUserName's User length must not be longer than 104 characters"
        if _dots_and_spaces(user):
            yield "runAsUserName's User cannot contain only periods or spaces"
        if _forbidden_in_user(user):
            yield "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def containers_with_paths(spec: PodSpec, path: str) -> Iterator[tuple[Container | EphemeralContainer, str]]:
    """Yield every container of a pod with its path, in Kubernetes' order."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            yield container, f"{path}.{field}[{index}]"


def validate_os(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    """Check fields that the pod's operating system does not allow."""
    os = spec["os"].get("name", "")
    if not os:
        errs.append(required(f"{path}.os.name"))
    elif os == "linux":
        if "windowsOptions" in (spec.get("securityContext") or ()):
            detail = "windows options cannot be set for a linux pod"
            errs.append(forbidden(f"{path}.securityContext.windowsOptions", detail))
        for container, where in containers_with_paths(spec, path):
            if "windowsOptions" in (container.get("securityContext") or ()):
                detail = "windows options cannot be set for a linux pod"
                errs.append(forbidden(f"{where}.securityContext.windowsOptions", detail))
    elif os == "windows":
        _validate_windows(spec, path, errs)
    else:
        errs.append(not_supported(f"{path}.os", os, ["linux", "windows"]))


_NOT_ON_WINDOWS_PODS = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
)
_NOT_ON_WINDOWS_CONTAINERS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def _validate_windows(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    context = spec.get("securityContext") or {}
    for dotted in _NOT_ON_WINDOWS_PODS:
        inside, _, field = dotted.rpartition(".")
        holder: AnyObject = context if inside else spec
        if field in holder and holder[field] not in ([], False if field in ("hostPID", "hostIPC") else None):
            errs.append(forbidden(f"{path}.{dotted}", "cannot be set for a windows pod"))
    for container, where in containers_with_paths(spec, path):
        for field in _NOT_ON_WINDOWS_CONTAINERS:
            if field in (container.get("securityContext") or ()):
                errs.append(forbidden(f"{where}.securityContext.{field}", "cannot be set for a windows pod"))


def validate_host_process(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    """Check Windows host processes: all containers of a pod or none, and on the host's network."""
    of_pod = (spec.get("securityContext") or {}).get("windowsOptions", {}).get("hostProcess")
    total = on_host = 0
    for container, where in containers_with_paths(spec, path):
        total += 1
        own = (container.get("securityContext") or {}).get("windowsOptions", {}).get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            detail = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            errs.append(invalid(f"{where}.securityContext.windowsOptions.hostProcess", own, detail))
        on_host += bool(of_pod if own is None else own)
    if not on_host:
        return
    if on_host != total:
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errs.append(invalid(path, "", detail))
    if not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        errs.append(invalid(f"{path}.hostNetwork", False, detail))
