"""Layers that are compressed with zstd: by Python from 3.14 on, by the package zstandard (extra `zstd`) before."""

from __future__ import annotations

import sys
from typing import IO, Protocol

from pinnace.node.runtime.errors import ImageFailure

_errors: list[type[Exception]] = [EOFError]
if sys.version_info >= (3, 14):
    from compression import zstd

    _errors.append(zstd.ZstdError)
else:
    try:
        import zstandard
    except ImportError:  # An optional dependency.
        zstandard = None  # type: ignore[assignment]
    else:
        _errors.append(zstandard.ZstdError)

_WINDOW_LOG = 27
"""The largest window that a layer may ask for, 128 MiB: that of `zstd --long`."""


class _Reader(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class ZstdLayer:
    """A reader of the uncompressed layer. Raise ImageFailure if the layer is broken, or zstd is missing here."""

    def __init__(self, source: IO[bytes]) -> None:
        self._reader = _open(source)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._reader.read(size)
        except tuple(_errors) as error:
            raise ImageFailure(f"the layer is not a valid archive: {error}") from error


def _open(source: IO[bytes]) -> _Reader:
    if sys.version_info >= (3, 14):
        return zstd.ZstdFile(source, options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
    if zstandard is None:
        raise ImageFailure(
            "the layer is compressed with zstd, which this Python needs a package for; "
            "install it with `pip install 'pinnace[zstd]'`, or push the image with gzip layers"
        )
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
    return decompressor.stream_reader(source, read_across_frames=True)
