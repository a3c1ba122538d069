"""Containers of the embedded runtime: start, end, signals, logs, users and limits."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.machine import do_without
from tests.node.runtime.embedded.conftest import HOST, PROCESSES, Pods, log_of, until

from pinnace.node.errors import ConfigRefused, NotThere, StartFailed
from pinnace.node.machine import linux
from pinnace.node.runtime.embedded.groups.cgroups import group_name
from pinnace.node.runtime.runtime import (
    RUNTIME_DEFAULT,
    ContainerConfig,
    ContainerState,
    Mount,
    PidMode,
    Propagation,
    Resources,
    SecurityContext,
    TemporaryFileSystem,
)

pytestmark = pytest.mark.usefixtures("each_kind_of_users")


async def test_a_container_runs_to_its_end(pods: Pods) -> None:
    container = await pods.start("echo hello; exit 3")
    status = await pods.end_of(container)
    assert (status.exit_code, status.reason, log_of(status)) == (3, "Error", "hello\n")
    assert status.created_at < status.started_at < status.finished_at


async def test_a_container_that_ends_well_is_completed(pods: Pods) -> None:
    status = await pods.end_of(await pods.start(["true"]))
    assert (status.exit_code, status.reason) == (0, "Completed")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param(
            ["no-such-program"], 'exec: "no-such-program": executable file not found in $PATH', id="not in PATH"
        ),
        pytest.param(["/no/such"], 'exec: "/no/such": stat /no/such: no such file or directory', id="no such file"),
        pytest.param(["/etc/passwd"], 'exec: "/etc/passwd": permission denied', id="not executable"),
    ],
)
async def test_a_command_that_cannot_start_is_an_error(pods: Pods, command: list[str], message: str) -> None:
    sandbox = await pods.sandbox()
    config = ContainerConfig(name="main", image=HOST, command=command)
    container = await pods.runtime.create_container(sandbox, config)
    with pytest.raises(StartFailed, match=re.escape(message)):
        await pods.runtime.start_container(container)
    status = await pods.runtime.container(container)
    assert (status.state, status.exit_code, status.reason) == (ContainerState.EXITED, 128, "StartError")


async def test_a_container_without_a_command_is_refused(pods: Pods) -> None:
    sandbox = await pods.sandbox()
    with pytest.raises(ConfigRefused, match="no command specified"):
        await pods.runtime.create_container(sandbox, ContainerConfig(name="main", image=HOST))
    assert await pods.runtime.containers(sandbox) == []


async def test_the_stop_signal_is_sent_before_the_kill(pods: Pods) -> None:
    container = await pods.start("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    await _wait_for_log(pods, container, "ready")
    await pods.runtime.stop_container(container, 60)
    status = await pods.runtime.container(container)
    assert (status.exit_code, log_of(status)) == (7, "ready\nbye\n")


async def test_a_container_that_ignores_the_signal_is_killed(pods: Pods) -> None:
    container = await pods.start("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    await _wait_for_log(pods, container, "ready")
    await pods.runtime.stop_container(container, 0.05)
    assert (await pods.runtime.container(container)).exit_code == 137


async def test_stopping_and_removing_may_be_repeated(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    for _ in range(2):
        await pods.runtime.stop_container(container, 0)
    for _ in range(2):
        await pods.runtime.remove_container(container)
    with pytest.raises(NotThere):
        await pods.runtime.container(container)
    await pods.runtime.remove_sandbox("no such sandbox")


async def test_containers_of_a_pod_share_hostname_network_and_ipc_but_not_processes(pods: Pods) -> None:
    sandbox = await pods.sandbox(hostname="shared")
    first = await pods.start("touch /dev/shm/mark; sleep 1000", sandbox, name="first")
    namespaces = "for n in net ipc uts pid mnt; do readlink /proc/self/ns/$n; done"
    listed = (await pods.runtime.exec_sync(first, ["sh", "-c", namespaces], timeout=60)).output.decode().split()
    two = (await pods.output(namespaces + "; hostname; ls /dev/shm", sandbox)).split()
    assert listed[:3] == two[:3]
    assert set(listed[3:]).isdisjoint(two[3:5])
    assert two[5:7] == ["shared", "mark"]


async def test_a_pod_may_share_its_processes(pods: Pods) -> None:
    sandbox = await pods.sandbox(shares_processes=True)
    await pods.start(["sleep", "4321"], sandbox, name="first", pid_mode=PidMode.POD)
    assert "sleep 4321" in await pods.output(PROCESSES, sandbox, pid_mode=PidMode.POD)


async def test_a_container_may_see_the_processes_of_another(pods: Pods) -> None:
    sandbox = await pods.sandbox()
    target = await pods.start(["sleep", "4321"], sandbox, name="target")
    assert "sleep 4321" in await pods.output(PROCESSES, sandbox, name="debugger", target=target)


async def test_the_environment_and_the_working_directory_are_set(pods: Pods) -> None:
    output = await pods.output(
        "echo $GREETING $HOSTNAME $HOME; pwd", environment=[("GREETING", "hi there")], working_directory="/data/new"
    )
    assert output == "hi there web /root\n/data/new\n"


async def test_writes_stay_in_the_container(pods: Pods) -> None:
    name = f"/etc/pinnace-test-{os.getpid()}"
    sandbox = await pods.sandbox()
    assert await pods.output(f"echo mine > {name}; cat {name}", sandbox) == "mine\n"
    assert not Path(name).exists()
    assert "No such file" in await pods.output(f"cat {name} 2>&1", sandbox, name="other")


async def test_a_read_only_root_refuses_writes(pods: Pods) -> None:
    security = SecurityContext(read_only_root=True)
    assert "Read-only" in await pods.output("touch /etc/x /y 2>&1", security=security)


@pytest.mark.parametrize("uid", [0, 1000, 4_000_000])
async def test_a_container_runs_as_its_user(pods: Pods, uid: int) -> None:
    sandbox = await pods.sandbox(**({"host_users": True} if uid == 4_000_000 else {}))
    security = SecurityContext(user=uid, group=uid)
    output = await pods.output(
        "id -u; id -g; grep CapEff /proc/self/status; echo x > /tmp/file; stat -c %u /tmp/file",
        sandbox,
        security=security,
    )
    lines = output.splitlines()
    assert lines[:2] == [str(uid), str(uid)]
    assert (lines[2].split()[1].strip("0") == "") == (uid != 0)
    assert lines[3] == str(uid)


async def test_capabilities_are_the_ones_that_were_asked_for(pods: Pods) -> None:
    few = await pods.output(
        "grep -E 'CapEff|CapBnd' /proc/self/status", security=SecurityContext(capabilities=["CHOWN"])
    )
    assert {line.split()[1] for line in few.splitlines()} == {"0000000000000001"}
    default = await pods.output("grep CapEff /proc/self/status")
    assert default.split()[1] == "00000000a80425fb"


async def test_a_device_that_a_container_makes_is_of_no_use(pods: Pods, tmp_path: Path) -> None:
    mounts = [Mount(container_path="/data", host_path=str(tmp_path))]
    command = (
        "for d in / /dev /data /tmp; do mknod $d/disk c 1 3 && echo made; cat $d/disk && echo read; done 2>/dev/null"
    )
    output = await pods.output(command + "; echo x > /dev/null && echo fine", mounts=mounts)
    assert "read" not in output
    assert output.endswith("fine\n")


async def test_no_new_privileges_is_set(pods: Pods) -> None:
    security = SecurityContext(no_new_privileges=True)
    assert (await pods.output("grep NoNewPrivs /proc/self/status", security=security)).split() == ["NoNewPrivs:", "1"]


async def test_the_default_seccomp_profile_refuses_namespaces(pods: Pods) -> None:
    if any("seccomp" in missing for missing in (await pods.runtime.status()).missing):
        do_without("libseccomp is missing; apt install libseccomp2")
    security = SecurityContext(seccomp=RUNTIME_DEFAULT)
    output = await pods.output("grep Seccomp: /proc/self/status; unshare -U true 2>&1; echo $?", security=security)
    assert output.split()[:2] == ["Seccomp:", "2"]
    assert output.split()[-1] == "1"


async def test_masked_paths_are_empty_and_read_only_paths_refuse_writes(pods: Pods) -> None:
    security = SecurityContext(masked_paths=["/proc/keys", "/sys/firmware", "/no/such"], read_only_paths=["/proc/sys"])
    output = await pods.output(
        "wc -c < /proc/keys; ls /sys/firmware; echo 1 > /proc/sys/kernel/domainname", security=security
    )
    assert output.splitlines()[0] == "0"
    assert "Read-only" in output


async def test_volumes_are_mounted(pods: Pods, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "deep").mkdir(parents=True)
    (volume / "deep" / "file").write_text("content")
    os.chmod(tmp_path, 0o755)
    mounts = [
        Mount(container_path="/data", host_path=str(volume)),
        Mount(container_path="/frozen", host_path=str(volume), read_only=True),
        Mount(container_path="/one/file", host_path=str(volume), sub_path="deep/file"),
        Mount(container_path="/new", host_path=str(volume), sub_path="made/here"),
    ]
    output = await pods.output(
        "cat /data/deep/file /one/file; touch /data/made-inside /frozen/x 2>&1; touch /new/y", mounts=mounts
    )
    assert output.startswith("contentcontent")
    assert "/frozen/x': Read-only" in output
    assert (volume / "made-inside").exists()
    assert (volume / "made/here/y").exists()


@pytest.fixture
def shared_volume(tmp_path: Path) -> Iterator[Path]:
    """A directory whose mounts are shared with other mount namespaces."""
    if os.geteuid() != 0:
        pytest.skip("only root makes mounts on the machine")
    volume = tmp_path / "volume"
    (volume / "inner").mkdir(parents=True)
    linux.mount(str(volume), str(volume), "", linux.MS_BIND)
    linux.mount("none", str(volume), "", linux.MS_SHARED)
    try:
        yield volume
    finally:
        linux.unmount(str(volume))


async def test_mounts_of_the_node_reach_a_container(pods: Pods, shared_volume: Path) -> None:
    sandbox = await pods.sandbox()
    wait = "until [ -e /data/inner/file ]; do sleep 0.02; done; cat /data/inner/file"
    there = Mount(
        container_path="/data", host_path=str(shared_volume), propagation=Propagation.HOST_TO_CONTAINER, sub_path=""
    )
    receiver = await pods.start(wait, sandbox, mounts=[there])
    private = await pods.start(
        ["sleep", "1000"], sandbox, name="private", mounts=[replace(there, propagation=Propagation.PRIVATE)]
    )
    linux.mount("tmpfs", str(shared_volume / "inner"), "tmpfs")
    try:
        (shared_volume / "inner" / "file").write_text("arrived\n")
        assert log_of(await pods.end_of(receiver)) == "arrived\n"
        assert (await pods.runtime.exec_sync(private, ["ls", "/data/inner"], timeout=60)).output == b""
    finally:
        linux.unmount(str(shared_volume / "inner"))


async def test_mounts_of_a_container_reach_the_node(pods: Pods, shared_volume: Path) -> None:
    pods.host_users = True  # Mounts of another user namespace stay there.
    command = "mount -t tmpfs none /data/inner && echo from-inside > /data/inner/file"
    security = SecurityContext(privileged=True)
    both = Mount(container_path="/data", host_path=str(shared_volume), propagation=Propagation.BIDIRECTIONAL)
    one_way = replace(both, propagation=Propagation.HOST_TO_CONTAINER)
    assert await pods.output(command, security=security, mounts=[one_way]) == ""
    assert not (shared_volume / "inner" / "file").exists()
    assert await pods.output(command, security=security, mounts=[both]) == ""
    try:
        assert (shared_volume / "inner" / "file").read_text() == "from-inside\n"
    finally:
        linux.unmount(str(shared_volume / "inner"))


async def test_mounts_cannot_leave_a_container_without_a_shared_mount_or_root(pods: Pods, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    both = Mount(container_path="/data", host_path=str(volume), propagation=Propagation.BIDIRECTIONAL)
    if os.geteuid() == 0:
        linux.mount(str(volume), str(volume), "", linux.MS_BIND)
        linux.mount("none", str(volume), "", linux.MS_PRIVATE)
    try:
        with pytest.raises(ConfigRefused, match=r"not a shared mount|runs as root"):
            await pods.start(["true"], mounts=[both])
    finally:
        if os.geteuid() == 0:
            linux.unmount(str(volume))


@pytest.mark.parametrize("target", ["/etc", "../outside"])
async def test_a_sub_path_never_leaves_its_volume(pods: Pods, tmp_path: Path, target: str) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "outside").mkdir()
    (volume / "link").symlink_to(target)
    with pytest.raises(StartFailed, match="link"):
        await pods.start(["true"], mounts=[Mount(container_path="/x", host_path=str(volume), sub_path="link")])


async def test_a_pod_shares_memory_as_a_directory(pods: Pods, tmp_path: Path) -> None:
    sandbox = await pods.sandbox(temporary_file_systems=[TemporaryFileSystem(str(tmp_path / "memory"), 1 << 20)])
    mounts = [Mount(container_path="/cache", host_path=str(tmp_path / "memory"))]
    await pods.output("echo shared > /cache/file", sandbox, mounts=mounts)
    output = await pods.output("cat /cache/file; stat -fc %T /cache", sandbox, name="other", mounts=mounts)
    assert output == "shared\ntmpfs\n"
    assert list((tmp_path / "memory").iterdir()) == []


async def test_long_lines_are_cut_and_the_last_line_needs_no_newline(pods: Pods) -> None:
    container = await pods.start("head -c 40000 /dev/zero | tr '\\0' x; echo; printf end; printf bad >&2")
    status = await pods.end_of(container)
    lines = [line.split(" ", 3) for line in Path(status.log_file).read_text().splitlines()]
    assert [(stream, tag, len(text)) for _, stream, tag, text in lines if stream == "stdout"] == [
        ("stdout", "P", 16384),
        ("stdout", "P", 16384),
        ("stdout", "F", 7232),
        ("stdout", "P", 3),
    ]
    assert [text for _, stream, _, text in lines if stream == "stderr"] == ["bad"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", lines[0][0])


async def test_memory_beyond_the_limit_ends_with_oom_killed(pods: Pods) -> None:
    await _need_limits(pods)
    command = "python3 -c 'x = bytearray(200 << 20)' || head -c 200000000 /dev/zero | tail -c 199999999 | wc -c"
    container = await pods.start(
        ["sh", "-c", f"exec {command.split(' || ')[0]}"], resources=Resources(memory_bytes=32 << 20)
    )
    status = await pods.end_of(container)
    assert (status.exit_code, status.reason) == (137, "OOMKilled")


async def test_a_fork_bomb_is_held_by_the_limit_of_processes(pods: Pods) -> None:
    await _need_limits(pods)
    sandbox = await pods.sandbox()
    command = "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null; echo over"
    container = await pods.start(command, sandbox, resources=Resources(pids=20))
    status = await pods.end_of(container)
    assert status.exit_code != 0
    neighbour = await pods.output("echo fine", sandbox, name="neighbour")
    assert neighbour == "fine\n"


async def test_the_containers_of_a_pod_share_its_limit_of_processes(pods: Pods) -> None:
    await _need_limits(pods)
    sandbox = await pods.sandbox(resources=Resources(pids=30))
    command = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1000 & done; echo over; wait"
    first = await pods.start(command, sandbox)
    await _wait_for_log(pods, first, "over")
    second = await pods.start(command, sandbox, name="second")
    assert (await pods.end_of(second)).exit_code != 0
    assert await pods.output("echo fine") == "fine\n"


async def test_the_pods_of_a_node_leave_process_numbers_to_the_machine(pods: Pods) -> None:
    await _need_limits(pods)
    await pods.start("sleep 1000")
    limits = list(Path("/sys/fs/cgroup").rglob(f"{group_name(pods.directory)}/pids.max"))
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert [int(limit.read_text()) <= most * 3 // 4 for limit in limits] == [True]


_TAKE_ALL = """
import array, ctypes, os, socket, time
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0:
    pass
files = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 253)
pairs = []
try:
    while True:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        pairs[-1][0].setblocking(False)
        try:
            while True:
                pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        except BlockingIOError:
            pass
except OSError:
    print("over", flush=True)
time.sleep(1000)
"""
"""Takes all inotify instances, and sends as many open files as it may, which no process receives."""


async def test_a_pod_leaves_limits_of_its_user_to_the_node(pods: Pods) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))  # As every process of pinnace does.
    try:
        pods.host_users = None
        other = await pods.start("sleep 1000", await pods.sandbox(uid="3"))
        greedy = await pods.start(["python3", "-c", _TAKE_ALL])
        await _wait_for_log(pods, greedy, "over")
        opened = ctypes.CDLL(None).inotify_init1(0)
        assert opened >= 0
        os.close(opened)
        assert (await pods.runtime.exec_sync(other, ["echo", "fine"], timeout=60)).output == b"fine\n"
        assert await pods.output("echo fine", await pods.sandbox(uid="2")) == "fine\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


async def test_the_use_of_a_container_is_measured(pods: Pods) -> None:
    container = await pods.start("x=0; while [ $x -lt 200000 ]; do x=$((x+1)); done; echo done; sleep 1000")
    await _wait_for_log(pods, container, "done")
    stats = await pods.runtime.stats(container)
    assert stats.cpu_nanoseconds
    assert stats.memory_bytes
    assert stats.processes in (1, 2)
    await _need_limits(pods)
    await pods.runtime.update_resources(container, Resources(pids=7))
    group = await pods.runtime.exec_sync(container, ["cat", "/proc/self/cgroup"], timeout=60)
    assert container.encode() in group.output


async def _need_limits(pods: Pods) -> None:
    missing = [feature for feature in (await pods.runtime.status()).missing if "limits" in feature]
    if missing:
        pytest.skip(missing[0])


async def _wait_for_log(pods: Pods, container: str, text: str) -> None:
    async def is_there() -> bool:
        status = await pods.runtime.container(container)
        return Path(status.log_file).exists() and text in log_of(status)

    await until(is_there)


@pytest.mark.skipif(os.geteuid() == 0, reason="the processes of root's pods are bounded by control groups alone")
async def test_an_ordinary_users_node_does_not_report_the_limit_of_processes_that_it_enforces(pods: Pods) -> None:
    assert [feature for feature in (await pods.runtime.status()).missing if "pids" in feature] == []


async def test_the_kernel_kills_a_container_for_memory_before_its_supervisor(pods: Pods) -> None:
    """A container with the supervisor's own score would be the last to go, and so would one that lowers its score."""
    command = "cd /proc/self; cat oom_score_adj; (echo -999 >oom_score_adj) 2>/dev/null || cat oom_score_adj"
    sandbox = await pods.sandbox()
    container = await pods.start(["sleep", "1000"], sandbox, resources=Resources(oom_score_adjust=700))
    result = await pods.runtime.exec_sync(container, ["sh", "-c", command], timeout=60)
    assert result.output.split() == [b"700"] * 2
    lowest = "(echo -999 >/proc/$$/oom_score_adj) 2>/dev/null; cat /proc/$$/oom_score_adj"  # Few roots lack the right.
    allowed = subprocess.run(["sh", "-c", lowest], capture_output=True, text=True, timeout=60).stdout
    assert Path(f"/proc/{pods.supervisor(sandbox)}/oom_score_adj").read_text() == allowed


