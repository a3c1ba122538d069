"""Persistent volumes on this machine: directories, and block devices with or without a file system.

The agent mounts no device at a path of the machine. Each container mounts the file system for itself, so that nothing
is left of it when the container ends, however the agent does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pinnace.model.typed_objects import LocalVolumeSource, PersistentVolume, PersistentVolumeClaim, Pod, Volume
from pinnace.node.agent.api_objects import ApiObjects
from pinnace.node.agent.volumes.host_volumes import check_host_path, mount_failed
from pinnace.node.machine import mounts
from pinnace.node.machine.file_trees import give_to_group
from pinnace.node.runtime.runtime import FileSystem

_KINDS = {"csi", "nfs", "iscsi", "fc", "rbd", "cephfs", "awsElasticBlockStore", "gcePersistentDisk", "azureDisk"}
_DEFAULT_FILE_SYSTEM = "ext4"
_FORCE = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0"), "xfs": ("-f",)}
"""The flags with which kubelet makes a file system without a question."""
_BLANK = 2
"""The exit code of blkid for a device without a file system."""
_NFS_HELPERS = ("/sbin/mount.nfs", "/usr/sbin/mount.nfs")
_NFS_OUTPUT = (
    "mount: {target}: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper "
    "program."
)


@dataclass(frozen=True, slots=True)
class BoundVolume:
    """The volume of a claim on this node."""

    path: str
    """A directory or a file; a block device if `is_device`."""
    is_device: bool = False
    is_read_only: bool = False
    file_system: FileSystem | None = None
    """The file system that containers mount, if the volume is a device with one."""
    is_owned: bool = False
    """Whether the fsGroup of a pod owns the directory."""


async def volume_of_claim(volume: Volume, pod: Pod, source: ApiObjects) -> BoundVolume:
    """Return the volume that is bound to a claim. Raise MountFailed if there is none, or not on this machine."""
    name, namespace = volume["name"], pod["metadata"]["namespace"]
    stated = volume.get("persistentVolumeClaim")
    claim_name = stated["claimName"] if stated else f"{pod['metadata']['name']}-{name}"
    claim = await source.claim(namespace, claim_name)
    place = f"error processing PVC {namespace}/{claim_name}"
    if claim is None:
        raise mount_failed(name, f'{place}: persistentvolumeclaim "{claim_name}" not found')
    if "ephemeral" in volume and not _belongs_to(claim, pod):
        raise mount_failed(
            name, f"PVC {namespace}/{claim_name} was not created for pod {namespace}/{pod['metadata']['name']}"
        )
    bound = claim["spec"].get("volumeName")
    if not bound or (claim.get("status") or {}).get("phase") != "Bound":
        raise mount_failed(name, f"{place}: PVC is not bound")
    persistent = await source.volume(bound)
    if persistent is None:
        raise mount_failed(name, f'{place}: persistentvolume "{bound}" not found')
    _check_use(name, persistent, pod)
    return await asyncio.to_thread(_open, persistent, is_read_only=bool(stated and stated.get("readOnly")))


def give_file_system(file_system: FileSystem, group: int) -> None:
    """Let a group own a file system, once. Raise OSError."""
    tree = mounts.new_file_system(file_system.kind, file_system.mount_options)
    try:
        give_to_group(".", group, above=tree)
    finally:
        os.close(tree)


def nfs_refusal(name: str, server: str, path: str) -> Exception:
    """Return why a volume of NFS is not mounted: in kubelet's words where the machine has no program for it."""
    if any(os.path.exists(helper) for helper in _NFS_HELPERS):
        return mount_failed(name, "volumes of the kind nfs are not supported by this node; it has hostPath and local")
    source = f"{server}:{path}"
    text = "mount failed: exit status 32\nMounting command: mount\n"
    return mount_failed(
        name, f"{text}Mounting arguments: -t nfs {source}\nOutput: {_NFS_OUTPUT.format(target=source)}\n"
    )


def _check_use(name: str, volume: PersistentVolume, pod: Pod) -> None:
    """Raise MountFailed if containers mount a volume that is a device, or use one as a device that is none."""
    mode = volume["spec"].get("volumeMode", "Filesystem")
    wrong = "volumeMounts" if mode == "Block" else "volumeDevices"
    spec = pod["spec"]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        uses = container.get("volumeMounts" if mode == "Block" else "volumeDevices") or ()
        if any(use["name"] == name for use in uses):
            raise mount_failed(name, f"volume {name} has volumeMode {mode}, but is specified in {wrong}")


def _open(volume: PersistentVolume, *, is_read_only: bool) -> BoundVolume:
    name, spec = volume["metadata"]["name"], volume["spec"]
    if "hostPath" in spec:
        return BoundVolume(check_host_path(name, spec["hostPath"], mode=0o777), is_read_only=is_read_only)
    if "local" in spec:
        is_device = spec.get("volumeMode") == "Block"
        options = tuple(spec.get("mountOptions") or ())
        return _open_local(name, spec["local"], options, is_device=is_device, is_read_only=is_read_only)
    if "nfs" in spec:
        raise nfs_refusal(name, spec["nfs"]["server"], spec["nfs"]["path"])
    kinds = ", ".join(sorted(set(spec) & _KINDS)) or "an unknown kind"
    raise mount_failed(name, f"volumes of the kind {kinds} are not supported by this node; it has hostPath and local")


def _open_local(
    name: str, local: LocalVolumeSource, options: tuple[str, ...], *, is_device: bool, is_read_only: bool
) -> BoundVolume:
    path = Path(local["path"])
    try:
        mode = path.stat().st_mode
    except OSError:
        raise mount_failed(name, f'path "{path}" does not exist') from None
    if is_device:
        if not stat.S_ISBLK(mode):
            raise mount_failed(name, f"path {path} is not a block device")
        return BoundVolume(str(path), is_device=True, is_read_only=is_read_only)
    if stat.S_ISDIR(mode):
        return BoundVolume(str(path), is_read_only=is_read_only, is_owned=not is_read_only)
    if not stat.S_ISBLK(mode):
        raise mount_failed(name, "only directory and block device are supported")
    file_system = FileSystem(local.get("fsType") or _DEFAULT_FILE_SYSTEM, str(path.resolve()), options)
    _make_file_system(name, file_system)
    return BoundVolume("", is_read_only=is_read_only, file_system=file_system, is_owned=not is_read_only)


def _make_file_system(name: str, wanted: FileSystem) -> None:
    """Make a file system on a blank device, as kubelet does. Raise MountFailed."""

    def failed(reason: object) -> Exception:
        text = f"local: failed to mount device {wanted.source} (fstype: {wanted.kind}), error {reason}"
        return mount_failed(name, text)

    if os.geteuid() != 0:
        raise failed("mount failed: only root can mount a device")
    blkid, mkfs = shutil.which("blkid"), shutil.which(f"mkfs.{wanted.kind}")
    if blkid is None:
        raise failed("exec: blkid: not found in $PATH")
    if subprocess.run([blkid, "-p", wanted.source], capture_output=True, check=False).returncode != _BLANK:
        return
    if mkfs is None:
        raise failed(f"exec: mkfs.{wanted.kind}: not found in $PATH")
    made = subprocess.run([mkfs, *_FORCE.get(wanted.kind, ()), wanted.source], capture_output=True, check=False)
    if made.returncode != 0:
        raise failed(f"exit status {made.returncode}: {made.stderr.decode(errors='replace').strip()}")


def _belongs_to(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == pod["metadata"]["uid"] and owner.get("controller") for owner in owners)
