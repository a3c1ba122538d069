"""Manifests, indexes and image configurations of OCI and of Docker, parsed with limits."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pinnace.node.runtime.errors import ImageFailure
from pinnace.node.runtime.runtime import ImageConfig

MAX_MANIFEST_BYTES = 4 << 20
MAX_LAYERS = 127
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}
_digest = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob of a registry or archive."""

    digest: str
    size: int
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    config: Descriptor
    layers: Sequence[Descriptor]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of an image, whose digest is the id of the image."""

    id: str
    config: ImageConfig
    layers: Sequence[str]
    """The digests of the uncompressed layers."""


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def own_platform() -> tuple[str, str]:
    """The operating system and architecture of this machine in Go's words."""
    machine = platform.machine()
    return "linux", _ARCHITECTURES.get(machine, machine)


def decode_json(data: bytes, subject: str) -> Mapping[str, Any]:
    if len(data) > MAX_MANIFEST_BYTES:
        raise ImageFailure(f"the {subject} has {len(data)} bytes; at most {MAX_MANIFEST_BYTES} are allowed")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ImageFailure(f"the {subject} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ImageFailure(f"the {subject} is not a JSON object")
    return found


def is_index(document: Mapping[str, Any]) -> bool:
    return document.get("mediaType") in INDEXES or ("manifests" in document and "layers" not in document)


def choose_platform(index: Mapping[str, Any]) -> Descriptor:
    """The manifest of an index for this machine. Raise ImageFailure if it has none."""
    system, architecture = own_platform()
    entries = [entry for entry in _list(index, "manifests") if isinstance(entry, dict)]
    for entry in entries:
        wanted = entry.get("platform")
        if isinstance(wanted, dict) and (wanted.get("os"), wanted.get("architecture")) == (system, architecture):
            return descriptor_of(entry)
    if len(entries) == 1 and not entries[0].get("platform"):
        return descriptor_of(entries[0])
    have = ", ".join(
        sorted({f"{p.get('os')}/{p.get('architecture')}" for e in entries if isinstance(p := e.get("platform"), dict)})
    )
    raise ImageFailure(
        f"no match for platform in manifest: this machine is {system}/{architecture}, the image has {have}"
    )


def parse_manifest(document: Mapping[str, Any]) -> Manifest:
    if document.get("schemaVersion") == 1:
        raise ImageFailure("the manifest has the schema version 1, which is not supported; push the image again")
    layers = [descriptor_of(entry) for entry in _list(document, "layers")]
    if len(layers) > MAX_LAYERS:
        raise ImageFailure(f"the image has {len(layers)} layers; at most {MAX_LAYERS} are allowed")
    return Manifest(descriptor_of(document.get("config")), layers)


def parse_configuration(data: bytes) -> Configuration:
    document = decode_json(data, "configuration of the image")
    system, architecture = own_platform()
    found = (document.get("os", system), document.get("architecture", architecture))
    if found != (system, architecture):
        raise ImageFailure(f"the image is for {'/'.join(map(str, found))}, this machine is {system}/{architecture}")
    rootfs = document.get("rootfs")
    layers = rootfs.get("diff_ids", []) if isinstance(rootfs, dict) else []
    if not isinstance(layers, list) or not all(isinstance(one, str) and _digest.fullmatch(one) for one in layers):
        raise ImageFailure("the configuration of the image names its layers wrongly in rootfs.diff_ids")
    inner = document.get("config")
    return Configuration(digest_of(data), _image_config(inner if isinstance(inner, dict) else {}), layers)


def descriptor_of(entry: Any) -> Descriptor:
    if not isinstance(entry, dict):
        raise ImageFailure("the manifest has an entry that is not an object")
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not _digest.fullmatch(digest) or not isinstance(size, int) or size < 0:
        raise ImageFailure(f"the manifest has an entry without a valid digest and size: {digest!r}, {size!r}")
    return Descriptor(digest, size, str(entry.get("mediaType", "")))


def _image_config(config: Mapping[str, Any]) -> ImageConfig:
    volumes = config.get("Volumes")
    return ImageConfig(
        entrypoint=_strings(config.get("Entrypoint")),
        command=_strings(config.get("Cmd")),
        environment=[one for one in _strings(config.get("Env")) if "=" in one and "\0" not in one],
        working_directory=str(config.get("WorkingDir") or ""),
        user=str(config.get("User") or ""),
        stop_signal=str(config.get("StopSignal") or ""),
        volumes=list(volumes) if isinstance(volumes, dict) else [],
    )


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    if not isinstance(found, list):
        raise ImageFailure(f"the manifest has no list of {name}")
    return found
