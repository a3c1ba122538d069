"""Which versions of the built-in APIs are served: the defaults, changed as kube-apiserver's --runtime-config."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_STAGES = {
    "api/all": re.compile(""),
    "api/ga": re.compile(r"v\d+\Z"),
    "api/beta": re.compile(r"v\d+beta\d+\Z"),
    "api/alpha": re.compile(r"v\d+alpha\d+\Z"),
}
_BOOLEANS = {
    **dict.fromkeys(("", "1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class InvalidRuntimeConfig(ValueError):
    """The text switches no API on or off; the message is Kubernetes'."""


class RuntimeConfig:
    """Which versions and resources are switched on or off: a resource before its version, a version before a stage."""

    def __init__(self, values: Mapping[str, bool] | None = None) -> None:
        self._values = dict(values or {})

    @classmethod
    def parse(cls, text: str) -> RuntimeConfig:
        """Read "api/beta=true,apps/v1=false". Raise InvalidRuntimeConfig."""
        values = {}
        for pair in filter(None, text.split(",")):
            key, _, value = (part.strip() for part in pair.partition("="))
            if key == "v1":
                key = "core/v1"
            parts = key.split("/")
            if key not in _STAGES and len(parts) not in (2, 3):
                raise InvalidRuntimeConfig(f"runtime-config invalid key {key}")
            if value not in _BOOLEANS or (key in _STAGES and not value):
                reason = f'strconv.ParseBool: parsing "{value}": invalid syntax'
                raise InvalidRuntimeConfig(f"invalid value of {key}: {value}, err: {reason}")
            if len(parts) == 3 and parts[2] != parts[2].lower():
                rule = "group/version/resource and resource is always lowercase plural"
                raise InvalidRuntimeConfig(f'invalid key {key}: {rule}, not "{parts[2]}"')
            values[key] = _BOOLEANS[value]
        if values == {"api/all": False}:
            raise InvalidRuntimeConfig("invalid runtime-config with only api/all=false")
        return cls(values)

    def check(self, versions: Collection[str]) -> None:
        """Refuse versions that do not exist, such as apps/v7. Raise InvalidRuntimeConfig."""
        groups = {version.partition("/")[0] for version in versions}
        named = {"/".join(key.split("/")[:2]) for key in self._values if key not in _STAGES}
        unknown = sorted(version for version in named if version.partition("/")[0] not in groups)
        if unknown:
            raise InvalidRuntimeConfig(f"unknown api groups {','.join(unknown)}")
        for version in sorted(named - set(versions)):
            raise InvalidRuntimeConfig(f"group version {version} that has not been registered")

    def serves(self, group: str, version: str, plural: str, *, by_default: bool) -> bool:
        """Return whether a resource is served in a version."""
        if not self._values:
            return by_default
        group_version = f"{group or 'core'}/{version}"
        for key in (f"{group_version}/{plural}", group_version):
            if key in self._values:
                return self._values[key]
        matching = (key for key, pattern in _STAGES.items() if pattern.match(version))
        values = [self._values[key] for key in matching if key in self._values]
        return values[-1] if values else by_default

    def __str__(self) -> str:
        return ",".join(f"{key}={str(value).lower()}" for key, value in sorted(self._values.items()))
