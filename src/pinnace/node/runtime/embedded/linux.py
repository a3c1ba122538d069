"""The system calls that Python 3.11 does not offer: namespaces, mounts, capabilities and prctl, through libc.

The fork server and the supervisors import this module: keep its imports small.
"""

from __future__ import annotations

import ctypes
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
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MS_SHARED = 0x100000
MS_RELATIME = 0x200000
_KEPT_FLAGS = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME
"""Flags of a mount that a remount in a user namespace must repeat; statvfs reports them with the same numbers."""
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_AMBIENT_CLEAR = 4

RESOLVE_NO_MAGICLINKS = 0x02
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

_OPENAT2 = 437
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_AT_FDCWD, _AT_RECURSIVE, _OPEN_TREE_CLONE = -100, 0x8000, 1
_MOVE_EMPTY_PATHS = 0x04 | 0x40
_PIVOT_ROOT, _CLONE = (41, 220) if platform.machine() == "aarch64" else (155, 56)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)
_libc.syscall.restype = ctypes.c_long
_locked_libc = ctypes.PyDLL(None, use_errno=True)
"""Keeps the interpreter's lock during a call, so that the child of a clone holds it too."""
_locked_libc.syscall.restype = ctypes.c_long


def _check(result: int, subject: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)
    return result


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, kind: int = 0) -> None:
    _check(_libc.setns(fd, kind), f"setns {kind:#x}")


def clone(flags: int) -> int:
    """Fork with flags, and return 0 in the child. Only for a process without threads, whose child calls exec soon.

    An ordinary user cannot leave a process namespace after `unshare` and fork, so that a supervisor must not enter one.
    """
    return _check(int(_locked_libc.syscall(_CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)), f"clone {flags:#x}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, options.encode() if options else None
    )
    _check(result, f"mount {kind or 'bind'} at {target}")


def bind(source: str, target: str, *, read_only: bool = False, recursive: bool = True) -> None:
    """Bind a file or directory. A read-only bind keeps the restrictions that the source has already."""
    mount(source, target, "", MS_BIND | (MS_REC if recursive else 0))
    if read_only:
        restrict(target, MS_RDONLY)


def restrict(target: str, flags: int) -> None:
    """Add flags such as MS_RDONLY to a mount, which keeps those that it has."""
    kept = os.statvfs(target).f_flag & _KEPT_FLAGS
    mount("none", target, "", MS_REMOUNT | MS_BIND | kept | flags)


def clone_tree(path: str) -> int:
    """Clone a mount and those below it, in the peer groups of the originals, and return it as an open file."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return _check(int(_libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), flags)), path)


def attach_tree(tree: int, target: int) -> None:
    """Attach a cloned mount; both are open files."""
    _check(int(_libc.syscall(_MOVE_MOUNT, tree, b"", target, b"", _MOVE_EMPTY_PATHS)), "move_mount")


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    _check(_libc.umount2(target.encode(), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    _check(_libc.syscall(_PIVOT_ROOT, new.encode(), old.encode()), "pivot_root")


def open_inside(root: int, path: str, flags: int, *, resolve: int = RESOLVE_IN_ROOT) -> int:
    """Open a path below a directory: by default links are followed as if the directory were the root."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve | RESOLVE_NO_MAGICLINKS)
    opened = _libc.syscall(_OPENAT2, root, path.encode(), how, ctypes.c_size_t(len(how)))
    return _check(int(opened), path)


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    _check(_libc.prctl(option, first, second, 0, 0), f"prctl {option}")


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
    with open("/proc/self/status") as status:
        permitted = next(int(line.split()[1], 16) for line in status if line.startswith("CapPrm"))
    mask &= permitted
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    _check(_libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)), "capset")


def install_seccomp(program: bytes) -> None:
    """Install a BPF program, a sequence of 8-byte instructions, as the seccomp filter of this process."""
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(header))
