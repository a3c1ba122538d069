"""The start of a container gives nothing of the node away: no open file, no directory, no process to look into."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.node.runtime.embedded.conftest import HOST, PROCESSES, Pods, log_of, until

from pinnace.node.errors import RuntimeFailure, StartFailed
from pinnace.node.runtime.runtime import (
    DEFAULT_CAPABILITIES,
    MASKED_PATHS,
    READ_ONLY_PATHS,
    ContainerConfig,
    Mount,
    PidMode,
    SecurityContext,
)

pytestmark = pytest.mark.usefixtures("each_kind_of_users")
_MANY = range(3, 40)
_MASKED = SecurityContext(masked_paths=MASKED_PATHS, read_only_paths=READ_ONLY_PATHS)

# Runs as the first instruction of a container, and looks at itself. Opening the list of files makes the one that is
# left out.
_LOOK = """
import json, os
fds = {}
for name in os.listdir("/proc/self/fd"):
    if os.path.lexists(f"/proc/self/fd/{name}"):
        fds[name] = os.readlink(f"/proc/self/fd/{name}")
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "fds": fds,
    "root": os.stat("/").st_ino == os.stat("/proc/self/root/").st_ino,
    "cwd": os.getcwd(),
    "status": {key: value.strip() for key, value in status.items()},
    "mounts": [line.split()[4] for line in open("/proc/self/mountinfo")],
    "uid_map": open("/proc/self/uid_map").read().split(),
    "parent": os.getppid(),
}))
"""


@pytest.fixture
def sentinel(tmp_path: Path) -> Path:
    """A volume with a subdirectory, and a file beside it that no container may reach."""
    tmp_path.chmod(0o755)
    (tmp_path / "volume" / "inner").mkdir(parents=True)
    (tmp_path / "outside").write_text("the node's own")
    return tmp_path


@pytest.mark.parametrize("has_volume", [False, True], ids=["plain", "with a subPath"])
@pytest.mark.parametrize("user", [0, 1000])
async def test_no_working_directory_is_an_open_file_of_the_runtime(
    pods: Pods, sentinel: Path, has_volume: bool, user: int
) -> None:
    sandbox = await pods.sandbox()
    mounts = [Mount(container_path="/data", host_path=str(sentinel / "volume"), sub_path="inner")] if has_volume else []
    security = SecurityContext(user=user, group=user)
    for number in _MANY:
        for path in (f"/proc/self/fd/{number}", f"/proc/1/fd/{number}", f"/proc/self/fd/{number}/../../.."):
            with pytest.raises(StartFailed, match=re.escape(f"{path}: chdir to the working directory failed: ")):
                await pods.start(["ls"], sandbox, working_directory=path, mounts=mounts, security=security)


@pytest.mark.parametrize("link", ["/proc/self/fd/{}", "/proc/self/root", "/proc/self/cwd", "/proc/1/root"])
async def test_no_link_of_an_image_leads_to_an_open_file_of_the_runtime(pods: Pods, sentinel: Path, link: str) -> None:
    sandbox = await pods.sandbox()
    mounts = [Mount(container_path="/data", host_path=str(sentinel / "volume"))]
    for number in _MANY if "{}" in link else [0]:
        work = sentinel / "volume" / "work"
        work.unlink(missing_ok=True)
        work.symlink_to(link.format(number))
        with pytest.raises(StartFailed):
            await pods.start(["ls"], sandbox, working_directory="/data/work", mounts=mounts)


async def test_a_command_in_a_container_cannot_start_in_an_open_file(pods: Pods, sentinel: Path) -> None:
    """The container changes its directory to a link after its own start: a command starts there again."""
    mounts = [Mount(container_path="/data", host_path=str(sentinel / "volume"))]
    container = await pods.start(["sleep", "1000"], working_directory="/data/work", mounts=mounts)
    work = sentinel / "volume" / "work"
    for number in _MANY:
        work.rmdir() if work.is_dir() and not work.is_symlink() else work.unlink()
        work.symlink_to(f"/proc/self/fd/{number}")
        for tty in (False, True):
            with pytest.raises(RuntimeFailure):
                await _exec(pods, container, ["ls"], tty=tty)


@pytest.mark.parametrize("path", ["/proc/sys/kernel", "/proc/self/../sys", "/sys/firmware"])
async def test_a_masked_path_stays_masked_below_the_working_directory(pods: Pods, path: str) -> None:
    command = "touch x 2>/dev/null && echo made; echo x 2>/dev/null > domainname && echo written; ls | wc -l"
    output = await pods.output(command, working_directory=path, security=_MASKED)
    assert "made" not in output
    assert "written" not in output


async def test_a_container_begins_with_its_streams_alone(pods: Pods, sentinel: Path) -> None:
    mounts = [Mount(container_path="/data", host_path=str(sentinel / "volume"), sub_path="inner")]
    for config in ({}, {"mounts": mounts}, {"tty": True}, {"security": SecurityContext(user=1000, group=1000)}):
        seen = json.loads(await pods.output([_python(), "-c", _LOOK], **config))
        assert sorted(seen["fds"]) == ["0", "1", "2"]
        assert seen["root"]
        assert seen["cwd"] == "/"
        assert seen["status"]["CapInh"].strip("0") == ""
        assert seen["status"]["CapAmb"].strip("0") == ""


async def test_a_command_begins_with_its_streams_alone(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    result = await pods.runtime.exec_sync(container, [_python(), "-c", _LOOK], timeout=60)
    seen = json.loads(result.output)
    assert sorted(seen["fds"]) == ["0", "1", "2"]
    assert seen["status"]["CapInh"].strip("0") == ""
    assert str(pods.directory) not in "".join(seen["mounts"])


async def test_the_device_null_of_the_node_keeps_its_owner(pods: Pods) -> None:
    before = os.stat("/dev/null")
    await pods.output("true", security=SecurityContext(user=1000, group=1000))
    after = os.stat("/dev/null")
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


@pytest.mark.parametrize("user", ["4294967295", "4294967296", "2147483648", "0:4294967295"])
async def test_a_user_of_an_image_that_overflows_is_refused(pods: Pods, user: str) -> None:
    with pytest.raises(StartFailed, match="uids and gids must be in range 0-2147483647"):
        await pods.start(["id"], security=SecurityContext(user_name=user))


# Looks at every process that it sees until it is stopped, and prints whatever of the node it reaches.
_SPY = """
import os, sys
harmless = "pipe:", "/dev/pts", "/dev/null", "/proc", "/usr/lib", "/lib", "/etc/ld.so"  # Of the programs of containers.
seen = set()
me = os.getpid()
print("ready", flush=True)
while not os.path.exists("/data/stop"):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == me:
            continue
        try:
            if os.path.exists(f"/proc/{pid}/root" + sys.argv[1]):
                seen.add("root of the node")
        except OSError:
            pass
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if not target.startswith(harmless):
                    seen.add(f"file {target}")
        except OSError:
            pass
        try:
            if os.readlink(f"/proc/{pid}/exe").rpartition("/")[2].startswith("python"):
                os.close(os.open(f"/proc/{pid}/exe", os.O_RDWR))
                seen.add("the program of the runtime, for writing")
        except OSError:
            pass
        try:
            if os.path.exists(f"/proc/{pid}/cwd" + sys.argv[1]):
                seen.add("directory of the node")
            status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
            if int(status["CapPrm"], 16) & ~int(sys.argv[2], 16):
                seen.add("capabilities " + status["Name"] + status["CapPrm"])
        except (OSError, KeyError):
            pass
