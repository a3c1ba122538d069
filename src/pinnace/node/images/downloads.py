"""A blob on its way to the disk: hashed while it streams, in a file of its own, continued after a cut.

Another attempt, also of another process, has another file: two that fetch the same blob cannot mix their bytes. A part
that is left takes the name of its digest, and the next attempt makes it its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from types import TracebackType

from pinnace.node.errors import ImageFailure
from pinnace.node.images.manifests import Descriptor

_CHUNK = 1 << 20


class Download:
    """One attempt to fetch a blob. Use it in `async with`: an incomplete part is kept for the next attempt."""

    def __init__(self, directory: Path, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.size = 0
        self._part = directory / descriptor.digest.removeprefix("sha256:")
        self.path = directory / f"{self._part.name}.{secrets.token_hex(8)}"
        self._digest = hashlib.sha256()
        self._is_wrong = False

    async def __aenter__(self) -> Download:
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._part, self.path)
        self.path.touch(mode=0o600)
        try:
            await asyncio.to_thread(self._hash_part)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._is_wrong and self.size < self.descriptor.size:
            self._leave()
        else:
            self.path.unlink(missing_ok=True)

    def _leave(self) -> None:
        """Leave a part for the next attempt, unless it is empty."""
        if self.path.stat().st_size:
            os.replace(self.path, self._part)
        else:
            self.path.unlink()

    def restart(self) -> None:
        """Forget what was fetched: the registry sends the blob from its beginning."""
        os.truncate(self.path, 0)
        self.size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append bytes. Raise ImageFailure if the blob is longer than the manifest says."""
        if self.size + len(data) > self.descriptor.size:
            self._is_wrong = True
            raise ImageFailure(f"the layer {self.descriptor.digest} is longer than its {self.descriptor.size} bytes")
        with self.path.open("ab") as file:
            file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def check(self) -> None:
        """Raise ImageFailure unless the whole blob has its digest."""
        digest = f"sha256:{self._digest.hexdigest()}"
        if digest != self.descriptor.digest:
            self._is_wrong = True
            raise ImageFailure(f"the registry answers {self.descriptor.digest} with content of the digest {digest}")

    def _hash_part(self) -> None:
        if self.path.stat().st_size > self.descriptor.size:
            self.restart()
        with self.path.open("rb") as file:
            while data := file.read(_CHUNK):
                self._digest.update(data)
                self.size += len(data)


def adopt_parts(directory: Path) -> None:
    """Give the parts of attempts that were killed the names by which the next attempts find them."""
    for left in directory.glob("*.*"):
        os.replace(left, left.with_suffix(""))
