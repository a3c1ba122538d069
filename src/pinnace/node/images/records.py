"""Images on disk: one record per image, one directory per unpacked layer, shared by all images that have it.

images/ID.json        tags, digests, configuration and layers of an image
layers.lock           held by every process that unpacks a layer
layers/NAME/          an unpacked layer, named by its digest
downloads/DIGEST      the first part of a blob that was cut, from which the next attempt goes on
downloads/DIGEST.ID   a blob while it is fetched
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from pinnace.node.errors import ImageFailure
from pinnace.node.image_service import ImageConfig
from pinnace.node.images.downloads import adopt_parts
from pinnace.node.images.unpacking import UnpackLimits, unpack_apart
from pinnace.node.machine.mapped_root import remove_tree

_NAME_LENGTH = 27
"""Short names, since the names of all layers must fit into 4 kB of mount options. 162 bits are enough that two layers
with the same name cannot be made."""


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
        self.downloads = directory / "downloads"
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)  # Layers have programs that run as root when another user of the machine starts them.
        for name in ("images", "layers", "downloads"):
            (directory / name).mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(BlockingIOError):  # Another process pulls or unpacks: what is there may be its own.
            lock = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                for left in (directory / "layers").glob("*.new-*"):
                    remove_tree(left)
                adopt_parts(self.downloads)
            finally:
                os.close(lock)

    def __iter__(self) -> Iterator[ImageRecord]:
        for path in sorted((self.directory / "images").glob("*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield msgspec.json.decode(path.read_bytes(), type=ImageRecord)

    def find(self, name: str) -> ImageRecord | None:
        """Find an image by its id, tag or digest."""
        return next(
            (
                record
                for record in self
                if name in (record.id, record.id.removeprefix("sha256:")) or name in (*record.tags, *record.digests)
            ),
            None,
        )

    def find_whole(self, name: str) -> ImageRecord | None:
        """Find an image all of whose layers are there: the others are pulled again."""
        record = self.find(name)
        return record if record is not None and all(map(self.has_layer, record.layers)) else None

    def layer(self, digest: str) -> Path:
        name = base64.urlsafe_b64encode(bytes.fromhex(digest.removeprefix("sha256:"))).decode()
        return self.directory / "layers" / name[:_NAME_LENGTH]

    def has_layer(self, digest: str) -> bool:
        return self.layer(digest).is_dir()

    def add_layer(self, source: IO[bytes], digest: str) -> None:
        """Unpack a layer unless it is present. Raise ImageFailure if its content does not have the digest."""
        target = self.layer(digest)
        if target.exists():
            return
        fresh = target.with_name(f"{target.name}.new-{secrets.token_hex(4)}")
        lock = self.share()
        try:
            actual = unpack_apart(source, fresh, self._limits or UnpackLimits())
            if actual != digest:
                raise ImageFailure(f"the layer has the digest {actual}, but the image names {digest}")
            with contextlib.suppress(OSError):  # Another pull of the same layer may have been faster.
                os.rename(fresh, target)
        finally:
            remove_tree(fresh)
            os.close(lock)

    def share(self) -> int:
        """Keep other processes from removing what is fetched and unpacked now, until the returned file is closed."""
        return self._lock(fcntl.LOCK_SH)

    def _lock(self, how: int) -> int:
        lock = os.open(self.directory / "layers.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, how)
        except BaseException:
            os.close(lock)
            raise
        return lock

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
