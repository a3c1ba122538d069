"""Plug-ins by name: a factory for each, which gets the plug-in's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pinnace.model.objects import Object
from pinnace.scheduler.framework.plugin import Handle, Plugin

Factory = Callable[[Object, Handle], Plugin]
"""Makes a plug-in from its arguments, as in `pluginConfig`. It raises ValueError for bad ones."""


class UnknownPlugin(ValueError):
    """A configuration names a plug-in that does not exist."""


class PluginRegistry:
    """The plug-ins that configurations can name."""

    def __init__(self, factories: Mapping[str, Factory] | None = None) -> None:
        self._factories = dict(factories or {})

    def add(self, name: str, factory: Factory) -> None:
        if name in self._factories:
            raise ValueError(f"a scheduler plug-in named {name} exists already; choose another name")
        self._factories[name] = factory

    def __contains__(self, name: str) -> bool:
        return name in self._factories

    def make(self, name: str, arguments: Object, handle: Handle) -> Plugin:
        factory = self._factories.get(name)
        if factory is None:
            raise UnknownPlugin(f"no scheduler plug-in is named {name}; choose from: {', '.join(self._factories)}")
        return factory(arguments, handle)
