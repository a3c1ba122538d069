"""Applies the LimitRanges of a namespace: defaults for containers, and limits on requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.admission.chain import CREATE, WRITES
from pinnace.admission.sources import KeptByNamespace
from pinnace.kinds.pods.resource_amounts import Side, sum_of
from pinnace.model.objects import NOTHING, AnyObject
from pinnace.model.quantity import Quantity, parse
from pinnace.model.typed_objects import Container, LimitRangeItem, PersistentVolumeClaim, Pod, PodSpec
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

ANNOTATION = "kubernetes.io/limit-ranger"
_OF_PODS = ("cpu", "memory")

Amounts = Mapping[str, Quantity]


class LimitRanger:
    interests = (("", "pods", WRITES), ("", "persistentvolumeclaims", WRITES))

    def __init__(self, limit_ranges: WatchedObjects) -> None:
        self._ranges = KeptByNamespace(limit_ranges)

    def mutate(self, review: Review) -> None:
        if not self._ranges.has(review.namespace) or review.resource.plural != "pods" or not _is_selected(review):
            return
        for limit_range in self._ranges.of(review.namespace):
            _give_defaults(review.changed, _limits(limit_range))

    def validate(self, review: Review) -> None:
        if not self._ranges.has(review.namespace) or not _is_selected(review):
            return
        errors_of = _validate_pod if review.resource.plural == "pods" else _validate_claim
        for limit_range in self._ranges.of(review.namespace):
            errs = list(dict.fromkeys(errors_of(review.changed, _limits(limit_range))))
            if errs:
                raise review.forbidden(errs[0] if len(errs) == 1 else f"[{', '.join(errs)}]")


def _is_selected(review: Review) -> bool:
    if review.old is not None and "deletionTimestamp" in review.old["metadata"]:
        return False
    if review.resource.plural == "pods":
        resizes = review.subresource == "resize" and review.operation == "UPDATE"
        return resizes or (not review.subresource and review.operation in CREATE)
    return not review.subresource


def _limits(limit_range: AnyObject) -> list[LimitRangeItem]:
    return (limit_range.get("spec") or {}).get("limits") or []


def _give_defaults(pod: Pod, limits: list[LimitRangeItem]) -> None:
    given: dict[Side, dict[str, Any]] = {"limits": {}, "requests": {}}
    for limit in limits:
        if limit.get("type") == "Container":
            given["limits"] |= limit.get("default") or {}
            given["requests"] |= limit.get("defaultRequest") or {}
    spec = pod.get("spec") or {}
    notes: list[str] = []
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            notes += _give(container, given, "container" if field == "containers" else "init container")
    if notes:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}


def _give(container: Container, given: dict[Side, dict[str, Any]], what: str) -> Iterator[str]:
    resources = container.setdefault("resources", {})
    missing = {
        field: {name: amount for name, amount in defaults.items() if name not in (resources.get(field) or {})}
        for field, defaults in given.items()
    }
    for field in ("requests", "limits"):
        if missing[field]:
            resources[field] = {**(resources.get(field) or {}), **missing[field]}
            yield f"{', '.join(sorted(missing[field]))} {field[:-1]} for {what} {container.get('name', '')}"


def _validate_pod(pod: Pod, limits: list[LimitRangeItem]) -> Iterator[str]:
    spec = pod.get("spec") or NOTHING
    for limit in limits:
        kind = limit.get("type", "")
        if kind == "Container":
            for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
                resources = container.get("resources") or {}
                requests, most = _amounts(resources.get("requests")), _amounts(resources.get("limits"))
                yield from _errs(kind, limit, requests, most)
        elif kind == "Pod":
            yield from _errs(kind, limit, _of_pod(spec, "requests"), _of_pod(spec, "limits"))


def _validate_claim(claim: PersistentVolumeClaim, limits: list[LimitRangeItem]) -> Iterator[str]:
    requests = _amounts(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
    for limit in limits:
        kind = limit.get("type", "")
        if kind != "PersistentVolumeClaim":
            continue
        for name, least in sorted(_amounts(limit.get("min")).items()):
            yield from _too_little(kind, name, least, requests, {})
        for name, most in sorted(_amounts(limit.get("max")).items()):
            if name not in requests:
                yield f"maximum {name} usage per {kind} is {most}.  No request is specified"
            elif requests[name] > most:
                yield f"maximum {name} usage per {kind} is {most}, but request is {requests[name]}"


def _errs(kind: str, limit: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in sorted(_amounts(limit.get("min")).items()):
        yield from _too_little(kind, name, least, requests, limits)
    for name, most in sorted(_amounts(limit.get("max")).items()):
        yield from _too_much(kind, name, most, requests, limits)
    for name, ratio in sorted(_amounts(limit.get("maxLimitRequestRatio")).items()):
        yield from _too_far_apart(kind, name, ratio, requests, limits)


def _too_little(kind: str, name: str, least: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    bound = f"minimum {name} usage per {kind} is {least}"
    if name not in requests:
        yield f"{bound}.  No request is specified"
    elif requests[name] < least:
        yield f"{bound}, but request is {requests[name]}"
    elif name in limits and limits[name] < least:
        yield f"{bound}, but limit is {limits[name]}"


def _too_much(kind: str, name: str, most: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    bound = f"maximum {name} usage per {kind} is {most}"
    if name not in limits:
        yield f"{bound}.  No limit is specified"
    elif limits[name] > most:
        yield f"{bound}, but limit is {limits[name]}"
    elif name in requests and requests[name] > most:
        yield f"{bound}, but request is {requests[name]}"


def _too_far_apart(kind: str, name: str, ratio: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    bound = f"{name} max limit to request ratio per {kind} is {ratio}"
    if not requests.get(name):
        yield f"{bound}, but no request is specified or request is 0"
    elif not limits.get(name):
        yield f"{bound}, but no limit is specified or limit is 0"
    elif (actual := limits[name].ratio_to(requests[name])) > ratio:
        yield f"{bound}, but provided ratio is {float(actual.amount):f}"


def _of_pod(spec: PodSpec, what: Side) -> Amounts:
    total = sum_of(spec, what)
    for name, amount in _amounts((spec.get("resources") or {}).get(what)).items():
        if name in _OF_PODS:
            total[name] = amount
    return total


def _amounts(amounts: Mapping[str, Any] | None) -> dict[str, Quantity]:
    return {name: parse(amount) for name, amount in (amounts or {}).items()}
