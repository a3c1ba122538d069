"""A three-node cluster out of processes: a server with a simulated node, the controllers, and three joined nodes.

Each part reaches the server through a relay of its own. The suite starts an ended process again, as systemd would.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.chaos.schedule import CONTROLLERS, NODES, SERVER, Abilities
from tests.chaos.shifted_clock import ShiftedClock, build_library
from tests.chaos.workload import write_image
from tests.free_ports import free_port
from tests.node.leftovers import left_on_machine, processes_of
from tests.store.etcd.proxy import Proxy

import pinnace

_ROOT = Path(pinnace.__file__).parents[1]
_DISK = "size=96m,mode=700"
_START_SECONDS = 90.0
_BOOTSTRAP_SHIFT = -2 * 3600
"""Certificates begin two hours ago, so that a clock that jumps back by one does not make them invalid."""


class Part:
    """A process of the cluster, and its clock."""

    def __init__(self, name: str, arguments: list[str], log: Path, clock: ShiftedClock) -> None:
        self.name = name
        self.clock = clock
        self._arguments = arguments
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.ends = 0
        """How often it has ended without being told to."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PINNACE_OFFLINE": "1", **self.clock.environment}
        environment.pop("PINNACE_NO_NODE", None)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pinnace.cli.main", *self._arguments),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def signal(self, number: int) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    async def wait(self, seconds: float) -> int:
        assert self._process is not None
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


class ChaosCluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shared = directory / "shared"
        self.port = free_port()
        self.relays: dict[str, Proxy] = {}
        self.parts: dict[str, Part] = {}
        self.kubeconfig = directory / "kubeconfig"
        self._library = build_library(directory)
        self._disks: list[Path] = []
        self.abilities = Abilities(fills_disks=os.geteuid() == 0, moves_clocks=self._library is not None)

    def place_of(self, target: str) -> Path:
        """The directory in which a part keeps its state."""
        return self.directory / ("data" if target == SERVER else target)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the cluster. At the end everything is killed that `stop` has left."""
        for target in (SERVER, NODES[-1]):
            self.place_of(target).mkdir(mode=0o700)
            if self.abilities.fills_disks:
                self._mount(self.place_of(target))
        try:
            await self._start()
            yield
        finally:
            self._kill_all()
            for relay in self.relays.values():
                await relay.stop()
            for disk in self._disks:
                subprocess.run(["umount", "--lazy", str(disk)], check=False, timeout=60)

    async def stop(self) -> list[str]:
        """Stop all parts as a user does, and return what is left of them."""
        left = []
        for name in (*NODES, CONTROLLERS, SERVER):
            part = self.parts[name]
            if not part.is_running:
                await part.start()  # It ended by itself: its pods are still there.
                await asyncio.sleep(5)
            part.signal(15)
            try:
                code = await part.wait(90)
            except TimeoutError:
                left.append(f"{name} does not stop within 90 s after SIGTERM")
                continue
            if code:
                left.append(f"{name} stopped with {code}: {part.log()[-500:]}")
        return left + await self._leftovers()

    async def _leftovers(self) -> list[str]:
        deadline = asyncio.get_running_loop().time() + 30
        while leftovers := self._find_leftovers():
            if asyncio.get_running_loop().time() > deadline:
                return leftovers
            await asyncio.sleep(0.2)
        return []

    def _find_leftovers(self) -> list[str]:
        places = [self.place_of(node) for node in NODES]
        mounts = {f" {disk} " for disk in self._disks}
        on_machine = [
            line for line in left_on_machine(self.directory, places) if not any(mount in line for mount in mounts)
        ]
        processes = [f"process {pid}: {command[:200]}" for pid, command in processes_of(self.directory).items()]
        pods = [str(path) for place in places for path in place.glob("runtime/pods/*") if path.name != ".."]
        sockets = [str(path) for place in places for path in place.rglob("*") if path.is_socket()]
        return [*processes, *on_machine, *(f"left: {path}" for path in (*pods, *sockets))]

    def _mount(self, place: Path) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", _DISK, "chaos", str(place)], check=True, timeout=60)
        self._disks.append(place)

    async def _start(self) -> None:
        self.shared.mkdir()
        self.shared.chmod(0o777)
        data = ["--data-dir", str(self.place_of(SERVER)), "--kubeconfig", str(self.kubeconfig)]
        self._add(SERVER, ["up", "--port", str(self.port), "--no-node", "--nodes", "1", "--no-controllers", *data])
        self.parts[SERVER].clock.shift(_BOOTSTRAP_SHIFT) if self._library else None
        await self.parts[SERVER].start()
        await self._await_file(self.kubeconfig)
        await self._run("token", "create", "--kubeconfig", str(self.kubeconfig))  # It makes the permissions of nodes.
        archive = write_image(self.directory / "image.tar")
        for number, name in enumerate((CONTROLLERS, *NODES)):
            self.relays[name] = Proxy(self.port)
            await self.relays[name].start()
            config = self.directory / f"{name}.kubeconfig"
            text = self.kubeconfig.read_text().replace(f":{self.port}", f":{self.relays[name].port}")
            config.touch(mode=0o600)
            config.write_text(text)
            if name == CONTROLLERS:
                self._add(
                    name,
                    ["controllers", "--kubeconfig", str(config), "--certificates", str(self.place_of(SERVER) / "pki")],
                )
            else:
                await self._run("image", "load", str(archive), "--directory", str(self.place_of(name)))
                self._add(name, self._node_arguments(name, config, number))
            if self._library:
                self.parts[name].clock.shift(_BOOTSTRAP_SHIFT)
            await self.parts[name].start()

    def _node_arguments(self, name: str, config: Path, number: int) -> list[str]:
        return [
            *("node", "--name", name, "--kubeconfig", str(config), "--directory", str(self.place_of(name))),
            *("--pod-network", f"10.244.{10 + number}.0/24", "--links", str(self.directory / "links")),
            *("--eviction-hard", "memory.available<20Mi", "--offline", "--stop-pods"),
        ]

    async def _run(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pinnace.cli.main", *arguments),
            env={**os.environ, "PYTHONPATH": str(_ROOT), **self.parts[SERVER].clock.environment},
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0, arguments

    def _add(self, name: str, arguments: list[str]) -> None:
        clock = ShiftedClock(self._library, self.directory / f"{name}.clock")
        self.parts[name] = Part(name, arguments, self.directory / f"{name}.log", clock)

    async def _await_file(self, file: Path) -> None:
        async with asyncio.timeout(_START_SECONDS):
            while not file.exists():
                if not self.parts[SERVER].is_running:
                    raise AssertionError(self.parts[SERVER].log())
                await asyncio.sleep(0.05)

    def _kill_all(self) -> None:
        """Kill whatever names the directory of this cluster: all of it was started here."""
        for pid in processes_of(self.directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
