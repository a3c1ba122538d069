"""Reads an AdmissionConfiguration: the settings of plug-ins, each in the file itself or in a file of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinnace.admission.plugins.pod_security import STRICTNESS, Exemptions, Level, NamespacePolicy
from pinnace.admission.plugins.resource_quota import LimitedResource
from pinnace.model import names
from pinnace.schema.configuration.documents import (
    TEXT,
    TEXTS,
    Object,
    check,
    check_fields,
    decode,
    items,
    read_file,
    structure,
)
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.field_errors import FieldError, duplicate, invalid, required

KIND = "AdmissionConfiguration"
VERSIONS = ("v1", "v1alpha1")
_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_FIELDS: Object = {"plugins": items(structure(name=TEXT, path=TEXT, configuration=_ANY))}
_POD_SECURITY = "pod-security.admission.config.k8s.io"
_MODES = ("enforce", "warn", "audit")
_LEVELS: Object = structure(**{field: TEXT for mode in _MODES for field in (mode, f"{mode}-version")})
_version = re.compile(r"v1\.(0|[1-9][0-9]{0,3})").fullmatch
_REMEDY = "remove it from the file"


@dataclass(slots=True)
class PluginSettings:
    """The settings of all plug-ins that have some."""

    pod_security: NamespacePolicy = field(default_factory=NamespacePolicy)
    exemptions: Exemptions = field(default_factory=Exemptions)
    limited_resources: tuple[LimitedResource, ...] = ()
    static_manifests: dict[str, str] = field(default_factory=dict)
    """The directories with the configurations of webhooks and policies that no API can change, by plug-in."""


@dataclass(slots=True)
class _Reading:
    """A file that is being read: the settings so far, and the errors."""

    path: Path
    settings: PluginSettings = field(default_factory=PluginSettings)
    errors: list[FieldError] = field(default_factory=list)


def read_plugin_settings(path: Path) -> PluginSettings:
    """Read a file, and those that it names. Raise ConfigurationError."""
    document = decode(read_file(path), path, kind=KIND, versions=VERSIONS, fields=_FIELDS)
    reading, seen = _Reading(path), set[str]()
    for number, plugin in enumerate(document.get("plugins") or ()):
        name, at = plugin.get("name", ""), f"plugins[{number}].name"
        if not name:
            reading.errors.append(required(at))
        elif name in seen:
            reading.errors.append(duplicate(at, name))
        elif name not in _READERS:
            known = ", ".join(sorted(_READERS))
            error = f"this plug-in has no configuration here, expected one of {known}; {_REMEDY}"
            reading.errors.append(invalid(at, name, error))
        else:
            _READERS[name](plugin, reading)
        seen.add(name)
    check(path, reading.errors)
    return reading.settings


def _settings(plugin: Object, path: Path, *, group: str, kind: str, versions: Sequence[str], fields: Object) -> Object:
    """Return the settings of a plug-in, from the file itself or its own."""
    own: Object | None = plugin.get("configuration")
    if own is None:
        if not plugin.get("path"):
            return {}
        own_path = path.parent / plugin["path"]
        return decode(read_file(own_path), own_path, kind=kind, versions=versions, fields=fields, group=group)
    served = [f"{group}/{version}" for version in versions]
    if own.get("kind") != kind or own.get("apiVersion") not in served:
        actual = f"found kind {own.get('kind')} of {own.get('apiVersion')}"
        expected = f"expected kind {kind} of apiVersion {' or '.join(served)}"
        raise ConfigurationError(f"{path}: {plugin['name']}: {expected}, {actual}")
    check_fields(own, path, structure(apiVersion=TEXT, kind=TEXT, **fields))
    return own


def _read_pod_security(plugin: Object, reading: _Reading) -> None:
    fields = {"defaults": _LEVELS, "exemptions": structure(usernames=TEXTS, namespaces=TEXTS, runtimeClasses=TEXTS)}
    versions = ("v1", "v1beta1", "v1alpha1")
    settings = _settings(
        plugin, reading.path, group=_POD_SECURITY, kind="PodSecurityConfiguration", versions=versions, fields=fields
    )
    defaults, exemptions = settings.get("defaults") or {}, settings.get("exemptions") or {}
    levels = {mode: _level(defaults, mode, reading.errors) for mode in _MODES}
    reading.settings.pod_security = NamespacePolicy(**levels)
    checks: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
        ("namespaces", names.dns_label),
        ("runtimeClasses", names.dns_subdomain),
        ("usernames", lambda name: [] if name else ["username must not be empty"]),
    )
    for kind, name_errors in checks:
        reading.errors += _name_errors(exemptions.get(kind) or (), f"exemptions.{kind}", name_errors)
    reading.settings.exemptions = Exemptions(
        usernames=frozenset(exemptions.get("usernames") or ()),
        namespaces=frozenset(exemptions.get("namespaces") or ()),
        runtime_classes=frozenset(exemptions.get("runtimeClasses") or ()),
    )


def _level(defaults: Object, mode: str, errors: list[FieldError]) -> Level:
    level, version = defaults.get(mode) or "privileged", defaults.get(f"{mode}-version") or "latest"
    if level not in STRICTNESS:
        errors.append(invalid(f"defaults.{mode}", level, f"must be one of {', '.join(STRICTNESS)}"))
    match = _version(version)
    if version != "latest" and not match:
        errors.append(invalid(f"defaults.{mode}-version", version, 'must be "latest" or "v1.x"'))
    return Level(level, int(match[1]) if match else None)


def _name_errors(exempted: Sequence[str], path: str, name_errors: Callable[[str], list[str]]) -> Iterator[FieldError]:
    for number, name in enumerate(exempted):
        if errors := name_errors(name):
            yield invalid(f"{path}[{number}]", name, ", ".join(errors))
        elif name in exempted[:number]:
            yield duplicate(f"{path}[{number}]", name)


def _read_resource_quota(plugin: Object, reading: _Reading) -> None:
    limited: dict[str, Any] = {
        "limitedResources": items(structure(apiGroup=TEXT, resource=TEXT, matchContains=TEXTS, matchScopes=items(_ANY)))
    }
    group = "apiserver.config.k8s.io"
    kind, versions = "ResourceQuotaConfiguration", ("v1",)
    settings = _settings(plugin, reading.path, group=group, kind=kind, versions=versions, fields=limited)
    resources = []
    for number, entry in enumerate(settings.get("limitedResources") or ()):
        at = f"limitedResources[{number}]"
        if not entry.get("resource"):
            reading.errors.append(required(f"{at}.resource"))
        if entry.get("matchScopes"):
            error = f"quotas are not required by scope here; {_REMEDY}, or use matchContains"
            reading.errors.append(invalid(f"{at}.matchScopes", entry["matchScopes"], error))
        place = (entry.get("apiGroup", ""), entry.get("resource", ""))
        resources.append(LimitedResource(place, tuple(entry.get("matchContains") or ())))
    reading.settings.limited_resources = tuple(resources)


def _read_webhooks(plugin: Object, reading: _Reading) -> None:
    fields = {"kubeConfigFile": TEXT, "staticManifestsDir": TEXT}
    group, kind, versions = "apiserver.config.k8s.io", "WebhookAdmissionConfiguration", ("v1",)
    settings = _settings(plugin, reading.path, group=group, kind=kind, versions=versions, fields=fields)
    if file := settings.get("kubeConfigFile"):
        error = f"webhooks are called without credentials here; {_REMEDY}"
        reading.errors.append(invalid("kubeConfigFile", file, error))
    if directory := settings.get("staticManifestsDir"):
        reading.settings.static_manifests[plugin["name"]] = directory


def _read_policies(plugin: Object, reading: _Reading) -> None:
    group, kind, versions = "apiserver.config.k8s.io", f"{plugin['name']}Configuration", ("v1",)
    fields = {"staticManifestsDir": TEXT}
    settings = _settings(plugin, reading.path, group=group, kind=kind, versions=versions, fields=fields)
    if directory := settings.get("staticManifestsDir"):
        reading.settings.static_manifests[plugin["name"]] = directory


_READERS: dict[str, Callable[[Object, _Reading], None]] = {
    "PodSecurity": _read_pod_security,
    "ResourceQuota": _read_resource_quota,
    "MutatingAdmissionPolicy": _read_policies,
    "MutatingAdmissionWebhook": _read_webhooks,
    "ValidatingAdmissionPolicy": _read_policies,
    "ValidatingAdmissionWebhook": _read_webhooks,
}
