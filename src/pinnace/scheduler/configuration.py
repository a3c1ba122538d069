"""KubeSchedulerConfiguration v1: profiles, plug-ins with weights and arguments, extenders, back-off.

`load` reads a file as people bring it, `default_configuration` is what kube-scheduler does without one, and
`build_profiles` makes the plug-ins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pinnace.model.objects import Object
from pinnace.scheduler.extenders.settings import (
    ExtenderSettings,
    InvalidExtender,
    ignored_by_scheduler,
    parse_extenders,
)
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.registry import PluginRegistry, UnknownPlugin
from pinnace.scheduler.plugins.defaults import DEFAULT_PLUGINS, default_registry
from pinnace.scheduler.queue.queue import INITIAL_BACKOFF, MAXIMUM_BACKOFF

DEFAULT_SCHEDULER = "default-scheduler"
API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
MOMENTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
_ALL = "*"
_FIT = "NodeResourcesFit"


class InvalidConfiguration(ValueError):
    """A configuration cannot be used; the message names the field and the fix."""


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plug-ins that a configuration enables and disables at one moment, with the weights of the enabled."""

    enabled: Mapping[str, int] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()

    def disables(self, name: str) -> bool:
        return name in self.disabled or _ALL in self.disabled


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    """One profile: the plug-ins in order, and for single moments which take part in addition or not at all."""

    name: str = DEFAULT_SCHEDULER
    plugins: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_PLUGINS))
    """Names and weights of the plug-ins that take part in every moment they know."""
    moments: Mapping[str, PluginSet] = field(default_factory=dict)
    arguments: Mapping[str, Object] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return all plug-ins that take part in some moment, in order."""
        return list(dict.fromkeys([*self.plugins, *(name for one in self.moments.values() for name in one.enabled)]))

    def is_enabled(self, plugin: str, moment: str) -> bool:
        one = self.moments.get(moment, PluginSet())
        return plugin in one.enabled or (plugin in self.plugins and not one.disables(plugin))

    def weights(self) -> dict[str, int]:
        score = self.moments.get("score", PluginSet())
        return {name: score.enabled.get(name) or self.plugins.get(name, 0) for name in self.names()}


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """A whole configuration. `leader_election` is kept as written."""

    profiles: Sequence[ProfileConfiguration] = (ProfileConfiguration(),)
    initial_backoff: float = INITIAL_BACKOFF
    maximum_backoff: float = MAXIMUM_BACKOFF
    extenders: Sequence[ExtenderSettings] = ()
    leader_election: Object = field(default_factory=dict)


def default_configuration(name: str = DEFAULT_SCHEDULER) -> SchedulerConfiguration:
    return SchedulerConfiguration((ProfileConfiguration(name),))


def load(config: Object) -> SchedulerConfiguration:
    """Read a KubeSchedulerConfiguration. Raise InvalidConfiguration."""
    if config.get("apiVersion") != API_VERSION or config.get("kind") != KIND:
        found = f"{config.get('apiVersion')}, kind {config.get('kind')}"
        raise InvalidConfiguration(f"expected apiVersion {API_VERSION} and kind {KIND}, found {found}")
    written = config.get("profiles") or [{}]
    profiles = [_profile(one, f"profiles[{at}]", is_only=len(written) == 1) for at, one in enumerate(written)]
    names = [profile.name for profile in profiles]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidConfiguration(f"profiles: two have the schedulerName {twice}; give each its own")
    initial = config.get("podInitialBackoffSeconds", INITIAL_BACKOFF)
    maximum = config.get("podMaxBackoffSeconds", MAXIMUM_BACKOFF)
    if initial <= 0:
        raise InvalidConfiguration(f"podInitialBackoffSeconds: expected a positive number, found {initial}")
    if maximum < initial:
        raise InvalidConfiguration(
            f"podMaxBackoffSeconds: expected at least podInitialBackoffSeconds ({initial}), found {maximum}"
        )
    return SchedulerConfiguration(
        tuple(profiles),
        initial_backoff=float(initial),
        maximum_backoff=float(maximum),
        extenders=_extenders(config.get("extenders") or ()),
        leader_election=config.get("leaderElection") or {},
    )


def _profile(written: Object, path: str, *, is_only: bool) -> ProfileConfiguration:
    name = written.get("schedulerName") or (DEFAULT_SCHEDULER if is_only else "")
    if not name:
        raise InvalidConfiguration(f"{path}.schedulerName: required, because there are several profiles")
    plugins = written.get("plugins") or {}
    unknown = sorted(set(plugins) - {*MOMENTS, "multiPoint"})
    if unknown:
        raise InvalidConfiguration(f"{path}.plugins: expected multiPoint, {', '.join(MOMENTS)}, found {unknown[0]}")
    everywhere = _plugin_set(plugins.get("multiPoint") or {}, f"{path}.plugins.multiPoint")
    kept = {one: weight for one, weight in DEFAULT_PLUGINS if not everywhere.disables(one)}
    for one, weight in everywhere.enabled.items():
        kept[one] = weight or kept.get(one, 0)
    arguments = {}
    for at, one in enumerate(written.get("pluginConfig") or ()):
        if one.get("name") in arguments:
            raise InvalidConfiguration(f"{path}.pluginConfig[{at}].name: {one['name']} is configured twice")
        arguments[one["name"]] = one.get("args") or {}
    moments = {
        moment: _plugin_set(plugins[moment], f"{path}.plugins.{moment}") for moment in MOMENTS if plugins.get(moment)
    }
    return ProfileConfiguration(name, kept, moments, arguments)


def _plugin_set(written: Object, path: str) -> PluginSet:
    enabled: dict[str, int] = {}
    for at, one in enumerate(written.get("enabled") or ()):
        if not one.get("name"):
            raise InvalidConfiguration(f"{path}.enabled[{at}].name: required")
        if one["name"] in enabled:
            raise InvalidConfiguration(f"{path}.enabled[{at}]: {one['name']} is enabled twice")
        enabled[one["name"]] = one.get("weight") or 0
    return PluginSet(enabled, frozenset(one.get("name", "") for one in written.get("disabled") or ()))


def _extenders(written: Sequence[Object]) -> tuple[ExtenderSettings, ...]:
    try:
        return tuple(parse_extenders(written))
    except InvalidExtender as error:
        raise InvalidConfiguration(str(error)) from error


def build_profiles(
    configuration: SchedulerConfiguration, handle: Handle, registry: PluginRegistry | None = None
) -> dict[str, Profile]:
    """Make the plug-ins of every profile. Raise InvalidConfiguration for unknown plug-ins and bad arguments."""
    registry = registry or default_registry()
    ignored = sorted(ignored_by_scheduler(configuration.extenders))
    profiles = [_ignoring(one, ignored) if ignored else one for one in configuration.profiles]
    return {one.name: build_profile(one, handle, registry) for one in profiles}


def _ignoring(profile: ProfileConfiguration, resources: list[str]) -> ProfileConfiguration:
    """Let NodeResourcesFit leave out the resources that extenders count."""
    fit = {**(profile.arguments.get(_FIT) or {}), "ignoredResources": resources}
    return replace(profile, arguments={**profile.arguments, _FIT: fit})


def build_profile(profile: ProfileConfiguration, handle: Handle, registry: PluginRegistry) -> Profile:
    plugins = []
    for name in profile.names():
        try:
            plugins.append(registry.make(name, profile.arguments.get(name) or {}, handle))
        except UnknownPlugin as error:
            raise InvalidConfiguration(f"profile {profile.name}: {error}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidConfiguration(f"profile {profile.name}, arguments of {name}: {error}") from error
    return Profile(profile.name, plugins, weights=profile.weights(), enabled=profile.is_enabled)
