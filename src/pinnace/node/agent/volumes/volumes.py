"""The volumes of a pod on this node: directories that the containers mount."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from pinnace.model import quantity
from pinnace.model.typed_objects import (
    ConfigMapProjection,
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    Pod,
    SecretProjection,
    Volume,
    VolumeProjection,
)
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.pod_fields import PodFields, all_containers
from pinnace.node.agent.volumes.host_volumes import MountFailed, check_host_path
from pinnace.node.agent.volumes.persistent_volumes import (
    BoundVolume,
    give_file_system,
    nfs_refusal,
    volume_of_claim,
)
from pinnace.node.agent.volumes.pod_certificates import PodCertificates, SourcePlace
from pinnace.node.agent.volumes.trust_bundles import TrustBundles
from pinnace.node.agent.volumes.volume_files import VolumeFile, open_directory, parts_of, write_volume
from pinnace.node.machine.mapped_root import remove_tree
from pinnace.node.resources.amounts import pod_resources
from pinnace.node.resources.huge_pages import MEDIUM as HUGE_PAGES
from pinnace.node.resources.huge_pages import page_size_of_medium
from pinnace.node.runtime.runtime import FileSystem, MemoryDirectory, TemporaryFileSystem

KUBELET = "/var/lib/kubelet"
"""Kubelet's directory, as the manifests of plug-ins name it."""
MOST_BYTES = 64 << 20
"""The most memory that the volumes of API objects of one pod take. Items may show a key of 1 MB in thousands of files:
they would fill the memory of the node, which all pods share."""
_PAGE = 4096
_MOST_ENTRIES = MOST_BYTES // _PAGE


class VolumeMemory:
    """The memory of a node for volumes of API objects, which all its pods share.

    Half of the file system is for the volumes as they are: an update needs room for the old and the new files. Half of
    that is reserved in equal shares for as many pods as the node takes; the rest is lent to pods that need more than
    their share. So no number of pods keeps another from its share.

    A limit by the pod's own memory limit would refuse pods that run elsewhere: a kubelet has ConfigMaps on its disk.
    """

    def __init__(self, most_pods: int) -> None:
        self._most_pods = max(1, most_pods)
        self._sizes: dict[str, int] = {}

    def reserve(self, uid: str, size: int, *, total: int, is_made: bool) -> None:
        """Reserve what a pod needs of the `total` memory. Raise ValueError if it may not have so much.

        `is_made`: the node has volumes of the pod, which an earlier agent has made if this one does not know it.
        """
        if size > MOST_BYTES:
            raise ValueError(
                f"the volumes of API objects of this pod have more than {MOST_BYTES} bytes together: "
                "each file and directory takes at least a page, and each copy of a key counts"
            )
        known = self._sizes.get(uid)
        if known is None and is_made:
            known = size
        part = total // 4
        share = part // self._most_pods
        lent = sum(max(0, other - share) for pod, other in self._sizes.items() if pod != uid)
        if size > max(share, known or 0) and size - share > part - lent:
            raise ValueError(
                f"the volumes of API objects of this pod have {size} bytes, and other pods have taken the memory that "
                f"the node has beside {share} bytes for each pod"
            )
        self._sizes[uid] = max(size, known or 0)

    def settle(self, uid: str, size: int) -> None:
        """Give back what a pod has reserved and does not need any more."""
        self._sizes[uid] = size

    def forget(self, uid: str) -> None:
        self._sizes.pop(uid, None)


@dataclass(slots=True)
class PodVolumes:
    """The paths of the volumes on this node, by their names."""

    paths: dict[str, str] = field(default_factory=dict)
    memory: list[TemporaryFileSystem] = field(default_factory=list)
    owned: list[str] = field(default_factory=list)
    """The directories that the fsGroup of the pod owns."""
    read_only: set[str] = field(default_factory=set)
    """The volumes that no container may write to, such as those that show API objects."""
    devices: dict[str, str] = field(default_factory=dict)
    """The block devices, by the names of the volumes."""
    file_systems: dict[str, FileSystem] = field(default_factory=dict)
    """The file systems of block devices that containers mount at the paths of the volumes."""
    images: dict[str, ImageVolumeSource] = field(default_factory=dict)
    """The image volumes: a container that mounts one pulls it when it starts."""


