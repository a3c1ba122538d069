"""The default seccomp filter, as a BPF program that libseccomp makes once. Without libseccomp there is none.

It refuses, with EPERM, the system calls that containerd's default profile refuses to a container without capabilities:
those that change the kernel, the clock, mounts, namespaces or other processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | 1
_REFUSED = """
acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick
get_kernel_syms get_mempolicy init_module ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mbind mount
mount_setattr move_mount move_pages nfsservctl open_by_handle_at open_tree perf_event_open pivot_root query_module
quotactl quotactl_fd reboot request_key set_mempolicy setns settimeofday stime swapoff swapon sysfs _sysctl umount
umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old
"""
_NEW_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
"""The flags of clone that make a namespace."""
_MASKED_EQUAL = 7
_NOT_IMPLEMENTED = 0x00050000 | 38
"""For clone3, whose flags a filter cannot see: the C library falls back to clone."""


class _Comparison(ctypes.Structure):
    _fields_ = (
        *(("arg", ctypes.c_uint), ("op", ctypes.c_int)),
        *(("first", ctypes.c_uint64), ("second", ctypes.c_uint64)),
    )


def default_program() -> bytes:
    """Return the instructions of the filter; empty if this machine has no libseccomp."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return b""
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    library.seccomp_rule_add_array.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p),
    )
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    context = library.seccomp_init(_ALLOW)
    if not context:
        return b""
    try:
        for name in _REFUSED.split():
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:
                library.seccomp_rule_add_array(context, _REFUSE, number, 0, None)
        clone = library.seccomp_syscall_resolve_name(b"clone")
        for flag in _NEW_NAMESPACES:
            comparison = _Comparison(0, _MASKED_EQUAL, flag, flag)
            library.seccomp_rule_add_array(context, _REFUSE, clone, 1, ctypes.byref(comparison))
        library.seccomp_rule_add_array(
            context, _NOT_IMPLEMENTED, library.seccomp_syscall_resolve_name(b"clone3"), 0, None
        )
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _export(library: ctypes.CDLL, context: int) -> bytes:
    fd = os.memfd_create("seccomp")
    try:
        if library.seccomp_export_bpf(context, fd) != 0:
            return b""
        os.lseek(fd, 0, os.SEEK_SET)
        return os.read(fd, 1 << 16)
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
