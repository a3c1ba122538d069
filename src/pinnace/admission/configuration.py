"""Reads an AdmissionConfiguration: the settings of plug-ins, each in the file itself or in a file of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from pinnace.admission.plugins.optional.event_rate_limit import DEFAULT_CACHE, KEYS, EventLimit
from pinnace.admission.plugins.optional.image_policy import ImagePolicy
from pinnace.admission.plugins.optional.pod_node_selector import parse_selector
from pinnace.admission.plugins.optional.pod_tolerations import TolerationSettings
from pinnace.admission.plugins.pod_security import STRICTNESS, Exemptions, Level, NamespacePolicy
from pinnace.admission.plugins.resource_quota import LimitedResource
from pinnace.auth.remote import RemoteConfigError, read_remote
from pinnace.kinds.pods.scheduling import validate_toleration
from pinnace.model import names
from pinnace.model.errors import ApiError
from pinnace.schema.configuration.documents import (
    FLAG,
    TEXT,
    TEXTS,
    Object,
    check,
    check_fields,
    decode,
    items,
    read_file,
    read_yaml,
    structure,
)
from pinnace.schema.configuration.errors import ConfigurationError
from pinnace.schema.field_errors import FieldError, duplicate, invalid, not_supported, required

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
    event_limits: tuple[EventLimit, ...] = ()
    image_policy: ImagePolicy | None = None
    node_selectors: dict[str, str] = field(default_factory=dict)
    tolerations: TolerationSettings = field(default_factory=TolerationSettings)


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


_NUMBER: Object = {"type": "integer", "format": "int32"}
_DURATION: Object = {"type": "integer", "format": "int64"}
_LIMIT = structure(type=TEXT, qps=_NUMBER, burst=_NUMBER, cacheSize=_NUMBER)
_TOLERATION = structure(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT, tolerationSeconds=_DURATION)


def _read_event_limits(plugin: Object, reading: _Reading) -> None:
    group, kind, versions = "eventratelimit.admission.k8s.io", "Configuration", ("v1alpha1",)
    fields = {"limits": items(_LIMIT)}
    settings = _settings(plugin, reading.path, group=group, kind=kind, versions=versions, fields=fields)
    limits = settings.get("limits") or []
    if not limits:
        reading.errors.append(invalid("limits", limits, "must not be empty"))
    for number, limit in enumerate(limits):
        reading.errors += _limit_errors(limit, f"limits[{number}]")
    reading.settings.event_limits = tuple(
        EventLimit(
            limit.get("type", ""), limit.get("qps", 0), limit.get("burst", 0), limit.get("cacheSize") or DEFAULT_CACHE
        )
        for limit in limits
    )


def _limit_errors(limit: Object, path: str) -> Iterator[FieldError]:
    if limit.get("type") not in KEYS:
        yield not_supported(f"{path}.type", limit.get("type", ""), sorted(KEYS))
    for name in ("burst", "qps"):
        if limit.get(name, 0) <= 0:
            yield invalid(f"{path}.{name}", limit.get(name, 0), "must be positive")
    if limit.get("type") != "Server" and limit.get("cacheSize", 0) < 0:
        yield invalid(f"{path}.cacheSize", limit["cacheSize"], "must not be negative")


def _read_tolerations(plugin: Object, reading: _Reading) -> None:
    group, kind, versions = "podtolerationrestriction.admission.k8s.io", "Configuration", ("v1alpha1",)
    fields = {"default": items(_TOLERATION), "whitelist": items(_TOLERATION)}
    settings = _settings(plugin, reading.path, group=group, kind=kind, versions=versions, fields=fields)
    for name in fields:
        validate_toleration(settings.get(name) or (), f"podtolerationrestriction.{name}", reading.errors)
    reading.settings.tolerations = TolerationSettings(
        tuple(settings.get("default") or ()), tuple(settings.get("whitelist") or ())
    )


def _unversioned(plugin: Object, path: Path, fields: Object) -> Object:
    """Return the settings of a plug-in whose configuration has no kind, from the file itself or its own."""
    own: Object | None = plugin.get("configuration")
    own_path = path
    if own is None:
        if not plugin.get("path"):
            return {}
        own_path = path.parent / plugin["path"]
        own = read_yaml(read_file(own_path), own_path, plugin["name"])
    check_fields(own, own_path, structure(apiVersion=TEXT, kind=TEXT, **fields))
    return own


def _read_node_selectors(plugin: Object, reading: _Reading) -> None:
    key = "podNodeSelectorPluginConfig"
    settings = _unversioned(plugin, reading.path, {key: {"type": "object", "additionalProperties": {"type": "string"}}})
    selectors = settings.get(key) or {}
    for name, text in selectors.items():
        try:
            parse_selector(text)
        except ApiError as error:
            reading.errors.append(invalid(f"{key}[{name}]", text, error.message))
    reading.settings.node_selectors = selectors


_IMAGE_POLICY = structure(
    kubeConfigFile=TEXT, allowTTL=_DURATION, denyTTL=_DURATION, retryBackoff=_DURATION, defaultAllow=FLAG
)
_HALF_AN_HOUR = timedelta(minutes=30)


def _read_image_policy(plugin: Object, reading: _Reading) -> None:
    settings = _unversioned(plugin, reading.path, {"imagePolicy": _IMAGE_POLICY})
    policy = settings.get("imagePolicy") or {}
    second, millisecond = timedelta(seconds=1), timedelta(milliseconds=1)
    file = policy.get("kubeConfigFile", "")
    if not file:
        reading.errors.append(required("imagePolicy.kubeConfigFile"))
        return
    limits = (
        ("retryBackoff", millisecond, millisecond, timedelta(minutes=5), 500 * millisecond),
        ("allowTTL", second, second, _HALF_AN_HOUR, timedelta(minutes=5)),
        ("denyTTL", second, second, _HALF_AN_HOUR, 30 * second),
    )
    durations = [_duration(policy, *limit, errors=reading.errors) for limit in limits]
    try:
        webhook = read_remote(reading.path.parent / file, timeout=_WEBHOOK_SECONDS)
    except RemoteConfigError as error:
        reading.errors.append(invalid("imagePolicy.kubeConfigFile", file, str(error)))
        return
    reading.settings.image_policy = ImagePolicy(
        webhook=webhook,
        retry_backoff=durations[0],
        allowed_remembered=durations[1],
        denied_remembered=durations[2],
        is_allowed_on_failure=bool(policy.get("defaultAllow")),
    )


_WEBHOOK_SECONDS = 30.0


def _duration(
    policy: Object,
    name: str,
    unit: timedelta,
    least: timedelta,
    most: timedelta,
    default: timedelta,
    *,
    errors: list[FieldError],
) -> timedelta:
    """Return a duration: -1 for none, 0 for the default."""
    number: int = policy.get(name, 0)
    if number in (-1, 0):
        return timedelta(0) if number else default
    if not least <= max(0, min(number, 10**9)) * unit <= most:
        units = f"valid value is between {least // unit} and {most // unit}, in {_UNITS[unit]}"
        errors.append(invalid(f"imagePolicy.{name}", number, units))
        return default
    return number * unit


_UNITS = {timedelta(seconds=1): "seconds", timedelta(milliseconds=1): "milliseconds"}


_READERS: dict[str, Callable[[Object, _Reading], None]] = {
    "EventRateLimit": _read_event_limits,
    "ImagePolicyWebhook": _read_image_policy,
    "MutatingAdmissionPolicy": _read_policies,
    "MutatingAdmissionWebhook": _read_webhooks,
    "PodNodeSelector": _read_node_selectors,
    "PodSecurity": _read_pod_security,
    "PodTolerationRestriction": _read_tolerations,
    "ResourceQuota": _read_resource_quota,
    "ValidatingAdmissionPolicy": _read_policies,
    "ValidatingAdmissionWebhook": _read_webhooks,
}
