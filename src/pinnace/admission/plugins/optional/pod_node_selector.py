"""Gives pods the node selector of their namespace, and keeps them to the labels that are permitted there."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.admission.chain import CREATE
from pinnace.model import errors
from pinnace.model.field_errors import invalid
from pinnace.model.names import label_value, qualified_name
from pinnace.model.typed_objects import Pod
from pinnace.model.watched_objects import WatchedObjects
from pinnace.model.write_review import Review

ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
DEFAULT = "clusterDefaultNodeSelector"
"""The key of the selector for namespaces without the annotation."""


class PodNodeSelector:
    interests = (("", "pods", CREATE),)

    def __init__(self, namespaces: WatchedObjects, selectors: Mapping[str, str]) -> None:
        """`selectors`: the default, and the permitted labels by namespace."""
        self._namespaces = namespaces
        self._selectors = selectors

    def mutate(self, review: Review) -> None:
        if review.subresource:
            return
        spec, wanted = review.changed["spec"], self._selector_of(review.namespace)
        _check_conflicts(review.changed, wanted)
        if wanted:
            spec["nodeSelector"] = {**wanted, **(spec.get("nodeSelector") or {})}
        self.validate(review)

    def validate(self, review: Review) -> None:
        if review.subresource:
            return
        pod: Pod = review.changed
        _check_conflicts(pod, self._selector_of(review.namespace))
        permitted = parse_selector(self._selectors.get(review.namespace, ""))
        selected = pod["spec"].get("nodeSelector") or {}
        if permitted and any(permitted.get(key) != value for key, value in selected.items()):
            raise _refusal(pod, "pod node label selector labels conflict with its namespace whitelist")

    def _selector_of(self, name: str) -> dict[str, str]:
        namespace = self._namespaces.get(name)
        if namespace is None:
            raise errors.InternalError(f"namespace {name} does not exist")
        annotations = namespace["metadata"].get("annotations") or {}
        return parse_selector(annotations.get(ANNOTATION, self._selectors.get(DEFAULT, "")))


def parse_selector(text: str) -> dict[str, str]:
    """Return the labels of "a=b,c=d". Raise UnknownError, as Kubernetes does."""
    labels: dict[str, str] = {}
    for label in text.split(",") if text else ():
        parts = label.split("=")
        if len(parts) != 2:
            raise errors.UnknownError(f"invalid selector: [{' '.join(parts)}]")
        key, value = parts[0].strip(), parts[1].strip()
        if wrong := qualified_name(key):
            raise errors.UnknownError(str(invalid("<nil>", key, "; ".join(wrong))))
        if wrong := label_value(value):
            raise errors.UnknownError(str(invalid("<nil>", value, "; ".join(wrong))))
        labels[key] = value
    return labels


def _check_conflicts(pod: Pod, wanted: Mapping[str, str]) -> None:
    selected = pod["spec"].get("nodeSelector") or {}
    if any(selected.get(key, value) != value for key, value in wanted.items()):
        raise _refusal(pod, "pod node label selector conflicts with its namespace node label selector")


def _refusal(pod: Pod, why: str) -> errors.Forbidden:
    return errors.Forbidden(why, plural="pods", name=pod["metadata"].get("name", ""))
