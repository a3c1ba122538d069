"""/etc for containers of the image `host`: copies of the configuration that programs need, and nothing else.

A file is copied if its name is in the list, and if every user of this machine may read it by its whole path. It is a
copy, and not a view: a container has no way to the files that are not here, whatever its user, its groups and its
capabilities, and a file that becomes private later was public when it was copied.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

_LIST = """
adduser.conf alpine-release alternatives arch-release bash.bashrc bash_completion.d bashrc bindresvport.blacklist
busybox.conf ca-certificates ca-certificates.conf centos-release crypto-policies csh.cshrc csh.login debian_version
dpkg ethertypes fedora-release fonts gai.conf groff group gss host.conf inputrc issue issue.net java java-11-openjdk
java-17-openjdk java-21-openjdk java-25-openjdk java-8-openjdk krb5.conf krb5.conf.d ld.so.cache ld.so.conf
ld.so.conf.d libaudit.conf locale.alias locale.conf locale.gen localtime login.defs lsb-release magic magic.mime
mailcap mailcap.order manpath.config maven mime.types mke2fs.conf nanorc netconfig networks nsswitch.conf openldap
os-release papersize passwd perl php pki profile protocols python python2 python3 R redhat-release rpc securetty
services sgml shells skel ssl SuSE-release system-release terminfo texmf timezone vim vimrc wgetrc xattr.conf xdg xml
zsh zshrc
"""
_NAMES = frozenset(_LIST.split())
_VERSIONED = ("ld-musl-", "python2.", "python3.")
_USERS_OF_PEOPLE = range(1000, 65534)
"""The ids that systems give to people."""
_READABLE, _SEARCHABLE = 0o004, 0o005
_MAX_FILE_BYTES, _MAX_BYTES, _MAX_ENTRIES = 4 << 20, 64 << 20, 20_000


def copy_etc(target: Path, *, programs: Collection[str] = (), source: Path = Path("/etc")) -> None:
    """Make a directory the public part of /etc, or bring it up to date. Only files that differ are written.

    `programs` are names of programs whose own directory below /etc is needed, too. Files are replaced as a whole, so
    that this may be stopped at any moment, and while containers read the directory.
    """
    target.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    try:
        with _opened(str(source)) as directory:
            if not _is_public(os.fstat(directory)):
                return
            _Copy(fresh).directory(directory, target, lambda name: _is_wanted(name, programs))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def public_accounts(content: bytes) -> bytes:
    """The lines of /etc/passwd that belong to the system, without passwords."""
    lines = [line.split(b":") for line in content.splitlines()]
    kept = [[name, b"x", *rest] for name, _, *rest in (line for line in lines if len(line) == 7) if _is_of_system(rest)]
    return b"".join(b":".join(line) + b"\n" for line in kept)


def public_groups(content: bytes, accounts: bytes) -> bytes:
    """The lines of /etc/group that belong to the system, without passwords; `accounts` are those that are shown."""
    known = {line.partition(b":")[0] for line in accounts.splitlines()}
    lines = [line.split(b":") for line in content.splitlines()]
    kept = [line for line in lines if len(line) == 4 and _is_of_system(line[2:])]
    return b"".join(
        b":".join((name, b"x", number, b",".join(member for member in members.split(b",") if member in known))) + b"\n"
        for name, _, number, members in kept
    )


def _is_of_system(fields: list[bytes]) -> bool:
    return fields[0].isdigit() and int(fields[0]) not in _USERS_OF_PEOPLE


def _is_wanted(name: str, programs: Collection[str]) -> bool:
    return name in _NAMES or name in programs or name.startswith(_VERSIONED)


class _Copy:
    """One pass over the directories, with limits on all that it copies."""

    def __init__(self, fresh: Path) -> None:
        self._fresh = fresh
        self._bytes = 0
        self._entries = 0

    def directory(self, source: int, target: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
        kept = set()
        is_top = target.name == "etc"
        names = sorted(filter(is_wanted, os.listdir(source)), key=lambda name: (name != "passwd", name))
        for name in names:  # The members of groups are those accounts that are shown.
            with contextlib.suppress(OSError):  # It went, or it is not for this user either.
                if self._entry(source, name, target / name, is_top=is_top):
                    kept.add(name)
        for left in target.iterdir():
            if left.name not in kept:
                _remove(left)

    def _entry(self, parent: int, name: str, target: Path, *, is_top: bool) -> bool:
        """Copy one entry if it is public. Return whether it is in the target now."""
        status = os.lstat(name, dir_fd=parent)
        self._entries += 1
        if self._entries > _MAX_ENTRIES or not _is_public(status):
            return False
        known = _lstat(target)
        if known is not None and stat.S_IFMT(known.st_mode) != stat.S_IFMT(status.st_mode):
            _remove(target)
            known = None
        if stat.S_ISLNK(status.st_mode):
            self._link(os.readlink(name, dir_fd=parent), target)
            return True
        if stat.S_ISDIR(status.st_mode):
            target.mkdir(mode=0o755, exist_ok=True)
            with _opened(name, parent) as directory:
                if not _is_public(os.fstat(directory)):
                    return False
                self.directory(directory, target)
            return True
        self._bytes += status.st_size
        if status.st_size > _MAX_FILE_BYTES or self._bytes > _MAX_BYTES:
            return False
        if is_top and name in ("passwd", "group"):
            return self._file(parent, name, target, is_accounts=True)
        return _is_same(known, status) or self._file(parent, name, target)

    def _link(self, pointed: str, target: Path) -> None:
        if not target.is_symlink() or os.readlink(target) != pointed:
            fresh = self._name()
            fresh.symlink_to(pointed)
            fresh.replace(target)

    def _file(self, parent: int, name: str, target: Path, *, is_accounts: bool = False) -> bool:
        """Copy a file. It is looked at again after it was read: its mode may have changed meanwhile."""
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        with open(fd, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
            status = os.fstat(fd)
        if not _is_public(status) or not stat.S_ISREG(status.st_mode) or len(content) > _MAX_FILE_BYTES:
            return False
        if is_accounts:
            accounts = target.with_name("passwd")
            content = public_accounts(content) if target == accounts else public_groups(content, accounts.read_bytes())
            if target.exists() and target.read_bytes() == content and _is_same(target.lstat(), status):
                return True
        fresh = self._name()
        fresh.write_bytes(content)
        fresh.chmod(_container_mode(status))
        os.utime(fresh, ns=(status.st_mtime_ns, status.st_mtime_ns))
        fresh.replace(target)
        return True

    def _name(self) -> Path:
        return self._fresh / secrets.token_hex(8)


def _is_public(status: os.stat_result) -> bool:
    """Whether every user of the machine may read it. Only files, directories and links are shown."""
    if stat.S_ISDIR(status.st_mode):
        return status.st_mode & _SEARCHABLE == _SEARCHABLE
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and bool(status.st_mode & _READABLE))


def _is_same(known: os.stat_result | None, status: os.stat_result) -> bool:
    return known is not None and (known.st_mtime_ns, stat.S_IMODE(known.st_mode)) == (
        status.st_mtime_ns,
        _container_mode(status),
    )


def _container_mode(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode) & 0o755


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextlib.contextmanager
def _opened(path: str, parent: int | None = None) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)
