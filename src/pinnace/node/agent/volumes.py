"""The volumes of a pod on this node: directories that the containers mount."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.agent.variables import ConfigSource, PodFields
from pinnace.node.runtime.errors import RuntimeFailure
from pinnace.node.runtime.runtime import TemporaryFileSystem

_DATA = "..data"


class MountFailed(RuntimeFailure):
    """A volume cannot be set up: the pod waits in ContainerCreating, and an Event FailedMount tells why."""

    reason = "FailedMount"


class VolumeObjects(ConfigSource, Protocol):
    async def token(self, namespace: str, account: str, pod: Object, request: Mapping[str, Any]) -> str:
        """A token of the pod's service account, which is bound to the pod."""


@dataclass(slots=True)
class PodVolumes:
    """The paths of the volumes on this node, by their names."""

    paths: dict[str, str] = field(default_factory=dict)
    memory: list[TemporaryFileSystem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int


async def set_up_volumes(directory: Path, facts: PodFields, source: VolumeObjects) -> PodVolumes:
    """Make or update every volume of the pod. Raise MountFailed."""
    made = PodVolumes()
    for volume in facts.pod["spec"].get("volumes") or ():
        name = volume["name"]
        path = directory / name
        try:
            if "hostPath" in volume:
                made.paths[name] = await asyncio.to_thread(_check_host_path, name, volume["hostPath"])
                continue
            made.paths[name] = str(path)
            if "emptyDir" in volume:
                _make_empty(path, volume["emptyDir"] or {}, made)
            else:
                files = await _files(volume, facts, source)
                await asyncio.to_thread(write_files, path, files)
        except OSError as error:
            raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error
    return made


def _make_empty(path: Path, empty: Mapping[str, Any], made: PodVolumes) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    if empty.get("medium") == "Memory":
        size = quantity.parse(str(empty.get("sizeLimit", "0"))).value
        made.memory.append(TemporaryFileSystem(str(path), size))


async def _files(volume: Object, facts: PodFields, source: VolumeObjects) -> Mapping[str, _File]:
    name = volume["name"]
    if "projected" in volume:
        projected = volume["projected"]
        files: dict[str, _File] = {}
        for one in projected.get("sources") or ():
            files |= await _from_source(name, one, projected.get("defaultMode", 0o644), facts, source)
        return files
    for kind in ("configMap", "secret", "downwardAPI"):
        if kind in volume:
            stated = dict(volume[kind])
            if kind == "secret":
                stated.setdefault("name", stated.get("secretName", ""))
            return await _from_source(name, {kind: stated}, stated.get("defaultMode", 0o644), facts, source)
    kinds = ", ".join(sorted(set(volume) - {"name"}))
    raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : volumes of the kind {kinds} are not supported')


async def _from_source(
    volume: str, one: Mapping[str, Any], mode: int, facts: PodFields, source: VolumeObjects
) -> dict[str, _File]:
    namespace = facts.pod["metadata"]["namespace"]
    if "serviceAccountToken" in one:
        wanted = one["serviceAccountToken"]
        account = facts.pod["spec"].get("serviceAccountName") or "default"
        token = await source.token(namespace, account, facts.pod, wanted)
        return {wanted["path"]: _File(token.encode(), 0o600 if _runs_as_root(facts.pod) else mode)}
    if "downwardAPI" in one:
        return {item["path"]: _downward(item, mode, facts) for item in one["downwardAPI"].get("items") or ()}
    for kind, word in (("configMap", "configmap"), ("secret", "secret")):
        if kind in one:
            stated = one[kind]
            name = stated.get("name", "")
            data = await (source.secret(namespace, name) if kind == "secret" else source.config_map(namespace, name))
            if data is None and not stated.get("optional"):
                raise MountFailed(f'MountVolume.SetUp failed for volume "{volume}" : {word} "{name}" not found')
            return _chosen(volume, stated, data or {}, mode)
    kinds = ", ".join(one)
    raise MountFailed(f'MountVolume.SetUp failed for volume "{volume}" : projections of {kinds} are not supported')


def _runs_as_root(pod: Object) -> bool:
    return not (pod["spec"].get("securityContext") or {}).get("runAsUser")


def _chosen(volume: str, stated: Mapping[str, Any], data: Mapping[str, bytes], mode: int) -> dict[str, _File]:
    items = stated.get("items")
    if items is None:
        return {key: _File(content, mode) for key, content in data.items()}
    files = {}
    for item in items:
        if item["key"] not in data:
            if stated.get("optional"):
                continue
            raise MountFailed(
                f'MountVolume.SetUp failed for volume "{volume}" : references non-existent config key: {item["key"]}'
            )
        files[item["path"]] = _File(data[item["key"]], item.get("mode", mode))
    return files


def _downward(item: Mapping[str, Any], mode: int, facts: PodFields) -> _File:
    if "fieldRef" in item:
        text = facts.field(item["fieldRef"]["fieldPath"])
    else:
        text = facts.resource({}, item["resourceFieldRef"])
    return _File(text.encode(), item.get("mode", mode))


def _check_host_path(name: str, stated: Mapping[str, Any]) -> str:
    """Check the type of a hostPath, and make what it allows to make."""
    path, kind = Path(stated["path"]), stated.get("type", "")
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    checks = {
        "": path.exists,
        "DirectoryOrCreate": path.is_dir,
        "Directory": path.is_dir,
        "FileOrCreate": path.is_file,
        "File": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if not checks[kind]():
        if not kind:  # As container engines do.
            path.mkdir(parents=True, exist_ok=True)
        else:
            words = {"Directory": "a directory", "File": "a file", "Socket": "a socket file"}
            raise MountFailed(
                f'MountVolume.SetUp failed for volume "{name}" : hostPath type check failed: {path} is not '
                f"{words.get(kind, kind)}"
            )
    return str(path)


def write_files(path: Path, files: Mapping[str, _File]) -> None:
    """Replace the files of a volume at once, as kubelet does: a new directory behind the link `..data`."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)
    current = path / _DATA
    if current.exists() and _same(current, files):
        return
    fresh = path / f"..{secrets.token_hex(8)}"
    fresh.mkdir()
    for name, file in files.items():
        target = fresh / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    old = os.readlink(current) if current.is_symlink() else ""
    link = path / f"..link-{secrets.token_hex(4)}"
    link.symlink_to(fresh.name)
    link.replace(current)
    wanted = {name.partition("/")[0] for name in files}
    for name in wanted:
        if not (path / name).is_symlink():
            (path / name).symlink_to(f"{_DATA}/{name}")
    for entry in path.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
    if old:
        shutil.rmtree(path / old, ignore_errors=True)


def _same(current: Path, files: Mapping[str, _File]) -> bool:
    resolved = current.resolve()
    present = {str(one.relative_to(resolved)) for one in resolved.rglob("*") if one.is_file()}
    return present == set(files) and all((resolved / name).read_bytes() == file.content for name, file in files.items())


def fs_group_of(pod: Object) -> int | None:
    found = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return int(found) if found is not None else None


def give_to_group(paths: Sequence[str], group: int) -> None:
    """Let a group own the volumes of a pod: its fsGroup. An ordinary user has one group, and nothing changes."""
    for top in paths:
        for place, directories, files in os.walk(top):
            for name in [*directories, *files]:
                os.chown(os.path.join(place, name), -1, group, follow_symlinks=False)
            os.chown(place, -1, group)
            os.chmod(place, os.stat(place).st_mode | 0o2070)