async def test_a_container_makes_a_bounded_number_of_processes(pods: Pods) -> None:
    """By its control group, or by the limit of its user in the user namespace of the pod."""
    code = """
import os, signal
made = []
try:
    while len(made) < 200:
        made.append(os.fork())
        if not made[-1]:
            signal.pause()
except BlockingIOError:
    pass
print(len(made))
"""
    other = await pods.start(["sleep", "1000"])
    made = int(await pods.output(["python3", "-c", code], resources=Resources(pids=50)))
    assert 20 < made < 50
    assert (await pods.runtime.exec_sync(other, ["true"], timeout=60)).exit_code == 0


@pytest.mark.usefixtures("each_kind_of_users")
async def test_sysctls_of_ipc_belong_to_the_pod(pods: Pods) -> None:
    """Also those of a pod with own users, whose root alone may write them."""
    values = {
        **{"kernel.shmmax": "65536", "kernel.shmall": "64", "kernel.shmmni": "7", "kernel.shm_rmid_forced": "1"},
        **{"kernel.msgmax": "4096", "fs.mqueue.msg_max": "5"},
    }
    files = [f"/proc/sys/{name.replace('.', '/')}" for name in values]
    before = [Path(file).read_text() for file in files]
    sandbox = await pods.sandbox(sysctls=values)
    assert (await pods.output(["cat", *files], sandbox)).split() == list(values.values())
    assert [Path(file).read_text() for file in files] == before
