"""KubeSchedulerConfiguration v1: profiles, plug-ins with weights and arguments, extenders, back-off.

`load` reads a file as people bring it, `default_configuration` is what kube-scheduler does without one, and
`build_profiles` makes the plug-ins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from pinnace.scheduler.queue import INITIAL_BACKOFF, MAXIMUM_BACKOFF
from pinnace.schema.configuration.documents import FLAG, TEXT, TEXTS, decoding_error, items, structure
from pinnace.schema.field_errors import FieldError, duplicate, invalid, required
from pinnace.schema.golang.text import quote

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


_WITHOUT_EFFECT = {
    "percentageOfNodesToScore": "all nodes are scored",
    "parallelism": "all nodes are filtered and scored at once",
    "clientConnection": "the connection is that of --kubeconfig, without limits of its own",
    "enableProfiling": "there are no profiles of Go",
    "enableContentionProfiling": "there are no profiles of Go",
    "delayCacheUntilActive": "a scheduler that does not lead follows the cluster",
}
_REMOVED = frozenset(("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"))


def _number(size: str = "int32") -> Object:
    return {"type": "integer", "format": size}


_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PLUGINS = structure(
    enabled=items(structure(name=TEXT, weight=_number())), disabled=items(structure(name=TEXT, weight=_number()))
)
_TLS = structure(
    insecure=FLAG, serverName=TEXT, certFile=TEXT, keyFile=TEXT, caFile=TEXT, certData=TEXT, keyData=TEXT, caData=TEXT
)
_EXTENDER = structure(
    urlPrefix=TEXT, filterVerb=TEXT, preemptVerb=TEXT, prioritizeVerb=TEXT, weight=_number("int64"), bindVerb=TEXT,
    enableHTTPS=FLAG, tlsConfig=_TLS, httpTimeout=TEXT, nodeCacheCapable=FLAG, ignorable=FLAG,
    managedResources=items(structure(name=TEXT, ignoredByScheduler=FLAG)),
)  # fmt: skip
_ELECTION = structure(
    leaderElect=FLAG, leaseDuration=TEXT, renewDeadline=TEXT, retryPeriod=TEXT, resourceLock=TEXT, resourceName=TEXT,
    resourceNamespace=TEXT,
)  # fmt: skip
_CONNECTION = structure(
    kubeconfig=TEXT, acceptContentTypes=TEXT, contentType=TEXT, qps={"type": "number"}, burst=_number()
)
_PROFILE = structure(
    schedulerName=TEXT,
    percentageOfNodesToScore=_number(),
    plugins=structure(**dict.fromkeys((*MOMENTS, "multiPoint"), _PLUGINS)),
    pluginConfig=items(structure(name=TEXT, args=_ANY)),
)
_DOCUMENT = structure(
    apiVersion=TEXT, kind=TEXT, parallelism=_number(), leaderElection=_ELECTION, clientConnection=_CONNECTION,
    enableProfiling=FLAG, enableContentionProfiling=FLAG, percentageOfNodesToScore=_number(),
    podInitialBackoffSeconds=_number("int64"), podMaxBackoffSeconds=_number("int64"), profiles=items(_PROFILE),
    extenders=items(_EXTENDER), delayCacheUntilActive=FLAG,
)  # fmt: skip
_RESOURCES = items(structure(name=TEXT, weight=_number("int64")))
_SHAPE = items(structure(utilization=_number(), score=_number()))


def _arguments(**fields: Object) -> Object:
    return structure(apiVersion=TEXT, kind=TEXT, **fields)


_ARGUMENTS: Mapping[str, Object] = {
    "DefaultPreemption": _arguments(minCandidateNodesPercentage=_number(), minCandidateNodesAbsolute=_number()),
    "DynamicResources": _arguments(filterTimeout=TEXT, bindingTimeout=TEXT),
    "InterPodAffinity": _arguments(hardPodAffinityWeight=_number(), ignorePreferredTermsOfExistingPods=FLAG),
    "NodeAffinity": _arguments(addedAffinity=_ANY),
    "NodeResourcesBalancedAllocation": _arguments(resources=_RESOURCES),
    "NodeResourcesFit": _arguments(
        ignoredResources=TEXTS,
        ignoredResourceGroups=TEXTS,
        scoringStrategy=structure(type=TEXT, resources=_RESOURCES, requestedToCapacityRatio=structure(shape=_SHAPE)),
    ),
    "PodTopologySpread": _arguments(defaultConstraints=items(_ANY), defaultingType=TEXT),
    "VolumeBinding": _arguments(bindTimeoutSeconds=_number("int64"), shape=_SHAPE),
}
"""The arguments of the plug-ins of Kubernetes. Those of other plug-ins are checked by the plug-ins alone."""


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
        return list(
            dict.fromkeys([*self.plugins, *(name for moment in self.moments.values() for name in moment.enabled)])
        )

    def is_enabled(self, plugin: str, moment: str) -> bool:
        chosen = self.moments.get(moment, PluginSet())
        return plugin in chosen.enabled or (plugin in self.plugins and not chosen.disables(plugin))

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
    warnings: Sequence[str] = ()
    """The fields that have no effect, and why."""


def default_configuration(name: str = DEFAULT_SCHEDULER) -> SchedulerConfiguration:
    return SchedulerConfiguration((ProfileConfiguration(name),))


def configuration_document(configuration: SchedulerConfiguration) -> Object:
    """Return a configuration as a KubeSchedulerConfiguration, for /configz."""
    extenders = [_extender_document(extender) for extender in configuration.extenders]
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "leaderElection": {"leaderElect": True, **configuration.leader_election},
        "podInitialBackoffSeconds": int(configuration.initial_backoff),
        "podMaxBackoffSeconds": int(configuration.maximum_backoff),
        "profiles": [_profile_document(profile) for profile in configuration.profiles],
        **({"extenders": extenders} if extenders else {}),
    }


def _profile_document(profile: ProfileConfiguration) -> Object:
    enabled = [{"name": name, **({"weight": weight} if weight else {})} for name, weight in profile.plugins.items()]
    plugins: Object = {"multiPoint": {"enabled": enabled}}
    for moment, chosen in profile.moments.items():
        plugins[moment] = {
            "enabled": [{"name": name, "weight": weight} for name, weight in chosen.enabled.items()],
            "disabled": [{"name": name} for name in sorted(chosen.disabled)],
        }
    return {
        "schedulerName": profile.name,
        "plugins": plugins,
        "pluginConfig": [{"name": name, "args": dict(arguments)} for name, arguments in profile.arguments.items()],
    }


def _extender_document(extender: ExtenderSettings) -> Object:
    verbs = {
        "filterVerb": extender.filter_verb,
        "preemptVerb": extender.preempt_verb,
        "prioritizeVerb": extender.prioritize_verb,
        "bindVerb": extender.bind_verb,
    }
    return {
        "urlPrefix": extender.url_prefix,
        **{name: verb for name, verb in verbs.items() if verb},
        "weight": extender.weight,
        "enableHTTPS": extender.uses_https,
        "httpTimeout": f"{extender.timeout:g}s",
        "nodeCacheCapable": extender.node_cache_capable,
        "managedResources": [
            {"name": name, "ignoredByScheduler": name in extender.ignored_resources}
            for name in sorted(extender.managed_resources)
        ],
        "ignorable": extender.ignorable,
    }


def load(config: Object) -> SchedulerConfiguration:
    """Read a KubeSchedulerConfiguration. Raise InvalidConfiguration with all errors, in Kubernetes' words."""
    if config.get("apiVersion") != API_VERSION or config.get("kind") != KIND:
        given = f"{config.get('apiVersion')}, kind {config.get('kind')}"
        raise InvalidConfiguration(f"expected apiVersion {API_VERSION} and kind {KIND}, found {given}")
    if error := decoding_error(config, _DOCUMENT):
        raise InvalidConfiguration(error)
    written = config.get("profiles") or [{}]
    errors = [*_number_errors(config), *_profile_errors(written)]
    if errors:
        texts = [str(error) for error in errors]
        raise InvalidConfiguration(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return SchedulerConfiguration(
        tuple(_profile(entry) for entry in written),
        initial_backoff=float(config.get("podInitialBackoffSeconds") or INITIAL_BACKOFF),
        maximum_backoff=float(config.get("podMaxBackoffSeconds") or MAXIMUM_BACKOFF),
        extenders=_extenders(config.get("extenders") or ()),
        leader_election=config.get("leaderElection") or {},
        warnings=tuple(_warnings(config, written)),
    )


def _number_errors(config: Object) -> Iterator[FieldError]:
    initial = config.get("podInitialBackoffSeconds", INITIAL_BACKOFF)
    maximum = config.get("podMaxBackoffSeconds", MAXIMUM_BACKOFF)
    if config.get("parallelism", 1) <= 0:
        yield invalid("parallelism", config["parallelism"], "should be an integer value greater than zero")
    yield from _percentage_errors(config, "")
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if maximum < initial:
        error = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", maximum, error)


def _percentage_errors(written: Object, path: str) -> Iterator[FieldError]:
    percentage = written.get("percentageOfNodesToScore", 0)
    if not 0 <= percentage <= 100:
        yield invalid(f"{path}percentageOfNodesToScore", percentage, "not in valid range [0-100]")


def _profile_errors(profiles: Sequence[Object]) -> Iterator[FieldError]:
    names: set[str] = set()
    first = (profiles[0].get("plugins") or {}).get("queueSort") or {}
    for number, profile in enumerate(profiles):
        path = f"profiles[{number}]"
        name = profile.get("schedulerName") or (DEFAULT_SCHEDULER if len(profiles) == 1 else "")
        if not name:
            yield required(f"{path}.schedulerName")
        elif name in names:
            yield duplicate(f"{path}.schedulerName", name)
        names.add(name)
        yield from _percentage_errors(profile, f"{path}.")
        plugins = profile.get("plugins") or {}
        for moment in ("multiPoint", *MOMENTS):
            yield from _plugin_set_errors(plugins.get(moment) or {}, f"{path}.plugins.{moment}")
        yield from _argument_errors(profile.get("pluginConfig") or (), f"{path}.pluginConfig")
        order = plugins.get("queueSort") or {}
        if order != first:
            yield invalid(f"{path}.plugins.queueSort", order, "must be the same for all profiles")


def _argument_errors(written: Sequence[Object], path: str) -> Iterator[FieldError]:
    configured: set[str] = set()
    for number, entry in enumerate(written):
        plugin = entry.get("name", "")
        if not plugin:
            yield required(f"{path}[{number}].name")
        elif plugin in configured:
            yield duplicate(f"{path}[{number}]", plugin)
        configured.add(plugin)
        arguments = _ARGUMENTS.get(plugin)
        if arguments is not None and (error := decoding_error(entry.get("args") or {}, arguments)):
            decoding = f"decoding args for plugin {plugin}: {error}"
            yield FieldError(f"{path}[{number}].args", "FieldValueInvalid", decoding)


def _plugin_set_errors(written: Object, path: str) -> Iterator[FieldError]:
    enabled: set[str] = set()
    for number, entry in enumerate(written.get("enabled") or ()):
        name, at = entry.get("name", ""), f"{path}.enabled[{number}]"
        if not name:
            yield required(f"{at}.name")
        elif name in _REMOVED:
            error = f"was invalid in version {quote(API_VERSION)} (KubeSchedulerConfiguration is version"
            yield invalid(at, name, f"{error} {quote(API_VERSION)})")
        elif name in enabled:
            yield duplicate(at, name)
        enabled.add(name)


def _warnings(config: Object, profiles: Sequence[Object]) -> Iterator[str]:
    """Yield the fields that have no effect here, and why."""
    for name, reason in _WITHOUT_EFFECT.items():
        if config.get(name):
            yield f"{name} has no effect: {reason}"
    for number, profile in enumerate(profiles):
        if profile.get("percentageOfNodesToScore"):
            reason = _WITHOUT_EFFECT["percentageOfNodesToScore"]
            yield f"profiles[{number}].percentageOfNodesToScore has no effect: {reason}"
        for place, entry in enumerate(profile.get("pluginConfig") or ()):
            if entry["name"] == "DynamicResources" and (entry.get("args") or {}).get("filterTimeout"):
                field_path = f"profiles[{number}].pluginConfig[{place}].args.filterTimeout"
                yield f"{field_path} has no effect: devices are allocated without a limit of time"


def _profile(written: Object) -> ProfileConfiguration:
    plugins = written.get("plugins") or {}
    everywhere = _plugin_set(plugins.get("multiPoint") or {})
    kept = {plugin: weight for plugin, weight in DEFAULT_PLUGINS if not everywhere.disables(plugin)}
    for plugin, weight in everywhere.enabled.items():
        kept[plugin] = weight or kept.get(plugin, 0)
    arguments = {entry["name"]: entry.get("args") or {} for entry in written.get("pluginConfig") or ()}
    moments = {moment: _plugin_set(plugins[moment]) for moment in MOMENTS if plugins.get(moment)}
    return ProfileConfiguration(written.get("schedulerName") or DEFAULT_SCHEDULER, kept, moments, arguments)


def _plugin_set(written: Object) -> PluginSet:
    enabled = {entry["name"]: entry.get("weight") or 0 for entry in written.get("enabled") or ()}
    return PluginSet(enabled, frozenset(entry.get("name", "") for entry in written.get("disabled") or ()))


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
    profiles = [_ignoring(profile, ignored) if ignored else profile for profile in configuration.profiles]
    return {profile.name: build_profile(profile, handle, registry) for profile in profiles}


def _ignoring(profile: ProfileConfiguration, resources: list[str]) -> ProfileConfiguration:
    """Let NodeResourcesFit leave out the resources that extenders count."""
    fit = {**(profile.arguments.get(_FIT) or {}), "ignoredResources": resources}
    return replace(profile, arguments={**profile.arguments, _FIT: fit})


def build_profile(profile: ProfileConfiguration, handle: Handle, registry: PluginRegistry) -> Profile:
    plugins = []
    handle = replace(handle, scheduler_name=profile.name)
    for name in profile.names():
        try:
            plugins.append(registry.make(name, profile.arguments.get(name) or {}, handle))
        except UnknownPlugin as error:
            raise InvalidConfiguration(f"profile {profile.name}: {error}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidConfiguration(f"profile {profile.name}, arguments of {name}: {error}") from error
    return Profile(profile.name, plugins, weights=profile.weights(), enabled=profile.is_enabled)
