"""The extended resources that device classes stand for: a pod may request devices as it requests example.com/gpu."""

from __future__ import annotations

from collections.abc import Mapping

from pinnace.model.typed_objects import DeviceClass
from pinnace.scheduler.state.lookups import Lookups

_PREFIX = "deviceclass.resource.kubernetes.io/"


def implicit_resource(class_name: str) -> str:
    """Return the extended resource that every device class has."""
    return _PREFIX + class_name


class DeviceClassNames:
    """The device class of each extended resource. It follows the lookups."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._version = -1
        self._known: dict[str, str] = {}

    def by_resource(self) -> Mapping[str, str]:
        """Return the names of the classes by resource: every class has an implicit one, and some name another.

        If two classes name the same resource, the newer one has it; of two of the same age the one with the lower name.
        """
        version = self._lookups.version("DeviceClass")
        if version != self._version:
            self._version, self._known = version, self._read()
        return self._known

    def _read(self) -> dict[str, str]:
        known: dict[str, str] = {}
        classes = sorted(
            self._lookups.all(DeviceClass), key=lambda device_class: str(device_class["metadata"]["name"]), reverse=True
        )
        for device_class in sorted(
            classes, key=lambda device_class: str(device_class["metadata"].get("creationTimestamp") or "")
        ):
            name = device_class["metadata"]["name"]
            known[implicit_resource(name)] = name
            if resource := (device_class.get("spec") or {}).get("extendedResourceName"):
                known[resource] = name
        return known
