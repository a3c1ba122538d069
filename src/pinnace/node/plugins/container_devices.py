"""The environment, mounts and devices that the plug-ins of a container's devices ask for."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pinnace.model.node_plugins.device_plugin import ContainerAllocateResponse, DeviceSpec, PluginMount
from pinnace.node.errors import CreateFailed
from pinnace.node.runtime.runtime import Mount

Value = TypeVar("Value")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceEdits:
    """The changes of a container's configuration."""

    environment: Sequence[tuple[str, str]] = ()
    """Variables of the container's own have precedence."""
    mounts: Sequence[Mount] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()


NO_EDITS = DeviceEdits()


def devices_for(responses: Iterable[ContainerAllocateResponse]) -> DeviceEdits:
    """Combine the answers of plug-ins; of two that contradict each other, the first holds. Raise CreateFailed."""
    environment: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, Mount] = {}
    cdi_devices: dict[str, None] = {}
    for response in responses:
        for name, value in response.envs.items():
            _add(environment, name, value, "the environment variable")
        for mount in response.mounts:
            _add(mounts, mount.container_path, _mount_of(mount), "the mount")
        for device in response.devices:
            _add(devices, device.container_path, _device_of(device), "the device")
        for name, value in response.annotations.items():
            _add(annotations, name, value, "the annotation")
        cdi_devices |= dict.fromkeys(device.name for device in response.cdi_devices)
    return DeviceEdits(list(environment.items()), [*mounts.values(), *devices.values()], annotations, list(cdi_devices))


def _add(known: dict[str, Value], name: str, value: Value, what: str) -> None:
    if known.setdefault(name, value) != value:
        _log.error("device plug-ins contradict each other about %s %r of a container", what, name)


def _mount_of(mount: PluginMount) -> Mount:
    _check_path(mount.container_path)
    _check_path(mount.host_path)
    if not os.path.exists(mount.host_path):
        raise CreateFailed(f"failed to generate container spec: failed to stat {mount.host_path}: no such file")
    return Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)


def _device_of(device: DeviceSpec) -> Mount:
    _check_path(device.container_path)
    _check_path(device.host_path)
    failed = "failed to generate container spec: "
    try:
        mode = os.stat(device.host_path).st_mode
    except OSError as error:
        raise CreateFailed(f"{failed}lstat {device.host_path}: {(error.strerror or '').lower()}") from None
    if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        raise CreateFailed(f"{failed}{device.host_path}: not a device node")
    if "w" not in device.permissions or "r" not in device.permissions:
        raise CreateFailed(f"{failed}{device.host_path}: this node cannot limit a device to {device.permissions!r}")
    return Mount(container_path=device.container_path, host_path=device.host_path, is_device=True)


def _check_path(path: str) -> None:
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise CreateFailed(f"failed to generate container spec: the path {path!r} of a device plug-in is not absolute")
