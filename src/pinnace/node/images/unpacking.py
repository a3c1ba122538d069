"""Unpacks a layer into a directory of its own. The archive is not trusted: nothing is written outside the directory.

Whiteouts become those of overlayfs (a character device 0:0, which every user may make, and the attribute
`user.overlay.opaque`), so that the layer can be a lower directory. Root, also that of a user namespace, keeps the
owners of the archive; the files of an ordinary user belong to that user. Device nodes are left out: no container may
open them anyway.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import os
import resource
import shutil
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, Self

from pinnace.node.errors import ImageFailure
from pinnace.node.machine import linux
from pinnace.node.machine.mapped_root import MappedWorkFailed, remove_tree, run_as_mapped_root

_CPU_SECONDS = 600
_MEMORY_BYTES = 2 << 30
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK = 1 << 20
_MAX_HEADER = 1 << 15
_MAX_DEPTH = 256
_MAX_ID = (1 << 32) - 2
"""The highest user id: the kernel takes the next one for none."""
_LAST_TIME = float((1 << 33) - 1)
_GZIP = b"\x1f\x8b"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_WINDOW_LOG = 27
"""The largest window that a zstd layer may ask for, 128 MiB: that of `zstd --long`."""
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)

_BROKEN_HEADERS = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """The most that one layer may unpack to."""

    bytes: int = 16 << 30
    entries: int = 2_000_000


class _BoundedInfo(tarfile.TarInfo):
    """Refuses sizes that send tarfile back in the archive, and extended headers that are larger than any real one.

    It would read those into memory, and before Python 3.11.10 search them in quadratic time. Refuses a broken header
    after the first, too: tarfile takes it for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except _BROKEN_HEADERS as error:
            raise ImageFailure(f"the layer is not a valid archive: {error}") from error

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0:
            raise ImageFailure(f"a member of the layer has the size {self.size}")
        if self.type in _EXTENDED and self.size > _MAX_HEADER:
            raise ImageFailure(
                f"an extended header of the layer has {self.size} bytes; at most {_MAX_HEADER} are allowed"
            )
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


