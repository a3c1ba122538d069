"""The extenders of a KubeSchedulerConfiguration."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.schema.cel.times import parse_duration
from pinnace.schema.cel.values import NANOS

DEFAULT_TIMEOUT = 5.0


class InvalidExtender(ValueError):
    """An extender of the configuration cannot be used; the message names its field."""


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """How to verify an extender, and the certificate to show to it. Data wins over files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """One extender: where it is, and the verbs that it has."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 1
    timeout: float = DEFAULT_TIMEOUT
    uses_https: bool = False
    tls: ExtenderTls = field(default_factory=ExtenderTls)
    node_cache_capable: bool = False
    """It knows the nodes: only their names are sent."""
    managed_resources: frozenset[str] = frozenset()
    """It is asked only about pods with one of these resources; about all pods if there are none."""
    ignored_resources: frozenset[str] = frozenset()
    """The resources that only the extender counts: NodeResourcesFit leaves them out."""
    ignorable: bool = False
    """Pods are scheduled without it while it does not answer."""

    def is_interested(self, pod: PodObject) -> bool:
        """Return whether the pod has a resource that this extender manages."""
        if not self.managed_resources:
            return True
        spec = pod["spec"]
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            for amounts in (resources.get("requests"), resources.get("limits")):
                if self.managed_resources.intersection(amounts or ()):
                    return True
        return False


def parse_extenders(items: Iterable[Object]) -> list[ExtenderSettings]:
    """Return the extenders in the order in which they are called: those that may fail come last.

    Raise InvalidExtender for a value that kube-scheduler refuses.
    """
    parsed = [_parse(item, f"extenders[{index}]") for index, item in enumerate(items)]
    _check_together(parsed)
    return sorted(parsed, key=lambda extender: extender.ignorable)


def ignored_by_scheduler(extenders: Sequence[ExtenderSettings]) -> frozenset[str]:
    """Return the resources that extenders count instead of the scheduler."""
    return frozenset().union(*(extender.ignored_resources for extender in extenders))


def _parse(item: Object, path: str) -> ExtenderSettings:
    prefix = item.get("urlPrefix") or ""
    if not prefix:
        raise InvalidExtender(
            f"{path}.urlPrefix: Required value: write the extender's URL, such as http://127.0.0.1:8888"
        )
    weight = item.get("weight") or 0
    if item.get("prioritizeVerb") and weight <= 0:
        raise InvalidExtender(f"{path}.weight: Invalid value: {weight}: must have a positive weight applied to it")
    managed = item.get("managedResources") or []
    for index, resource in enumerate(managed):
        if "/" not in (resource.get("name") or ""):
            raise InvalidExtender(
                f"{path}.managedResources[{index}].name: Invalid value: {resource.get('name')!r}: "
                "must be an extended resource such as example.com/device"
            )
    return ExtenderSettings(
        url_prefix=prefix.rstrip("/"),
        filter_verb=item.get("filterVerb") or "",
        preempt_verb=item.get("preemptVerb") or "",
        prioritize_verb=item.get("prioritizeVerb") or "",
        bind_verb=item.get("bindVerb") or "",
        weight=weight,
        timeout=_seconds(item.get("httpTimeout"), f"{path}.httpTimeout"),
        uses_https=bool(item.get("enableHTTPS")),
        tls=_parse_tls(item.get("tlsConfig") or {}),
        node_cache_capable=bool(item.get("nodeCacheCapable")),
        managed_resources=frozenset(resource["name"] for resource in managed),
        ignored_resources=frozenset(resource["name"] for resource in managed if resource.get("ignoredByScheduler")),
        ignorable=bool(item.get("ignorable")),
    )


def _check_together(extenders: Sequence[ExtenderSettings]) -> None:
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        raise InvalidExtender(
            f"extenders: found {binders} extenders implementing bind: only one extender can implement bind"
        )
    seen: set[str] = set()
    for extender in extenders:
        twice = seen & extender.managed_resources
        if twice:
            raise InvalidExtender(f"extenders: {min(twice)}: duplicate extender managed resource name")
        seen |= extender.managed_resources


def _seconds(text: str | None, path: str) -> float:
    if not text:
        return DEFAULT_TIMEOUT
    try:
        seconds = parse_duration(text).nanos / NANOS
    except ValueError as error:
        raise InvalidExtender(f"{path}: Invalid value: {text!r}: write a duration such as 5s") from error
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


def _parse_tls(item: Object) -> ExtenderTls:
    return ExtenderTls(
        insecure=bool(item.get("insecure")),
        server_name=item.get("serverName") or "",
        cert_file=item.get("certFile") or "",
        key_file=item.get("keyFile") or "",
        ca_file=item.get("caFile") or "",
        cert_data=base64.b64decode(item.get("certData") or ""),
        key_data=base64.b64decode(item.get("keyData") or ""),
        ca_data=base64.b64decode(item.get("caData") or ""),
    )
