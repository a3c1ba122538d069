"""Seccomp filters as BPF programs, which libseccomp makes of profiles in the format of OCI.

The default profile is a list of what a container may call, as containerd has it: with capabilities come more calls. A
call that is newer than the profile fails with ENOSYS, so that the C library falls back to an older one.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pinnace.node.machine.linux import CAPABILITIES
from pinnace.node.runtime.embedded.launches.seccomp_calls import (
    CALLS,
    CALLS_OF_CAPABILITIES,
    CALLS_OF_MACHINES,
    NEWEST_CALLS,
)

_MAX_PROFILE = 1 << 20
_ALLOW, _ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"
_ACTIONS = {
    **{"SCMP_ACT_KILL": 0, "SCMP_ACT_KILL_THREAD": 0, "SCMP_ACT_KILL_PROCESS": 0x80000000, "SCMP_ACT_TRAP": 0x00030000},
    **{_ERRNO: 0x00050000, "SCMP_ACT_TRACE": 0x7FF00000, "SCMP_ACT_LOG": 0x7FFC0000, _ALLOW: 0x7FFF0000},
}
_WITH_NUMBER = (_ERRNO, "SCMP_ACT_TRACE")
_COMPARISONS = {name: number for number, name in enumerate(("NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"), start=1)}
_ARCHITECTURES = {
    **{"SCMP_ARCH_X86": 0x40000003, "SCMP_ARCH_X86_64": 0xC000003E, "SCMP_ARCH_X32": 0x4000003E},
    **{"SCMP_ARCH_ARM": 0x40000028, "SCMP_ARCH_AARCH64": 0xC00000B7},
}
_OF_MACHINES = {
    "x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"),
}
_OPTIMIZE, _BINARY_TREE = 8, 2
_NEW_NAMESPACES = 0x7E020000
"""The flags of clone that make a namespace."""
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
_X32_BIT = 0x40000000
_SOCKET_FAMILIES = ((38, "SCMP_CMP_LT"), (39, "SCMP_CMP_EQ"), (40, "SCMP_CMP_GT"))
"""All but AF_ALG, a part of the kernel that containers do not need, and AF_VSOCK, which knows no network namespace: it
leads to the machine, to its virtual machines and to the host of this one."""


class ProfileRefused(Exception):
    """A profile cannot be read or compiled. The message is that of containerd."""


class _Comparison(ctypes.Structure):
    _fields_ = (
        *(("arg", ctypes.c_uint), ("op", ctypes.c_int)),
        *(("first", ctypes.c_uint64), ("second", ctypes.c_uint64)),
    )


def has_seccomp() -> bool:
    """Whether this machine has libseccomp, without which there are no filters."""
    return _library() is not None


@lru_cache(maxsize=64)
def default_program(capabilities: int = 0) -> bytes:
    """The filter of a container with these capabilities; empty if this machine has no libseccomp."""
    return _compile(_default_profile(capabilities)) if has_seccomp() else b""


def program_of_file(path: str) -> bytes:
    """Compile a profile in a file of the node. Raise ProfileRefused."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_PROFILE + 1)
    except OSError as error:
        message = f'cannot load seccomp profile "{path}": open {path}: {(error.strerror or "").lower()}'
        raise ProfileRefused(message) from error
    if len(text) > _MAX_PROFILE:
        raise ProfileRefused(f'cannot load seccomp profile "{path}": it has more than {_MAX_PROFILE} bytes')
    try:
        return _compile(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProfileRefused(f'decoding seccomp profile failed: "{path}": {error}') from error


def _default_profile(capabilities: int) -> dict[str, Any]:
    held = {name for name, number in CAPABILITIES.items() if capabilities >> number & 1}
    more = [call for name, calls in CALLS_OF_CAPABILITIES.items() if name in held for call in calls]
    rules: list[dict[str, Any]] = [{"names": [*CALLS, *CALLS_OF_MACHINES.get(platform.machine(), ()), *more]}]
    for value in _PERSONALITIES:
        rules.append({"names": ["personality"], "args": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]})
    # A filter cannot see the family of socketcall, which libseccomp would allow together with socket.
    rules.append({"names": ["socketcall"], "action": _ERRNO, "errnoRet": errno.ENOSYS})
    for family, operator in _SOCKET_FAMILIES:
        rules.append({"names": ["socket"], "args": [{"index": 0, "value": family, "op": operator}]})
    if "SYS_ADMIN" not in held:
        same = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        rules.append({"names": ["clone"], "args": [same]})
        # A filter cannot see the flags of clone3: the C library falls back to clone.
        rules.append({"names": ["clone3"], "action": _ERRNO, "errnoRet": errno.ENOSYS})
    return {
        "defaultAction": _ERRNO,
        "architectures": _OF_MACHINES.get(platform.machine(), ()),
        "syscalls": [{"action": _ALLOW, **rule} for rule in rules],
    }


