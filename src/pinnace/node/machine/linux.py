"""The system calls that Python 3.11 does not offer: namespaces, mounts, capabilities and prctl, through libc.

The fork server and the supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import signal
import struct

CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MS_SHARED = 0x100000
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_AMBIENT_CLEAR = 4

PROC_MAGIC, DEVPTS_MAGIC = 0x9FA0, 0x1CD1

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10

_CAPABILITY_NAMES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
CAPABILITIES = {name: number for number, name in enumerate(_CAPABILITY_NAMES.split())}
_CAPABILITY_VERSION_3 = 0x20080522

_OPENAT2, _CLOSE_RANGE = 437, 436
_MOST_LOOKUPS = 1000
"""The kernel gives up a path with `..` in it when anything on the machine is renamed or mounted meanwhile."""
_MAX_DESCRIPTOR = 0xFFFFFFFF
_NS_GET_NSTYPE = 0xB703
_PIVOT_ROOT, _CLONE = (41, 220) if platform.machine() == "aarch64" else (155, 56)
libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
libc.syscall.restype = ctypes.c_long
_locked_libc = ctypes.PyDLL(None, use_errno=True)
"""Keeps the interpreter's lock during a call, so that the child of a clone holds it too."""
_locked_libc.syscall.restype = ctypes.c_long


def check(result: int, subject: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)
    return result


def unshare(flags: int) -> None:
    check(libc.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, kind: int = 0) -> None:
    check(libc.setns(fd, kind), f"setns {kind:#x}")


def enter_namespace(fd: int) -> int:
    """Enter and close an open namespace, and return its kind, such as CLONE_NEWNET."""
    setns(fd)
    kind = fcntl.ioctl(fd, _NS_GET_NSTYPE)
    os.close(fd)
    return kind


def clone(flags: int) -> int:
    """Fork with flags, and return 0 in the child. Only for a process without threads, whose child calls exec soon.

    An ordinary user cannot leave a process namespace after `unshare` and fork, so that a supervisor must not enter one.
    """
    return check(int(_locked_libc.syscall(_CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)), f"clone {flags:#x}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, options.encode() if options else None
    )
    check(result, f"mount {kind or 'bind'} at {target}")


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    check(libc.umount2(target.encode(), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    check(libc.syscall(_PIVOT_ROOT, new.encode(), old.encode()), "pivot_root")


def open_inside(root: int, path: str, flags: int, *, resolve: int = RESOLVE_IN_ROOT) -> int:
    """Open a path below a directory: by default links are followed as if the directory were the root."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve | RESOLVE_NO_MAGICLINKS)
    for _ in range(_MOST_LOOKUPS):
        opened = int(libc.syscall(_OPENAT2, root, os.fsencode(path), how, ctypes.c_size_t(len(how))))
        if opened >= 0 or ctypes.get_errno() != errno.EAGAIN:
            break
    return check(opened, path)


def file_system_of(fd: int) -> int:
    """The magic number of the file system that holds an open file, such as PROC_MAGIC."""
    answer = ctypes.create_string_buffer(256)
    check(libc.fstatfs(fd, answer), "fstatfs")
    return int(struct.unpack_from("@l", answer)[0]) & 0xFFFFFFFF


def close_all_but(*kept: int) -> None:
    """Close every open file except these and the three standard streams, whatever opened it."""
    first = 3
    for fd in sorted({fd for fd in kept if fd >= first}):
        if fd > first:
            check(int(libc.syscall(_CLOSE_RANGE, first, fd - 1, 0)), "close_range")
        first = fd + 1
    check(int(libc.syscall(_CLOSE_RANGE, first, ctypes.c_uint(_MAX_DESCRIPTOR), 0)), "close_range")


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    check(libc.prctl(option, first, second, 0, 0), f"prctl {option}")


def name_process(name: str) -> None:
    """Set the name that ps shows, at most 15 bytes."""
    text = ctypes.create_string_buffer(name.encode()[:15])
    prctl(PR_SET_NAME, ctypes.addressof(text))


def capability_mask(names: list[str]) -> int:
    """Return the bits of the capabilities; ALL for all. Unknown names are ignored, as newer kernels have more."""
    if "ALL" in names:
        return (1 << len(CAPABILITIES)) - 1
    return sum(1 << CAPABILITIES[name] for name in set(names) if name in CAPABILITIES)


def drop_bounding(mask: int) -> None:
    """Remove every capability outside the mask from the bounding set."""
    for number in range(len(CAPABILITIES)):
        if not mask >> number & 1:
            try:
                prctl(PR_CAPBSET_DROP, number)
            except OSError:
                return  # An older kernel, which has fewer capabilities.


def set_capabilities(mask: int) -> None:
    """Make the mask the permitted and effective set of this process, and leave nothing to inherit."""
    prctl(PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    _use_capabilities(mask)


def set_file_owner(uid: int) -> None:
    """Own the files that this process makes from now on as this user and group, with all rights that it has."""
    libc.setfsgid(uid)
    libc.setfsuid(uid)  # It takes the capabilities for files away.
    _use_capabilities(-1)


def _use_capabilities(mask: int) -> None:
    """Keep, and use, the permitted capabilities that are in the mask."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    sets = ctypes.create_string_buffer(24)
    check(libc.capget(header, sets), "capget")  # Not from /proc, which may be that of the container.
    _, permitted_low, _, _, permitted_high, _ = struct.unpack("=6I", sets.raw)
    mask &= permitted_low | permitted_high << 32
    low, high = mask & 0xFFFFFFFF, mask >> 32
    check(libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)), "capset")


def install_seccomp(program: bytes) -> None:
    """Install a BPF program, a sequence of 8-byte instructions, as the seccomp filter of this process."""
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(header))
