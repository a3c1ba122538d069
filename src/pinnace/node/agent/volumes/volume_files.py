"""The files of a volume that shows API objects: replaced at once, as kubelet does, behind the link `..data`.

A privileged container can write to its volume and change everything in it while the agent works there. The agent
follows no link and reads nothing back: each call is relative to an open directory, and a record beside the volume says
which files it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pinnace.node.machine.mapped_root import give_files, remove_tree

_DATA = "..data"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class VolumeFile:
    content: bytes
    mode: int
    owner: int = -1
    """The user who owns the file; -1 for the agent's."""


def write_volume(place: int, name: str, files: Mapping[str, VolumeFile], group: int | None = None) -> None:
    """Make or update a volume in an open directory. Raise OSError, or ValueError for a path that leads out of it.

    The group, if there is one, can read the files. An ordinary user has one group, and the files stay in it.
    """
    record, digest = f"{name}.digest", _digest_of(files, group)
    if _link_target(place, record) == digest:
        return
    parts = {path: parts_of(path) for path in files}
    with open_directory(place, name, 0o755) as volume:
        fresh = f"..{secrets.token_hex(8)}"
        try:
            with open_directory(volume, fresh, 0o755) as top:
                for path, file in files.items():
                    _write_file(top, parts[path], file, group)
                owners = {path: file.owner for path, file in files.items() if group is not None or file.owner >= 0}
                if owners:
                    give_files(top, owners, -1 if group is None else group)
            _replace_link(volume, _DATA, fresh)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(volume, fresh)
            raise
        tops = {path[0] for path in parts.values()}
        for entry in tops:
            if _link_target(volume, entry) != f"{_DATA}/{entry}":
                _replace_link(volume, entry, f"{_DATA}/{entry}")
        for entry in set(os.listdir(volume)) - {_DATA, fresh, *tops}:
            _remove(volume, entry)
    _replace_link(place, record, digest)  # A link is replaced at once, and takes no block of a full file system.


def parts_of(path: str) -> list[str]:
    """Split a path. The API server has checked it; the agent refuses again what would lead out of the volume."""
    parts = path.split("/")
    if path.startswith(("/", "..")) or "\0" in path or {"", ".", ".."} & set(parts) or len(path) > _LONGEST_PATH:
        raise ValueError(f"invalid path {path[:100]!r}: must be relative, and must not contain or start with '..'")
    return parts


@contextlib.contextmanager
def open_directory(above: int, name: str, mode: int) -> Iterator[int]:
    """Open a directory, and make it if it is missing, with this mode whatever the umask is."""
    opened = _enter(above, name, mode)
    try:
        yield opened
    finally:
        os.close(opened)


def _enter(above: int, name: str, mode: int) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=above)
        is_new = True
    except FileExistsError:
        is_new = False
    opened = os.open(name, _DIRECTORY, dir_fd=above)
    try:
        if is_new:
            os.fchmod(opened, mode)
    except OSError:
        os.close(opened)
        raise
    return opened


def _write_file(top: int, parts: list[str], file: VolumeFile, group: int | None) -> None:
    """Write a file below an open directory. One directory is open at a time, however deep the path is."""
    place = os.dup(top)
    try:
        for name in parts[:-1]:
            below = _enter(place, name, 0o755)
            os.close(place)
            place = below
        with open(os.open(parts[-1], _NEW_FILE, 0o600, dir_fd=place), "wb") as opened:
            opened.write(file.content)
            os.fchmod(opened.fileno(), file.mode | (0o440 if group is not None else 0))
    finally:
        os.close(place)


def _replace_link(above: int, name: str, target: str) -> None:
    """Put a link in the place of an entry, whatever that is."""
    beside = f"..link-{secrets.token_hex(4)}"
    os.symlink(target, beside, dir_fd=above)
    try:
        os.replace(beside, name, src_dir_fd=above, dst_dir_fd=above)
    except IsADirectoryError:
        _remove(above, name)
        os.replace(beside, name, src_dir_fd=above, dst_dir_fd=above)


def _remove(above: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        remove_tree(name, above=above)


def _link_target(above: int, name: str) -> str:
    """The target of a link; empty if there is none."""
    try:
        return os.readlink(name, dir_fd=above)
    except OSError:
        return ""


def _digest_of(files: Mapping[str, VolumeFile], group: int | None) -> str:
    """Return what changes with the files. Many files may share one content, which is read once."""
    contents = {id(file.content): file.content for file in files.values()}
    digests = {number: hashlib.sha256(content).hexdigest() for number, content in contents.items()}
    described = sorted((path, digests[id(file.content)], file.mode, file.owner) for path, file in files.items())
    return hashlib.sha256(repr((described, group)).encode()).hexdigest()