class _Measured:
    """A reader that hashes and counts what passes."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self._source = source
        self._left = limit
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(min(size, _CHUNK) if size >= 0 else _CHUNK)
        self._left -= len(data)
        if self._left < 0:
            raise ImageFailure("the layer unpacks to more than the limit; it may be a decompression bomb")
        self.digest.update(data)
        return data


def unpack_apart(source: IO[bytes], target: Path, limits: UnpackLimits) -> str:
    """Unpack a layer as `unpack_layer` does, in a process of its own, which keeps the owners that it may make.

    It keeps a hostile layer away from the agent: decompression and headers cost that process its time and memory.
    """
    try:
        return run_as_mapped_root(_unpack_input, str(target), str(limits.bytes), str(limits.entries), source=source)
    except MappedWorkFailed as error:
        raise ImageFailure(str(error)) from error


def _unpack_input(target: str, most_bytes: str, most_entries: str) -> str:
    """Unpack the layer on standard input. Leave nothing if that fails, or if the agent has ended meanwhile."""
    agent = os.getppid()
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        limits = UnpackLimits(int(most_bytes), int(most_entries))
        digest = unpack_layer(sys.stdin.buffer, Path(target), limits=limits)
        if os.getppid() != agent:
            raise ImageFailure("the process that pulled the layer has ended")
    except MemoryError:
        remove_tree(target)
        raise MappedWorkFailed(f"it needs more than {_MEMORY_BYTES >> 20} MiB of memory") from None
    except ImageFailure as error:
        remove_tree(target)
        raise MappedWorkFailed(str(error)) from error
    except BaseException:
        remove_tree(target)
        raise
    return digest


def unpack_layer(source: IO[bytes], target: Path, *, limits: UnpackLimits | None = None) -> str:
    """Unpack a tar archive, compressed or not, into a new directory, and return the digest of the uncompressed archive.

    Raise ImageFailure if the archive is broken or hostile. The caller removes the directory then.
    """
    limits = limits or UnpackLimits()
    target.mkdir(mode=0o755)
    root = os.open(target, os.O_PATH | os.O_DIRECTORY)
    try:
        measured = _Measured(_decompress(source), limits.bytes)
        unpacker = _Unpacker(root)
        with tarfile.open(fileobj=measured, mode="r|", tarinfo=_BoundedInfo) as archive:  # type: ignore[call-overload]
            number = 0
            while (member := archive.next()) is not None:
                number += 1
                if number > limits.entries:
                    raise ImageFailure(f"the layer has more than {limits.entries} entries")
                unpacker.add(archive, member)
                archive.members.clear()  # It would remember them all.
        while measured.read(_CHUNK):
            pass
        unpacker.finish()
        return f"sha256:{measured.digest.hexdigest()}"
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, ArithmeticError) as error:
        raise ImageFailure(f"the layer is not a valid archive: {error}") from error
    except RecursionError as error:
        raise ImageFailure("the layer is nested too deeply") from error
    except OSError as error:
        raise ImageFailure(f"the layer cannot be unpacked: {error}") from error
    finally:
        os.close(root)


def _decompress(source: IO[bytes]) -> IO[bytes]:
    head = source.read(4)
    whole = _Prefixed(head, source)
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=whole)  # type: ignore[call-overload,no-any-return]
    if head == _ZSTANDARD:
        return _ZstdLayer(whole)  # type: ignore[arg-type,return-value]
    return whole  # type: ignore[return-value]


class _ZstdLayer:
    """A reader of a layer that is compressed with zstd: by Python from 3.14 on, by the package zstandard before."""

    def __init__(self, source: IO[bytes]) -> None:
        """Raise ImageFailure if zstd is missing here."""
        self._reader, self._error = _open_zstd(source)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._reader.read(size)
        except (EOFError, self._error) as error:
            raise ImageFailure(f"the layer is not a valid archive: {error}") from error


class _Reader(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def _open_zstd(source: IO[bytes]) -> tuple[_Reader, type[Exception]]:
    """Return a reader and the error that it raises. The library is large, and few images need it: it is loaded here."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415

        return zstd.ZstdFile(source, options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}), zstd.ZstdError
    try:
        import zstandard  # noqa: PLC0415
    except ImportError:  # An optional dependency.
        raise ImageFailure(
            "the layer is compressed with zstd, which this Python needs a package for; "
            "install it with `pip install 'pinnace[zstd]'`, or push the image with gzip layers"
        ) from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
    return decompressor.stream_reader(source, read_across_frames=True), zstandard.ZstdError


