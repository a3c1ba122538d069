"""The machine's kubectl, pointed at one cluster and one namespace."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_SECONDS = 150.0
REQUIRE_KUBECTL = "PINNACE_REQUIRE_KUBECTL"


def kubectl_binary() -> str:
    """Where the machine's kubectl is. Without one the test is skipped, and fails where it is asked for, as in CI."""
    binary = shutil.which("kubectl")
    if binary is None:
        reason = "kubectl is not on this machine, so nothing shows that it works against pinnace"
        if os.environ.get(REQUIRE_KUBECTL):
            pytest.fail(f"{reason}, and {REQUIRE_KUBECTL} asks for it")
        pytest.skip(f"{reason}: install it")
    return binary


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
        """What the command prints. One that fails is an error."""
        outcome = self.outcome(command, stdin=stdin, **environment)
        assert outcome.code == 0, f"kubectl {command} ended with {outcome.code}:\n{outcome.stdout}{outcome.stderr}"
        return outcome.stdout

    def json(self, command: str) -> Any:
        return json.loads(self(f"{command} -o json"))

    def failure(self, command: str, *, stdin: str = "") -> str:
        """What the command complains about. One that succeeds is an error."""
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
        """A command that goes on by itself, such as a watch. Whoever starts it ends it."""
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
