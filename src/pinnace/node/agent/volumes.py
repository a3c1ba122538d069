"""The volumes of a pod on this node: directories that the containers mount."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.agent.host_volumes import MountFailed, check_host_path, path_of_claim
from pinnace.node.agent.variables import ConfigSource, PodFields, all_containers
from pinnace.node.runtime.embedded.mapped_root import MappedWorkFailed, has_mapped_root, run_as_mapped_root
from pinnace.node.runtime.embedded.root_file_systems import give_to_group
from pinnace.node.runtime.runtime import TemporaryFileSystem

_DATA = "..data"


class VolumeObjects(ConfigSource, Protocol):
    async def token(self, namespace: str, account: str, pod: Object, request: Mapping[str, Any]) -> str:
        """A token of the pod's service account, which is bound to the pod."""

    async def claim(self, namespace: str, name: str) -> Object | None:
        """A PersistentVolumeClaim; None if there is none, or if the pod may not use it yet."""

    async def volume(self, name: str) -> Object | None:
        """A PersistentVolume."""


@dataclass(slots=True)
class PodVolumes:
    """The paths of the volumes on this node, by their names."""

    paths: dict[str, str] = field(default_factory=dict)
    memory: list[TemporaryFileSystem] = field(default_factory=list)
    owned: list[str] = field(default_factory=list)
    """The directories that the fsGroup of the pod owns."""
    images: dict[str, Object] = field(default_factory=dict)
    """The image volumes: a container that mounts one pulls it when it starts."""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    mode: int
    owner: int = -1
    """The user who owns the file; -1 for the agent's."""


async def set_up_volumes(directory: Path, facts: PodFields, source: VolumeObjects) -> PodVolumes:
    """Make or update every volume of the pod. Raise MountFailed."""
    made = PodVolumes()
    for volume in facts.pod["spec"].get("volumes") or ():
        name = volume["name"]
        try:
            if "image" in volume:
                made.images[name] = volume["image"]
            elif "hostPath" in volume:
                made.paths[name] = await asyncio.to_thread(check_host_path, name, volume["hostPath"])
            elif "persistentVolumeClaim" in volume or "ephemeral" in volume:
                made.paths[name] = await path_of_claim(volume, facts.pod, source)
            else:
                made.paths[name] = str(directory / name)
                await _make_own(directory / name, volume, facts, source, made)
        except OSError as error:
            raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error
    return made


async def _make_own(path: Path, volume: Object, facts: PodFields, source: VolumeObjects, made: PodVolumes) -> None:
    """Make a volume that lives and ends with the pod."""
    if "emptyDir" in volume:
        _make_empty(path, volume["emptyDir"] or {}, made)
        made.owned.append(str(path))
        return
    files = await _files(volume, facts, source)
    await asyncio.to_thread(write_files, path, files, fs_group_of(facts.pod))


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
        return {wanted["path"]: _token_file(token, mode, facts.pod)}
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


def _token_file(token: str, mode: int, pod: Object) -> _File:
    """A token belongs to the user that all containers run as, if there is one; else everyone in the pod can read it."""
    security = pod["spec"].get("securityContext") or {}
    users = {
        (one.get("securityContext") or {}).get("runAsUser", security.get("runAsUser")) for one in all_containers(pod)
    }
    user = users.pop() if len(users) == 1 else None
    if user is None:
        return _File(token.encode(), mode if "fsGroup" not in security else 0o600)
    return _File(token.encode(), 0o600, int(user))


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


def write_files(path: Path, files: Mapping[str, _File], group: int | None = None) -> None:
    """Replace the files of a volume at once, as kubelet does: a new directory behind the link `..data`.

    The group, if there is one, can read them. An ordinary user has one group, and the files stay in it.
    """
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)
    current = path / _DATA
    digest = path.with_name(f"{path.name}.digest")
    if current.exists() and _same(current, files, digest):
        return
    fresh = path / f"..{secrets.token_hex(8)}"
    fresh.mkdir()
    for name, file in files.items():
        target = fresh / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode | (0o440 if group is not None else 0))
        if group is not None or file.owner >= 0:
            _give_file(target, file.owner, -1 if group is None else group)
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
    if has_mapped_root():
        digest.write_text(_digest_of(files))


def _give_file(path: Path, owner: int, group: int) -> None:
    """Change the owner of a file as far as this user can."""
    try:
        os.chown(path, owner, group)
    except PermissionError:
        if has_mapped_root():
            with contextlib.suppress(MappedWorkFailed):  # An id that this user does not have.
                run_as_mapped_root("own", str(owner), str(group), str(path))


def _digest_of(files: Mapping[str, _File]) -> str:
    content = sorted((name, file.content.hex(), file.mode) for name, file in files.items())
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _same(current: Path, files: Mapping[str, _File], digest: Path) -> bool:
    """Whether the files are there. The agent cannot read those that it gave away; their digest is beside the volume."""
    if digest.exists():
        return digest.read_text() == _digest_of(files)
    resolved = current.resolve()
    present = {str(one.relative_to(resolved)) for one in resolved.rglob("*") if one.is_file()}
    return present == set(files) and all((resolved / name).read_bytes() == file.content for name, file in files.items())


def fs_group_of(pod: Object) -> int | None:
    found = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return int(found) if found is not None else None


def give_volumes(paths: Sequence[str], group: int) -> None:
    """Let the fsGroup of a pod own its volumes. Nothing changes for an ordinary user without subordinate ids."""
    with contextlib.suppress(PermissionError, MappedWorkFailed):  # A group that this user does not have.
        if has_mapped_root():
            run_as_mapped_root("give", str(group), *paths)
        else:
            give_to_group(paths, group)
