"""The last moment before a container's program runs: what the kernel says of the process that is about to call it.

The test holds a lease on the program. The call of exec waits for its end, and meanwhile the process is examined from
outside: whatever it had open, could do or could see, the program could have got. Init containers and sidecars start as
any other container does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.machine import need
from tests.node.runtime.embedded.conftest import HOST, Pods, until

from pinnace.node.machine import linux
from pinnace.node.machine.subordinate_ids import find_mappers
from pinnace.node.runtime.embedded.launches.seccomp import has_seccomp
from pinnace.node.runtime.embedded.start.pod_users import RANGE
from pinnace.node.runtime.runtime import (
    MASKED_PATHS,
    READ_ONLY_PATHS,
    RUNTIME_DEFAULT,
    UNCONFINED,
    Mount,
    PidMode,
    SecurityContext,
)

_F_SETSIG = 10
_ALL_IDS = [["0", "0", str((1 << 32) - 1)]]
_IMAGE = {"etc", "bin", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "usr"}
_DEVICES = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")}
_MADE = {"/", "/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/data", *_DEVICES}
_GUARDED: dict[str, object] = {
    "no_new_privileges": True,
    "seccomp": RUNTIME_DEFAULT if has_seccomp() else UNCONFINED,
    "masked_paths": MASKED_PATHS,
    "read_only_paths": READ_ONLY_PATHS,
}


_SECURITY = SecurityContext(**_GUARDED)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of container, and the kind of its pod."""

    security: SecurityContext = _SECURITY
    pod: Mapping[str, object] = field(default_factory=dict)
    container: Mapping[str, object] = field(default_factory=dict)
    is_layered: bool = False
    is_command: bool = False
    """Whether it is a command in a running container."""
    has_target: bool = False
    """Whether it sees the processes of another container, as those of `kubectl debug`."""

    @property
    def joins(self) -> bool:
        """Whether it enters a process namespace in which processes of the pod are already."""
        return self.is_command or self.has_target or self.container.get("pid_mode") is PidMode.POD

    @property
    def sees_node(self) -> bool:
        return self.container.get("pid_mode") is PidMode.NODE


KINDS = {
    "plain": Kind(),
    "unguarded": Kind(SecurityContext()),
    "with a user": Kind(replace(_SECURITY, user=1000, group=1000, supplemental_groups=[42])),
    "without capabilities": Kind(replace(_SECURITY, capabilities=())),
    "with more capabilities": Kind(replace(_SECURITY, capabilities=("SYS_ADMIN", "NET_ADMIN"))),
    "privileged": Kind(SecurityContext(privileged=True)),
    "read-only root": Kind(replace(_SECURITY, read_only_root=True)),
    "with a terminal": Kind(container={"tty": True}),
    "working directory": Kind(container={"working_directory": "/data"}),
    "layered image": Kind(is_layered=True),
    "layered image, read-only root": Kind(replace(_SECURITY, read_only_root=True), is_layered=True),
    "host network": Kind(pod={"host_network": True}),
    "host ipc": Kind(pod={"host_ipc": True}),
    "host processes": Kind(pod={"host_pid": True}, container={"pid_mode": PidMode.NODE}),
    "shared processes": Kind(pod={"shares_processes": True}, container={"pid_mode": PidMode.POD}),
    "debug container": Kind(replace(_SECURITY, capabilities=("SYS_PTRACE",)), has_target=True),
    "command": Kind(is_command=True),
    "command with a user": Kind(replace(_SECURITY, user=1000, group=1000), is_command=True),
    "command, privileged": Kind(SecurityContext(privileged=True), is_command=True),
}


@dataclass(frozen=True, slots=True)
class MountLine:
    """A line of mountinfo: the part of the file system, the place, and the options of the mount."""

    part: str
    place: str
    options: set[str]
    file_system: str

    @classmethod
    def of(cls, line: str) -> MountLine:
        before, _, after = line.partition(" - ")
        _, _, _, part, place, options, *_ = before.split()
        return cls(part, place, set(options.split(",")), after.split()[0])


