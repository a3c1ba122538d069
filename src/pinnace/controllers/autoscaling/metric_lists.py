"""The lists that the metrics APIs answer with: decoded straight into the fields that autoscalers need.

Fields that are absent or null have the same meaning, as in Go, but for a value: none is not zero. Amounts are parsed
later, by a parser that has Kubernetes' messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pinnace.client.exchange import decode_object

Item = TypeVar("Item")


class ContainerUsage(msgspec.Struct, gc=False, frozen=True):
    """The usage of one container, by resource."""

    name: str
    usage: dict[str, Any] | None = None


class _Named(msgspec.Struct, gc=False, frozen=True):
    name: str


class PodUsage(msgspec.Struct, gc=False, frozen=True):
    """An item of a PodMetricsList."""

    metadata: _Named
    timestamp: str | None = None
    window: str | None = None
    containers: list[ContainerUsage] | None = None


class MetricValue(msgspec.Struct, gc=False, frozen=True):
    """An item of a MetricValueList (v1beta1 has `window`) or of an ExternalMetricValueList."""

    value: Any
    timestamp: str | None = None
    windowSeconds: float | None = None
    window: float | None = None
    describedObject: _Named | None = None

    @property
    def described(self) -> str:
        """The name of the object that has the value. Raise BadList if there is none."""
        if self.describedObject is None:
            raise BadList("the list cannot be read: expected describedObject in every item")
        return self.describedObject.name


class BadList(ValueError):
    """A list does not have the fields of its kind."""


class _Usages(msgspec.Struct, gc=False):
    items: list[PodUsage] | None = None


class _Values(msgspec.Struct, gc=False):
    items: list[MetricValue] | None = None


def decode_usages(body: bytes) -> list[PodUsage]:
    """Return the items of a PodMetricsList. Raise BadList, or Unavailable for an answer that is no object."""
    return _decode(_decode_usages, body).items or []


def decode_values(body: bytes) -> list[MetricValue]:
    """Return the items of a list of custom or external metrics. Raise as `decode_usages`."""
    return _decode(_decode_values, body).items or []


_decode_usages = msgspec.json.Decoder(_Usages).decode
_decode_values = msgspec.json.Decoder(_Values).decode


def _decode(decode: Callable[[bytes], Item], body: bytes) -> Item:
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        item: Any = decode_object(body)  # Raises for an answer that is no object.
        raise BadList(f"{item.get('kind') or 'the list'} cannot be read: {error}") from None
