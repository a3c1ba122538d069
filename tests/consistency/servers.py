"""Servers as processes of their own, which a test kills, pauses and starts again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.store.etcd.processes import free_ports

_ROOT = Path(__file__).parents[2]


class ServerProcess:
    """`pinnace up` on a port of its own. Its data directory stays."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._directory = directory
        self._flags = flags
        (self._port,) = free_ports(1)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        return (self._directory / "token").read_text().strip()

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        command = [sys.executable, "-m", "pinnace.cli.main", "up", "--data-dir", str(self._directory)]
        command += ["--port", str(self._port), "--no-controllers", "--no-scheduler", *self._flags]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT / "src"), "HOME": str(self._directory)}
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(90):
            async for line in self._process.stdout:
                if b"is ready" in line:
                    return
        raise AssertionError((self._directory / "log").read_text())

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self._process = None

    async def stop(self) -> None:
        """End it, if it runs, as SIGTERM does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                async with asyncio.timeout(20):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
