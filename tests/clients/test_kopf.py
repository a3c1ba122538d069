"""kopf: an operator of another framework, in a process of its own, looks after a custom kind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.kubectl_command import Kubectl
from tests.clients.test_custom_resources import SHIPS, ship

OPERATOR = Path(__file__).with_name("ship_operator.py")
SECONDS = 60.0


@pytest.fixture
def ships(kubectl: Kubectl) -> Iterator[Kubectl]:
    kubectl("apply -f -", stdin=SHIPS)
    kubectl("wait --for=condition=Established crd/ships.clients.example.com --timeout=120s")
    yield kubectl
    kubectl("delete ships --all --timeout=120s")
    kubectl("delete crd ships.clients.example.com --timeout=120s")


class Operator:
    """kopf run, from its start to its end."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", namespace, str(OPERATOR)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "KUBECONFIG": str(kubeconfig)}
            )

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(SECONDS) == 0, self._log.read_text()

    def log_text(self) -> str:
        return self._log.read_text()


def reached(kubectl: Kubectl, is_so: Callable[[dict[str, Any]], Any], operator: Operator) -> dict[str, Any]:
    """The ship, once it is so."""
    deadline = time.monotonic() + SECONDS
    while True:
        ship: dict[str, Any] = kubectl.json("get ship gannet")
        if is_so(ship):
            return ship
        assert time.monotonic() < deadline, f"{ship}\n{operator.log_text()}"


def test_an_operator_creates_updates_resumes_and_deletes(ships: Kubectl, kubeconfig: Path, tmp_path: Path) -> None:
    operator = Operator(kubeconfig, ships.namespace, tmp_path / "first.log")
    ships("create -f -", stdin=ship())
    made = reached(ships, lambda ship: (ship.get("status") or {}).get("launched"), operator)
    assert made["status"]["launched"] == {"from": "Bergen"}
    assert made["metadata"]["finalizers"] == ["clients.example.com/ship-operator"]
    ships("scale ship gannet --replicas=6")
    changed = reached(ships, lambda ship: ship["status"].get("aboard") == 6, operator)
    assert changed["status"]["before"] == 3
    operator.stop()
    operator = Operator(kubeconfig, ships.namespace, tmp_path / "second.log")
    reached(ships, lambda ship: ship["status"].get("resumed"), operator)
    ships("delete ship gannet --timeout=120s")
    assert "not found" in ships.failure("get ship gannet")
    operator.stop()