class _Prefixed:
    """A reader that begins with bytes that were read already."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        if self._head:
            data, self._head = (self._head, b"") if size < 0 else (self._head[:size], self._head[size:])
            return data
        return self._rest.read(size)


class _Unpacker:
    def __init__(self, root: int) -> None:
        self._root = root
        self._is_root = os.geteuid() == 0
        self._directories: dict[str, tarfile.TarInfo] = {}

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = _clean(member.name)
        if not path:
            if not member.isdir():
                raise ImageFailure("the root of the layer is not a directory")
            return
        if member.size < 0:
            raise ImageFailure(f"{member.name!r} has the size {member.size}")
        _check_ids(member)
        above, _, name = path.rpartition("/")
        if above.startswith(_WHITEOUT) or f"/{_WHITEOUT}" in above:
            raise ImageFailure(f"{member.name!r} is below a whiteout")
        if name.startswith(_WHITEOUT):
            with self._open(above) as parent:
                _add_whiteout(parent, name)
            return
        if member.issparse():
            raise ImageFailure(f"{member.name} is a sparse file, which layers may not contain")
        if member.ischr() or member.isblk():
            return
        with self._open(above) as parent:
            self._make(archive, member, parent, name)
            if member.isdir():
                self._directories[path] = member
            elif not member.islnk():  # A hard link has the attributes of its target.
                self._set_attributes(parent, name, member)

    def finish(self) -> None:
        """Set the modes and times of the directories, which writing into them would change or prevent."""
        for path, member in reversed(self._directories.items()):
            above, _, name = path.rpartition("/")
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._open(above) as parent:
                self._set_attributes(parent, name, member)

    def _make(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
        _replace(parent, name, keep_directory=member.isdir())
        if member.isdir():
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            self._link(member, parent, name)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=parent)
        elif member.isfile():
            content = archive.extractfile(member)
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
            with open(fd, "wb") as file:
                if content is not None:
                    shutil.copyfileobj(content, file, _CHUNK)
        else:
            raise ImageFailure(f"{member.name} has the unknown type {member.type!r}")

    def _link(self, member: tarfile.TarInfo, parent: int, name: str) -> None:
        """Make a hard link. Its target must lie in the same layer; the last part of its path is not followed."""
        above, _, target = _clean(member.linkname).rpartition("/")
        try:
            with self._open(above, create=False) as place:
                os.link(target, name, src_dir_fd=place, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            raise ImageFailure(f"{member.name} is a hard link to {member.linkname}: {error.strerror}") from error

    @contextlib.contextmanager
    def _open(self, path: str, *, create: bool = True) -> Iterator[int]:
        """Open a directory of the layer; links in its path are followed as if the layer were the root."""
        fd = self._open_directory(path, create=create)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open_directory(self, path: str, *, create: bool) -> int:
        try:
            return linux.open_inside(self._root, path or ".", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
        above, _, name = path.rpartition("/")
        parent = self._open_directory(above, create=True)
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            raise ImageFailure(f"the directory {path} of the layer is a link that leads nowhere") from None
        finally:
            os.close(parent)
        return linux.open_inside(self._root, path, os.O_RDONLY | os.O_DIRECTORY)

    def _set_attributes(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        if self._is_root:
            _change_owner(parent, name, member)
        mode = stat.S_IMODE(member.mode)
        _change_mode(parent, name, mode if self._is_root else mode & 0o777)
        seconds = min(max(float(member.mtime), 0.0), _LAST_TIME)
        os.utime(name, (seconds, seconds), dir_fd=parent, follow_symlinks=False)


def _change_owner(parent: int, name: str, member: tarfile.TarInfo) -> None:
    """Change the owner of an entry. One that an ordinary user's subordinate ids do not reach stays with the user."""
    try:
        os.chown(name, member.uid, member.gid, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _change_mode(parent: int, name: str, mode: int) -> None:
    """Change the mode of an entry, never of the target of a link that has taken its place."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)


def _clean(name: str) -> str:
    """Return the path below the root of the layer. Raise ImageFailure if it climbs out."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ImageFailure(f"the path {name[:200]!r} of the layer leads out of the image")
    if len(parts) > _MAX_DEPTH:
        raise ImageFailure(f"a path of the layer has {len(parts)} parts; at most {_MAX_DEPTH} are allowed")
    return "/".join(parts)


def _check_ids(member: tarfile.TarInfo) -> None:
    if not (0 <= member.uid <= _MAX_ID and 0 <= member.gid <= _MAX_ID):
        raise ImageFailure(
            f"{member.name!r} belongs to the user {member.uid} and the group {member.gid}, which no system has"
        )


def _add_whiteout(parent: int, name: str) -> None:
    if name == _OPAQUE:
        os.setxattr(parent, "user.overlay.opaque", b"y")
        return
    hidden = name.removeprefix(_WHITEOUT)
    if hidden.startswith(_WHITEOUT):
        return  # Metadata of aufs.
    if hidden in ("", ".", ".."):
        raise ImageFailure(f"the whiteout {name!r} of the layer hides nothing")
    _replace(parent, hidden, keep_directory=False)
    os.mknod(hidden, stat.S_IFCHR | 0o600, os.makedev(0, 0), dir_fd=parent)


def _replace(parent: int, name: str, *, keep_directory: bool) -> None:
    """Remove an entry that an earlier one of the same layer has made."""
    try:
        known = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(known.st_mode):
        os.unlink(name, dir_fd=parent)
    elif not keep_directory:
        shutil.rmtree(name, dir_fd=parent)
