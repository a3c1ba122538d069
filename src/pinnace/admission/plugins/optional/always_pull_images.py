"""Pulls images for each start of a container, so that only pods with the credentials of an image use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pinnace.admission.chain import WRITES
from pinnace.model import errors
from pinnace.model.field_errors import not_supported
from pinnace.model.typed_objects import PodSpec
from pinnace.model.write_review import Review

_LISTS = ("initContainers", "containers", "ephemeralContainers")


class AlwaysPullImages:
    """Sets the pull policy of all containers and image volumes to Always, except in updates without a new image."""

    interests = (("", "pods", WRITES),)

    def mutate(self, review: Review) -> None:
        if not _is_ignored(review):
            for holder, field, _ in _policies(review.changed["spec"]):
                holder[field] = "Always"

    def validate(self, review: Review) -> None:
        if _is_ignored(review):
            return
        wrong = [
            review.forbidden(str(not_supported(path, holder.get(field, ""), ["Always"]))).message
            for holder, field, path in _policies(review.changed["spec"])
            if holder.get(field) != "Always"
        ]
        if wrong:
            raise errors.UnknownError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def _policies(spec: PodSpec) -> Iterator[tuple[Any, str, str]]:
    """Yield the holder, the name and the path of each field with a pull policy."""
    fields: Any = spec
    for name in _LISTS:
        for number, container in enumerate(fields.get(name) or ()):
            yield container, "imagePullPolicy", f"spec.{name}[{number}].imagePullPolicy"
    for number, volume in enumerate(spec.get("volumes") or ()):
        if (image := volume.get("image")) is not None:
            yield image, "pullPolicy", f"spec.volumes[{number}].image.pullPolicy"


def _images(spec: PodSpec) -> set[str]:
    fields: Any = spec
    return {container.get("image", "") for name in _LISTS for container in fields.get(name) or ()}


def _is_ignored(review: Review) -> bool:
    if review.subresource:
        return True
    return review.old is not None and _images(review.changed["spec"]) <= _images(review.old["spec"])
