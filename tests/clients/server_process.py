"""A real server in a process of its own, as its users start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pinnace

START_SECONDS = 60.0
STOP_SECONDS = 60.0
_GLANCE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A started server. The caller stops it."""

    process: subprocess.Popen[bytes]
    kubeconfig: Path
    log: Path

    @classmethod
    def start(cls, directory: Path, *arguments: str, port: int = 0) -> ServerProcess:
        """Start the command; its kubeconfig and what it prints go into `directory`."""
        kubeconfig, log = directory / "kubeconfig", directory / "server.log"
        kubeconfig.unlink(missing_ok=True)
        options = ["up", "--port", str(port), "--kubeconfig", str(kubeconfig), *arguments]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pinnace.cli.main", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])},
            )
        return cls(process, kubeconfig, log)

    def await_kubeconfig(self) -> Path:
        """The kubeconfig, as soon as there is one."""
        deadline = time.monotonic() + START_SECONDS
        while not self.kubeconfig.exists():
            if self.ends_within(_GLANCE_SECONDS) or time.monotonic() > deadline:
                raise AssertionError(f"the server wrote no kubeconfig:\n{self.log.read_text()}")
        return self.kubeconfig

    def ends_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill_agent(self, node: str = "") -> None:
        """Kill the agent of a node that the server has started, of any one without a name. The pods go on."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                except OSError:
                    continue
                is_named = not node or node.encode() in words
                if b"--with-parent" in words and is_named and int(parent) == self.process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
                    return
        raise AssertionError(f"the server has no agent {node}")

    def stop(self) -> int:
        """Ask the server to stop, and return its exit code."""
        self.process.terminate()
        return self.await_end()

    def await_end(self) -> int:
        """The exit code of a server that was asked to stop. One that does not stop is an error, and is killed."""
        if not self.ends_within(STOP_SECONDS):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not stop within {STOP_SECONDS} s:\n{self.log.read_text()}")
        return self.process.returncode
