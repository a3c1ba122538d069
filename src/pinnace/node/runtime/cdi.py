"""The Container Device Interface: files on the machine that say what a container needs to use a device.

A name such as vendor.com/gpu=0 is looked up in the files of the directories; the edits of the file and of the device
are added to the configuration of the container. Edits that this runtime cannot do, such as hooks, are refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pinnace.node.errors import CreateFailed
from pinnace.node.runtime.runtime import ContainerConfig, Mount

DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The directories of the files. Those of a later one win."""
_MOST_FILES = 1000
_MOST_BYTES = 4 << 20
_REFUSED = ("hooks", "intelRdt", "netDevices")
_MOUNT_OPTIONS = frozenset(("nodev", "noexec", "nosuid"))
_FAILED = "failed to generate container spec: CDI device injection failed: "
_Edits = Mapping[str, Any]


class _BadFile(ValueError):
    """A file is not of the interface."""


def add_devices(config: ContainerConfig, directories: Sequence[Path] = DIRECTORIES) -> ContainerConfig:
    """Return the configuration with the edits of its devices. Raise CreateFailed."""
    if not config.cdi_devices:
        return config
    known = _devices_in(directories)
    missing = [name for name in config.cdi_devices if known.get(name) is None]
    if missing:
        raise CreateFailed(f"{_FAILED}unresolvable CDI devices {', '.join(missing)}")
    of_files: dict[int, _Edits] = {}
    environment = dict(config.environment)
    mounts, groups = list(config.mounts), list(config.security.supplemental_groups)
    for name in config.cdi_devices:
        whole, own = known[name] or ({}, {})
        for edits in (own,) if id(whole) in of_files else (whole, own):  # Those of a file once.
            try:
                environment |= _environment(edits)
                mounts += _mounts(edits)
                groups += [int(group) for group in _list(edits, "additionalGids")]
            except (_BadFile, TypeError, ValueError, AttributeError, KeyError) as error:
                raise CreateFailed(f"{_FAILED}{name}: {error}") from None
        of_files[id(whole)] = whole
    security = replace(config.security, supplemental_groups=groups)
    return replace(config, environment=list(environment.items()), mounts=mounts, security=security)


def _devices_in(directories: Sequence[Path]) -> dict[str, tuple[_Edits, _Edits] | None]:
    """Return the edits of the file and of the device by name; None for one that two files of a directory describe."""
    known: dict[str, tuple[_Edits, _Edits] | None] = {}
    for directory in directories:
        of_directory: dict[str, tuple[_Edits, _Edits] | None] = {}
        for path in _files_in(directory):
            try:
                for name, edits in list(_devices_of(path)):
                    of_directory[name] = None if name in of_directory else edits
            except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError, RecursionError):
                continue  # Devices that it alone has are unresolvable.
        known |= of_directory
    return known


def _files_in(directory: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(directory))[:_MOST_FILES]
    except OSError:
        return []
    return [directory / name for name in names if name.endswith((".json", ".yaml", ".yml"))]


def _devices_of(path: Path) -> Iterator[tuple[str, tuple[_Edits, _Edits]]]:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as reader:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise _BadFile("it is no file")
        content = reader.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _BadFile("it is too large")
    spec = yaml.load(content, Loader=yaml.CSafeLoader)
    if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str) or "cdiVersion" not in spec:
        raise _BadFile("it has no kind and version")
    whole = _object(spec, "containerEdits")
    for device in _list(spec, "devices"):
        yield f"{spec['kind']}={device['name']}", (whole, _object(device, "containerEdits"))


def _environment(edits: _Edits) -> dict[str, str]:
    pairs = [str(pair).partition("=") for pair in _list(edits, "env")]
    if any(not name or not equals for name, equals, _ in pairs):
        raise _BadFile("a variable has no name or value")
    return {name: value for name, _, value in pairs}


def _mounts(edits: _Edits) -> Iterator[Mount]:
    for name in _REFUSED:
        if edits.get(name):
            raise _BadFile(f"this node does not support {name}")
    for node in _list(edits, "deviceNodes"):
        path = _absolute(node["path"])
        source = _absolute(node.get("hostPath") or path)
        permissions = node.get("permissions") or "rwm"
        if "r" not in permissions or "w" not in permissions:
            raise _BadFile(f"this node cannot limit {source} to {permissions!r}")
        mode = os.stat(source).st_mode if os.path.exists(source) else 0
        if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
            raise _BadFile(f"{source} is not a device node")
        yield Mount(container_path=path, host_path=source, is_device=True)
    for mount in _list(edits, "mounts"):
        options = [str(option) for option in _list(mount, "options")]
        if mount.get("type", "") not in ("", "bind", "none"):
            raise _BadFile(f"a mount of the type {mount['type']} is not supported")
        source = _absolute(mount["hostPath"])
        if not os.path.exists(source):
            raise _BadFile(f"{source} does not exist")
        yield Mount(
            container_path=_absolute(mount["containerPath"]),
            host_path=source,
            read_only="ro" in options,
            options=[option for option in options if option in _MOUNT_OPTIONS],
        )


def _absolute(path: object) -> str:
    text = str(path)
    if not text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise _BadFile(f"the path {text!r} is not absolute")
    return text


def _list(value: _Edits, name: str) -> Sequence[Any]:
    items = value.get(name) or ()
    if not isinstance(items, list | tuple):
        raise _BadFile(f"{name} is not a list")
    return items


def _object(value: _Edits, name: str) -> _Edits:
    content = value.get(name) or {}
    if not isinstance(content, dict):
        raise _BadFile(f"{name} is not an object")
    return content