class Observed:
    """A process, as the kernel shows it to the user of the node."""

    def __init__(self, pid: int) -> None:
        self.place = Path(f"/proc/{pid}")
        self.status = _status_of(str(pid))
        self.owner_of_files = (self.place / "fd").stat().st_uid
        self.is_readable = os.geteuid() in (0, self.owner_of_files)
        """False for a process with a subordinate id, which its user may not look into."""
        self.files = self._files() if self.is_readable else {}
        self.mounts = [MountLine.of(line) for line in (self.place / "mountinfo").read_text().splitlines()]
        self.directory = os.readlink(self.place / "cwd") if self.is_readable else ""
        self.maps = {name: self._map(name) for name in ("uid_map", "gid_map")}

    def _files(self) -> dict[int, str]:
        return {int(entry.name): os.readlink(entry) for entry in (self.place / "fd").iterdir()}

    def _map(self, name: str) -> list[list[str]]:
        return [line.split() for line in (self.place / name).read_text().splitlines()]

    def at(self, path: str) -> Path:
        return self.place / "root" / path.lstrip("/")


def _status_of(pid: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: value.strip() for name, value in pairs}


class HeldProgram:
    """A program below a volume, whose start waits."""

    def __init__(self, volume: Path) -> None:
        self._path = volume / "sleep"
        shutil.copy(need("busybox"), self._path)
        self._path.chmod(0o755)
        self._file = os.open(self._path, os.O_RDONLY)
        fcntl.fcntl(self._file, _F_SETSIG, signal.SIGURG)  # Ignored by default, unlike SIGIO.
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    async def has_started(self) -> bool:
        return fcntl.fcntl(self._file, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def release(self) -> None:
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


@pytest.fixture
def held(volume: Path) -> Iterator[HeldProgram]:
    program = HeldProgram(volume)
    with contextlib.closing(program):
        yield program


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
async def test_a_program_gets_nothing_but_what_its_kind_of_container_has(
    pods: Pods, each_kind_of_users: bool, volume: Path, held: HeldProgram, kind: Kind
) -> None:
    if each_kind_of_users and os.geteuid() == 0 and kind.pod.keys() & {"host_network", "host_ipc", "host_pid"}:
        pods.host_users = True  # A pod has its own users or namespaces of the node, not both.
    if _has_single_id() and kind.security.user:
        pytest.skip("covered by test_a_single_id_is_shown_under_another_number")
    sandbox, process, starting = await _begin(pods, volume, kind, held)
    before = Observed(process)
    _check(pods, before, volume, kind)
    assert before.owner_of_files == os.geteuid(), "processes of its user may look into it"  # Root of the node.
    held.release()
    await until(lambda: _is_program(process))
    after = Observed(process)
    if after.is_readable:
        _check(pods, after, volume, kind)
        _check_files(before, after, kind)
    os.kill(process, signal.SIGKILL)
    await starting
    await pods.runtime.remove_sandbox(sandbox)


async def test_a_single_id_is_shown_under_another_number(pods: Pods, volume: Path, held: HeldProgram) -> None:
    """Of a node whose user has no subordinate ids: a process is that user alone, whatever number it has."""
    if os.geteuid() == 0 or not _has_single_id():
        pytest.skip("this user has more ids")
    kind = Kind(replace(_SECURITY, user=1000, group=1001))
    _, process, starting = await _begin(pods, volume, kind, held)
    before = Observed(process)
    assert before.maps == {"uid_map": [["1000", str(os.geteuid()), "1"]], "gid_map": [["1001", str(os.getegid()), "1"]]}
    assert {before.status[f"Cap{name}"].strip("0") for name in ("Inh", "Prm", "Eff", "Amb")} == {""}
    _check_mounts(before, kind)
    held.release()
    await starting


async def _begin(pods: Pods, volume: Path, kind: Kind, held: HeldProgram) -> tuple[str, int, asyncio.Future[object]]:
    """Start a container of this kind, and return its sandbox and its process, which waits for its program."""
    sandbox = await pods.sandbox(**kind.pod)
    config: dict[str, object] = {
        "mounts": [Mount(container_path="/data", host_path=str(volume))],
        "security": kind.security,
        "image": await asyncio.to_thread(_layered, volume.parent) if kind.is_layered else HOST,
        **kind.container,
    }
    program = ["/data/sleep", "1000"]
    if kind.has_target:
        config["target"] = await pods.start(["sleep", "1000"], sandbox, name="target")
    container = await pods.start(["sleep", "1000"], sandbox, **config) if kind.is_command else ""
    others = set(_children(pods.supervisor(sandbox)))
    starting: asyncio.Future[object] = asyncio.ensure_future(
        pods.runtime.exec_sync(container, program, timeout=60)
        if kind.is_command
        else pods.start(program, sandbox, **config)
    )
    await until(held.has_started)
    assert not starting.done()
    supervisor = pods.supervisor(sandbox)

    async def is_alone() -> bool:
        """Whether a process that joins those of a pod has ended, which goes on in a child."""
        return len(set(_children(supervisor)) - others) == 1

    await until(is_alone)
    (process,) = set(_children(supervisor)) - others
    return sandbox, process, starting


def _children(pid: int) -> Iterator[int]:
    """The children of a process that have not ended."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(child)


async def _is_program(pid: int) -> bool:
    """Whether the call of exec has ended: the new program waits for its time."""
    return os.readlink(f"/proc/{pid}/exe").endswith("/sleep") and "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


def _layered(directory: Path) -> str:
    layers = [directory / name for name in ("upper-layer", "lower-layer")]
    for layer in layers:
        (layer / "bin").mkdir(parents=True)
    shutil.copy(need("busybox"), layers[1] / "bin" / "sleep")
    return ":".join(map(str, layers))


def _has_single_id() -> bool:
    return os.geteuid() != 0 and not find_mappers()


def _check(pods: Pods, observed: Observed, volume: Path, kind: Kind) -> None:
    _check_place(pods, observed, volume, kind)
    _check_rights(observed, kind.security, has_own_users=not pods.host_users or os.geteuid() != 0)
    _check_users(observed, pods)
    _check_mounts(observed, kind)


def _check_files(before: Observed, after: Observed, kind: Kind) -> None:
    """Descriptors 0 to 2, and until exec closes it, one to say that exec has failed."""
    assert after.files.keys() == {0, 1, 2}
    (channel,) = before.files.keys() - {0, 1, 2}
    assert before.files[channel].startswith("pipe:" if kind.joins else "socket:")
    assert after.files == {number: target for number, target in before.files.items() if number != channel}
    streams = ("/dev/pts/",) if kind.container.get("tty") else ("pipe:", "/dev/null")
    assert all(target.startswith(streams) for target in after.files.values())


def _check_place(pods: Pods, observed: Observed, volume: Path, kind: Kind) -> None:
    assert observed.directory == kind.container.get("working_directory", "/")
    assert observed.at("data/sleep").stat().st_ino == (volume / "sleep").stat().st_ino
    for path in (pods.directory, volume.parent, Path.home() / ".pyenv", Path("/var/lib/dpkg"), Path("/boot")):
        assert not any(observed.at(str(path)).glob("*")), f"{path} of the node"


def _check_rights(observed: Observed, security: SecurityContext, *, has_own_users: bool) -> None:
    request = linux.capability_mask(["ALL"] if security.privileged else list(security.capabilities))
    if not has_own_users:  # The machine itself may have fewer than all.
        request &= int(_status_of("self")["CapBnd"], 16)
    held = {name: int(observed.status[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    own = 0 if security.user else request
    assert held == {"Inh": 0, "Prm": own, "Eff": own, "Bnd": request, "Amb": 0}
    assert observed.status["NoNewPrivs"] == str(int(security.no_new_privileges))
    assert observed.status["Seccomp"] == ("0" if security.seccomp == UNCONFINED or security.privileged else "2")


def _check_users(observed: Observed, pods: Pods) -> None:
    maps = observed.maps
    if os.geteuid() != 0:
        own = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
        mappers = find_mappers()
        ranges = [["1", str(mapper.first), str(mapper.length)] for mapper in mappers]
        for name, more in zip(("uid_map", "gid_map"), ranges or (None, None), strict=True):
            assert maps[name] == [["0", str(own[name]), "1"], *([more] if more else [])]
    elif pods.host_users:
        assert maps == {"uid_map": _ALL_IDS, "gid_map": _ALL_IDS}
    else:
        assert maps["uid_map"] == maps["gid_map"]
        ((inside, first, count),) = maps["uid_map"]
        assert (inside, count) == ("0", str(RANGE))
        assert int(first) >= RANGE and int(first) % RANGE == 0


def _check_mounts(observed: Observed, kind: Kind) -> None:
    security = kind.security
    places = [mount.place for mount in observed.mounts]
    top = {mount.place: mount for mount in observed.mounts}  # The last one hides the others.
    expected = _MADE | (set() if kind.is_layered else _host_directories())
    expected |= {place for place in places if place.startswith("/sys/fs/cgroup")}
    expected |= _inherited(kind)
    if kind.pod.get("host_ipc") and os.geteuid():  # The machine's queues belong to another user namespace.
        expected -= {"/dev/mqueue"}
    masked = {path for path in security.masked_paths if observed.at(path).exists()}
    read_only = {path for path in security.read_only_paths if observed.at(path).exists()}
    if security.privileged:
        masked = read_only = set()
        expected |= {place for place in places if place.startswith("/dev/") and _is_device(observed.at(place))}
    assert set(places) == expected | masked | read_only
    repeated = {place for place, count in Counter(places).items() if count > 1}
    assert repeated <= (set() if kind.is_layered else _host_directories())  # An overlay on what it shows.
    for path in masked:
        mount = top[path]
        assert (mount.file_system == "tmpfs" and "ro" in mount.options) or mount.part == "/null", path
        assert observed.at(path).is_char_device() or not list(observed.at(path).iterdir()), path
    parts = {"/", *_host_directories()} if not kind.is_layered else {"/"}
    always = set() if security.privileged else {"/sys", *(place for place in places if "/sys/fs/cgroup" in place)}
    for place in {*read_only, *always, *({*parts, "/dev"} if security.read_only_root else ())}:
        assert "ro" in top[place].options, place
    if not security.privileged:
        for place in (*parts, "/data"):
            assert "nodev" in top[place].options, place
    assert {"nosuid", "nodev", "noexec"} <= top["/proc"].options


def _host_directories() -> set[str]:
    """The mounts of the image host: a filtered /etc, and the directories of this machine that are no links."""
    return {f"/{name}" for name in _IMAGE if (Path("/") / name).is_dir() and not (Path("/") / name).is_symlink()}


def _inherited(kind: Kind) -> set[str]:
    """The mounts below directories that an ordinary user must show with all mounts in them.

    One of them is that of the node's own program, which is read-only where the node may write to its file.
    """
    places = {MountLine.of(line).place for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    tops = [
        *(["/proc/"] if kind.sees_node and os.geteuid() else []),
        *([f"{place}/" for place in _host_directories()] if os.geteuid() and not kind.is_layered else []),
    ]
    program = os.path.realpath(sys.executable)
    if os.access(program, os.W_OK):
        places.add(program)
    return {place for place in places if place.startswith(tuple(tops))}


def _is_device(path: Path) -> bool:
    return path.is_char_device()
