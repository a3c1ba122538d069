"""Manifests, indexes and image configurations of OCI and of Docker, parsed with limits."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pinnace.node.errors import ImageFailure
from pinnace.node.image_service import ImageConfig

MAX_MANIFEST_BYTES = 4 << 20
MAX_LAYERS = 127
MAX_LAYER_BYTES = 64 << 30
_MAX_PLATFORMS = 20
_HOWS = ("", "+gzip", "+zstd", ".gzip", ".zstd")
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_LAYERS = (
    *(f"application/vnd.oci.image.layer.{kind}v1.tar{how}" for kind in ("", "nondistributable.") for how in _HOWS),
    *(f"application/vnd.docker.image.rootfs.{kind}diff.tar{how}" for kind in ("", "foreign.") for how in _HOWS),
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
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ImageFailure(f"the {subject} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ImageFailure(f"the {subject} is not a JSON object")
    return document


def decode_manifest(data: bytes, media_type: str = "") -> Mapping[str, Any]:
    """Decode a manifest or an index. Raise ImageFailure if it can be read as both: readers must not disagree on it.

    `media_type` is that of the descriptor that leads to it; empty for none.
    """
    document = decode_json(data, "manifest")
    own = document.get("mediaType", "")
    if own not in ("", *INDEXES, *MANIFESTS):
        raise ImageFailure(f"the manifest has the media type {own!r}, which is not that of an image")
    if media_type and own and own != media_type:
        raise ImageFailure(f"the manifest has the media type {own}, but is referred to as {media_type}")
    if "manifests" in document and ("layers" in document or "config" in document):
        raise ImageFailure("the manifest is ambiguous: it has both manifests and layers")
    if (own or media_type) in (MANIFESTS if "manifests" in document else INDEXES):
        raise ImageFailure(f"the manifest is ambiguous: its content does not fit the media type {own or media_type}")
    return document


def is_index(document: Mapping[str, Any]) -> bool:
    return "manifests" in document


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
    platforms = [stated for entry in entries if isinstance(stated := entry.get("platform"), dict)]
    have = ", ".join(
        sorted({f"{platform.get('os')}/{platform.get('architecture')}" for platform in platforms[:_MAX_PLATFORMS]})
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
    for layer in layers:
        if layer.media_type not in ("", *_LAYERS):
            raise ImageFailure(f"the image has a layer of the media type {layer.media_type!r}, which is no file system")
        if layer.size > MAX_LAYER_BYTES:
            raise ImageFailure(f"a layer has {layer.size} bytes; at most {MAX_LAYER_BYTES} are allowed")
    return Manifest(descriptor_of(document.get("config")), layers)


def parse_configuration(data: bytes) -> Configuration:
    document = decode_json(data, "configuration of the image")
    system, architecture = own_platform()
    actual = (document.get("os", system), document.get("architecture", architecture))
    if actual != (system, architecture):
        raise ImageFailure(f"the image is for {'/'.join(map(str, actual))}, this machine is {system}/{architecture}")
    rootfs = document.get("rootfs")
    layers = rootfs.get("diff_ids", []) if isinstance(rootfs, dict) else []
    if not isinstance(layers, list) or not all(isinstance(layer, str) and _digest.fullmatch(layer) for layer in layers):
        raise ImageFailure("the configuration of the image names its layers wrongly in rootfs.diff_ids")
    inner = document.get("config")
    return Configuration(digest_of(data), _image_config(inner if isinstance(inner, dict) else {}), layers)


def descriptor_of(entry: Any) -> Descriptor:
    if not isinstance(entry, dict):
        raise ImageFailure("the manifest has an entry that is not an object")
    digest, size = entry.get("digest"), entry.get("size")
    if not isinstance(digest, str) or not _digest.fullmatch(digest) or type(size) is not int or size < 0:
        raise ImageFailure(f"the manifest has an entry without a valid digest and size: {digest!r}, {size!r}")
    return Descriptor(digest, size, str(entry.get("mediaType", "")))


def _image_config(config: Mapping[str, Any]) -> ImageConfig:
    volumes = config.get("Volumes")
    return ImageConfig(
        entrypoint=_strings(config, "Entrypoint"),
        command=_strings(config, "Cmd"),
        environment=[entry for entry in _strings(config, "Env") if entry.find("=") > 0],
        working_directory=_string(config, "WorkingDir"),
        user=_string(config, "User"),
        stop_signal=_string(config, "StopSignal"),
        volumes=_check_strings(list(volumes), "Volumes") if isinstance(volumes, dict) else [],
    )


def _string(config: Mapping[str, Any], name: str) -> str:
    return _check_strings([config.get(name) or ""], name)[0]


def _strings(config: Mapping[str, Any], name: str) -> list[str]:
    return _check_strings(config.get(name) or [], name)


def _check_strings(value: Any, name: str) -> list[str]:
    """Raise ImageFailure unless the value is a list of strings that a process can take."""
    if not isinstance(value, list) or not all(isinstance(text, str) and "\0" not in text for text in value):
        raise ImageFailure(f"the configuration of the image has a wrong value of {name}")
    return value


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    entries = document.get(name)
    if not isinstance(entries, list):
        raise ImageFailure(f"the manifest has no list of {name}")
    return entries
