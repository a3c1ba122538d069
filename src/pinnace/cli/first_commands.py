"""The commands that `pinnace up` prints when the cluster is ready: five that work as printed, one after the other."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pinnace.cluster.settings import Settings

_SERVE = "python3 -m http.server 8080"
_POD_AND_SERVICE = (
    "{apiVersion: v1, kind: List, items: ["
    "{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {run: web}}, spec: {containers: "
    "[{name: web, image: python, command: [python3, -m, http.server, '8080']}]}}, "
    "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {run: web}, ports: [{port: 8080}]}}]}"
)

_ON_A_NODE = (
    f"kubectl run web --image=python --port=8080 --expose -- {_SERVE}",
    "kubectl wait --for=condition=Ready pod/web",
    "kubectl get nodes,pods,services -o wide",
    "kubectl exec web -- hostname",
    "kubectl port-forward service/web 8080    # and open http://127.0.0.1:8080/",
)
_ON_SIMULATED_NODES = (
    "kubectl create deployment web --image=nginx --replicas=2",
    "kubectl rollout status deployment web",
    "kubectl get nodes,pods -o wide",
    "kubectl scale deployment web --replicas=5",
    "kubectl describe deployment web",
)
_WITHOUT_NODES = (
    "kubectl get namespaces",
    "kubectl create configmap greeting --from-literal=text=hello",
    "kubectl get configmap greeting -o yaml",
    "kubectl explain deployment.spec",
    "kubectl api-resources",
)
_WITHOUT_KUBECTL = (
    f'echo "{_POD_AND_SERVICE}" | pinnace apply -f -',
    "pinnace get nodes",
    "pinnace get pods -o wide",
    "pinnace describe pod web",
    "pinnace proxy svc/web 8080    # and open http://127.0.0.1:8080/",
)


def first_commands(settings: Settings, kubeconfig: Path | None, *, is_merged: bool) -> str:
    """Return the lines that show how to reach the cluster, and what to try first."""
    if kubeconfig is None and not is_merged:
        return "  no kubeconfig was written: start with --kubeconfig PATH or --merge to get one"
    lines = ["Try, in another terminal:"]
    if not is_merged:
        lines.append(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    return "\n  ".join([*lines, *_commands(settings)])


def _commands(settings: Settings) -> Sequence[str]:
    if shutil.which("kubectl") is None:
        own = _own_command()
        return [line.replace("pinnace ", f"{own} ") for line in _WITHOUT_KUBECTL]
    if settings.node:
        return _ON_A_NODE
    return _ON_SIMULATED_NODES if settings.nodes else _WITHOUT_NODES


def _own_command() -> str:
    """Return how this program is called in another terminal: by its name if the shell would find it."""
    program = Path(sys.argv[0])
    if program.name != "pinnace":
        return f"{shlex.quote(sys.executable)} -m pinnace.cli.main"
    found = shutil.which("pinnace")
    if found is not None and os.path.samefile(found, program):
        return "pinnace"
    return shlex.quote(str(program.absolute()))
