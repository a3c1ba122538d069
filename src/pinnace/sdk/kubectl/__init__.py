"""kubectl plug-ins written in Python."""

from pinnace.sdk.kubectl.plugin_flags import names_of
from pinnace.sdk.kubectl.plugins import Plugin

__all__ = ["Plugin", "names_of"]
