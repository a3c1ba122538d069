"""Volumes that are directories of this machine: hostPath, and persistent volumes on local paths."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pinnace.model.objects import Object
from pinnace.node.runtime.errors import RuntimeFailure


class MountFailed(RuntimeFailure):
    """A volume cannot be set up: the pod waits in ContainerCreating, and an Event FailedMount gives the reason."""

    reason = "FailedMount"


class ClaimSource(Protocol):
    """Reads the claims of a namespace and the volumes that they are bound to."""

    async def claim(self, namespace: str, name: str) -> Object | None: ...

    async def volume(self, name: str) -> Object | None: ...


async def path_of_claim(volume: Object, pod: Object, source: ClaimSource) -> str:
    """Return the directory of a claim. Raise MountFailed if it is not bound, or not to a directory of this machine."""
    name, namespace = volume["name"], pod["metadata"]["namespace"]
    stated = volume.get("persistentVolumeClaim") or {}
    claim_name = stated.get("claimName") or f"{pod['metadata']['name']}-{name}"
    claim = await source.claim(namespace, claim_name)
    if claim is None:
        raise _failed(
            name, f'error processing PVC {namespace}/{claim_name}: persistentvolumeclaim "{claim_name}" not found'
        )
    if "ephemeral" in volume and not _belongs_to(claim, pod):
        raise _failed(
            name, f"PVC {namespace}/{claim_name} was not created for pod {namespace}/{pod['metadata']['name']}"
        )
    bound = claim["spec"].get("volumeName")
    if not bound or (claim.get("status") or {}).get("phase") != "Bound":
        raise _failed(name, f"error processing PVC {namespace}/{claim_name}: PVC is not bound")
    found = await source.volume(bound)
    if found is None:
        raise _failed(name, f'error processing PVC {namespace}/{claim_name}: persistentvolume "{bound}" not found')
    spec = found["spec"]
    if "hostPath" in spec:
        return await asyncio.to_thread(check_host_path, bound, spec["hostPath"], mode=0o777)
    if "local" in spec:
        path = Path(spec["local"]["path"])
        if not path.is_dir():
            raise _failed(bound, f'path "{path}" does not exist')
        return str(path)
    kinds = ", ".join(sorted(set(spec) & _KINDS)) or "an unknown kind"
    raise _failed(bound, f"volumes of the kind {kinds} are not supported by this node; it has hostPath and local")


_KINDS = {"csi", "nfs", "iscsi", "fc", "rbd", "cephfs", "awsElasticBlockStore", "gcePersistentDisk", "azureDisk"}


def check_host_path(name: str, stated: Mapping[str, Any], *, mode: int = 0o755) -> str:
    """Check the type of a hostPath, and make what it allows to make."""
    path, kind = Path(stated["path"]), stated.get("type") or ""
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
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
            raise _failed(name, f"hostPath type check failed: {path} is not {words.get(kind, kind)}")
    return str(path)


def _belongs_to(claim: Object, pod: Object) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == pod["metadata"]["uid"] and one.get("controller") for one in owners)


def _failed(name: str, message: str) -> MountFailed:
    return MountFailed(f'MountVolume.SetUp failed for volume "{name}" : {message}')
