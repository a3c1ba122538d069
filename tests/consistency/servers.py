"""Servers as processes of their own, which a test kills, pauses and starts again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.free_ports import free_port

_ROOT = Path(__file__).parents[2]


QUIET = ("--no-controllers", "--no-scheduler")


class ServerProcess:
    """`pinnace up` on a port of its own. Its data directory stays."""

    def __init__(self, directory: Path, *flags: str, program: tuple[str, ...] = ("pinnace.cli.main",)) -> None:
        """`program` is the module to run, with arguments that come before those of pinnace."""
        self._directory = directory
        self._flags = flags
        self._program = program
        self._port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def token(self) -> str:
        return (self._directory / "token").read_text().strip()

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        command = [sys.executable, "-m", *self._program, "up", "--data-dir", str(self._directory)]
        command += ["--port", str(self._port), "--no-node", *self._flags]
        environment = {**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}", "HOME": str(self._directory)}
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
        self._process = None
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
                async with asyncio.timeout(60):
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
