"""Seccomp filters: the default profile, with and without capabilities, and profiles of the node."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.machine import do_without
from tests.node.runtime.embedded.conftest import Pods

from pinnace.node.errors import CreateFailed
from pinnace.node.runtime.embedded.launches.seccomp import default_program, has_seccomp
from pinnace.node.runtime.embedded.launches.seccomp_calls import CALLS, CALLS_OF_CAPABILITIES
from pinnace.node.runtime.runtime import DEFAULT_CAPABILITIES, RUNTIME_DEFAULT, SecurityContext

pytestmark = pytest.mark.skipif(not has_seccomp(), reason="this machine has no libseccomp")

# Calls each system call with arguments that do nothing, and prints its error.
_CALL = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
for number, *arguments in eval(sys.argv[1]):
    result = libc.syscall(number, *(ctypes.c_ulong(argument) for argument in arguments))
    print(errno.errorcode.get(ctypes.get_errno(), "-") if result < 0 else "fine")
"""
# The same by the instruction `int 0x80`, in a process of its own for a kernel without it.
_CALL_OF_32_BITS = """
import ctypes, errno, mmap, os, sys
code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("53 89f8 89f3 87ca cd80 5b c3"))
call = ctypes.CFUNCTYPE(*[ctypes.c_int] * 5)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
child = os.fork()
if child == 0:
    call(20, 0, 0, 0)
    os._exit(0)
if os.waitpid(child, 0)[1]:
    sys.exit(print("none"))
for arguments in eval(sys.argv[1]):
    result = call(*arguments)
    print(errno.errorcode.get(-result, "-") if result < 0 else "fine")
"""
_X86_64 = pytest.mark.skipif(__import__("platform").machine() != "x86_64", reason="the numbers are those of x86-64")


async def _call(pods: Pods, calls: list[tuple[int, ...]], **security: Any) -> list[str]:
    context = SecurityContext(**{"seccomp": RUNTIME_DEFAULT, **security})
    return (await pods.output(["python3", "-c", _CALL, repr(calls)], security=context)).split()


