"""The machine's kubectl, pointed at one cluster and one namespace."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.machine import need

TIMEOUT_SECONDS = 150.0


def kubectl_binary() -> str:
    return need("kubectl")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one command ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Commands are written as in a shell, without the word kubectl. Arguments with spaces are quoted."""

    binary: str
    kubeconfig: Path
    cache: Path
    namespace: str

    def __call__(self, command: str, *, stdin: str = "", **environment: str) -> str:
        """Return the output of a command that must succeed."""
        outcome = self.outcome(command, stdin=stdin, **environment)
        assert outcome.code == 0, f"kubectl {command} ended with {outcome.code}:\n{outcome.stdout}{outcome.stderr}"
        return outcome.stdout

    def json(self, command: str) -> Any:
        return json.loads(self(f"{command} -o json"))

    def failure(self, command: str, *, stdin: str = "") -> str:
        """Return the error of a command that must fail."""
        outcome = self.outcome(command, stdin=stdin)
        assert outcome.code != 0, f"kubectl {command} should have failed:\n{outcome.stdout}"
        return outcome.stderr.strip()

    def outcome(self, command: str, *, stdin: str = "", **environment: str) -> Outcome:
        done = subprocess.run(
            self._line(command),
            input=stdin,
            text=True,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            env=self._environment(environment),
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command that goes on by itself, such as a watch. The caller ends it."""
        return subprocess.Popen(
            self._line(command),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment({}),
        )

    def _line(self, command: str) -> list[str]:
        return [self.binary, "--namespace", self.namespace, *shlex.split(command)]

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        own = {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.cache), "HOME": str(self.cache)}
        return os.environ | own | more