print(sorted(seen), flush=True)
"""
_SPY_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID", "KILL", "SYS_PTRACE")


async def test_a_process_of_the_pod_that_may_trace_sees_nothing_of_the_node(pods: Pods, sentinel: Path) -> None:
    """It looks at each process of the shared namespace without a pause, while containers and commands start there."""
    sandbox = await pods.sandbox(shares_processes=True)
    mounts = [Mount(container_path="/data", host_path=str(sentinel / "volume"))]
    security = SecurityContext(capabilities=_SPY_CAPABILITIES)
    outside = str(sentinel / "outside")
    mask = hex(sum(1 << bit for bit in (0, 1, 5, 6, 7, 19)))
    spy = await pods.start(
        [_python(), "-c", _SPY, outside, mask],
        sandbox,
        name="spy",
        pid_mode=PidMode.POD,
        mounts=mounts,
        security=security,
    )
    other = SecurityContext(capabilities=["CHOWN"])
    await _until_log(pods, spy, "ready")
    target = await pods.start(["sleep", "1000"], sandbox, name="t", pid_mode=PidMode.POD, security=other)
    for number in range(20):
        await pods.start(["true"], sandbox, name=f"c{number}", pid_mode=PidMode.POD, security=other)
        await _exec(pods, target, ["true"], tty=number % 2 == 0)
    (sentinel / "volume" / "stop").touch()
    assert log_of(await pods.end_of(spy)).splitlines()[-1] == "[]"


async def test_the_first_process_of_a_pod_has_an_empty_root_and_no_rights(pods: Pods) -> None:
    sandbox = await pods.sandbox(shares_processes=True)
    security = SecurityContext(capabilities=_SPY_CAPABILITIES)
    command = (
        "grep -E 'Name|CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/1/status; "
        "for place in root fd cwd; do ls -A /proc/1/$place/ 2>/dev/null | wc -l; done; touch /proc/1/root/x"
    )
    output = await pods.output(command, sandbox, pid_mode=PidMode.POD, security=security)
    values = output.split()
    status = dict(zip(values[:12:2], values[1:12:2], strict=True))
    assert status["Name:"] == "pause"
    assert {status[f"Cap{kind}:"].strip("0") for kind in ("Prm", "Eff", "Bnd")} == {""}
    assert status["NoNewPrivs:"] == "1"
    assert values[12:15] == ["0", "0", "0"]


async def test_a_debug_container_sees_nothing_of_the_node(pods: Pods, sentinel: Path) -> None:
    """Of an ephemeral container, whose processes are those of its target."""
    sandbox = await pods.sandbox()
    target = await pods.start(["sleep", "1000"], sandbox, name="target")
    security = SecurityContext(capabilities=(*_SPY_CAPABILITIES, "SYS_ADMIN"))
    command = (
        f"for p in /proc/[0-9]*; do [ -e $p/root{sentinel}/outside ] && echo reached; done; "
        f"{PROCESSES} | grep -o 'slee[p] 1000' | wc -l"
    )
    for number in range(2):
        name = f"debugger-{number}"
        assert await pods.output(command, sandbox, name=name, target=target, security=security) == "1\n"


async def test_the_program_of_the_runtime_cannot_be_changed_by_a_container(pods: Pods, sentinel: Path) -> None:
    """CVE-2019-5736: a container whose command is the program that starts it. It has opened it, and tries to write."""
    volume = sentinel / "volume"
    code = (
        "import os\n"
        "print(os.readlink('/proc/self/exe'), os.statvfs('/proc/self/exe').f_flag & os.ST_RDONLY)\n"
        "for flags in (os.O_WRONLY, os.O_RDWR):\n"
        "    try: os.open('/proc/self/exe', flags); print('opened')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    (volume / "code.py").write_text(code)
    mounts = [Mount(container_path="/data", host_path=str(volume))]
    if not sys.base_prefix.startswith("/usr"):  # Its libraries are not in the image.
        mounts.append(Mount(container_path=sys.base_prefix, host_path=sys.base_prefix, read_only=True))
    output = await pods.output(["/proc/self/exe", "/data/code.py"], mounts=mounts)
    # Read-only, also once no process runs it: unless the file is not the node's to write.
    is_writable = os.access(os.path.realpath(sys.executable), os.W_OK)
    assert re.fullmatch(r".*python\S* " + ("1" if is_writable else "[01]"), output.splitlines()[0])
    assert set(output.splitlines()[1:]) <= {str(code) for code in (errno.EROFS, errno.ETXTBSY, errno.EACCES)}


@pytest.mark.parametrize("name", ["proc", "sys", "dev"])
async def test_a_volume_cannot_take_the_place_of_the_processes(pods: Pods, sentinel: Path, name: str) -> None:
    mounts = [Mount(container_path=f"/{name}", host_path=str(sentinel / "volume"))]
    if name == "proc":
        with pytest.raises(StartFailed, match='"/proc" cannot be mounted because it is inside /proc'):
            await pods.start(["true"], mounts=mounts)
    else:
        await pods.output(["true"], mounts=mounts)


async def test_the_pods_of_an_ordinary_user_have_user_namespaces_of_their_own(pods: Pods) -> None:
    if os.geteuid() == 0:
        pytest.skip("these are the pods of root")
    node, own = os.readlink(f"/proc/{pods.supervisor('..')}/ns/user"), "readlink /proc/self/ns/user"
    assert len({node, *(await pods.output(own)).split(), *(await pods.output(own)).split()}) == 3


# Tries to look into a process of the node, by each file of /proc that leads out, and to trace it.
_LOOK_INTO = """
import ctypes, os, sys
place = f"/proc/{sys.argv[1]}"
assert os.path.exists(place + "/stat")  # It is seen, since the pod has the processes of the node.
links = ["root", "cwd", "exe", "ns/user", "ns/mnt", *(f"fd/{number}" for number in range(64))]
for name in links:
    try:
        os.readlink(f"{place}/{name}")
        print(name)
    except OSError:
        pass
