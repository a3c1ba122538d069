"""The admission plug-ins of Kubernetes: which exist in a minor version, and which run by default."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pinnace.schema.configuration.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PluginRow:
    name: str
    is_default: bool = True
    since: int = 25
    """The first of the minor versions 1.25 and later that has it."""


def _off(name: str, *, since: int = 25) -> PluginRow:
    return PluginRow(name, is_default=False, since=since)


PLUGINS: tuple[PluginRow, ...] = (
    _off("AlwaysAdmit"),
    _off("NamespaceAutoProvision"),
    PluginRow("NamespaceLifecycle"),
    _off("NamespaceExists"),
    _off("LimitPodHardAntiAffinityTopology"),
    PluginRow("LimitRanger"),
    PluginRow("ServiceAccount"),
    PluginRow("NodeRestriction"),  # Off by default in Kubernetes; every installer enables it.
    PluginRow("TaintNodesByCondition"),
    _off("AlwaysPullImages"),
    _off("ImagePolicyWebhook"),
    PluginRow("PodSecurity"),
    _off("PodNodeSelector"),
    PluginRow("Priority"),
    PluginRow("DefaultTolerationSeconds"),
    _off("PodTolerationRestriction"),
    _off("EventRateLimit"),
    _off("ExtendedResourceToleration"),
    PluginRow("DefaultStorageClass"),
    PluginRow("StorageObjectInUseProtection"),
    PluginRow("PodGroupProtection", since=37),
    PluginRow("OwnerReferencesPermissionEnforcement"),  # Off by default in Kubernetes; see docs/admission-plugins.md.
    PluginRow("PersistentVolumeClaimResize"),
    PluginRow("RuntimeClass"),
    PluginRow("CertificateApproval"),
    PluginRow("CertificateSigning"),
    PluginRow("ClusterTrustBundleAttest", since=27),
    PluginRow("CertificateSubjectRestriction"),
    PluginRow("DefaultIngressClass"),
    _off("DenyServiceExternalIPs"),
    PluginRow("PodTopologyLabels", since=33),
    PluginRow("NodeDeclaredFeatureValidator", since=35),
    PluginRow("PodResizeValidator", since=36),
    PluginRow("MutatingAdmissionPolicy", since=32),
    PluginRow("MutatingAdmissionWebhook"),
    PluginRow("ValidatingAdmissionPolicy", since=26),
    PluginRow("ValidatingAdmissionWebhook"),
    PluginRow("ResourceQuota"),
    _off("AlwaysDeny"),
)
"""In Kubernetes' order."""

LEFT_OUT = {
    "JobValidation": "1.36",
    "PersistentVolumeLabel": "1.25 to 1.30",
    "PodGroupWorkloadExists": "1.36",
    "SecurityContextDeny": "1.25 to 1.29",
}
"""Plug-ins that Kubernetes has removed, with the minor versions that had them."""


class AdmissionPluginError(ConfigurationError):
    """The enabled and disabled plug-ins cannot be used; the messages are Kubernetes'."""


def choose(enabled: Collection[str], disabled: Collection[str], minor: str) -> frozenset[str]:
    """Return the names of the plug-ins that run. Raise AdmissionPluginError for names that do not exist."""
    number = int(minor.partition(".")[2])
    known = {row.name for row in PLUGINS if row.since <= number}
    mistakes = [
        f'{flag} plugin "{name}" is unknown{_hint(name, known)}'
        for flag, names in (("enable-admission-plugins", enabled), ("disable-admission-plugins", disabled))
        for name in sorted(names)
        if name not in known
    ]
    if both := sorted(set(enabled) & set(disabled)):
        mistakes.append(f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped")
    if mistakes:
        text = mistakes[0] if len(mistakes) == 1 else f"[{', '.join(mistakes)}]"
        raise AdmissionPluginError(text)
    defaults = {row.name for row in PLUGINS if row.is_default} & known
    return frozenset((defaults - set(disabled)) | set(enabled))


def _hint(name: str, known: Collection[str]) -> str:
    """Return the minor versions that have a plug-in, or all names that could be meant."""
    row = next((row for row in PLUGINS if row.name == name), None)
    if row is not None:
        return f": Kubernetes has it since 1.{row.since}"
    if name in LEFT_OUT:
        return f": only Kubernetes {LEFT_OUT[name]} had it"
    return f"; expected {', '.join(sorted(known))}"