@dataclass(frozen=True, slots=True)
class VolumeSources:
    """The sources of the files in volumes, beside the pod itself."""

    objects: ApiObjects
    trust_bundles: TrustBundles
    certificates: PodCertificates
    memory: VolumeMemory
    kubelet_directory: str = ""
    """The directory that pods mount as /var/lib/kubelet; empty for that of the machine."""


class _Defaults(NamedTuple):
    """The mode and the owner of the files of a volume that do not state their own."""

    mode: int
    user: int
    """-1 for the agent's."""


async def set_up_volumes(
    directory: Path, memory: MemoryDirectory, facts: PodFields, sources: VolumeSources
) -> PodVolumes:
    """Make or update every volume of the pod: below a directory of its own, or in memory. Raise MountFailed."""
    made = PodVolumes()
    size, uid = 0, facts.pod["metadata"]["uid"]
    for volume in facts.pod["spec"].get("volumes") or ():
        name = volume["name"]
        try:
            if "image" in volume:
                made.images[name] = volume["image"]
            elif "hostPath" in volume:
                made.paths[name] = await asyncio.to_thread(check_host_path, name, _on_node(volume["hostPath"], sources))
            elif "persistentVolumeClaim" in volume or "ephemeral" in volume:
                bound = await volume_of_claim(volume, facts.pod, sources.objects)
                await asyncio.to_thread(_add_claim, made, name, bound, directory / name, fs_group_of(facts.pod))
            elif "nfs" in volume:
                raise nfs_refusal(name, volume["nfs"]["server"], volume["nfs"]["path"])
            elif "emptyDir" in volume:
                made.paths[name] = str(directory / name)
                _make_empty(directory / name, volume["emptyDir"] or {}, made, facts)
            else:
                files = await _files(volume, facts, sources)
                size += _size_in_memory(files)
                _reserve(sources, uid, size, memory)
                await asyncio.to_thread(_write_in_memory, memory, uid, name, files, fs_group_of(facts.pod))
                made.paths[name] = f"{memory.path}/{uid}/{name}"
                made.read_only.add(name)
        except (OSError, ValueError) as error:
            raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {error}') from error
    sources.memory.settle(uid, size)
    return made


def _reserve(sources: VolumeSources, uid: str, size: int, memory: MemoryDirectory) -> None:
    room = os.fstatvfs(memory.fd)
    is_made = os.access(uid, os.F_OK, dir_fd=memory.fd, follow_symlinks=False)
    sources.memory.reserve(uid, size, total=room.f_blocks * room.f_frsize, is_made=is_made)


def _on_node(stated: HostPathVolumeSource, sources: VolumeSources) -> HostPathVolumeSource:
    """Return a hostPath with the directory of this node's plug-ins in place of /var/lib/kubelet.

    So the manifests of plug-ins work unchanged, with several nodes on a machine, too.
    """
    path = os.path.normpath(stated["path"])
    if not sources.kubelet_directory or not f"{path}/".startswith(f"{KUBELET}/"):
        return stated
    return {**stated, "path": sources.kubelet_directory + path.removeprefix(KUBELET)}


def _add_claim(made: PodVolumes, name: str, bound: BoundVolume, place: Path, group: int | None) -> None:
    """Add a persistent volume. A directory belongs to the fsGroup of the pod."""
    if bound.is_read_only:
        made.read_only.add(name)
    if bound.is_device:
        made.devices[name] = bound.path
        return
    made.paths[name] = bound.path or str(place)
    if bound.file_system is not None:
        place.mkdir(parents=True, exist_ok=True)
        made.file_systems[name] = bound.file_system
        if bound.is_owned and group is not None:
            give_file_system(bound.file_system, group)
    elif bound.is_owned:
        made.owned.append(bound.path)


