"""The interface by which a plug-in registers with a node: `pluginregistration` v1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pinnace.process.grpc.messages import Message, flag, text, texts
from pinnace.process.grpc.methods import Method

_SERVICE = "pluginregistration.Registration"

CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN = "CSIPlugin", "DevicePlugin", "DRAPlugin"
"""The types of plug-ins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoRequest(Message):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo(Message):
    type: str = text(1)
    name: str = text(2)
    endpoint: str = text(3)
    """The path of the socket of the plug-in; empty for the one that answers."""
    supported_versions: Sequence[str] = texts(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationStatus(Message):
    plugin_registered: bool = flag(1)
    error: str = text(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationStatusResponse(Message):
    pass


GET_INFO = Method(_SERVICE, "GetInfo", InfoRequest, PluginInfo)
NOTIFY_REGISTRATION_STATUS = Method(
    _SERVICE, "NotifyRegistrationStatus", RegistrationStatus, RegistrationStatusResponse
)
