"""Images on disk: one record per image, one directory per unpacked layer, shared by all images that have it.

images/ID.json        tags, digests, configuration and layers of an image
layers.lock           held by every process that unpacks a layer
layers/NAME/          an unpacked layer, named by its digest
downloads/DIGEST      a blob while it is fetched; kept after a cut, so that the next try goes on from there
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from pinnace.node.images.unpacking import UnpackLimits, unpack_layer
from pinnace.node.runtime.embedded.mapped_root import MappedWorkFailed, has_mapped_root, run_as_mapped_root
from pinnace.node.runtime.embedded.root_file_systems import remove_tree
from pinnace.node.runtime.errors import ImageFailure
from pinnace.node.runtime.runtime import ImageConfig

_NAME_LENGTH = 20
"""Short names, since the names of all layers must fit into 4 kB of mount options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecord:
    id: str
    config: ImageConfig
    layers: Sequence[str]
    """The digests of the uncompressed layers, the lowest first."""
    tags: Sequence[str] = ()
    digests: Sequence[str] = ()
    size_bytes: int = 0
    pulled_at: int = 0
    used_at: int = 0
    is_loaded: bool = False
    """Whether it comes from an archive, so that it cannot be pulled again."""


class ImageRecords:
    """The files below the directory of the images. Methods that unpack or remove block: call them in a thread."""

    def __init__(self, directory: Path, *, limits: UnpackLimits | None = None) -> None:
        self.directory = directory
        self._limits = limits
        for name in ("images", "layers", "downloads"):
            (directory / name).mkdir(parents=True, exist_ok=True, mode=0o711)
        with self._lock_layers(fcntl.LOCK_EX | fcntl.LOCK_NB) as is_locked:
            for left in (directory / "layers").glob("*.new-*") if is_locked else ():
                remove_tree(left)

    def __iter__(self) -> Iterator[ImageRecord]:
        for path in sorted((self.directory / "images").glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield msgspec.json.decode(path.read_bytes(), type=ImageRecord)

    def find(self, name: str) -> ImageRecord | None:
        """Find an image by its id, tag or digest."""
        return next(
            (
                one
                for one in self
                if name in (one.id, one.id.removeprefix("sha256:")) or name in (*one.tags, *one.digests)
            ),
            None,
        )

    def layer(self, digest: str) -> Path:
        return self.directory / "layers" / digest.removeprefix("sha256:")[:_NAME_LENGTH]

    def download(self, digest: str) -> Path:
        return self.directory / "downloads" / digest.removeprefix("sha256:")

    def add_layer(self, source: IO[bytes], digest: str) -> None:
        """Unpack a layer unless it is present. Raise ImageFailure if its content does not have the digest."""
        target = self.layer(digest)
        if target.exists():
            return
        fresh = target.with_name(f"{target.name}.new-{secrets.token_hex(4)}")
        with self._lock_layers(fcntl.LOCK_SH):
            try:
                found = self._unpack(source, fresh)
                if found != digest:
                    raise ImageFailure(f"the layer has the digest {found}, but the image names {digest}")
                with contextlib.suppress(OSError):  # Another pull of the same layer may have been faster.
                    os.rename(fresh, target)
            finally:
                remove_tree(fresh)

    @contextlib.contextmanager
    def _lock_layers(self, how: int) -> Iterator[bool]:
        """Share the directory of the layers with other processes while they unpack; alone, what a crash left can go."""
        lock = os.open(self.directory / "layers.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        is_locked = True
        try:
            fcntl.flock(lock, how)
        except BlockingIOError:
            is_locked = False
        try:
            yield is_locked
        finally:
            os.close(lock)

    def _unpack(self, source: IO[bytes], target: Path) -> str:
        """Unpack a layer with its owners: root may make them all, an ordinary user those of its subordinate ids."""
        if not has_mapped_root():
            return unpack_layer(source, target, limits=self._limits)
        limits = self._limits or UnpackLimits()
        try:
            return run_as_mapped_root("unpack", str(target), str(limits.bytes), str(limits.entries), source=source)
        except MappedWorkFailed as error:
            raise ImageFailure(str(error)) from error

    def save(self, record: ImageRecord) -> ImageRecord:
        """Write an image, and take its tags away from the image that had them."""
        for other in self:
            if other.id == record.id:
                record = replace(
                    record,
                    tags=tuple(dict.fromkeys([*other.tags, *record.tags])),
                    digests=tuple(dict.fromkeys([*other.digests, *record.digests])),
                )
            elif set(other.tags) & set(record.tags):
                self._write(replace(other, tags=[tag for tag in other.tags if tag not in record.tags]))
        self._write(record)
        return record

    def touch(self, record: ImageRecord, now: int) -> None:
        """Remember when an image was last used."""
        self._write(replace(record, used_at=now))

    def remove(self, name: str) -> bool:
        """Remove one tag, or the whole image by its id; an image without names goes. Return False if there is none."""
        record = self.find(name)
        if record is None:
            return False
        tags = [tag for tag in record.tags if tag != name]
        if name in record.tags and tags:
            self._write(replace(record, tags=tags))
            return True
        self._path(record).unlink(missing_ok=True)
        needed = {layer for other in self for layer in other.layers}
        for layer in record.layers:
            if layer not in needed:
                remove_tree(self.layer(layer))
        return True

    def _path(self, record: ImageRecord) -> Path:
        return self.directory / "images" / f"{record.id.removeprefix('sha256:')}.json"

    def _write(self, record: ImageRecord) -> None:
        path = self._path(record)
        beside = path.with_suffix(f".{secrets.token_hex(4)}.new")  # Other processes may write the same record.
        beside.write_bytes(msgspec.json.encode(record))
        beside.replace(path)