def _size_in_memory(files: Mapping[str, VolumeFile]) -> int:
    """The memory of files: their contents in pages, and a page for each file, directory and link."""
    contents = sum(-(-len(file.content) // _PAGE) for file in files.values())
    return (contents + _count_entries(files)) * _PAGE


def _count_entries(paths: Iterable[str]) -> int:
    """Count the entries of a volume, but not far beyond the most that a pod may have. Raise ValueError for a path."""
    entries: dict[tuple[int, str], int] = {}
    links = 0
    for path in paths:
        place = 0
        for name in parts_of(path):
            links += place == 0 and (place, name) not in entries
            place = entries.setdefault((place, name), len(entries) + 1)
        if len(entries) > _MOST_ENTRIES:
            break
    return len(entries) + links


def _write_in_memory(
    memory: MemoryDirectory, uid: str, name: str, files: Mapping[str, VolumeFile], group: int | None
) -> None:
    with open_directory(memory.fd, uid, 0o700) as pod:
        write_volume(pod, name, files, group)


def remove_from_memory(memory: MemoryDirectory, uid: str) -> None:
    """Remove the volumes of a pod that shows API objects."""
    remove_tree(uid, above=memory.fd)


def _make_empty(path: Path, empty: EmptyDirVolumeSource, made: PodVolumes, facts: PodFields) -> None:
    medium, group = empty.get("medium", ""), fs_group_of(facts.pod)
    mode = empty.get("mode", 0o777) | (0 if group is None else 0o2770)
    page_bytes = page_size_of_medium(medium, facts.pod) if medium.startswith(HUGE_PAGES) else 0
    if not path.exists():  # A pod, or its fsGroup, may have changed the mode of one that is there.
        fresh = path.with_name(f"{path.name}.new")
        fresh.mkdir(parents=True, exist_ok=True)
        fresh.chmod(empty.get("mode", 0o777))
        fresh.rename(path)
    if page_bytes:
        made.memory.append(TemporaryFileSystem(str(path), mode=mode, page_bytes=page_bytes, group=group))
    elif medium == "Memory":
        # No more than the volume, the pod as a whole, and the node have.
        sizes = [str(empty.get("sizeLimit", "0")), str(pod_resources(facts.pod).memory_bytes), facts.memory]
        size = min(filter(None, (quantity.parse(text).value for text in sizes)), default=0)
        made.memory.append(TemporaryFileSystem(str(path), size, mode=mode, group=group))
    else:
        made.owned.append(str(path))


async def _files(volume: Volume, facts: PodFields, sources: VolumeSources) -> Mapping[str, VolumeFile]:
    name, source = volume["name"], sources.objects
    if "projected" in volume:
        projected = volume["projected"]
        files: dict[str, VolumeFile] = {}
        defaults = _Defaults(projected.get("defaultMode", 0o644), projected.get("defaultUser", -1))
        for index, projection in enumerate(projected.get("sources") or ()):
            if "clusterTrustBundle" in projection or "podCertificate" in projection:
                place = SourcePlace(name, index)
                files |= await _certificate_files(place, projection, defaults, facts.pod, sources)
            else:
                files |= await _from_source(name, projection, defaults, facts, source)
        return files
    if "configMap" in volume:
        config_map = volume["configMap"]
        defaults = _Defaults(config_map.get("defaultMode", 0o644), config_map.get("defaultUser", -1))
        return await _from_source(name, {"configMap": config_map}, defaults, facts, source)
    if "secret" in volume:
        secret = volume["secret"]
        stated = cast(SecretProjection, {**secret, "name": secret.get("secretName", "")})
        defaults = _Defaults(secret.get("defaultMode", 0o644), secret.get("defaultUser", -1))
        return await _from_source(name, {"secret": stated}, defaults, facts, source)
    if "downwardAPI" in volume:
        downward = volume["downwardAPI"]
        defaults = _Defaults(downward.get("defaultMode", 0o644), downward.get("defaultUser", -1))
        return await _from_source(name, {"downwardAPI": downward}, defaults, facts, source)
    kinds = ", ".join(sorted(set(volume) - {"name"}))
    raise MountFailed(f'MountVolume.SetUp failed for volume "{name}" : volumes of the kind {kinds} are not supported')


async def _from_source(
    volume: str, projection: VolumeProjection, defaults: _Defaults, facts: PodFields, source: ApiObjects
) -> dict[str, VolumeFile]:
    namespace = facts.pod["metadata"]["namespace"]
    if "serviceAccountToken" in projection:
        wanted = projection["serviceAccountToken"]
        account = facts.pod["spec"].get("serviceAccountName") or "default"
        token = await source.token(namespace, account, facts.pod, wanted)
        return {wanted["path"]: _private_file(token.encode(), wanted.get("user"), defaults, facts.pod)}
    if "downwardAPI" in projection:
        texts = _FieldTexts(facts)
        items = projection["downwardAPI"].get("items") or ()
        return {
            item["path"]: VolumeFile(texts.of(item), item.get("mode", defaults.mode), item.get("user", defaults.user))
            for item in items
        }
    if "configMap" in projection:
        config_map = projection["configMap"]
        data = await source.config_map(namespace, config_map.get("name", ""))
        return _chosen(volume, config_map, data, "configmap", defaults)
    if "secret" in projection:
        secret = projection["secret"]
        return _chosen(volume, secret, await source.secret(namespace, secret.get("name", "")), "secret", defaults)
    kinds = ", ".join(projection)
    raise MountFailed(f'MountVolume.SetUp failed for volume "{volume}" : projections of {kinds} are not supported')


async def _certificate_files(
    place: SourcePlace, projection: VolumeProjection, defaults: _Defaults, pod: Pod, sources: VolumeSources
) -> dict[str, VolumeFile]:
    if "clusterTrustBundle" in projection:
        bundle = projection["clusterTrustBundle"]
        anchors = await sources.trust_bundles.anchors(bundle)
        return {bundle["path"]: _private_file(anchors, bundle.get("user"), defaults, pod)}
    source = projection["podCertificate"]
    key, chain = await sources.certificates.credentials(pod, place, source)
    files = {
        source.get("credentialBundlePath", ""): key + chain,
        source.get("keyPath", ""): key,
        source.get("certificateChainPath", ""): chain,
    }
    return {path: _private_file(content, source.get("user"), defaults, pod) for path, content in files.items() if path}


def _private_file(content: bytes, user: int | None, defaults: _Defaults, pod: Pod) -> VolumeFile:
    """A token or key belongs to the user that the volume states, or that all containers run as, if there is one; else
    everyone in the pod can read it."""
    security = pod["spec"].get("securityContext") or {}
    users = {
        (container.get("securityContext") or {}).get("runAsUser", security.get("runAsUser"))
        for container in all_containers(pod)
    }
    own = users.pop() if len(users) == 1 else None
    if user is None:
        user = own if defaults.user < 0 else defaults.user
    if user is None:
        return VolumeFile(content, defaults.mode if "fsGroup" not in security else 0o600)
    return VolumeFile(content, 0o600, int(user))


def _chosen(
    volume: str,
    stated: ConfigMapProjection | SecretProjection,
    data: Mapping[str, bytes] | None,
    word: str,
    defaults: _Defaults,
) -> dict[str, VolumeFile]:
    if data is None and not stated.get("optional"):
        name = stated.get("name", "")
        raise MountFailed(f'MountVolume.SetUp failed for volume "{volume}" : {word} "{name}" not found')
    data, items = data or {}, stated.get("items")
    if items is None:
        return {key: VolumeFile(content, defaults.mode, defaults.user) for key, content in data.items()}
    files = {}
    for item in items:
        if item["key"] not in data:
            if stated.get("optional"):
                continue
            raise MountFailed(
                f'MountVolume.SetUp failed for volume "{volume}" : references non-existent config key: {item["key"]}'
            )
        mode, user = item.get("mode", defaults.mode), item.get("user", defaults.user)
        files[item["path"]] = VolumeFile(data[item["key"]], mode, user)
    return files


class _FieldTexts:
    """The contents of downward API files. Thousands of them may show the same long annotations: they share one text."""

    def __init__(self, facts: PodFields) -> None:
        self._facts = facts
        self._fields: dict[str, bytes] = {}

    def of(self, item: DownwardAPIVolumeFile) -> bytes:
        if "fieldRef" not in item:
            return self._facts.resource({"name": ""}, item["resourceFieldRef"]).encode()
        path = item["fieldRef"]["fieldPath"]
        if path not in self._fields:
            self._fields[path] = self._facts.field(path).encode()
        return self._fields[path]


def fs_group_of(pod: Pod) -> int | None:
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return int(group) if group is not None else None
