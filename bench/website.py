"""Measures the way of a newcomer: from `pinnace up` to the page of a Website that a controller in a pod has made.

python -m bench.website

It needs kubectl and namespaces. The environment exists; the cluster is new. The time has the start of the cluster, the
CRD, the controller with its sidecar, two containers of the site, and its Service.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTES = ROOT / "examples" / "11-notes"
STEPS = (
    f"apply -f {NOTES}/website-crd.yaml",
    "create serviceaccount website-controller",
    "create clusterrole websites --verb=get,list,watch --resource=websites.extensions.example.com",
    "create clusterrolebinding websites --clusterrole=websites --serviceaccount=default:website-controller",
    "create rolebinding website-controller --clusterrole=edit --serviceaccount=default:website-controller",
    f"apply -f {NOTES}/website-controller.yaml",
    f"apply -f {NOTES}/website.yaml",
)


def measure(place: Path) -> float:
    """Return the seconds until the page is served at the node port on loopback."""
    images = place / "data" / "node" / "images"
    images.mkdir(parents=True)
    table = subprocess.run([sys.executable, NOTES / "images" / "table.py"], capture_output=True, check=True)
    (images / "host-images").write_bytes(table.stdout)
    config = place / "kubeconfig"
    environment = os.environ | {"KUBECONFIG": str(config), "PINNACE_OFFLINE": "1", "PYTHONPATH": str(ROOT / "src")}
    flags = ["--node", "--host-image", "--port", "0"]
    flags += ["--data-dir", str(place / "data"), "--kubeconfig", str(config)]
    started = time.perf_counter()
    with (place / "log").open("wb") as log:
        command = [sys.executable, "-m", "pinnace.cli.main", "up", *flags]
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        while not config.exists():
            time.sleep(0.01)
        for step in STEPS:
            subprocess.run(["kubectl", *step.split()], env=environment, check=True, stdout=subprocess.DEVNULL)
        asking = ["kubectl", "get", "service", "kubia-website", "-o", "jsonpath={.spec.ports[0].nodePort}"]
        port = ""
        while not port:
            port = subprocess.run(asking, env=environment, capture_output=True, text=True).stdout
        while not _is_served(int(port)):
            time.sleep(0.02)
        return time.perf_counter() - started
    finally:
        server.terminate()
        server.wait()


def _is_served(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
        return b"Served from" in answer.read()
    return False


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pinnace-website-") as directory:
        print(f"website: from `pinnace up` to the served page in {measure(Path(directory)):.1f} s")


if __name__ == "__main__":
    main()