@_X86_64
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("io_uring_setup", (425, 1, 0)),
        ("unshare a user namespace", (272, 0x10000000)),
        ("mount", (165, 0, 0, 0, 0, 0)),
        ("keyctl", (250, 0, 0, 0, 0)),
        ("add_key", (248, 0, 0, 0, 0)),
        ("bpf", (321, 0, 0, 0)),
        ("perf_event_open", (298, 0, 0, 0, 0)),
        ("userfaultfd", (323, 0)),
        ("open_by_handle_at", (304, 0, 0, 0)),
        ("personality of another system", (135, 0x4)),
        ("setns", (308, 0, 0)),
        ("process_vm_readv", (310, 0, 0, 0, 0, 0)),
        ("kexec_load", (246, 0, 0, 0, 0)),
        ("init_module", (175, 0, 0, 0)),
        ("a clone with a new namespace", (56, 0x10000000 | 17, 0, 0, 0, 0)),
        ("a socket of the kernel's ciphers", (41, 38, 5, 0)),
        ("a socket to the host of this virtual machine", (41, 40, 1, 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_default_profile_refuses(pods: Pods, name: str, call: tuple[int, ...]) -> None:
    assert await _call(pods, [call]) == ["EPERM"], name


@_X86_64
async def test_the_calls_of_32_bits_open_no_other_sockets(pods: Pods) -> None:
    """CVE-2026-31431: socketcall, which takes the family from memory, opened what the filter refuses to socket."""
    calls = [(102, 1, 0, 0), (359, 38, 5, 0), (359, 40, 1, 0), (359, 1, 1, 0), (359, 2, 2, 0)]
    security = SecurityContext(seccomp=RUNTIME_DEFAULT)
    output = (await pods.output(["python3", "-c", _CALL_OF_32_BITS, repr(calls)], security=security)).split()
    if output == ["none"]:
        do_without("this kernel runs no programs of 32 bits")
    assert output == ["ENOSYS", "EPERM", "EPERM", "fine", "fine"]


@_X86_64
async def test_the_default_profile_lets_the_c_library_fall_back(pods: Pods) -> None:
    """clone3 hides its flags, and a call that no profile knows may be tried by a newer C library."""
    assert await _call(pods, [(435, 0, 0), (467, 0), (600, 0), (135, 0xFFFFFFFF)]) == ["ENOSYS"] * 3 + ["fine"]


@_X86_64
async def test_a_capability_brings_its_calls(pods: Pods) -> None:
    calls = [(304, 0, 0, 0), (310, 0, 0, 0, 0, 0), (237, 0, 0, 0, 0, 0, 0)]
    assert await _call(pods, calls) == ["EPERM"] * 3
    held = (*DEFAULT_CAPABILITIES, "DAC_READ_SEARCH", "SYS_PTRACE", "SYS_NICE")
    assert "EPERM" not in await _call(pods, calls, capabilities=held)


async def test_a_privileged_or_unconfined_container_has_no_filter(pods: Pods) -> None:
    command = "grep Seccomp: /proc/self/status"
    assert (await pods.output(command, security=SecurityContext(seccomp="Unconfined"))).split()[1] == "0"
    assert (await pods.output(command, security=SecurityContext(seccomp=RUNTIME_DEFAULT))).split()[1] == "2"
    privileged = SecurityContext(seccomp=RUNTIME_DEFAULT, privileged=True)
    assert (await pods.output(command, security=privileged)).split()[1] == "0"


async def test_a_command_has_the_filter_of_its_container(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"], security=SecurityContext(seccomp=RUNTIME_DEFAULT))
    result = await pods.runtime.exec_sync(container, ["grep", "Seccomp:", "/proc/self/status"], timeout=60)
    assert result.output.split()[1] == b"2"


async def test_a_profile_of_the_node_is_applied(pods: Pods, tmp_path: Path) -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["mkdir", "mkdirat", "no_such_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95},
            {
                "names": ["kill"],
                "action": "SCMP_ACT_ERRNO",
                "args": [
                    {"index": 1, "value": 10, "op": "SCMP_CMP_EQ"},
                    {"index": 1, "value": 12, "op": "SCMP_CMP_EQ"},
                ],
            },
        ],
    }
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    command = "mkdir /tmp/x 2>&1; for s in USR1 USR2; do (kill -$s $$) 2>&1; done; (kill -0 $$) && echo fine"
    output = await pods.output(command, security=SecurityContext(seccomp=str(path)))
    assert "Operation not supported" in output
    assert output.count("not permitted") == 2
    assert output.endswith("fine\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r'failed to generate spec: cannot load seccomp profile ".*": open .*: no such file or directory'),
        ("{", "decoding seccomp profile failed"),
        ("[]", "decoding seccomp profile failed"),
        ("{}", "decoding seccomp profile failed"),
        ('{"defaultAction": "SCMP_ACT_NOTIFY"}', "SCMP_ACT_NOTIFY is not supported"),
        (
            '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO", '
            '"args": [{"index": 9, "op": "SCMP_CMP_EQ"}]}]}',
            "out of range",
        ),
    ],
    ids=["missing", "no JSON", "no object", "empty", "unknown action", "bad argument"],
)
async def test_a_profile_that_cannot_be_applied_stops_the_container(
    pods: Pods, tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CreateFailed, match=message):
        await pods.start(["true"], security=SecurityContext(seccomp=str(path)))


def test_each_capability_changes_the_filter() -> None:
    from pinnace.node.machine.linux import CAPABILITIES  # noqa: PLC0415

    programs = {default_program(1 << CAPABILITIES[name]) for name in CALLS_OF_CAPABILITIES}
    assert len(programs) == len(CALLS_OF_CAPABILITIES)
    assert len(CALLS) == len(set(CALLS))
    assert sys.getsizeof(default_program()) < 1 << 15
