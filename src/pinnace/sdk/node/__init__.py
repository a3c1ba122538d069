"""Plug-ins of nodes: devices that pods ask for as a resource."""

from pinnace.sdk.node.device_plugin import Allocation, Device, DeviceNode, DevicePlugin, MountedPath

__all__ = ["Allocation", "Device", "DeviceNode", "DevicePlugin", "MountedPath"]