for name, flags in (("mem", os.O_RDWR), ("maps", os.O_RDONLY), ("environ", os.O_RDONLY)):
    try:
        if os.read(os.open(f"{place}/{name}", flags), 1):
            print(name)
    except OSError:
        pass
if ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0:  # PTRACE_SEIZE
    print("traced")
print("end")
"""


@pytest.mark.parametrize("process", ["supervisor", "fork server"])
async def test_a_pod_with_the_processes_of_the_node_cannot_look_into_its_supervisor(pods: Pods, process: str) -> None:
    """It may trace with the rights of its own users; those of root on a node of root see the processes of root."""
    pods.host_users = True
    sandbox = await pods.sandbox(host_pid=True)
    pid = pods.supervisor(sandbox if process == "supervisor" else "..")
    own = () if os.geteuid() == 0 else ("SYS_PTRACE", "SYS_ADMIN")
    security = SecurityContext(capabilities=(*DEFAULT_CAPABILITIES, *own))
    command = [_python(), "-c", _LOOK_INTO, str(pid)]
    assert await pods.output(command, sandbox, pid_mode=PidMode.NODE, security=security) == "end\n"


async def test_a_command_waits_for_the_program_of_the_container(pods: Pods) -> None:
    """A command in a container that has not started yet would enter the namespaces of the node."""
    sandbox = await pods.sandbox()
    config = ContainerConfig(name="main", image=HOST, command=["sleep", "1000"])
    container = await pods.runtime.create_container(sandbox, config)
    starting = asyncio.ensure_future(pods.runtime.start_container(container))
    refused = 0
    while not starting.done():
        try:
            result = await pods.runtime.exec_sync(container, ["ls", str(pods.directory)], timeout=60)
            assert b"pods" not in result.output
        except (RuntimeFailure, KeyError):
            refused += 1
        await asyncio.sleep(0)
    await starting
    assert refused


def _python() -> str:
    return sys.executable if sys.executable.startswith("/usr/") else "python3"


async def _exec(pods: Pods, container: str, command: list[str], *, tty: bool) -> int:
    from pinnace.model.node_connections import CommandStreams, TerminalSize  # noqa: PLC0415

    async def sizes() -> Any:
        yield TerminalSize(80, 24)

    return await pods.runtime.exec(container, command, CommandStreams(sizes=sizes() if tty else None))


async def _until_log(pods: Pods, container: str, text: str) -> None:
    async def is_there() -> bool:
        status = await pods.runtime.container(container)
        return Path(status.log_file).exists() and text in log_of(status)

    await until(is_there)
