"""Images made by the tests: layers, OCI archives and Docker archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinnace.node.images.manifests import own_platform

if sys.version_info >= (3, 14):
    from compression.zstd import compress
else:
    from zstandard import compress

Entry = tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]


def entry(name: str, content: bytes = b"", **fields: Any) -> Entry:
    """A member of a layer: a file unless `type` says otherwise."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def directory(name: str, mode: int = 0o755) -> Entry:
    return entry(name, type=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str, *, hard: bool = False) -> Entry:
    return entry(name, type=tarfile.LNKTYPE if hard else tarfile.SYMTYPE, linkname=target)


def layer(*entries: Entry) -> bytes:
    """An uncompressed layer."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            info, content = entry if isinstance(entry, tuple) else (entry, b"")
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def compress_zstd(data: bytes) -> bytes:
    return compress(data)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class BuiltImage:
    """The blobs of an image. `layers` are uncompressed; they are sent compressed."""

    layers: Sequence[bytes]
    config: Mapping[str, Any] = field(default_factory=dict)
    architecture: str = own_platform()[1]
    compression: str = "gzip"

    @property
    def configuration(self) -> bytes:
        document = {
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in self.layers]},
        }
        return json.dumps(document).encode()

    @property
    def compressed(self) -> list[bytes]:
        return [
            compress_zstd(layer) if self.compression == "zstd" else gzip.compress(layer, mtime=0)
            for layer in self.layers
        ]

    @property
    def manifest(self) -> bytes:
        kind = "application/vnd.oci.image"
        document = {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _descriptor(self.configuration, f"{kind}.config.v1+json"),
            "layers": [_descriptor(layer, f"{kind}.layer.v1.tar+{self.compression}") for layer in self.compressed],
        }
        return json.dumps(document).encode()

    @property
    def blobs(self) -> list[bytes]:
        return [self.configuration, *self.compressed]

    def write_oci(self, path: Path, name: str, *, broken: Mapping[str, bytes] | None = None) -> Path:
        """Write an OCI archive. `broken` replaces the content of blobs by their digest."""
        index = {
            "schemaVersion": 2,
            "manifests": [
                {
                    **_descriptor(self.manifest, "application/vnd.oci.image.manifest.v1+json"),
                    "annotations": {"org.opencontainers.image.ref.name": name},
                }
            ],
        }
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
        for blob in (self.manifest, *self.blobs):
            files[f"blobs/{digest(blob).replace(':', '/')}"] = (broken or {}).get(digest(blob), blob)
        return _write(path, files)

    def write_docker(self, path: Path, name: str) -> Path:
        names = [f"layer{number}/layer.tar" for number in range(len(self.layers))]
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": names}]
        files = {"manifest.json": json.dumps(manifest).encode(), "config.json": self.configuration}
        return _write(path, files | dict(zip(names, self.layers, strict=True)))


def index_of(*images: BuiltImage) -> bytes:
    """A manifest list with one entry per architecture."""
    entries = [
        {
            **_descriptor(image.manifest, "application/vnd.oci.image.manifest.v1+json"),
            "platform": {"os": "linux", "architecture": image.architecture},
        }
        for image in images
    ]
    return json.dumps(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
    ).encode()


def _descriptor(data: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(data), "size": len(data)}


def _write(path: Path, files: Mapping[str, bytes]) -> Path:
    path.write_bytes(layer(*(entry(name, content) for name, content in files.items())))
    return path
