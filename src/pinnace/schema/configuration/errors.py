"""The error of configuration files, apart from their parsers, which few clusters load."""

from __future__ import annotations


class ConfigurationError(Exception):
    """A configuration file cannot be used. The message names it and its errors."""
