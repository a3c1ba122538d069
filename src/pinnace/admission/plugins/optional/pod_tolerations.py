"""Plug-ins that add tolerations: those of a namespace, which may also limit them, and those of extended resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pinnace.admission.chain import WRITES
from pinnace.admission.plugins.runtime_class import implies, merge_tolerations
from pinnace.kinds.pods.resource_amounts import is_extended, qos_class
from pinnace.model import errors
from pinnace.model.typed_objects import PodSpec, Toleration
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
PERMITTED = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_MOST = 200
"""Each toleration of a pod is compared with each other one and with each permitted one."""
_TEXTS = ("key", "operator", "value", "effect")
_MEMORY_PRESSURE: Toleration = {
    "key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TolerationSettings:
    """The tolerations for namespaces without the annotations."""

    default: tuple[Toleration, ...] = ()
    permitted: tuple[Toleration, ...] = ()
    """Empty to permit all."""


class PodTolerationRestriction:
    interests = (("", "pods", WRITES),)

    def __init__(self, namespaces: WatchedObjects, settings: TolerationSettings) -> None:
        self._namespaces = namespaces
        self._settings = settings

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec: PodSpec = review.changed["spec"]
        added: list[Toleration] = []
        if review.operation == "CREATE":
            own = self._annotated(review.namespace, DEFAULTS)
            added += self._settings.default if own is None else own
        if qos_class(spec) != "BestEffort":
            added.append(_MEMORY_PRESSURE.copy())
        if added:
            merged = [*(spec.get("tolerations") or []), *added]
            _check_number(review, merged)
            spec["tolerations"] = merge_tolerations(merged)
        self.validate(review)

    def validate(self, review: Review) -> None:
        if review.subresource:
            return
        tolerations = review.changed["spec"].get("tolerations")
        if not tolerations:
            return
        own = self._annotated(review.namespace, PERMITTED)
        permitted, scope = (self._settings.permitted, "cluster") if own is None else (own, "namespace")
        if not permitted:
            return
        _check_number(review, tolerations)
        _check_number(review, permitted)
        for toleration in tolerations:
            if not any(implies(allowed, toleration) for allowed in permitted):
                merged = "pod tolerations (possibly merged with namespace default tolerations)"
                raise errors.UnknownError(f"{merged} conflict with its {scope} whitelist")

    def _annotated(self, name: str, annotation: str) -> Sequence[Toleration] | None:
        """Return the tolerations of an annotation of a namespace; None without it."""
        namespace = self._namespaces.get(name)
        if namespace is None:
            raise errors.NotFound(group="", plural="namespaces", name=name)
        text = (namespace["metadata"].get("annotations") or {}).get(annotation)
        return None if text is None else _parse(text, annotation) if text else []


def _check_number(review: Review, tolerations: Sequence[Toleration]) -> None:
    if len(tolerations) > _MOST:
        raise review.forbidden(f"pod and namespace have more than {_MOST} tolerations")


def _parse(text: str, annotation: str) -> list[Toleration]:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise errors.UnknownError(f"annotation {annotation} of the namespace is not JSON: {error}") from None
    if not isinstance(parsed, list) or not all(_is_toleration(item) for item in parsed):
        raise errors.UnknownError(f"annotation {annotation} of the namespace is not a list of tolerations")
    return [_known_fields(item) for item in parsed]


def _known_fields(item: Any) -> Toleration:
    names = (*_TEXTS, "tolerationSeconds")
    known: Any = {name: item[name] for name in names if item.get(name) not in (None, "")}
    toleration: Toleration = known
    return toleration


def _is_toleration(item: Any) -> bool:
    if not isinstance(item, dict) or not all(isinstance(item.get(name), str | None) for name in _TEXTS):
        return False
    seconds = item.get("tolerationSeconds")
    return seconds is None or (isinstance(seconds, int) and not isinstance(seconds, bool) and abs(seconds) < 2**63)


class ExtendedResourceToleration:
    """Lets pods that request an extended resource tolerate the taint of the same name."""

    interests = (("", "pods", WRITES),)

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec: PodSpec = review.changed["spec"]
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        requests = [(container.get("resources") or {}).get("requests") or {} for container in containers]
        for name in sorted({name for requested in requests for name in requested if is_extended(name)}):
            _tolerate(spec, {"key": name, "operator": "Exists", "effect": "NoSchedule"})


def _tolerate(spec: PodSpec, wanted: Toleration) -> None:
    """Add a toleration, in the place of one that differs from it in its seconds alone."""
    tolerations: list[Toleration] = []
    is_placed = False
    for toleration in spec.get("tolerations") or ():
        if toleration == wanted:
            return
        is_same = all(toleration.get(name, "") == wanted.get(name, "") for name in _TEXTS)
        tolerations.append(wanted if is_same else toleration)
        is_placed = is_placed or is_same
    spec["tolerations"] = tolerations if is_placed else [*tolerations, wanted]
