"""Images in files: OCI layouts in a tar archive, and what `docker save` writes."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from pinnace.node.errors import ImageFailure
from pinnace.node.images.manifests import (
    MAX_LAYERS,
    MAX_MANIFEST_BYTES,
    Configuration,
    choose_platform,
    decode_json,
    decode_manifest,
    descriptor_of,
    digest_of,
    is_index,
    parse_configuration,
    parse_manifest,
)
from pinnace.node.images.records import ImageRecord, ImageRecords
from pinnace.node.images.references import parse_reference

_MAX_MEMBERS = 100_000
_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def load_archive(path: Path, records: ImageRecords, *, now: int) -> Sequence[ImageRecord]:
    """Unpack the images of a file and return them. Blocks: call it in a thread. Raise ImageFailure."""
    try:
        with tarfile.open(path) as archive:
            return _Archive(archive, records, now).load()
    except (tarfile.TarError, EOFError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # One line: tarfile names each compression that it tried.
        raise ImageFailure(
            f"{path} is not a tar archive with an image ({reason}); write one with docker save or podman save"
        ) from error
    except OSError as error:
        raise ImageFailure(f"{path} cannot be read: {error.strerror or error}") from error


class _Archive:
    def __init__(self, archive: tarfile.TarFile, records: ImageRecords, now: int) -> None:
        self._archive = archive
        self._records = records
        self._now = now
        self._members: dict[str, tarfile.TarInfo] = {}
        for member in archive:
            self._members[member.name.removeprefix("./").rstrip("/")] = member
            if len(self._members) > _MAX_MEMBERS:
                raise ImageFailure(f"the archive has more than {_MAX_MEMBERS} members")

    def load(self) -> Sequence[ImageRecord]:
        if "manifest.json" in self._members:
            return self._load_docker()
        if "index.json" in self._members:
            return self._load_oci()
        raise ImageFailure(
            "the archive has neither manifest.json nor index.json; make it with `docker save` or as an OCI archive"
        )

    def _load_docker(self) -> Sequence[ImageRecord]:
        try:
            entries = msgspec.json.decode(self._read("manifest.json"))
        except msgspec.MsgspecError as error:
            raise ImageFailure(f"manifest.json is not valid JSON: {error}") from error
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ImageFailure("manifest.json is not a list of images")
        return [self._load_docker_image(entry) for entry in entries]

    def _load_docker_image(self, entry: Mapping[str, Any]) -> ImageRecord:
        config, layers, tags = entry.get("Config"), entry.get("Layers") or [], entry.get("RepoTags") or []
        if not isinstance(config, str) or not isinstance(layers, list) or len(layers) > MAX_LAYERS:
            raise ImageFailure("manifest.json names no Config, or too many Layers")
        configuration = parse_configuration(self._read(config))
        return self._add(configuration, [str(layer) for layer in layers], [str(tag) for tag in tags], [])

    def _load_oci(self) -> Sequence[ImageRecord]:
        index = decode_json(self._read("index.json"), "index of the archive")
        loaded = []
        for entry in index.get("manifests") or []:
            descriptor = descriptor_of(entry)
            annotations = entry.get("annotations") or {}
            names = [str(annotations[key]) for key in _NAMES if isinstance(annotations, dict) and key in annotations]
            names = [name for name in names if ":" in name or "/" in name][:1] or names[:1]
            loaded.append(self._load_manifest(descriptor.digest, names))
        if not loaded:
            raise ImageFailure("the index of the archive names no image")
        return loaded

    def _load_manifest(self, digest: str, names: Sequence[str], depth: int = 0) -> ImageRecord:
        document = decode_manifest(self._blob(digest))
        if is_index(document):
            if depth > 2:
                raise ImageFailure("the indexes of the archive are nested too deeply")
            return self._load_manifest(choose_platform(document).digest, names, depth + 1)
        manifest = parse_manifest(document)
        configuration = parse_configuration(self._blob(manifest.config.digest))
        layers = [f"blobs/{layer.digest.replace(':', '/')}" for layer in manifest.layers]
        return self._add(configuration, layers, names, [digest])

    def _add(
        self, configuration: Configuration, layers: Sequence[str], names: Sequence[str], digests: Sequence[str]
    ) -> ImageRecord:
        if len(layers) != len(configuration.layers):
            raise ImageFailure(
                f"the image has {len(layers)} layers, but its configuration names {len(configuration.layers)}"
            )
        references = [parse_reference(name) for name in names]
        size = 0
        for member, digest in zip(layers, configuration.layers, strict=True):
            with self._open(member) as content:
                self._records.add_layer(content, digest)
            size += self._member(member).size
        record = ImageRecord(
            id=configuration.id,
            config=configuration.config,
            layers=configuration.layers,
            tags=[str(reference) for reference in references],
            digests=[f"{reference.name}@{digest}" for reference in references for digest in digests],
            size_bytes=size,
            pulled_at=self._now,
            used_at=self._now,
            is_loaded=True,
        )
        return self._records.save(record)

    def _blob(self, digest: str) -> bytes:
        data = self._read(f"blobs/{digest.replace(':', '/')}")
        if digest_of(data) != digest:
            raise ImageFailure(f"the blob {digest} of the archive has another digest: {digest_of(data)}")
        return data

    def _read(self, name: str) -> bytes:
        with self._open(name) as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
        if len(data) > MAX_MANIFEST_BYTES:
            raise ImageFailure(f"{name} has more than {MAX_MANIFEST_BYTES} bytes")
        return data

    def _member(self, name: str) -> tarfile.TarInfo:
        member = self._members.get(name.removeprefix("./"))
        if member is None:
            raise ImageFailure(f"the archive names {name!r}, but does not contain it")
        return member

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        try:
            file = self._archive.extractfile(self._member(name))
        except (KeyError, RecursionError) as error:
            raise ImageFailure(f"{name} is a link that leads out of the archive") from error
        if file is None:
            raise ImageFailure(f"{name} is not a file")
        with file:
            yield file