def _compile(profile: Mapping[str, Any]) -> bytes:
    library = _library()
    if library is None:
        raise ProfileRefused("seccomp is not enabled in this runtime: install libseccomp2")
    default = _action(profile["defaultAction"], profile.get("defaultErrnoRet"))
    context = library.seccomp_init(default)
    if not context:
        raise ProfileRefused("seccomp is not enabled in your kernel")
    try:
        for name in profile.get("architectures") or _OF_MACHINES.get(platform.machine(), ()):
            if name in _ARCHITECTURES:
                library.seccomp_arch_add(context, _ARCHITECTURES[name])
        library.seccomp_attr_set(context, _OPTIMIZE, _BINARY_TREE)
        for rule in profile.get("syscalls") or ():
            action = _action(rule["action"], rule.get("errnoRet"))
            if action != default:
                _add_rule(library, context, action, rule)
        program = _export(library, context)
    finally:
        library.seccomp_release(context)
    return _refuse_newer_calls() + program if default & 0xFFFF0000 == _ACTIONS[_ERRNO] else program


def _action(name: str, number: int | None) -> int:
    if name not in _ACTIONS:
        raise ValueError(f"action {name} is not supported")
    return _ACTIONS[name] | ((errno.EPERM if number is None else number & 0xFFFF) if name in _WITH_NUMBER else 0)


def _add_rule(library: ctypes.CDLL, context: int, action: int, rule: Mapping[str, Any]) -> None:
    arguments = [_comparison(argument) for argument in rule.get("args") or ()]
    indices = [argument.arg for argument in arguments]
    # Several comparisons of one argument are alternatives.
    groups = [[argument] for argument in arguments] if len(set(indices)) < len(indices) else [arguments]
    for name in rule["names"] if "names" in rule else [rule["name"]]:
        number = library.seccomp_syscall_resolve_name(str(name).encode())
        number = NEWEST_CALLS.get(name, -1) if number == -1 else number
        if number == -1:
            continue  # Of another machine, or newer than the library.
        for group in groups:
            array = (_Comparison * len(group))(*group)
            library.seccomp_rule_add_array(context, action, number, len(group), ctypes.byref(array) if group else None)


def _comparison(stated: Mapping[str, Any]) -> _Comparison:
    operator = _COMPARISONS[str(stated["op"]).removeprefix("SCMP_CMP_")]
    index, value, second = int(stated["index"]), int(stated.get("value", 0)), int(stated.get("valueTwo", 0))
    if not 0 <= index < 6 or not 0 <= value < 1 << 64 or not 0 <= second < 1 << 64:
        raise ValueError("an argument is out of range")
    return _Comparison(index, operator, value, second)


def _refuse_newer_calls() -> bytes:
    """Instructions before the filter: a call of this machine that no profile knows yet does not exist."""
    machine = _ARCHITECTURES[_OF_MACHINES[platform.machine()][0]] if platform.machine() in _OF_MACHINES else 0
    newest = max(NEWEST_CALLS.values())
    instructions: Sequence[tuple[int, int, int, int]] = (
        (0x20, 0, 0, 4),  # Load the architecture;
        (0x15, 0, 4, machine),  # go on to the filter if it is another one.
        (0x20, 0, 0, 0),  # Load the number;
        (0x35, 2, 0, _X32_BIT),  # go on if it is of the ABI x32,
        (0x25, 0, 1, newest),  # or not newer;
        (0x06, 0, 0, _ACTIONS[_ERRNO] | errno.ENOSYS),  # else it does not exist.
    )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    library.seccomp_arch_add.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    library.seccomp_rule_add_array.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p),
    )
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    return library


def _export(library: ctypes.CDLL, context: int) -> bytes:
    fd = os.memfd_create("seccomp")
    try:
        if library.seccomp_export_bpf(context, fd) != 0:
            raise ValueError("libseccomp cannot compile it")
        os.lseek(fd, 0, os.SEEK_SET)
        return os.read(fd, 1 << 19)
    finally:
        os.close(fd)
