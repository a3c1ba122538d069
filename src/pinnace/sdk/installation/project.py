"""The settings of an operator's project, in `[tool.pinnace]` of its pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinnace.sdk.resources.spelling import nearest

_KEYS = ("namespace", "image", "replicas", "env", "args", "resources", "service_monitor")


class BadSettings(ValueError):
    """`[tool.pinnace]` has a setting that does not exist, or a value of the wrong type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The defaults of `pinnace manifests` for one project."""

    namespace: str = "default"
    image: str = ""
    replicas: int = 1
    env: dict[str, str] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)
    service_monitor: bool = False


def find_project(start: Path) -> Path | None:
    """Return the directory of the pyproject.toml of a file: its own, or the nearest above it."""
    for directory in (start.resolve(), *start.resolve().parents):
        if (directory / "pyproject.toml").is_file():
            return directory
    return None


def read_settings(root: Path | None) -> ProjectSettings:
    """Return the settings of a project. Raise BadSettings with the nearest right name."""
    if root is None:
        return ProjectSettings()
    try:
        table = tomllib.loads((root / "pyproject.toml").read_text()).get("tool", {}).get("pinnace", {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{root / 'pyproject.toml'} cannot be read: {error}") from None
    settings = {name.replace("-", "_"): value for name, value in table.items()}
    for name, value in settings.items():
        if name not in _KEYS:
            raise BadSettings(f"[tool.pinnace] has no setting {name}{nearest(name, _KEYS)}")
        wanted = type(getattr(ProjectSettings(), name))
        if type(value) is not wanted:
            raise BadSettings(f"[tool.pinnace] {name} = {value!r}: write a {wanted.__name__}")
    return ProjectSettings(**settings)


def has_build(root: Path | None) -> bool:
    """Return whether a project can be installed with pip: its pyproject.toml has a [project] table."""
    if root is None:
        return False
    try:
        return "project" in tomllib.loads((root / "pyproject.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return False
